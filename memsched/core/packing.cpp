// An attempt of the search for addresses in allocate/search.py, choice for choice: names are the same there.

#include <algorithm>
#include <cstdint>
#include <new>
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

struct Step {
  int32_t item;
  std::vector<Change> changes;
};

int64_t floor_of(int64_t number, int64_t divisor) {
  int64_t quotient = number / divisor;
  return quotient - (number % divisor != 0 && (number < 0) != (divisor < 0));
}

class PackingSearch {
 public:
  PackingSearch(const Problem& problem, int64_t capacity, int32_t rule, const double* prefer)
      : problem_(problem),
        capacity_(capacity),
        rule_(rule),
        prefer_(prefer),
        lowest_(problem.lowest, problem.lowest + problem.items),
        placed_(problem.items),
        ends_(problem.sections),
        floors_(problem.sections),
        next_ends_(problem.sections),
        next_floors_(problem.sections),
        counts_(problem.sections),
        ready_(problem.sections),
        room_(problem.sections) {
    positions.assign(problem.items, -1);
    for (int section = 0; section < problem.sections; ++section) room_[section] = capacity + problem.slack[section];
  }

  Status run(int64_t nodes, StopFunction stop) {
    int32_t left = problem_.items;
    bool feasible = fits();
    while (feasible && left) {
      ++made;
      if (made % kPolledEvery == 0 && stop()) return kStopped;
      if (made > nodes) return kUnknown;
      int32_t item = choose();
      trail_.push_back({item, place(item)});
      --left;
      feasible = fits();
      while (!feasible && !trail_.empty()) {
        Step step = std::move(trail_.back());
        trail_.pop_back();
        if (!placed_[step.item]) {
          restore(step.changes);
          continue;
        }
        ++left;
        positions[step.item] = -1;
        placed_[step.item] = 0;
        restore(step.changes);
        std::vector<Change> refusal;
        if (refuse(step.item, refusal)) {
          trail_.push_back({step.item, std::move(refusal)});
          feasible = fits();
        }
      }
    }
    return feasible ? kFound : kInfeasible;
  }

  std::vector<int64_t> positions;
  int64_t least = kUnlimited, made = 0;

 private:
  int64_t aligned(int32_t item, int64_t position) const {
    if (problem_.fixed[item]) return position;
    int64_t alignment = problem_.alignments[item], shift = problem_.shifts[item];
    return shift - floor_of(shift - position, alignment) * alignment;
  }

  std::vector<Change> place(int32_t item) {
    positions[item] = lowest_[item];
    placed_[item] = 1;
    int64_t end = lowest_[item] + problem_.widths[item];
    std::vector<Change> changes;
    for (int at = problem_.meets_begin[item]; at < problem_.meets_begin[item + 1]; ++at) {
      int32_t other = problem_.meets[at];
      if (lowest_[other] < end && !placed_[other]) {
        changes.push_back({other, lowest_[other]});
        lowest_[other] = end;
      }
    }
    if (problem_.irregular)
      for (const Change& change : changes) lowest_[change.item] = aligned(change.item, end);
    return changes;
  }

  void restore(const std::vector<Change>& changes) {
    for (const Change& change : changes) lowest_[change.item] = change.before;
  }

  bool refuse(int32_t item, std::vector<Change>& changes) {
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
    auto lift = [&](int32_t one) {
      if (!placed_[one] && lowest_[one] < rest) {
        changes.push_back({one, lowest_[one]});
        lowest_[one] = rest;
      }
    };
    lift(item);
    for (int at = problem_.twins_begin[item]; at < problem_.twins_begin[item + 1]; ++at) lift(problem_.twins[at]);
    return true;
  }

  bool fits() {
    next_order_.clear();
    for (int32_t item = 0; item < problem_.items; ++item)
      if (!placed_[item]) next_order_.push_back(item);
    std::sort(next_order_.begin(), next_order_.end(), [&](int32_t one, int32_t other) {
      return lowest_[one] != lowest_[other] ? lowest_[one] < lowest_[other] : one < other;
    });
    std::fill(next_ends_.begin(), next_ends_.end(), 0);
    std::fill(next_floors_.begin(), next_floors_.end(), -1);
    for (int32_t item : next_order_) {
      int64_t low = lowest_[item], width = problem_.widths[item], end = low + width;
      if (low > problem_.highest[item]) return false;
      if (end + problem_.above[item] > capacity_) {
        least = std::min(least, end + problem_.above[item]);
        return false;
      }
      for (int at = problem_.sections_begin[item]; at < problem_.sections_begin[item + 1]; ++at) {
        int32_t section = problem_.sections_of[at];
        int64_t current = next_ends_[section];
        current = current > low ? current + width : end;
        if (current > room_[section]) {
          least = std::min(least, capacity_ + current - room_[section]);
          return false;
        }
        next_ends_[section] = current;
        if (next_floors_[section] < 0) next_floors_[section] = low;
      }
    }
    order_.swap(next_order_);
    ends_.swap(next_ends_);
    floors_.swap(next_floors_);
    return true;
  }

  int32_t choose() {
    size_t candidates = order_.size();
    bool full = false;
    for (int section = 0; section < problem_.sections; ++section) full |= ends_[section] >= room_[section];
    if (rule_ == kLowest || (rule_ == kForcedFirst && !full)) {
      int64_t bottom = lowest_[order_[0]];
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
      ranks[which][2] = -ends_[section];
    }
    return std::lexicographical_compare(ranks[0], ranks[0] + 3, ranks[1], ranks[1] + 3);
  }

  void find_ready(size_t candidates) {
    std::fill(counts_.begin(), counts_.end(), 0);
    std::fill(ready_.begin(), ready_.end(), -1);
    for (size_t place = 0; place < candidates; ++place) {
      int32_t item = order_[place];
      int begin = problem_.sections_begin[item], end = problem_.sections_begin[item + 1];
      bool is_ready = true;
      for (int at = begin; at < end; ++at) {
        int32_t section = problem_.sections_of[at];
        if (floors_[section] != lowest_[item])
          is_ready = false;
        else
          ++counts_[section];
      }
      for (int at = begin; is_ready && at < end; ++at) {
        int32_t& best = ready_[problem_.sections_of[at]];
        if (best < 0 || prefer_[item] < prefer_[best]) best = item;
      }
    }
  }

  const Problem& problem_;
  int64_t capacity_;
  int32_t rule_;
  const double* prefer_;
  std::vector<int64_t> lowest_;
  std::vector<uint8_t> placed_;
  std::vector<int64_t> ends_, floors_, next_ends_, next_floors_;
  std::vector<int32_t> counts_, ready_, order_, next_order_;
  std::vector<int64_t> room_;
  std::vector<Step> trail_;
};

}  // namespace

extern "C" int32_t memsched_packing_attempt(const Problem* problem, int64_t capacity, int32_t rule,
                                            const double* prefer, int64_t nodes, StopFunction stop,
                                            int64_t* positions, int64_t* least, int64_t* made) {
  try {
    PackingSearch search(*problem, capacity, rule, prefer);
    Status status = search.run(nodes, stop);
    std::copy(search.positions.begin(), search.positions.end(), positions);
    *least = search.least;
    *made = search.made;
    return status;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}
