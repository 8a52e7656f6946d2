// The threshold search of threshold.py, state for state: safe moves, events and commits over bitsets of tasks.
//
// One file behind a C ABI. Excesses and the wish to stop are asked of the caller by function; all else is told at the
// beginning. threshold.py is the reference: names are the same, and so is every choice.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <queue>
#include <unordered_map>
#include <vector>

namespace {

constexpr int kAbi = 8;
constexpr int kPolledEvery = 1024;
constexpr int kDirectTable = 10;  // Shared buffers of a task up to which its excesses lie in an array.
constexpr int64_t kUnknown = INT64_MIN, kNever = INT64_MAX;

enum Ending { kPaused = 0, kFound = 1, kExhausted = 2, kStopped = 3, kNoMemory = 4, kFailed = 5 };

using ExcessFunction = int64_t (*)(int32_t task, uint64_t dying);
using StopFunction = int32_t (*)();

struct Failed {};

template <int W>
struct Bits {
  std::array<uint64_t, W> words{};

  bool test(int at) const { return words[at >> 6] >> (at & 63) & 1; }
  void set(int at) { words[at >> 6] |= uint64_t{1} << (at & 63); }
  void clear(int at) { words[at >> 6] &= ~(uint64_t{1} << (at & 63)); }
  bool any() const {
    uint64_t all = 0;
    for (uint64_t word : words) all |= word;
    return all != 0;
  }
  int count() const {
    int total = 0;
    for (uint64_t word : words) total += __builtin_popcountll(word);
    return total;
  }
  bool meets(const Bits& other) const {
    uint64_t all = 0;
    for (int i = 0; i < W; ++i) all |= words[i] & other.words[i];
    return all != 0;
  }
  bool within(const Bits& other) const {
    uint64_t outside = 0;
    for (int i = 0; i < W; ++i) outside |= words[i] & ~other.words[i];
    return outside == 0;
  }
  Bits operator|(const Bits& other) const {
    Bits result;
    for (int i = 0; i < W; ++i) result.words[i] = words[i] | other.words[i];
    return result;
  }
  Bits operator&(const Bits& other) const {
    Bits result;
    for (int i = 0; i < W; ++i) result.words[i] = words[i] & other.words[i];
    return result;
  }
  Bits minus(const Bits& other) const {
    Bits result;
    for (int i = 0; i < W; ++i) result.words[i] = words[i] & ~other.words[i];
    return result;
  }
  bool operator==(const Bits& other) const {
    uint64_t differing = 0;
    for (int i = 0; i < W; ++i) differing |= words[i] ^ other.words[i];
    return differing == 0;
  }
  bool operator<(const Bits& other) const {  // As numbers.
    for (int i = W - 1; i >= 0; --i)
      if (words[i] != other.words[i]) return words[i] < other.words[i];
    return false;
  }
  template <class Function>
  bool any_of(Function function) const {  // Ascending; ends at the first that is true.
    for (int i = 0; i < W; ++i)
      for (uint64_t word = words[i]; word; word &= word - 1)
        if (function(64 * i + __builtin_ctzll(word))) return true;
    return false;
  }
  template <class Function>
  void each(Function function) const {
    any_of([&](int at) {
      function(at);
      return false;
    });
  }
};

// States, numbered as they come, each with the number of the one it came from: in blocks that never move, found by open
// addressing over 32 bits of their hash and their number.
template <int W>
class States {
 public:
  States() : slots_(size_t{1} << 10) {}

  static constexpr uint32_t kKnown = UINT32_MAX;

  // Returns the number of a new state, kKnown for one that was there.
  uint32_t insert(const Bits<W>& state, uint32_t from) {
    if (10 * (uint64_t{count_} + 1) > 7 * slots_.size()) grow();
    uint64_t hash = hash_of(state);
    size_t at = place(state, hash);
    if (slots_[at]) return kKnown;
    if (count_ == kKnown - 1) throw std::bad_alloc();
    if (count_ % kBlock == 0) blocks_.emplace_back(new Entry[kBlock]);
    entry(count_) = {state, from};
    slots_[at] = (hash >> 32 << 32) | (count_ + 1);
    return count_++;
  }
  // Fetches what `insert` will look at first.
  void expect(const Bits<W>& state) const { __builtin_prefetch(&slots_[hash_of(state) & (slots_.size() - 1)]); }
  const Bits<W>& operator[](uint32_t number) const { return entry(number).state; }
  uint32_t from(uint32_t number) const { return entry(number).from; }

 private:
  static constexpr uint32_t kBlock = 1 << 12;

#pragma pack(push, 4)
  struct Entry {
    Bits<W> state;
    uint32_t from;
  };
#pragma pack(pop)

  Entry& entry(uint32_t number) const { return blocks_[number / kBlock][number % kBlock]; }

  static uint64_t hash_of(const Bits<W>& state) {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (uint64_t word : state.words) {
      hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
      hash ^= hash >> 32;
    }
    return hash;
  }
  size_t place(const Bits<W>& state, uint64_t hash) const {
    size_t mask = slots_.size() - 1, at = hash & mask;
    while (slots_[at] && !(slots_[at] >> 32 == hash >> 32 && entry(uint32_t(slots_[at]) - 1).state == state))
      at = (at + 1) & mask;
    return at;
  }
  void grow() {
    std::vector<uint64_t> slots(2 * slots_.size());
    size_t mask = slots.size() - 1;
    for (uint32_t number = 0; number < count_; ++number) {
      uint64_t hash = hash_of(entry(number).state);
      size_t at = hash & mask;
      while (slots[at]) at = (at + 1) & mask;
      slots[at] = (hash >> 32 << 32) | (number + 1);
    }
    slots_.swap(slots);
  }

  std::vector<uint64_t> slots_;
  std::vector<std::unique_ptr<Entry[]>> blocks_;
  uint32_t count_ = 0;
};

// What the Python side tells at the beginning; sets are arrays of words, lists are cut by where each task's begins.
struct Problem {
  int32_t tasks, words, last_reader;
  const uint64_t *needs, *after, *risers;
  const int32_t* shared_begin;
  const uint64_t* others;
  const int64_t* sizes;
  const int64_t *change, *rise, *above;
  const uint64_t* needed;
  const int32_t* meeting_begin;
  const uint64_t* meeting;
  int64_t residue;
  ExcessFunction excess;
  StopFunction stop;
};

class Search {
 public:
  virtual ~Search() = default;
  virtual Ending run(int64_t threshold, int64_t upper_bound, int64_t budget) = 0;
  virtual int64_t chain(uint64_t* words) const = 0;
  int64_t threshold = 0, states = 0;
};

template <int W>
class ThresholdSearch final : public Search {
 public:
  explicit ThresholdSearch(const Problem& given)
      : tasks_(given.tasks),
        last_reader_(given.last_reader != 0),
        excess_function_(given.excess),
        stop_function_(given.stop),
        needs_(read(given.needs, given.tasks, given)),
        after_(read(given.after, given.tasks, given)),
        shared_begin_(given.shared_begin, given.shared_begin + given.tasks + 1),
        others_(read(given.others, shared_begin_.back(), given)),
        sizes_(given.sizes, given.sizes + shared_begin_.back()),
        change_(given.change, given.change + given.tasks),
        rise_(given.rise, given.rise + given.tasks),
        above_(given.above, given.above + given.tasks),
        needed_(read(given.needed, given.tasks, given)),
        meeting_begin_(given.meeting_begin, given.meeting_begin + shared_begin_.back() + 1),
        meeting_(read(given.meeting, meeting_begin_.back(), given)),
        meets_(given.tasks),
        risers_(read(given.risers, 1, given)[0]),
        direct_(given.tasks),
        rare_(given.tasks) {
    for (int task = 0; task < tasks_; ++task) {
      full_.set(task);
      int begin = shared_begin_[task], end = shared_begin_[task + 1];
      if (end - begin <= kDirectTable) direct_[task].assign(size_t{1} << (end - begin), kUnknown);
      int64_t least = change_[task];
      for (int at = begin; at < end; ++at) {
        meets_[task] = meets_[task] | others_[at];
        if (last_reader_) least -= sizes_[at];
      }
      if (least <= 0) falling_.set(task);
    }
    stack_.push_back({origins_.insert(last_, 0), given.residue, -1});
  }

  Ending run(int64_t given, int64_t upper_bound, int64_t budget) override {
    upper_bound_ = upper_bound;
    if (upper_bound >= 0 && given >= upper_bound) return kExhausted;
    if (given > threshold) {
      threshold = given;
      release();
    }
    int64_t end = states + budget;
    while (true) {
      while (!stack_.empty()) {
        if (states >= end) return kPaused;
        if (states % kPolledEvery == 0 && stop_function_()) return kStopped;
        Waiting next = stack_.back();
        stack_.pop_back();
        if (expand(next)) return kFound;
      }
      if (deferred_.empty()) return kExhausted;
      threshold = deferred_.front().least;
      if (upper_bound >= 0 && threshold >= upper_bound) return kExhausted;
      release();
    }
  }

  // Writes the states from the end back to the empty one, if there is room to, and returns how many they are.
  int64_t chain(uint64_t* words) const override {
    int64_t count = 0;
    auto put = [&](const Bits<W>& state) {
      if (words) std::memcpy(words + count * W, state.words.data(), sizeof(uint64_t) * W);
      ++count;
    };
    if (!(last_ == full_)) put(full_);
    for (uint32_t state = last_number_; state; state = origins_.from(state)) put(origins_[state]);
    put(origins_[0]);
    return count;
  }

 private:
  struct OpenState {
    Bits<W> taken, ready;
    int64_t residue, expanded_to;
  };
  struct Waiting {
    uint32_t state;
    int64_t residue, expanded_to;
  };
  struct Deferred {
    int64_t least, number;
    Waiting state;
  };
  struct Child {
    int64_t residue, need;
    Bits<W> taken;
    bool operator<(const Child& other) const {
      if (residue != other.residue) return residue < other.residue;
      if (need != other.need) return need < other.need;
      return other.taken < taken;
    }
  };
  struct Look {
    int64_t change, excess;
  };
  static bool later(const Deferred& one, const Deferred& other) {
    return one.least != other.least ? one.least > other.least : one.number > other.number;
  }

  static std::vector<Bits<W>> read(const uint64_t* from, int count, const Problem& given) {
    std::vector<Bits<W>> sets(count);
    for (int at = 0; at < count; ++at)
      std::memcpy(sets[at].words.data(), from + int64_t{at} * given.words, sizeof(uint64_t) * given.words);
    return sets;
  }

  void release() {
    while (!deferred_.empty() && deferred_.front().least <= threshold) {
      std::pop_heap(deferred_.begin(), deferred_.end(), later);
      stack_.push_back(deferred_.back().state);
      deferred_.pop_back();
    }
  }

  bool expand(const Waiting& next) {
    ++states;
    uint32_t number = next.state;
    OpenState state{origins_[number], {}, next.residue, next.expanded_to};
    full_.minus(state.taken).each([&](int task) {
      if (needs_[task].within(state.taken)) state.ready.set(task);
    });
    if (take_safe(state)) {
      state.expanded_to = -1;
      number = origins_.insert(state.taken, number);
      if (number == States<W>::kKnown) return false;
    }
    last_ = state.taken;
    last_number_ = number;
    int64_t least = kNever;  // Of the thresholds that are needed and too high.
    Bits<W> rest = full_.minus(state.taken);
    int64_t residue = after_risers(state.residue, rest, full_);
    if (residue != kUnknown) {
      least = need_of(rest, residue);
      if (least <= threshold) return true;
    }
    // What the caller's bound cuts off need not be known exactly.
    if (upper_bound_ >= 0) least = std::min(least, upper_bound_);
    children(state, least);
    if (committed_) {
      found_.assign(1, commit_);
    } else if (least != kNever && (upper_bound_ < 0 || least < upper_bound_)) {
      deferred_.push_back({least, states, {number, state.residue, threshold}});
      std::push_heap(deferred_.begin(), deferred_.end(), later);
    }
    for (const Child& child : found_) origins_.expect(child.taken);
    std::sort(found_.begin(), found_.end());
    for (auto child = found_.rbegin(); child != found_.rend(); ++child) {
      uint32_t added = origins_.insert(child->taken, number);
      if (added != States<W>::kKnown) stack_.push_back({added, child->residue, -1});
    }
    return false;
  }

  // Takes all safe moves, whose set does not depend on their order, and returns whether there are any.
  bool take_safe(OpenState& state) {
    bool moved = false;
    while ((state.ready & falling_).any_of([&](int task) {
      Look look = look_at(task, state.taken);
      if (look.change > 0 || state.residue + look.excess > threshold) return false;
      state.taken.set(task);
      state.residue += look.change;
      state.ready.clear(task);
      state.ready = state.ready | unlocked(after_[task], state.taken);
      return moved = true;
    })) {
    }
    return moved;
  }

  Look look_at(int task, const Bits<W>& taken) {
    int begin = shared_begin_[task], count = shared_begin_[task + 1] - begin;
    uint64_t dying = 0;
    int64_t change = change_[task];
    for (int place = 0; place < count; ++place) {
      const Bits<W>& others = others_[begin + place];
      if (last_reader_ ? others.within(taken) : !others.meets(taken)) {
        dying |= uint64_t{1} << place;
        change += last_reader_ ? -sizes_[begin + place] : sizes_[begin + place];
      }
    }
    return {change, excess(task, dying)};
  }

  int64_t excess(int task, uint64_t dying) {
    if (!direct_[task].empty()) {
      int64_t& known = direct_[task][dying];
      return known != kUnknown ? known : known = ask(task, dying);
    }
    auto found = rare_[task].find(dying);
    if (found != rare_[task].end()) return found->second;
    return rare_[task][dying] = ask(task, dying);
  }

  int64_t ask(int task, uint64_t dying) {
    int64_t answer = excess_function_(task, dying);
    if (answer == kUnknown) throw Failed();
    return answer;
  }

  Bits<W> unlocked(const Bits<W>& candidates, const Bits<W>& taken) const {
    Bits<W> result;
    candidates.minus(taken).each([&](int task) {
      if (needs_[task].within(taken)) result.set(task);
    });
    return result;
  }

  // Fills firsts_ with what may be taken before an event: what it needs, and what gives it deaths.
  void find_firsts(int task, const Bits<W>& taken, const Bits<W>& within) {
    Bits<W> least = taken | needed_[task];
    firsts_.assign(1, needed_[task].minus(taken));
    for (int at = shared_begin_[task]; at < shared_begin_[task + 1]; ++at) {
      if (!last_reader_ && others_[at].meets(least)) continue;
      // As a product runs: the choices of the last buffer change fastest.
      joined_.clear();
      for (const Bits<W>& one : firsts_) {
        joined_.push_back(one);
        for (int set = meeting_begin_[at]; set < meeting_begin_[at + 1]; ++set)
          if (meeting_[set].within(within) && !meeting_[set].within(least))
            joined_.push_back(one | meeting_[set].minus(taken));
      }
      firsts_.swap(joined_);
    }
    if (firsts_.size() < 3) return;  // The second one holds more than the first.
    joined_.clear();
    for (const Bits<W>& one : firsts_)
      if (std::find(joined_.begin(), joined_.end(), one) == joined_.end()) joined_.push_back(one);
    firsts_.swap(joined_);
  }

  // Fills found_, and commit_ where committed_ is set; lowers the least of the thresholds that are too high.
  void children(const OpenState& state, int64_t& least) {
    found_.clear();
    committed_ = false;
    int64_t lightest = kUnknown;
    Bits<W> risers, reach;
    within_risers(state, risers, reach);
    Bits<W> within = state.taken | risers;
    reach.each([&](int task) {
      find_firsts(task, state.taken, within);
      for (const Bits<W>& first : firsts_) {
        Child child;
        int64_t over;
        if (!event(state, task, first, least, child, over)) continue;
        if (child.need > threshold) {
          least = std::min(least, child.need);
          continue;
        }
        lightest = lightest == kUnknown ? over : std::min(lightest, over);
        if (child.residue <= state.residue &&
            (!committed_ || child.residue < commit_.residue ||
             (child.residue == commit_.residue && child.taken.count() < commit_.taken.count()))) {
          committed_ = true;
          commit_ = child;
        }
        if (child.need > state.expanded_to) found_.push_back(child);
      }
    });
    if (!committed_ && lightest != kUnknown) heavy_risers(state, risers, lightest, least);
  }

  void heavy_risers(const OpenState& state, const Bits<W>& risers, int64_t lightest, int64_t& least) {
    risers.each([&](int task) {
      if (above_[task] <= lightest) return;
      Bits<W> both = needed_[task].minus(state.taken);
      if (both.any_of([&](int other) { return above_[other] > above_[task]; })) return;
      both.set(task);
      Bits<W> taken = state.taken | both;
      int64_t residue = after_risers(state.residue, both, taken);
      if (residue == kUnknown) return;
      int64_t need = need_of(both, residue);
      if (need <= threshold)
        found_.push_back({residue, need, taken});
      else
        least = std::min(least, need);
    });
  }

  void within_risers(const OpenState& state, Bits<W>& risers, Bits<W>& reach) const {
    reach = state.ready;
    Bits<W> latest = state.ready;
    while (true) {
      Bits<W> more;
      (latest & risers_).each([&](int task) {
        if (pure(task, state.taken)) more.set(task);
      });
      if (!more.any()) return;
      risers = risers | more;
      Bits<W> candidates;
      more.each([&](int task) { candidates = candidates | after_[task]; });
      latest = unlocked(candidates.minus(reach), state.taken | risers);
      reach = reach | latest;
    }
  }

  // Whether nothing about a task depends on what is taken; once it does, it goes on to.
  bool pure(int task, const Bits<W>& taken) const {
    if (!last_reader_) return !meets_[task].meets(taken);
    for (int at = shared_begin_[task]; at < shared_begin_[task + 1]; ++at)
      if (others_[at].within(taken)) return false;
    return true;
  }

  bool event(const OpenState& state, int task, const Bits<W>& first, int64_t least, Child& child, int64_t& over) {
    child.taken = state.taken | first;
    if (risers_.test(task) && pure(task, child.taken)) return false;
    Look look = look_at(task, child.taken);
    int64_t level = state.residue + look.excess;
    first.each([&](int riser) { level += rise_[riser]; });
    // Whether it is one does not matter then.
    if (level > threshold && level >= least) return false;
    int64_t residue = after_risers(state.residue, first, child.taken);
    if (residue == kUnknown) return false;
    child.need = std::max(residue + look.excess, need_of(first, residue));
    child.residue = residue + look.change;
    child.taken.set(task);
    over = look.excess - look.change;
    return true;
  }

  int64_t after_risers(int64_t residue, const Bits<W>& risers, const Bits<W>& together) const {
    if (!risers.within(risers_)) return kUnknown;
    bool event = risers.any_of([&](int task) {
      residue += rise_[task];
      return !pure(task, together);
    });
    return event ? kUnknown : residue;
  }

  int64_t need_of(Bits<W> risers, int64_t residue) const {
    int64_t need = 0;
    while (risers.any()) {
      int last = -1;
      risers.each([&](int task) {
        if ((last < 0 || above_[task] < above_[last]) && !after_[task].meets(risers)) last = task;
      });
      need = std::max(need, residue + above_[last]);
      residue -= rise_[last];
      risers.clear(last);
    }
    return need;
  }

  int tasks_;
  bool last_reader_;
  ExcessFunction excess_function_;
  StopFunction stop_function_;
  std::vector<Bits<W>> needs_, after_;
  std::vector<int32_t> shared_begin_;
  std::vector<Bits<W>> others_;
  std::vector<int64_t> sizes_, change_, rise_, above_;
  std::vector<Bits<W>> needed_;
  std::vector<int32_t> meeting_begin_;
  std::vector<Bits<W>> meeting_;
  std::vector<Bits<W>> meets_;  // Per task all others that read one of its shared buffers.
  Bits<W> risers_, falling_, full_, last_;  // falling_: tasks that can lower the residue.
  uint32_t last_number_ = 0;
  std::vector<std::vector<int64_t>> direct_;
  std::vector<std::unordered_map<uint64_t, int64_t>> rare_;
  States<W> origins_;
  std::vector<Waiting> stack_;
  std::vector<Deferred> deferred_;
  std::vector<Child> found_;
  std::vector<Bits<W>> firsts_, joined_;
  Child commit_{};
  bool committed_ = false;
  int64_t upper_bound_ = -1;
};

}  // namespace

extern "C" {

int32_t memsched_abi() { return kAbi; }

// Returns null where memory is short, or the words of a set are none of 1, 2, 3, 4, 6 and 8.
void* memsched_threshold_new(const Problem* problem) {
  try {
    switch (problem->words) {
      case 1: return static_cast<Search*>(new ThresholdSearch<1>(*problem));
      case 2: return static_cast<Search*>(new ThresholdSearch<2>(*problem));
      case 3: return static_cast<Search*>(new ThresholdSearch<3>(*problem));
      case 4: return static_cast<Search*>(new ThresholdSearch<4>(*problem));
      case 6: return static_cast<Search*>(new ThresholdSearch<6>(*problem));
      case 8: return static_cast<Search*>(new ThresholdSearch<8>(*problem));
      default: return nullptr;
    }
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

int32_t memsched_threshold_run(void* search, int64_t threshold, int64_t upper_bound, int64_t budget) {
  try {
    return static_cast<Search*>(search)->run(threshold, upper_bound, budget);
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  } catch (const Failed&) {
    return kFailed;
  }
}

int64_t memsched_threshold_states(const void* search) { return static_cast<const Search*>(search)->states; }

int64_t memsched_threshold_threshold(const void* search) { return static_cast<const Search*>(search)->threshold; }

int64_t memsched_threshold_chain(const void* search, uint64_t* words) {
  return static_cast<const Search*>(search)->chain(words);
}

void memsched_threshold_free(void* search) { delete static_cast<Search*>(search); }
}
