// An attempt of the search for addresses in allocate/search.py, choice for choice: names are the same there.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <new>
#include <numeric>
#include <vector>

namespace {

constexpr int kPolledEvery = 256;
constexpr int64_t kUnlimited = int64_t{1} << 62;

enum Status { kFound = 0, kInfeasible = 1, kUnknown = 2, kStopped = 3, kNoMemory = 4 };
enum Rule { kForcedFirst = 0, kLowest = 1, kFewest = 2 };

using StopFunction = int32_t (*)();

// Lists of items are cut by where each one's begins.
struct Problem {
  int32_t items, sections, irregular;
  const int64_t *shifts, *widths, *above, *lowest, *highest, *alignments, *slack;
  const int32_t *fixed, *sections_begin, *sections_of, *meets_begin, *meets, *twins_begin, *twins;
};

struct Change {
  int32_t item;
  int64_t before;
};

// Changes from `begin` on are the step's own, up to where the next step's begin.
struct Step {
  int32_t item;
  size_t begin;
};

struct Range {
  int32_t begin, end;
};

int64_t floor_of(int64_t number, int64_t divisor) {
  int64_t quotient = number / divisor;
  return quotient - (number % divisor != 0 && (number < 0) != (divisor < 0));
}

// `Number` holds positions: where 32 bits are enough, loops over sections take twice as many at once, or more.
template <typename Number>
class PackingSearch {
 public:
  PackingSearch(const Problem& problem, int64_t capacity, int32_t rule, const double* prefer)
      : problem_(problem),
        capacity_(capacity),
        rule_(rule),
        lowest_(problem.lowest, problem.lowest + problem.items),
        placed_(problem.items),
        changed_(problem.items),
        ends_(problem.sections),
        floors_(problem.sections),
        room_(problem.sections),
        counts_(problem.sections),
        ready_(problem.sections),
        ready_ranks_(problem.sections) {
    positions.assign(problem.items, -1);
    for (int section = 0; section < problem.sections; ++section)
      room_[section] = static_cast<Number>(capacity + problem.slack[section]);
    for (int32_t item = 0; item < problem.items; ++item) change(item);
    find_ranges();
    find_ranks(prefer);
  }

  Status run(int64_t nodes, StopFunction stop) {
    int32_t left = problem_.items;
    bool feasible = fits();
    while (feasible && left) {
      ++made;
      if (made % kPolledEvery == 0 && stop()) return kStopped;
      if (made > nodes) return kUnknown;
      int32_t item = choose();
      trail_.push_back({item, changes_.size()});
      place(item);
      --left;
      feasible = fits();
      while (!feasible && !trail_.empty()) {
        Step step = trail_.back();
        trail_.pop_back();
        restore(step.begin);
        if (!placed_[step.item]) continue;
        ++left;
        positions[step.item] = -1;
        placed_[step.item] = 0;
        change(step.item);
        if (refuse(step.item)) {
          trail_.push_back({step.item, step.begin});
          feasible = fits();
        }
      }
    }
    return feasible ? kFound : kInfeasible;
  }

  std::vector<int64_t> positions;
  int64_t least = kUnlimited, made = 0;

 private:
  void find_ranges() {
    ranges_begin_.push_back(0);
    for (int32_t item = 0; item < problem_.items; ++item) {
      for (int at = problem_.sections_begin[item]; at < problem_.sections_begin[item + 1]; ++at) {
        int32_t section = problem_.sections_of[at];
        bool goes_on = static_cast<int32_t>(ranges_.size()) > ranges_begin_[item] && ranges_.back().end == section;
        if (goes_on)
          ++ranges_.back().end;
        else
          ranges_.push_back({section, section + 1});
      }
      ranges_begin_.push_back(static_cast<int32_t>(ranges_.size()));
    }
  }

  void find_ranks(const double* prefer) {
    std::vector<int32_t> items(problem_.items);
    std::iota(items.begin(), items.end(), 0);
    std::sort(items.begin(), items.end(), [&](int32_t one, int32_t other) { return prefer[one] < prefer[other]; });
    ranks_.resize(problem_.items);
    for (int32_t place = 0; place < problem_.items; ++place) {
      bool same = place && prefer[items[place]] == prefer[items[place - 1]];
      ranks_[items[place]] = same ? ranks_[items[place - 1]] : place;
    }
  }

  int64_t aligned(int32_t item, int64_t position) const {
    if (problem_.fixed[item]) return position;
    int64_t alignment = problem_.alignments[item], shift = problem_.shifts[item];
    return shift - floor_of(shift - position, alignment) * alignment;
  }

  // Notes that an item's place in the order is no longer known.
  void change(int32_t item) {
    if (!changed_[item]) changes_in_order_.push_back(item);
    changed_[item] = 1;
  }

  void lift(int32_t item, int64_t position) {
    changes_.push_back({item, lowest_[item]});
    lowest_[item] = static_cast<Number>(position);
    change(item);
  }

  void place(int32_t item) {
    positions[item] = lowest_[item];
    placed_[item] = 1;
    int64_t end = lowest_[item] + problem_.widths[item];
    for (int at = problem_.meets_begin[item]; at < problem_.meets_begin[item + 1]; ++at) {
      int32_t other = problem_.meets[at];
      if (lowest_[other] < end && !placed_[other]) lift(other, problem_.irregular ? aligned(other, end) : end);
    }
  }

  void restore(size_t begin) {
    for (; changes_.size() > begin; changes_.pop_back()) {
      lowest_[changes_.back().item] = static_cast<Number>(changes_.back().before);
      change(changes_.back().item);
    }
  }

  bool refuse(int32_t item) {
    if (problem_.fixed[item]) return false;
    int64_t rest = -1;
    for (int at = problem_.meets_begin[item]; at < problem_.meets_begin[item + 1]; ++at) {
      int32_t other = problem_.meets[at];
      if (placed_[other]) continue;
      int64_t end = lowest_[other] + problem_.widths[other];
      if (rest < 0 || end < rest) rest = end;
    }
    if (rest < 0) return false;
    rest = aligned(item, rest);
    if (lowest_[item] < rest) lift(item, rest);
    for (int at = problem_.twins_begin[item]; at < problem_.twins_begin[item + 1]; ++at) {
      int32_t twin = problem_.twins[at];
      if (!placed_[twin] && lowest_[twin] < rest) lift(twin, rest);
    }
    return true;
  }

  // Sorts the items that are not placed by lowest position: those that changed since the last time into the others.
  void sort() {
    auto before = [&](int32_t one, int32_t other) {
      return lowest_[one] != lowest_[other] ? lowest_[one] < lowest_[other] : one < other;
    };
    std::sort(changes_in_order_.begin(), changes_in_order_.end(), before);
    next_order_.clear();
    size_t next = 0, count = changes_in_order_.size();
    auto take_up_to = [&](int32_t item) {
      for (; next < count && (item < 0 || before(changes_in_order_[next], item)); ++next)
        if (!placed_[changes_in_order_[next]]) next_order_.push_back(changes_in_order_[next]);
    };
    for (int32_t item : order_) {
      if (changed_[item] || placed_[item]) continue;
      take_up_to(item);
      next_order_.push_back(item);
    }
    take_up_to(-1);
    for (int32_t item : changes_in_order_) changed_[item] = 0;
    changes_in_order_.clear();
    order_.swap(next_order_);
  }

  bool fits() {
    sort();
    std::fill(ends_.begin(), ends_.end(), 0);
    std::fill(floors_.begin(), floors_.end(), std::numeric_limits<Number>::max());
    for (int32_t item : order_) {
      int64_t low = lowest_[item], end = low + problem_.widths[item];
      if (low > problem_.highest[item]) return false;
      if (end + problem_.above[item] > capacity_) {
        least = std::min(least, end + problem_.above[item]);
        return false;
      }
      for (int at = ranges_begin_[item]; at < ranges_begin_[item + 1]; ++at) {
        Range range = ranges_[at];
        if (!stack(range, lowest_[item], static_cast<Number>(problem_.widths[item]))) continue;
        while (ends_[range.begin] <= room_[range.begin]) ++range.begin;
        least = std::min<int64_t>(least, capacity_ + ends_[range.begin] - room_[range.begin]);
        return false;
      }
    }
    return true;
  }

  // Stacks an item onto what lies in sections; whether that ends above the room of one of them.
  bool stack(Range range, Number low, Number width) {
    Number *__restrict ends = ends_.data(), *__restrict floors = floors_.data();
    const Number* __restrict room = room_.data();
    Number over = 0;
    for (int32_t section = range.begin; section < range.end; ++section) {
      Number end = (ends[section] > low ? ends[section] : low) + width;
      ends[section] = end;
      floors[section] = floors[section] < low ? floors[section] : low;
      over |= end > room[section];
    }
    return over;
  }

  int32_t choose() {
    size_t candidates = order_.size();
    bool full = false;
    for (int section = 0; section < problem_.sections; ++section) full |= ends_[section] >= room_[section];
    if (rule_ == kLowest || (rule_ == kForcedFirst && !full)) {
      Number bottom = lowest_[order_[0]];
      candidates = 0;
      while (candidates < order_.size() && lowest_[order_[candidates]] == bottom) ++candidates;
    }
    find_ready(candidates);
    int32_t best = -1;
    for (int32_t section = 0; section < problem_.sections; ++section)
      if (ready_[section] >= 0 && (best < 0 || before(section, best))) best = section;
    return ready_[best];
  }

  // Whether a section comes before another one, which has the smaller number.
  bool before(int32_t one, int32_t other) const {
    int64_t ranks[2][3];
    for (int which = 0; which < 2; ++which) {
      int32_t section = which ? other : one;
      bool forced = rule_ == kForcedFirst && counts_[section] == 1 && ends_[section] >= room_[section];
      int64_t floor = forced ? -1 : floors_[section], count = counts_[section];
      ranks[which][0] = rule_ == kFewest ? count : floor;
      ranks[which][1] = rule_ == kFewest ? floors_[section] : count;
      ranks[which][2] = -static_cast<int64_t>(ends_[section]);
    }
    return std::lexicographical_compare(ranks[0], ranks[0] + 3, ranks[1], ranks[1] + 3);
  }

  void find_ready(size_t candidates) {
    std::fill(counts_.begin(), counts_.end(), 0);
    std::fill(ready_.begin(), ready_.end(), -1);
    std::fill(ready_ranks_.begin(), ready_ranks_.end(), std::numeric_limits<Number>::max());
    for (size_t place = 0; place < candidates; ++place) {
      int32_t item = order_[place];
      bool is_ready = true;
      for (int at = ranges_begin_[item]; at < ranges_begin_[item + 1]; ++at)
        is_ready &= count(ranges_[at], lowest_[item]);
      for (int at = ranges_begin_[item]; is_ready && at < ranges_begin_[item + 1]; ++at) offer(ranges_[at], item);
    }
  }

  // Counts a candidate in the sections where it can lie lowest; whether it can in all of them.
  bool count(Range range, Number low) {
    Number* __restrict counts = counts_.data();
    const Number* __restrict floors = floors_.data();
    Number missed = 0;
    for (int32_t section = range.begin; section < range.end; ++section) {
      counts[section] += floors[section] == low;
      missed |= floors[section] != low;
    }
    return !missed;
  }

  void offer(Range range, int32_t item) {
    Number *__restrict ready = ready_.data(), *__restrict ready_ranks = ready_ranks_.data();
    Number rank = ranks_[item];
    for (int32_t section = range.begin; section < range.end; ++section) {
      bool better = rank < ready_ranks[section];
      ready[section] = better ? static_cast<Number>(item) : ready[section];
      ready_ranks[section] = better ? rank : ready_ranks[section];
    }
  }

  const Problem& problem_;
  int64_t capacity_;
  int32_t rule_;
  std::vector<int32_t> ranks_;
  std::vector<int32_t> ranges_begin_;
  std::vector<Range> ranges_;
  std::vector<Number> lowest_;
  std::vector<uint8_t> placed_, changed_;
  std::vector<int32_t> changes_in_order_;
  std::vector<Number> ends_, floors_, room_, counts_, ready_, ready_ranks_;
  std::vector<int32_t> order_, next_order_;
  std::vector<Change> changes_;
  std::vector<Step> trail_;
};

// Whether no position on the way reaches 2^31: what does not fit is at most lifted onto what just does.
bool is_small(const Problem& problem, int64_t capacity) {
  int64_t most = capacity, widest = 0;
  for (int32_t item = 0; item < problem.items; ++item) {
    most = std::max(most, problem.lowest[item]);
    widest = std::max(widest, problem.widths[item] + problem.alignments[item]);
  }
  for (int32_t section = 0; section < problem.sections; ++section) most = std::max(most, capacity + problem.slack[section]);
  return most < (1 << 28) && widest < (1 << 28);
}

template <typename Number>
Status search(const Problem& problem, int64_t capacity, int32_t rule, const double* prefer, int64_t nodes,
              StopFunction stop, int64_t* positions, int64_t* least, int64_t* made) {
  PackingSearch<Number> search(problem, capacity, rule, prefer);
  Status status = search.run(nodes, stop);
  std::copy(search.positions.begin(), search.positions.end(), positions);
  *least = search.least;
  *made = search.made;
  return status;
}

}  // namespace

extern "C" int32_t memsched_packing_attempt(const Problem* problem, int64_t capacity, int32_t rule,
                                            const double* prefer, int64_t nodes, StopFunction stop,
                                            int64_t* positions, int64_t* least, int64_t* made) {
  try {
    auto run = is_small(*problem, capacity) ? search<int32_t> : search<int64_t>;
    return run(*problem, capacity, rule, prefer, nodes, stop, positions, least, made);
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}
