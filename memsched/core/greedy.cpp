// Blocks placed one by one in an order, as GreedyPlanner.in_order of allocate/greedy.py places them, and ranges placed
// as they begin, as its sweep does.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <new>
#include <numeric>
#include <queue>
#include <set>
#include <utility>
#include <vector>

namespace {

enum Status { kPlaced = 0, kNoMemory = 1 };

// Lists of blocks are cut by where each one's begins.
struct Blocks {
  const int64_t *sizes, *alignments;
  const int32_t *near_begin, *near, *apart_begin, *apart;
  const int64_t *apart_low, *apart_high;
};

using Taken = std::vector<std::pair<int64_t, int64_t>>;

// Addresses that a block may not have lie strictly between the ends of each pair.
void find_taken(const Blocks& blocks, int32_t block, const int64_t* offsets, Taken* taken) {
  taken->clear();
  for (int32_t at = blocks.near_begin[block]; at < blocks.near_begin[block + 1]; ++at) {
    int32_t other = blocks.near[at];
    if (offsets[other] < 0) continue;
    taken->emplace_back(offsets[other] - blocks.sizes[block], offsets[other] + blocks.sizes[other]);
  }
  for (int32_t at = blocks.apart_begin[block]; at < blocks.apart_begin[block + 1]; ++at) {
    int64_t offset = offsets[blocks.apart[at]];
    if (offset >= 0) taken->emplace_back(offset + blocks.apart_low[at], offset + blocks.apart_high[at]);
  }
  std::sort(taken->begin(), taken->end());
}

int64_t address_between(const Taken& taken, int64_t alignment, bool tight) {
  int64_t address = 0, chosen = -1, smallest = -1;
  for (const auto& [low, high] : taken) {
    int64_t gap = low - address;
    if (gap >= 0 && (smallest < 0 || gap < smallest)) {
      chosen = address;
      smallest = gap;
      if (!tight) break;
    }
    if (high > address) address = (high + alignment - 1) / alignment * alignment;
  }
  return chosen >= 0 ? chosen : address;
}

// The free ranges of an arena without end: below the top as listed, above it all.
class Gaps {
 public:
  int64_t take(int64_t size, bool tight) {
    auto found = tight ? tightest(size) : lowest(size);
    if (found == ends_.end()) {
      // The last gap may reach the top: the buffer then starts inside it.
      int64_t begin = top_;
      if (!ends_.empty() && ends_.rbegin()->second == top_) {
        begin = ends_.rbegin()->first;
        remove(std::prev(ends_.end()));
      }
      top_ = begin + size;
      return begin;
    }
    auto [begin, end] = *found;
    remove(found);
    if (begin + size < end) add(begin + size, end);
    return begin;
  }

  void give(int64_t begin, int64_t size) {
    if (!size) return;
    int64_t end = begin + size;
    auto after = ends_.lower_bound(begin);
    if (after != ends_.end() && after->first == end) {
      end = after->second;
      after = remove(after);
    }
    if (after != ends_.begin()) {
      auto before = std::prev(after);
      if (before->second == begin) {
        begin = before->first;
        remove(before);
      }
    }
    add(begin, end);
  }

 private:
  using Ends = std::map<int64_t, int64_t>;

  Ends::iterator tightest(int64_t size) {
    auto found = by_size_.lower_bound({size, -1});
    return found == by_size_.end() ? ends_.end() : ends_.find(found->second);
  }

  Ends::iterator lowest(int64_t size) {
    return std::find_if(ends_.begin(), ends_.end(), [size](const auto& gap) { return gap.second - gap.first >= size; });
  }

  void add(int64_t begin, int64_t end) {
    ends_.emplace(begin, end);
    by_size_.emplace(end - begin, begin);
  }

  Ends::iterator remove(Ends::iterator gap) {
    by_size_.erase({gap->second - gap->first, gap->first});
    return ends_.erase(gap);
  }

  Ends ends_;
  std::set<std::pair<int64_t, int64_t>> by_size_;
  int64_t top_ = 0;
};

}  // namespace

// `offsets` holds the addresses that are taken already, -1 for none, and gets those of the blocks in `order`.
extern "C" int32_t memsched_greedy_order(const Blocks* blocks, const int32_t* order, int32_t count, int32_t tight,
                                         int64_t* offsets) {
  try {
    Taken taken;
    for (int32_t at = 0; at < count; ++at) {
      int32_t block = order[at];
      find_taken(*blocks, block, offsets, &taken);
      offsets[block] = address_between(taken, blocks->alignments[block], tight != 0);
    }
    return kPlaced;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}

// Half-open ranges of time and their bytes; `offsets` gets an address for each.
extern "C" int32_t memsched_sweep(const int64_t* begins, const int64_t* ends, const int64_t* sizes, int64_t count,
                                  int32_t tight, int64_t* offsets) {
  try {
    std::vector<int64_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      if (begins[a] != begins[b]) return begins[a] < begins[b];
      if (ends[a] != ends[b]) return ends[a] > ends[b];
      return sizes[a] > sizes[b];
    });
    using Ending = std::pair<int64_t, int64_t>;
    std::priority_queue<Ending, std::vector<Ending>, std::greater<Ending>> ending;
    Gaps gaps;
    for (int64_t index : order) {
      while (!ending.empty() && ending.top().first <= begins[index]) {
        int64_t gone = ending.top().second;
        ending.pop();
        gaps.give(offsets[gone], sizes[gone]);
      }
      offsets[index] = gaps.take(sizes[index], tight != 0);
      ending.emplace(ends[index], index);
    }
    return kPlaced;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}
