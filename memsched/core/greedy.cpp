// Blocks placed one by one in an order, as GreedyPlanner.in_order of allocate/greedy.py places them.

#include <algorithm>
#include <cstdint>
#include <new>
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
