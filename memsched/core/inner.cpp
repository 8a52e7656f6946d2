// The best order inside a group of up to 64 tasks that is executed as one, as best_inner_order of fusion/inner.py finds
// it, state for state.

#include <algorithm>
#include <cstdint>
#include <new>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <vector>

namespace {

enum Status { kOrdered = 0, kGivenUp = 1, kNoMemory = 2 };

// Lists are cut by where each task's begins; excesses are numbers for tasks whose excess depends on nothing.
struct Group {
  int32_t tasks;
  const int64_t *gains, *excesses;
  const int32_t* losses_begin;
  const int64_t* losses;
  const uint64_t* losses_needs;
  const int32_t* falls_begin;
  const int64_t* falls;
  const uint64_t* falls_needs;
  const uint64_t* befores;
};

struct Entry {
  int64_t peak;
  int32_t left;
  uint64_t done, parent;
  int32_t last;
  int64_t residue;

  bool operator>(const Entry& other) const {
    return std::tie(peak, left, done, parent, last) > std::tie(other.peak, other.left, other.done, other.parent, other.last);
  }
};

struct Move {
  int64_t peak, change;
  uint64_t after;
  int32_t task;
};

int64_t less(int64_t value, int32_t from, int32_t to, const int64_t* sizes, const uint64_t* needs, uint64_t after) {
  for (int32_t at = from; at < to; ++at)
    if (!(needs[at] & ~after)) value -= sizes[at];
  return value;
}

Status best_order(const Group& group, int64_t most, int32_t* order, int64_t* peak, int64_t* states) {
  uint64_t everything = group.tasks == 64 ? ~uint64_t{0} : (uint64_t{1} << group.tasks) - 1;
  std::unordered_map<uint64_t, std::pair<uint64_t, int32_t>> parents;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<Entry>> heap;
  std::vector<Move> moves;
  heap.push({0, group.tasks, 0, 0, -1, 0});
  *peak = 0;
  for (*states = 0; *states < most;) {
    Entry entry = heap.top();
    heap.pop();
    *peak = entry.peak;
    if (!parents.emplace(entry.done, std::make_pair(entry.parent, entry.last)).second) continue;
    ++*states;
    if (entry.done == everything) {
      uint64_t done = everything;
      for (int32_t at = group.tasks; at-- > 0;) std::tie(done, order[at]) = parents[done];
      return kOrdered;
    }
    moves.clear();
    for (uint64_t rest = everything & ~entry.done; rest; rest &= rest - 1) {
      int32_t task = __builtin_ctzll(rest);
      if (group.befores[task] & ~entry.done) continue;
      uint64_t after = entry.done | uint64_t{1} << task;
      int64_t excess = less(group.excesses[task], group.falls_begin[task], group.falls_begin[task + 1], group.falls,
                            group.falls_needs, after);
      int64_t change = less(group.gains[task], group.losses_begin[task], group.losses_begin[task + 1], group.losses,
                            group.losses_needs, after);
      Move move{std::max(entry.peak, entry.residue + excess), change, after, task};
      bool safe = move.peak == entry.peak && change <= 0;
      if (safe) moves.clear();
      moves.push_back(move);
      if (safe) break;
    }
    for (const Move& move : moves)
      if (!parents.count(move.after))
        heap.push({move.peak, entry.left - 1, move.after, entry.done, move.task, entry.residue + move.change});
  }
  return kGivenUp;
}

}  // namespace

extern "C" int32_t memsched_inner_order(const Group* group, int64_t most, int32_t* order, int64_t* peak,
                                        int64_t* states) {
  try {
    return best_order(*group, most, order, peak, states);
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}
