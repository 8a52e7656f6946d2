// The two depth-first orders of very large graphs, as reverse_post_order of schedule/orders.py and walk_backwards of
// runtimes/onnxruntime/orders.py find them.

#include <cstdint>
#include <new>
#include <vector>

// Goes against the edges from the ops that no other needs, and leaves an op after all of its predecessors: in file
// order, or the last of the file first. Op i's predecessors, ascending, are befores[begins[i]] to befores[begins[i+1]].
// Returns 0, or 1 where memory is short.
extern "C" int32_t memsched_post_order(const int64_t* begins, const int64_t* befores, int64_t count,
                                       int32_t last_first, int64_t* order) {
  try {
    std::vector<uint8_t> needed(count), visited(count);
    for (int64_t at = 0; at < begins[count]; ++at) needed[befores[at]] = 1;
    std::vector<int64_t> seen(count), path;
    int64_t placed = 0;
    for (int64_t turn = 0; turn < count; ++turn) {
      int64_t sink = last_first ? count - 1 - turn : turn;
      if (needed[sink]) continue;
      path.push_back(sink);
      while (!path.empty()) {
        int64_t op = path.back(), own = begins[op + 1] - begins[op];
        if (seen[op] == own) {
          order[placed++] = op;
          path.pop_back();
          continue;
        }
        int64_t nth = seen[op]++;
        int64_t before = befores[last_first ? begins[op + 1] - 1 - nth : begins[op] + nth];
        if (!visited[before]) {
          visited[before] = 1;
          path.push_back(before);
        }
      }
    }
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}
