// The monotonic fusions of a whole graph as fusion/monotonic.py makes them, one for one and with the same work; names
// are the same there and in fusion/quotient.py.

#include <algorithm>
#include <cstdint>
#include <new>
#include <set>
#include <utility>
#include <vector>

namespace {

enum Ending { kDone = 0, kNoMemory = 1, kNoRoom = 2 };
enum Fate { kDies = 0, kFree = 1, kAlive = 2 };

constexpr size_t kManyUsers = 256;
constexpr int64_t kPolledAfter = 20000;

using StopFunction = int32_t (*)();
using Set = std::set<int32_t>;

// Lists are cut by where each one's begins.
struct Ops {
  int32_t ops, buffers, reachable;
  int64_t budget;
  const int64_t *sizes, *top;
  const int32_t *kept, *preds_begin, *preds, *creates_begin, *creates, *reads_begin, *reads;
  const int32_t *pairs_begin, *created, *taken;
};

// A list of numbers that Python has made room for.
struct Lists {
  int32_t *begin, *numbers;
  int32_t most;
};

struct Fused {
  Lists members, preds, succs, users, creates, reads, before;
  int64_t* top;
  int32_t* pairs_left;
  int64_t work, fusions;
};

struct Pair {
  int32_t created, read, place;
};

class Quotient {
 public:
  Quotient(const Ops& given, StopFunction stop)
      : given_(given),
        stop_(stop),
        members_(given.ops),
        preds_(given.ops),
        succs_(given.ops),
        creates_(given.ops),
        reads_(given.ops),
        before_(given.ops),
        users_(given.buffers),
        pairs_(given.ops),
        top_(given.top, given.top + given.ops),
        next_(given.ops, -1) {
    for (int32_t op = 0; op < given.ops; ++op) {
      members_[op] = {op, op};
      for (int32_t at = given.preds_begin[op]; at < given.preds_begin[op + 1]; ++at) {
        preds_[op].insert(given.preds[at]);
        succs_[given.preds[at]].insert(op);
      }
      for (int32_t at = given.reads_begin[op]; at < given.reads_begin[op + 1]; ++at) {
        reads_[op].insert(given.reads[at]);
        users_[given.reads[at]].insert(op);
      }
      for (int32_t at = given.pairs_begin[op]; at < given.pairs_begin[op + 1]; ++at)
        pairs_[op].push_back({given.created[at], given.taken[at], at});
    }
    for (int32_t op = 0; op < given.ops; ++op)
      for (int32_t at = given.creates_begin[op]; at < given.creates_begin[op + 1]; ++at)
        if (int32_t buffer = given.creates[at]; given.kept[buffer] || !users_[buffer].empty())
          creates_[op].insert(buffer);
    if (given.reachable) find_ancestors();
  }

  void fuse() {
    std::vector<int32_t> pending;
    std::vector<char> queued(given_.ops, 1);
    for (int32_t op = given_.ops; op-- > 0;) pending.push_back(op);
    while (!pending.empty() && !exhausted()) {
      int32_t task = pending.back();
      pending.pop_back();
      queued[task] = 0;
      if (!alive(task)) continue;
      touched_.clear();
      fuse_around(task);
      for (int32_t other : touched_)
        if (!queued[other]) {
          queued[other] = 1;
          pending.push_back(other);
        }
    }
  }

  Ending write(Fused& out) const {
    int32_t at = 0;
    for (int32_t op = 0; op < given_.ops; ++op) {
      out.members.begin[op] = at;
      for (int32_t member = members_[op].first; member >= 0; member = next_[member]) out.members.numbers[at++] = member;
      out.top[op] = top_[op];
      for (const Pair& pair : pairs_[op]) out.pairs_left[pair.place] = 1;
    }
    out.members.begin[given_.ops] = at;
    out.work = work_;
    out.fusions = fusions_;
    const std::pair<const std::vector<Set>*, Lists*> all[] = {{&preds_, &out.preds},   {&succs_, &out.succs},
                                                              {&users_, &out.users},   {&creates_, &out.creates},
                                                              {&reads_, &out.reads},   {&before_, &out.before}};
    for (const auto& [sets, lists] : all)
      if (!written(*sets, *lists)) return kNoRoom;
    return kDone;
  }

 private:
  static bool written(const std::vector<Set>& sets, Lists& lists) {
    int32_t at = 0;
    for (size_t which = 0; which < sets.size(); ++which) {
      lists.begin[which] = at;
      if (static_cast<int64_t>(at) + static_cast<int64_t>(sets[which].size()) > lists.most) return false;
      for (int32_t number : sets[which]) lists.numbers[at++] = number;
    }
    lists.begin[sets.size()] = at;
    return true;
  }

  void find_ancestors() {
    words_ = (static_cast<size_t>(given_.ops) + 63) / 64;
    ancestors_.assign(words_ * given_.ops, 0);
    for (int32_t op = 0; op < given_.ops; ++op)
      for (int32_t before : preds_[op]) {
        for (size_t word = 0; word < words_; ++word)
          ancestors_[op * words_ + word] |= ancestors_[before * words_ + word];
        ancestors_[op * words_ + before / 64] |= uint64_t{1} << before % 64;
      }
  }

  bool exhausted() {
    if (work_ >= polled_at_ + kPolledAfter) {
      polled_at_ = work_;
      stopped_ = stopped_ || stop_();
    }
    return work_ > given_.budget || stopped_;
  }

  bool alive(int32_t task) const { return members_[task].first >= 0; }

  bool precedes(int32_t first, int32_t second) const {
    if (!given_.reachable) return preds_[second].count(first);
    return ancestors_[second * words_ + first / 64] >> first % 64 & 1;
  }

  // ``inside`` are one or two tasks; one is named twice.
  Fate fate(int32_t buffer, std::pair<int32_t, int32_t> inside, int32_t anchor) {
    if (given_.kept[buffer]) return kAlive;
    const Set& users = users_[buffer];
    if (users.size() > kManyUsers) return kFree;
    work_ += static_cast<int64_t>(users.size());
    Fate result = kDies;
    for (int32_t user : users) {
      if (user == inside.first || user == inside.second || precedes(user, anchor)) continue;
      if (user == anchor || precedes(anchor, user)) return kAlive;
      result = kFree;
    }
    return result;
  }

  int64_t change(int32_t task, std::pair<int32_t, int32_t> inside, int32_t anchor, Fate dying) {
    int64_t result = 0;
    for (int32_t buffer : creates_[task]) result += given_.sizes[buffer];
    for (int32_t buffer : reads_[task]) {
      bool alone = users_[buffer].size() == 1 && !given_.kept[buffer];
      if (given_.sizes[buffer] && (alone || fate(buffer, inside, anchor) <= dying)) result -= given_.sizes[buffer];
    }
    work_ += static_cast<int64_t>(creates_[task].size() + reads_[task].size());
    return result;
  }

  int64_t excess(int32_t task, std::pair<int32_t, int32_t> inside, int32_t anchor, Fate dying) {
    int64_t result = top_[task];
    for (int32_t buffer : before_[task])
      if (fate(buffer, inside, anchor) <= dying) result -= given_.sizes[buffer];
    if (!pairs_[task].empty()) {
      std::vector<Pair> possible;
      for (const Pair& pair : pairs_[task])
        if (fate(pair.read, inside, anchor) <= dying) possible.push_back(pair);
      result -= merged(possible);
    }
    work_ += 1 + static_cast<int64_t>(before_[task].size());
    return result;
  }

  // The most bytes that pairs without a buffer in common merge: created buffers by falling size, by augmenting paths.
  int64_t merged(const std::vector<Pair>& pairs) const {
    if (pairs.size() <= 1) return pairs.empty() ? 0 : given_.sizes[pairs[0].created];
    Set created;
    for (const Pair& pair : pairs) created.insert(pair.created);
    std::vector<int32_t> order(created.begin(), created.end());
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t one, int32_t other) { return given_.sizes[one] > given_.sizes[other]; });
    std::vector<std::pair<int32_t, int32_t>> takers;
    int64_t total = 0;
    for (int32_t buffer : order) {
      Set reached;
      if (augment(buffer, pairs, takers, reached)) total += given_.sizes[buffer];
    }
    return total;
  }

  // ``takers``: read buffer, created buffer in its place.
  static bool augment(int32_t buffer, const std::vector<Pair>& pairs, std::vector<std::pair<int32_t, int32_t>>& takers,
                      Set& reached) {
    for (const Pair& pair : pairs) {
      if (pair.created != buffer || !reached.insert(pair.read).second) continue;
      auto taker = std::find_if(takers.begin(), takers.end(), [&](const auto& one) { return one.first == pair.read; });
      if (taker == takers.end()) {
        takers.push_back({pair.read, buffer});
        return true;
      }
      size_t place = taker - takers.begin();
      if (augment(taker->second, pairs, takers, reached)) {
        takers[place].second = buffer;
        return true;
      }
    }
    return false;
  }

  void fuse_around(int32_t task) {
    std::vector<std::pair<int32_t, int32_t>> neighbours;
    for (int32_t before : preds_[task]) neighbours.push_back({before, task});
    for (int32_t after : succs_[task]) neighbours.push_back({task, after});
    for (auto [first, second] : neighbours) {
      if (!alive(task)) break;
      if (!succs_[first].count(second)) continue;
      work_ += 1;
      if (rises(first, second)) {
        touch(first, second);
        merge_rising(first, second);
      } else if (falls(first, second)) {
        touch(second, first);
        merge_falling(first, second);
      }
    }
  }

  // Notes the tasks whose edges change when ``task`` becomes part of ``anchor``, and the anchor.
  void touch(int32_t task, int32_t anchor) {
    std::set_union(preds_[task].begin(), preds_[task].end(), succs_[task].begin(), succs_[task].end(),
                   std::back_inserter(touched_));
    touched_.push_back(anchor);
    ++fusions_;
  }

  bool rises(int32_t task, int32_t anchor) {
    work_ += static_cast<int64_t>(succs_[task].size());
    for (int32_t after : succs_[task])
      if (after != anchor && !precedes(anchor, after)) return false;
    int64_t changed = change(task, {task, task}, anchor, kFree);
    if (changed < 0) return false;
    int64_t limit = changed + excess(anchor, {task, anchor}, anchor, kFree);
    return excess(task, {task, task}, anchor, kFree) <= limit;
  }

  bool falls(int32_t anchor, int32_t task) {
    work_ += static_cast<int64_t>(preds_[task].size());
    for (int32_t before : preds_[task])
      if (before != anchor && !precedes(before, anchor)) return false;
    if (change(task, {anchor, task}, anchor, kDies) > 0) return false;
    int64_t left = change(anchor, {anchor, anchor}, anchor, kDies);
    left += excess(task, {anchor, task}, anchor, kDies);
    return left <= excess(anchor, {anchor, anchor}, anchor, kDies);
  }

  void merge_rising(int32_t task, int32_t anchor) {
    int64_t top = top_[anchor];
    Set before = before_[anchor];
    for (int32_t buffer : reads_[task])
      if (!reads_[anchor].count(buffer)) before.insert(buffer);
    for (int32_t buffer : creates_[task]) {
      top += given_.sizes[buffer];
      if (!before.erase(buffer)) continue;
      const Set& users = users_[buffer];
      if (!given_.kept[buffer] && users.size() == 1 && *users.begin() == anchor) top -= given_.sizes[buffer];
    }
    absorb(task, anchor, true);
    top_[anchor] = top;
    before_[anchor].swap(before);
  }

  void merge_falling(int32_t anchor, int32_t task) {
    for (int32_t buffer : reads_[task]) before_[anchor].erase(buffer);
    auto& pairs = pairs_[anchor];
    auto read = [&](const Pair& pair) { return reads_[task].count(pair.read) != 0; };
    pairs.erase(std::remove_if(pairs.begin(), pairs.end(), read), pairs.end());
    absorb(task, anchor, false);
  }

  void absorb(int32_t task, int32_t into, bool in_front) {
    auto [front, back] = in_front ? std::make_pair(members_[task], members_[into])
                                  : std::make_pair(members_[into], members_[task]);
    next_[front.second] = back.first;
    members_[into] = {front.first, back.second};
    members_[task] = {-1, -1};
    for (auto [befores, afters] : {std::make_pair(&preds_, &succs_), std::make_pair(&succs_, &preds_)}) {
      Set& own = (*befores)[task];
      for (int32_t other : own) {
        (*afters)[other].erase(task);
        if (other == into) continue;
        (*afters)[other].insert(into);
        (*befores)[into].insert(other);
      }
      (*befores)[into].erase(task);
      work_ += static_cast<int64_t>(own.size());
      own.clear();
    }
    for (int32_t buffer : reads_[task]) {
      users_[buffer].erase(task);
      if (creates_[into].count(buffer)) continue;
      users_[buffer].insert(into);
      reads_[into].insert(buffer);
    }
    for (int32_t buffer : creates_[task]) {
      users_[buffer].erase(into);
      reads_[into].erase(buffer);
    }
    creates_[into].insert(creates_[task].begin(), creates_[task].end());
    for (auto at = creates_[into].begin(); at != creates_[into].end();)
      at = users_[*at].empty() && !given_.kept[*at] ? creates_[into].erase(at) : std::next(at);
    work_ += static_cast<int64_t>(reads_[task].size() + creates_[into].size());
    reads_[task].clear();
    creates_[task].clear();
    before_[task].clear();
    pairs_[task].clear();
  }

  const Ops& given_;
  StopFunction stop_;
  std::vector<std::pair<int32_t, int32_t>> members_;
  std::vector<Set> preds_, succs_, creates_, reads_, before_, users_;
  std::vector<std::vector<Pair>> pairs_;
  std::vector<int64_t> top_;
  std::vector<int32_t> next_, touched_;
  std::vector<uint64_t> ancestors_;
  size_t words_ = 0;
  int64_t work_ = 0, fusions_ = 0, polled_at_ = -kPolledAfter;
  bool stopped_ = false;
};

}  // namespace

extern "C" int32_t memsched_monotonic(const Ops* given, StopFunction stop, Fused* out) {
  try {
    Quotient graph(*given, stop);
    graph.fuse();
    return graph.write(*out);
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}
