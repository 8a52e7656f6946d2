// The search for addresses in allocate/rebuild.py, choice for choice: names are the same there.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <new>
#include <vector>

namespace {

constexpr int kPolledEvery = 256;
constexpr int32_t kMostDrawn = 23;
constexpr int32_t kPassedOver = 64;
constexpr int64_t kSmall = int64_t{1} << 28;

enum Status { kFound = 0, kUnknown = 2, kStopped = 3, kNoMemory = 4 };
enum Rule { kByChance = 0, kByArea = 1, kByWidth = 2, kByAbsence = 3, kRules = 4 };

using StopFunction = int32_t (*)();

// Lists of items are cut by where each one's begins; ranges of sections are pairs of a first one and an end.
struct Problem {
  int32_t items, sections;
  const int64_t *widths, *above, *lowest;
  const int32_t *areas, *sizes, *ranges_begin, *ranges, *meets_begin, *meets;
};

// Numbers by chance: SplitMix64 (Steele, Lea and Flood 2014).
class Chance {
 public:
  explicit Chance(uint64_t state) : state_(state) {}

  int32_t below(int32_t count) {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t mixed = state_;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EBu;
    mixed ^= mixed >> 31;
    return static_cast<int32_t>((mixed >> 32) * static_cast<uint64_t>(count) >> 32);
  }

 private:
  uint64_t state_;
};

template <typename Number>
struct Raise {
  Number least, after, before;
};

// Raises and marks what meets an item and lies after one place and before another; how many it marked. What is true
// has all bits, so that there are no jumps and many are compared at once.
template <typename Number>
Number raised(int32_t count, const Number* __restrict meeting, const Number* __restrict places, Raise<Number> wanted,
              Number* __restrict numbers, Number* __restrict marked) {
  const Number least = wanted.least, after = wanted.after, before = wanted.before;
  Number made = 0;
  for (int32_t other = 0; other < count; ++other) {
    Number now = meeting[other] & -Number(places[other] > after) & -Number(places[other] < before);
    now &= -Number(numbers[other] < least);
    numbers[other] = (numbers[other] & ~now) | (least & now);
    made -= now & ~marked[other];
    marked[other] |= now;
  }
  return made;
}

// `Number` holds positions, in 32 bits where those are enough.
template <typename Number>
class Rebuilding {
 public:
  Rebuilding(const Problem& problem, int64_t capacity, uint64_t chance)
      : problem_(problem),
        capacity_(capacity),
        chance_(chance),
        widths_(problem.widths, problem.widths + problem.items),
        highs_(problem.items),
        reaches_(problem.items + 1),
        ends_(problem.sections),
        places_(problem.items),
        marked_(problem.items),
        meeting_(static_cast<size_t>(problem.items) * problem.items),
        absences_(problem.items, 1),
        near_(problem.items + 1) {
    lows.resize(problem.items);
    for (int32_t item = 0; item < problem.items; ++item) {
      left_.push_back(item);
      for (int at = problem.meets_begin[item]; at < problem.meets_begin[item + 1]; ++at)
        meeting_[static_cast<size_t>(item) * problem.items + problem.meets[at]] = -1;
    }
  }

  Status run(int64_t nodes, StopFunction stop) {
    while (true) {
      std::vector<int32_t> again = take_out();
      stack();
      arrange(again);
      std::vector<int32_t> missed;
      int64_t known = absent(left_), sum = 0;
      bool given_up = false;
      for (int32_t item : again) {
        if (made >= nodes) return kUnknown;
        ++made;
        if (made % kPolledEvery == 0 && stop()) return kStopped;
        if (insert(item)) continue;
        missed.push_back(item);
        sum += absences_[item];
        given_up = sum > known && missed.size() >= left_.size();
        if (given_up) break;
      }
      if (given_up) continue;
      if (missed.empty()) return kFound;
      bool better = missed.size() < left_.size() || sum <= known;
      for (int32_t item : missed) ++absences_[item];
      if (!better) continue;
      order_ = trial_;
      left_ = missed;
    }
  }

  std::vector<Number> lows;
  int64_t made = 0;

 private:
  int64_t absent(const std::vector<int32_t>& items) const {
    int64_t sum = 0;
    for (int32_t item : items) sum += absences_[item];
    return sum;
  }

  std::vector<int32_t> take_out() {
    std::vector<int32_t> out = left_;
    for (int32_t item : out) marked_[item] = 1;
    int32_t about = chance_.below(2) ? left_[chance_.below(static_cast<int32_t>(left_.size()))] : -1;
    const int32_t* meets = about < 0 ? nullptr : problem_.meets + problem_.meets_begin[about];
    int32_t count = about < 0 ? problem_.items : problem_.meets_begin[about + 1] - problem_.meets_begin[about];
    for (int32_t draws = count ? 1 + chance_.below(kMostDrawn) : 0; draws; --draws) {
      int32_t drawn = chance_.below(count), item = meets ? meets[drawn] : drawn;
      if (!marked_[item]) out.push_back(item);
      marked_[item] = 1;
    }
    trial_.clear();
    for (int32_t item : order_)
      if (!marked_[item]) trial_.push_back(item);
    for (int32_t item : out) marked_[item] = 0;
    return out;
  }

  // Finds how low and how high the items of the trial can lie.
  void stack() {
    std::fill(places_.begin(), places_.end(), -1);
    for (size_t place = 0; place < trial_.size(); ++place) places_[trial_[place]] = static_cast<int32_t>(place);
    std::fill(ends_.begin(), ends_.end(), 0);
    for (int32_t item : trial_) lows[item] = stacked(item, static_cast<Number>(problem_.lowest[item]));
    std::fill(ends_.begin(), ends_.end(), std::numeric_limits<Number>::min());
    for (auto item = trial_.rbegin(); item != trial_.rend(); ++item)
      highs_[*item] = stacked(*item, static_cast<Number>(problem_.above[*item]));
  }

  Number stacked(int32_t item, Number least) {
    Number* __restrict ends = ends_.data();
    for (int at = problem_.ranges_begin[item]; at < problem_.ranges_begin[item + 1]; ++at)
      for (int32_t one = problem_.ranges[2 * at]; one < problem_.ranges[2 * at + 1]; ++one)
        least = ends[one] > least ? ends[one] : least;
    Number end = least + widths_[item];
    for (int at = problem_.ranges_begin[item]; at < problem_.ranges_begin[item + 1]; ++at)
      for (int32_t one = problem_.ranges[2 * at]; one < problem_.ranges[2 * at + 1]; ++one) ends[one] = end;
    return least;
  }

  void arrange(std::vector<int32_t>& items) {
    int32_t rule = chance_.below(kRules);
    for (size_t count = items.size(); count > 1; --count)
      std::swap(items[count - 1], items[chance_.below(static_cast<int32_t>(count))]);
    auto sort = [&](auto key) {
      std::stable_sort(items.begin(), items.end(), [&](int32_t one, int32_t other) { return key(one) < key(other); });
    };
    if (rule == kByArea) sort([&](int32_t item) { return problem_.areas[item]; });
    if (rule == kByWidth) sort([&](int32_t item) { return problem_.sizes[item]; });
    if (rule == kByAbsence) sort([&](int32_t item) { return -absences_[item]; });
  }

  bool insert(int32_t item) {
    const Number* meeting = &meeting_[static_cast<size_t>(item) * problem_.items];
    int32_t count = 0, length = static_cast<int32_t>(trial_.size());
    for (int32_t other : trial_) {
      near_[count] = other;
      count -= static_cast<int32_t>(meeting[other]);
    }
    reaches_[count] = static_cast<Number>(problem_.above[item]);
    for (int32_t gap = count - 1; gap >= 0; --gap)
      reaches_[gap] = std::max(reaches_[gap + 1], highs_[near_[gap]] + widths_[near_[gap]]);
    Number low = static_cast<Number>(problem_.lowest[item]), least = 0, best_low = 0;
    int32_t best = -1, ties = 0;
    for (int32_t gap = 0; gap <= count; ++gap) {
      if (gap) low = std::max(low, lows[near_[gap - 1]] + widths_[near_[gap - 1]]);
      Number through = low + widths_[item] + reaches_[gap];
      if (through > capacity_ || chance_.below(kPassedOver) == 0) continue;
      if (best >= 0 && through > least) continue;
      ties = best >= 0 && through == least ? ties + 1 : 1;
      if (ties > 1 && chance_.below(ties)) continue;
      least = through;
      best_low = low;
      best = gap;
    }
    if (best < 0) return false;
    int32_t place = best ? static_cast<int32_t>(places_[near_[best - 1]]) + 1 : 0;
    trial_.insert(trial_.begin() + place, item);
    for (; length >= place; --length) places_[trial_[length]] = length;
    lows[item] = best_low;
    highs_[item] = reaches_[best];
    lift(place);
    hold_down(place);
    return true;
  }

  // Lifts what lies on the item at `place` of the trial, and what that lifts.
  void lift(int32_t place) {
    marked_[trial_[place]] = -1;
    for (Number waiting = 1; waiting; ++place) {
      int32_t item = trial_[place];
      if (!marked_[item]) continue;
      marked_[item] = 0;
      waiting += raise(item, lows[item] + widths_[item], place, problem_.items, lows) - 1;
    }
  }

  // Tells what lies below the item at `place` how much there is above, and what lies below that.
  void hold_down(int32_t place) {
    marked_[trial_[place]] = -1;
    for (Number waiting = 1; waiting; --place) {
      int32_t item = trial_[place];
      if (!marked_[item]) continue;
      marked_[item] = 0;
      waiting += raise(item, highs_[item] + widths_[item], -1, place, highs_) - 1;
    }
  }

  Number raise(int32_t item, Number least, Number after, Number before, std::vector<Number>& numbers) {
    const Number* meeting = &meeting_[static_cast<size_t>(item) * problem_.items];
    return raised(problem_.items, meeting, places_.data(), {least, after, before}, numbers.data(), marked_.data());
  }

  const Problem& problem_;
  int64_t capacity_;
  Chance chance_;
  std::vector<Number> widths_, highs_, reaches_, ends_, places_, marked_, meeting_;
  std::vector<int64_t> absences_;
  std::vector<int32_t> near_, left_, order_, trial_;
};

bool is_small(const Problem& problem, int64_t capacity) {
  int64_t most = capacity;
  for (int32_t item = 0; item < problem.items; ++item)
    most = std::max({most, problem.widths[item], problem.lowest[item], std::abs(problem.above[item])});
  return most < kSmall;
}

template <typename Number>
Status rebuild(const Problem& problem, int64_t capacity, uint64_t chance, int64_t nodes, StopFunction stop,
               int64_t* positions, int64_t* made) {
  Rebuilding<Number> rebuilding(problem, capacity, chance);
  Status status = rebuilding.run(nodes, stop);
  std::copy(rebuilding.lows.begin(), rebuilding.lows.end(), positions);
  *made = rebuilding.made;
  return status;
}

}  // namespace

extern "C" int32_t memsched_rebuild(const Problem* problem, int64_t capacity, uint64_t chance, int64_t nodes,
                                    StopFunction stop, int64_t* positions, int64_t* made) {
  try {
    auto run = is_small(*problem, capacity) ? rebuild<int32_t> : rebuild<int64_t>;
    return run(*problem, capacity, chance, nodes, stop, positions, made);
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}
