// What a group of layers costs in pieces: the regions of tiling/pieces.py, the ops of tiling/rewrite.py, the rules of
// lowering/sharing.py and the footprints of graph/liveness.py in one call; names are the same there.
//
// What an op needs for a part of its output is asked of Python once, and kept. Whatever is not known here is left to it.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

constexpr int kMostAxes = 8;

enum Status { kDone = 0, kRefused = 1, kMissing = 2, kForeign = 3, kNoMemory = 4 };
enum AxisRule { kOther = 0, kLooksAtOne = 1, kWholeAxis = 2 };
enum Helper { kSlice = -1, kConcat = -2, kPad = -3 };

// One half-open range per axis.
struct Region {
  int32_t axes = 0;
  std::array<int32_t, 2 * kMostAxes> ends{};

  int32_t start(int axis) const { return ends[2 * axis]; }
  int32_t stop(int axis) const { return ends[2 * axis + 1]; }
  int32_t length(int axis) const { return stop(axis) - start(axis); }
  void set(int axis, int32_t start, int32_t stop) {
    ends[2 * axis] = start;
    ends[2 * axis + 1] = stop;
  }
  bool same(const Region& other, int axis) const {
    return start(axis) == other.start(axis) && stop(axis) == other.stop(axis);
  }
  bool operator==(const Region& other) const {
    return axes == other.axes && std::equal(ends.begin(), ends.begin() + 2 * axes, other.ends.begin());
  }
  bool operator!=(const Region& other) const { return !(*this == other); }
  int64_t elements() const {
    int64_t product = 1;
    for (int axis = 0; axis < axes; ++axis) product *= length(axis);
    return product;
  }
};

struct RunKey {
  int32_t op;
  bool padded;
  Region wanted;
  bool operator==(const RunKey& other) const {
    return op == other.op && padded == other.padded && wanted == other.wanted;
  }
};

struct RunHash {
  size_t operator()(const RunKey& key) const {
    uint64_t hash = 1469598103934665603u ^ static_cast<uint64_t>(key.op * 2 + key.padded);
    for (int at = 0; at < 2 * key.wanted.axes; ++at)
      hash = (hash ^ static_cast<uint32_t>(key.wanted.ends[at])) * 1099511628211u;
    return hash;
  }
};

// A run of an op for a part of its output.
struct Run {
  int32_t op = 0;
  bool refused = false, has_padding = false;
  Region wanted, computed;
  std::vector<Region> reads;
  std::vector<std::pair<int32_t, int32_t>> padding;
  int64_t macs = 0, weights = 0, workspace = 0, lasting = 0;
};

struct TensorInfo {
  int64_t size = 0, elements = 1;
  bool external = false;
  Region whole;
};

struct WriteRule {
  int64_t above_bytes;
  bool same_shape, sole_reader, elementwise;
  uint64_t inputs;
};

// Output ranges from `lowest` to `highest` need the same of all operands, but for their place.
struct Interior {
  int32_t lowest = 0, highest = 0;
};

struct AxisMap {
  int32_t output, rule, step;
};

struct OpInfo {
  bool usable = false, tied = false, sharing = false, ranged = false, own_memory = false;
  bool joins = false, computes = false, partial = false;
  int32_t output = -1, view_of = -1, concat_axis = 0, rank = 0;
  int64_t elements = 1, macs = 0, workspace = 0;
  double units = 0;
  std::vector<int32_t> inputs;
  std::vector<std::vector<AxisMap>> maps;
  std::vector<Interior> interiors;
  std::vector<WriteRule> writes;
};

struct Piece {
  std::vector<int32_t> runs;
  std::vector<uint8_t> needs, keeps;
  std::vector<Region> needed, kept;
  std::vector<Region> output;
};

struct Held {
  int32_t tensor = -1;
  Region region;
  bool made = false;
};

struct NewTensor {
  std::array<int32_t, kMostAxes> shape{};
  int32_t axes = 0;
  int64_t size = 0;
  bool external = false;
};

struct NewOp {
  int32_t kind = 0, output = -1, number = 0;
  int64_t workspace = 0, weights = 0;
  std::vector<int32_t> inputs;
};

class Reader {
 public:
  explicit Reader(const int64_t* words) : at_(words) {}
  int64_t next() { return *at_++; }
  int32_t small() { return static_cast<int32_t>(next()); }
  bool flag() { return next() != 0; }
  double number() {
    double value;
    std::memcpy(&value, at_++, sizeof value);
    return value;
  }
  Region region() {
    Region found;
    found.axes = small();
    for (int at = 0; at < 2 * found.axes; ++at) found.ends[at] = small();
    return found;
  }

 private:
  const int64_t* at_;
};

struct Group {
  int32_t first = 0, last = 0;
  std::vector<int32_t> axes, counts, kept, inputs, outputs;
  std::vector<uint8_t> input_stays, padded;
  bool overwrite_inputs = false, outputs_own = false;
  int64_t most_macs = 0;
};

class PieceJudge {
 public:
  explicit PieceJudge(Reader words) {
    int tensors = words.small(), ops = words.small();
    alignment_ = words.next();
    align_parts_ = words.flag();
    slice_views_ = words.flag();
    joins_ = words.flag();
    pads_ = words.flag();
    most_joined_ = words.small();
    partial_slices_ = words.flag();
    for (double& units : helper_units_) units = words.number();
    tensors_.resize(tensors);
    for (TensorInfo& tensor : tensors_) {
      tensor.size = words.next();
      tensor.external = words.flag();
      tensor.whole = words.region();
      tensor.elements = tensor.whole.elements();
    }
    ops_.resize(ops);
    for (OpInfo& op : ops_) read(op, words);
  }

  // Take up a run that `plan` asked for.
  void add(Reader words) {
    Run run;
    run.op = words.small();
    bool padded = words.flag();
    run.wanted = words.region();
    run.refused = words.flag();
    if (!run.refused) {
      run.computed = words.region();
      int reads = words.small();
      for (int at = 0; at < reads; ++at) run.reads.push_back(words.region());
      int padding = words.small();
      run.has_padding = padding > 0;
      for (int at = 0; at < padding; ++at) {
        int32_t before = words.small();
        run.padding.emplace_back(before, words.small());
      }
      run.macs = words.next();
      run.weights = words.next();
      run.workspace = words.next();
      run.lasting = words.next();
    }
    known_.emplace(RunKey{run.op, padded, run.wanted}, static_cast<int32_t>(runs_.size()));
    runs_.push_back(std::move(run));
  }

  void begin(Reader words) {
    group_ = Group();
    group_.first = words.small();
    group_.last = words.small();
    int axes = words.small();
    for (int at = 0; at < axes; ++at) group_.axes.push_back(words.small());
    for (int at = 0; at < axes; ++at) group_.counts.push_back(words.small());
    group_.padded.assign(group_.last - group_.first + 1, 0);
    int kept = words.small();
    for (int at = 0; at < kept; ++at) group_.kept.push_back(words.small());
    int padded = words.small();
    for (int at = 0; at < padded; ++at) group_.padded[words.small() - group_.first] = 1;
    int inputs = words.small();
    for (int at = 0; at < inputs; ++at) {
      group_.inputs.push_back(words.small());
      group_.input_stays.push_back(words.flag());
    }
    int outputs = words.small();
    for (int at = 0; at < outputs; ++at) group_.outputs.push_back(words.small());
    group_.overwrite_inputs = words.flag();
    group_.outputs_own = words.flag();
    group_.most_macs = words.next();
    place_.assign(tensors_.size(), -1);
    for (int op = group_.first; op <= group_.last; ++op) place_[ops_[op].output] = op - group_.first;
    is_kept_.assign(group_.last - group_.first + 1, 0);
    for (int tensor : group_.kept) is_kept_[place_[tensor]] = 1;
    pieces_.clear();
    macs_ = 0;
    underway_ = -1;
    before_set_.assign(group_.last - group_.first + 1, 0);
    before_.assign(group_.last - group_.first + 1, Region());
  }

  // Find the regions of all pieces; after kMissing, once the run in `missing_words` was added, go on.
  Status plan() {
    int64_t total = 1;
    for (int op = group_.first; op <= group_.last; ++op) {
      if (ops_[op].tied) return kRefused;
      if (!ops_[op].usable) return kForeign;
    }
    for (int count : group_.counts) total *= count;
    while (underway_ >= 0 || static_cast<int64_t>(pieces_.size()) < total) {
      if (underway_ < 0) {
        pieces_.emplace_back();
        if (!contribute(pieces_.back(), static_cast<int64_t>(pieces_.size()) - 1)) return kRefused;
        underway_ = group_.last;
      }
      Piece& piece = pieces_.back();
      while (underway_ >= group_.first) {
        Status status = step(piece, underway_);
        if (status != kDone) return status;
        --underway_;
      }
      underway_ = -1;
      for (size_t at = 0; at < before_.size(); ++at) {
        if (!piece.needs[at]) continue;
        before_set_[at] = 1;
        before_[at] = piece.needed[at];
      }
      if (macs_ > group_.most_macs) return kRefused;
    }
    return kDone;
  }

  // Bytes that the pieces cannot do without.
  int64_t least() const {
    double largest = 0, before = 0;
    for (const Piece& piece : pieces_) {
      for (int number : piece.runs) {
        if (number < 0) continue;
        const Run& run = runs_[number];
        const OpInfo& op = ops_[run.op];
        double made = unit(op.output) * static_cast<double>(run.computed.elements()), read = 0;
        for (size_t at = 0; at < op.inputs.size(); ++at) {
          if (place_[op.inputs[at]] < 0) continue;
          // A tensor that is read twice counts once, with what is read last, where it is read first.
          if (std::find(op.inputs.begin(), op.inputs.begin() + at, op.inputs[at]) != op.inputs.begin() + at) continue;
          size_t last = at;
          for (size_t other = at + 1; other < op.inputs.size(); ++other)
            if (op.inputs[other] == op.inputs[at]) last = other;
          read += unit(op.inputs[at]) * static_cast<double>(run.reads[last].elements());
        }
        largest = std::max(largest, before + (op.sharing ? std::max(made, read) : made + read));
      }
      double given = 0;
      for (size_t at = 0; at < group_.outputs.size(); ++at)
        given += unit(group_.outputs[at]) * static_cast<double>(piece.output[at].elements());
      before += given;
    }
    return static_cast<int64_t>(largest);
  }

  int64_t macs() const { return macs_; }

  void count_runs(int64_t* counts) const {
    std::fill(counts, counts + (group_.last - group_.first + 1), 0);
    for (const Piece& piece : pieces_)
      for (size_t at = 0; at < piece.runs.size(); ++at) counts[at] += piece.runs[at] >= 0;
  }

  int32_t missing_op() const { return missing_.op; }
  void missing_words(int64_t* words) const {
    *words++ = missing_.op;
    *words++ = missing_.padded;
    *words++ = missing_.wanted.axes;
    for (int at = 0; at < 2 * missing_.wanted.axes; ++at) *words++ = missing_.wanted.ends[at];
  }

  // Write the pieces and return in `found` the largest footprint, with what their kernels keep, all multiply-accumulates,
  // bytes read and made, whether the last axis of anything that an op makes is cut, how many slices, concatenations and
  // paddings there are, and bytes of weights read.
  Status evaluate(int64_t* found) {
    new_tensors_.clear();
    new_ops_.clear();
    written_macs_ = lasting_ = 0;
    for (int tensor : group_.inputs) add_given(tensor);
    for (int tensor : group_.outputs) add_given(tensor);
    if (!write()) return kForeign;
    found[0] = footprint() + lasting_;
    found[1] = written_macs_;
    count(found + 2);
    return kDone;
  }

 private:
  void count(int64_t* found) const {
    std::fill(found, found + 6, 0);
    for (const NewOp& op : new_ops_) {
      int64_t made = new_tensors_[op.output].size, read = 0;
      bool partial = op.kind < 0 ? op.kind == kSlice && partial_slices_ : ops_[op.kind].partial;
      for (int tensor : op.inputs) read += new_tensors_[tensor].size;
      found[0] += made + (partial ? made : read);
      found[5] += op.weights;
      if (op.kind < 0) {
        ++found[1 - op.kind];
        continue;
      }
      const NewTensor& tensor = new_tensors_[op.output];
      const Region& whole = tensors_[ops_[op.kind].output].whole;
      if (tensor.axes && tensor.shape[tensor.axes - 1] != whole.stop(tensor.axes - 1)) found[1] = 1;
    }
  }

  static void read(OpInfo& op, Reader& words) {
    op.usable = words.flag();
    op.tied = words.flag();
    op.output = words.small();
    if (!op.usable) return;
    op.sharing = words.flag();
    op.ranged = words.flag();
    op.own_memory = words.flag();
    op.joins = words.flag();
    op.computes = words.flag();
    op.partial = words.flag();
    op.concat_axis = words.small();
    op.view_of = words.small();
    op.rank = words.small();
    op.elements = words.next();
    op.macs = words.next();
    op.workspace = words.next();
    op.units = words.number();
    int inputs = words.small();
    for (int at = 0; at < inputs; ++at) {
      op.inputs.push_back(words.small());
      int axes = words.small();
      op.maps.emplace_back();
      for (int axis = 0; axis < axes; ++axis) {
        AxisMap map{};
        map.output = words.small();
        map.rule = words.small();
        map.step = words.small();
        op.maps.back().push_back(map);
      }
    }
    for (int axis = 0; axis < op.rank; ++axis) {
      op.interiors.emplace_back();
      op.interiors.back().lowest = words.small();
      op.interiors.back().highest = words.small();
    }
    int rules = words.small();
    for (int at = 0; at < rules; ++at) {
      WriteRule rule{};
      rule.above_bytes = words.next();
      rule.same_shape = words.flag();
      rule.sole_reader = words.flag();
      rule.elementwise = words.flag();
      rule.inputs = static_cast<uint64_t>(words.next());
      op.writes.push_back(rule);
    }
  }

  double unit(int tensor) const {
    return static_cast<double>(tensors_[tensor].size) /
           static_cast<double>(std::max<int64_t>(1, tensors_[tensor].elements));
  }

  // Regions --------------------------------------------------------------------------------------------------------

  bool contribute(Piece& piece, int64_t number) {
    size_t count = place_count();
    piece.runs.assign(count, -1);
    piece.needs.assign(count, 0);
    piece.keeps.assign(count, 0);
    piece.needed.assign(count, Region());
    piece.kept.assign(count, Region());
    std::vector<int64_t> index(group_.axes.size());
    for (size_t at = group_.axes.size(); at-- > 0;) {
      index[at] = number % group_.counts[at];
      number /= group_.counts[at];
    }
    const Region& main = tensors_[group_.outputs.back()].whole;
    for (int tensor : group_.outputs) {
      Region part = tensors_[tensor].whole;
      for (size_t at = 0; at < group_.axes.size(); ++at) {
        int axis = group_.axes[at];
        int64_t parts = group_.counts[at];
        if (axis >= std::min(part.axes, main.axes)) return false;
        int64_t own = tensors_[tensor].whole.stop(axis), whole = main.stop(axis);
        if (std::min(own, whole) < parts) return false;
        int64_t start = (whole * index[at] / parts) * own / whole;
        int64_t stop = index[at] + 1 == parts ? own : (whole * (index[at] + 1) / parts) * own / whole;
        part.set(axis, static_cast<int32_t>(start), static_cast<int32_t>(stop));
      }
      piece.output.push_back(part);
      piece.needs[place_[tensor]] = 1;
      piece.needed[place_[tensor]] = part;
    }
    return true;
  }

  size_t place_count() const { return static_cast<size_t>(group_.last - group_.first + 1); }

  Status step(Piece& piece, int op) {
    int at = op - group_.first;
    if (!piece.needs[at]) return kDone;
    Region fresh = piece.needed[at];
    if (is_kept_[at] && before_set_[at] && !split(piece, at, fresh)) return kDone;
    int number = find_run({op, group_.padded[at] != 0, fresh});
    if (number < 0) return kMissing;
    const Run& run = runs_[number];
    if (run.refused) return kRefused;
    piece.runs[at] = number;
    macs_ += run.macs;
    for (size_t input = 0; input < run.reads.size(); ++input) {
      int made = place_[ops_[op].inputs[input]];
      if (made < 0) continue;
      if (piece.needs[made]) {
        widen(piece.needed[made], run.reads[input]);
      } else {
        piece.needs[made] = 1;
        piece.needed[made] = run.reads[input];
      }
    }
    return kDone;
  }

  // Return a run, moved there from the first like it; where that is not known either, -1, and it is `missing_`.
  int find_run(const RunKey& key) {
    auto found = known_.find(key);
    if (found != known_.end()) return found->second;
    const OpInfo& op = ops_[key.op];
    RunKey first = key;
    std::array<int32_t, kMostAxes> moved{};
    for (int axis = 0; axis < op.rank; ++axis) {
      const Interior& interior = op.interiors[axis];
      if (key.wanted.start(axis) <= interior.lowest || key.wanted.stop(axis) > interior.highest) continue;
      moved[axis] = key.wanted.start(axis) - interior.lowest;
      first.wanted.set(axis, interior.lowest, interior.lowest + key.wanted.length(axis));
    }
    found = known_.find(first);
    if (found == known_.end()) {
      missing_ = first;
      return -1;
    }
    if (first == key) return found->second;
    Run run = runs_[found->second];
    move(run.wanted, moved);
    move(run.computed, moved);
    for (size_t input = 0; input < run.reads.size(); ++input)
      for (int axis = 0; axis < run.reads[input].axes; ++axis) {
        const AxisMap& map = op.maps[input][axis];
        int32_t by = map.output < 0 ? 0 : moved[map.output] * map.step;
        run.reads[input].set(axis, run.reads[input].start(axis) + by, run.reads[input].stop(axis) + by);
      }
    int number = static_cast<int>(runs_.size());
    known_.emplace(key, number);
    runs_.push_back(std::move(run));
    return number;
  }

  static void move(Region& region, const std::array<int32_t, kMostAxes>& by) {
    for (int axis = 0; axis < region.axes; ++axis)
      region.set(axis, region.start(axis) + by[axis], region.stop(axis) + by[axis]);
  }

  static void widen(Region& region, const Region& other) {
    for (int axis = 0; axis < region.axes; ++axis)
      region.set(axis, std::min(region.start(axis), other.start(axis)), std::max(region.stop(axis), other.stop(axis)));
  }

  // Lay aside what of the wanted part the piece before has; false where nothing is left to compute.
  bool split(Piece& piece, int at, Region& fresh) const {
    if (group_.axes.size() > 1) return true;
    const Region &wanted = piece.needed[at], &before = before_[at];
    int axis = group_.axes[0];
    for (int other = 0; other < wanted.axes; ++other)
      if (other != axis && !wanted.same(before, other)) return true;
    int32_t start = wanted.start(axis), stop = wanted.stop(axis);
    if (before.start(axis) > start || start >= before.stop(axis)) return true;
    int32_t middle = std::min(before.stop(axis), stop);
    piece.keeps[at] = 1;
    piece.kept[at] = wanted;
    piece.kept[at].set(axis, start, middle);
    if (middle >= stop) return false;
    fresh.set(axis, middle, stop);
    return true;
  }

  // Ops ------------------------------------------------------------------------------------------------------------

  void add_given(int tensor) {
    NewTensor made;
    const TensorInfo& given = tensors_[tensor];
    made.axes = given.whole.axes;
    for (int axis = 0; axis < made.axes; ++axis) made.shape[axis] = given.whole.stop(axis);
    made.size = given.size;
    made.external = given.external;
    new_tensors_.push_back(made);
  }

  int32_t add_like(int tensor, const Region& region, const std::vector<std::pair<int32_t, int32_t>>* padding = nullptr) {
    NewTensor made;
    const TensorInfo& given = tensors_[tensor];
    made.axes = region.axes;
    int64_t elements = 1;
    for (int axis = 0; axis < made.axes; ++axis) {
      made.shape[axis] = region.length(axis);
      if (padding) made.shape[axis] += (*padding)[axis].first + (*padding)[axis].second;
      elements *= made.shape[axis];
    }
    if (given.elements) {
      __int128 bytes = static_cast<__int128>(given.size) * elements;
      made.size = static_cast<int64_t>((bytes + given.elements - 1) / given.elements);
    }
    new_tensors_.push_back(made);
    return static_cast<int32_t>(new_tensors_.size()) - 1;
  }

  void help(Helper kind, std::vector<int32_t> inputs, int32_t output, int32_t number) {
    NewOp op;
    op.kind = kind;
    op.inputs = std::move(inputs);
    op.output = output;
    op.number = number;
    double units = helper_units_[-kind - 1];
    op.workspace = static_cast<int64_t>(std::ceil(units * static_cast<double>(new_tensors_[output].size)));
    new_ops_.push_back(std::move(op));
  }

  bool write() {
    size_t count = pieces_.size(), places = place_count();
    // What each piece leaves for the next that works on it.
    std::vector<std::vector<uint8_t>> leaves(count, std::vector<uint8_t>(places, 0));
    std::vector<std::vector<Region>> left_region(count, std::vector<Region>(places));
    for (size_t number = count; number-- > 1;) {
      for (size_t at = 0; at < places; ++at) {
        if (pieces_[number].keeps[at]) {
          leaves[number - 1][at] = 1;
          left_region[number - 1][at] = pieces_[number].kept[at];
        } else if (leaves[number][at] && !pieces_[number].needs[at]) {
          leaves[number - 1][at] = 1;
          left_region[number - 1][at] = left_region[number][at];
        }
      }
    }
    parts_.assign(group_.outputs.size(), {});
    std::vector<Held> left(places);
    for (size_t number = 0; number < count; ++number)
      if (!write_piece(pieces_[number], leaves[number], left_region[number], left)) return false;
    for (size_t at = 0; at < group_.outputs.size(); ++at) join(at);
    return true;
  }

  bool write_piece(const Piece& piece, const std::vector<uint8_t>& leaves, const std::vector<Region>& left_region,
                   std::vector<Held>& left) {
    size_t places = place_count();
    std::vector<Held> held(places), given(group_.inputs.size()), next(places);
    for (size_t at = 0; at < given.size(); ++at) {
      given[at].tensor = static_cast<int32_t>(at);
      given[at].region = tensors_[group_.inputs[at]].whole;
    }
    slices_.clear();
    for (size_t at = 0; at < places; ++at)
      if (leaves[at] && !piece.needs[at]) next[at] = left[at];
    std::vector<int32_t> last(places);
    for (size_t at = 0; at < places; ++at) {
      last[at] = static_cast<int32_t>(at);
      if (piece.runs[at] < 0) continue;
      for (int tensor : ops_[group_.first + at].inputs)
        if (place_[tensor] >= 0) last[place_[tensor]] = static_cast<int32_t>(at);
    }
    for (size_t at = 0; at < places; ++at) {
      if (!piece.needs[at]) continue;
      int tensor = ops_[group_.first + at].output;
      Held made;
      if (piece.runs[at] >= 0 && !write_run(runs_[piece.runs[at]], held, given, made)) return false;
      held[at] = whole_piece(tensor, at, piece, left, made, piece.runs[at] >= 0);
      auto output = std::find(group_.outputs.begin(), group_.outputs.end(), tensor);
      if (output != group_.outputs.end()) {
        size_t place = output - group_.outputs.begin();
        parts_[place].push_back(cut(tensor, held[at], piece.output[place]));
      }
      for (size_t done = 0; done < places; ++done)
        if (last[done] == static_cast<int32_t>(at) && leaves[done] && piece.needs[done])
          next[done] = cut(ops_[group_.first + done].output, held[done], left_region[done]);
    }
    left.swap(next);
    return true;
  }

  Held whole_piece(int tensor, size_t at, const Piece& piece, const std::vector<Held>& left, const Held& made,
                   bool is_made) {
    if (!piece.keeps[at]) return made;
    if (!is_made) return left[at];
    const Region &kept = piece.kept[at], &needed = piece.needed[at];
    int axis = 0;
    while (kept.same(needed, axis)) ++axis;
    Region fresh = needed;
    fresh.set(axis, kept.stop(axis), needed.stop(axis));
    Held own = cut(tensor, made, fresh);
    int32_t joined = add_like(tensor, needed);
    help(kConcat, {left[at].tensor, own.tensor}, joined, axis);
    return {joined, needed, true};
  }

  const Held& of(int tensor, const std::vector<Held>& held, const std::vector<Held>& given) const {
    if (place_[tensor] >= 0) return held[place_[tensor]];
    size_t at = std::find(group_.inputs.begin(), group_.inputs.end(), tensor) - group_.inputs.begin();
    return given[at];
  }

  bool write_run(const Run& run, const std::vector<Held>& held, const std::vector<Held>& given, Held& result) {
    const OpInfo& op = ops_[run.op];
    NewOp made;
    made.kind = run.op;
    Region extents = run.computed;
    bool wider = find_wider(run, op, held, given, extents);
    if (wider && op.own_memory) return false;
    for (size_t at = 0; at < op.inputs.size(); ++at) {
      const Held& one = of(op.inputs[at], held, given);
      made.inputs.push_back(wider ? one.tensor : cut(op.inputs[at], one, run.reads[at]).tensor);
    }
    if (!wider && run.has_padding) {
      if (!pads_) return false;
      int32_t padded = add_like(op.inputs[0], run.reads[0], &run.padding);
      help(kPad, {made.inputs[0]}, padded, 0);
      made.inputs[0] = padded;
    }
    made.output = add_like(op.output, extents);
    double units = std::ceil(op.units * static_cast<double>(new_tensors_[made.output].size));
    made.workspace = op.workspace + static_cast<int64_t>(units) + run.workspace;
    made.weights = run.weights;
    int64_t work = run.macs;
    if (op.macs && extents != run.computed) {
      __int128 share = static_cast<__int128>(op.macs) * extents.elements() / op.elements;
      work = std::max(work, static_cast<int64_t>(share));
    }
    written_macs_ += work;
    lasting_ += run.lasting;
    result = {made.output, extents, true};
    new_ops_.push_back(std::move(made));
    return true;
  }

  bool find_wider(const Run& run, const OpInfo& op, const std::vector<Held>& held, const std::vector<Held>& given,
                  Region& extents) const {
    if (run.has_padding || run.computed != run.wanted || op.ranged) return false;
    Region found = run.computed;
    bool wider = false;
    for (size_t at = 0; at < op.inputs.size(); ++at) {
      const Held& have = of(op.inputs[at], held, given);
      for (int axis = 0; axis < have.region.axes; ++axis) {
        auto [output, rule, step] = op.maps[at][axis];
        if (have.region.same(run.reads[at], axis)) {
          if (rule != kWholeAxis && !found.same(run.computed, output)) return false;
          continue;
        }
        if (!have.made || rule != kLooksAtOne) return false;
        if (wider && !(found.start(output) == have.region.start(axis) && found.stop(output) == have.region.stop(axis)))
          return false;
        found.set(output, have.region.start(axis), have.region.stop(axis));
        wider = true;
      }
    }
    if (!wider) return false;
    for (size_t at = 0; at < op.inputs.size(); ++at) {
      const Held& have = of(op.inputs[at], held, given);
      for (size_t axis = 0; axis < op.maps[at].size(); ++axis) {
        auto [output, rule, step] = op.maps[at][axis];
        int place = static_cast<int>(axis);
        if (rule == kLooksAtOne && !(have.region.start(place) == found.start(output) &&
                                     have.region.stop(place) == found.stop(output)))
          return false;
      }
    }
    extents = found;
    return true;
  }

  Held cut(int tensor, const Held& held, const Region& region) {
    if (held.region == region) return held;
    for (const auto& [source, made] : slices_)
      if (source == held.tensor && made.region == region) return made;
    int32_t made = add_like(tensor, region);
    const NewTensor& source = new_tensors_[held.tensor];
    int axis = outermost(source);
    int32_t row = source.axes ? region.start(axis) - held.region.start(axis) : 0;
    help(kSlice, {held.tensor}, made, row);
    Held result{made, region, true};
    slices_.emplace_back(held.tensor, result);
    return result;
  }

  void join(size_t output) {
    int tensor = group_.outputs[output];
    std::vector<Held> current = parts_[output];
    if (group_.axes.size() > 1) {
      std::vector<Held> rows;
      size_t count = group_.counts[1];
      for (size_t at = 0; at < current.size(); at += count) {
        std::vector<Held> row(current.begin() + at, current.begin() + std::min(at + count, current.size()));
        rows.push_back(strip(tensor, few(tensor, row, group_.axes[1]), group_.axes[1]));
      }
      current = rows;
    }
    current = few(tensor, current, group_.axes[0]);
    std::vector<int32_t> inputs;
    for (const Held& part : current) inputs.push_back(part.tensor);
    help(kConcat, inputs, static_cast<int32_t>(group_.inputs.size() + output), group_.axes[0]);
  }

  std::vector<Held> few(int tensor, std::vector<Held> parts, int axis) {
    size_t most = most_joined_ ? most_joined_ : parts.size();
    while (parts.size() > most) {
      size_t excess = parts.size() - most;
      std::vector<Held> joined;
      for (size_t at = 0; at < parts.size();) {
        size_t size = std::min(most, excess + 1);
        if (at + size > parts.size()) size = 1;
        std::vector<Held> chunk(parts.begin() + at, parts.begin() + at + size);
        joined.push_back(size > 1 ? strip(tensor, chunk, axis) : chunk[0]);
        excess -= size - 1;
        at += size;
      }
      parts = joined;
    }
    return parts;
  }

  Held strip(int tensor, const std::vector<Held>& row, int axis) {
    Region region = row[0].region;
    region.set(axis, region.start(axis), row.back().region.stop(axis));
    int32_t made = add_like(tensor, region);
    std::vector<int32_t> inputs;
    for (const Held& part : row) inputs.push_back(part.tensor);
    help(kConcat, inputs, made, axis);
    return {made, region, true};
  }

  // Rules ----------------------------------------------------------------------------------------------------------

  static int outermost(const NewTensor& tensor) {
    for (int axis = 0; axis < tensor.axes; ++axis)
      if (tensor.shape[axis] != 1) return axis;
    return 0;
  }

  bool is_output(int tensor) const {
    int inputs = static_cast<int>(group_.inputs.size());
    if (tensor < inputs) return group_.input_stays[tensor] != 0;
    return tensor < inputs + static_cast<int>(group_.outputs.size());
  }

  bool may_show(int output) const { return !(group_.outputs_own && is_output(output)); }

  static bool same_shape(const NewTensor& one, const NewTensor& other) {
    return one.axes == other.axes &&
           std::equal(one.shape.begin(), one.shape.begin() + one.axes, other.shape.begin());
  }

  void lay(int output, int source) {
    block_[output] = block_[source];
    source_[output] = source;
  }

  // The tensors whose bytes the op's output shows.
  std::vector<int32_t> views(const NewOp& op) {
    const OpInfo* given = op.kind >= 0 ? &ops_[op.kind] : nullptr;
    if (given && given->view_of >= 0) {
      int source = op.inputs[given->view_of];
      if (may_show(op.output) && new_tensors_[op.output].size == new_tensors_[source].size) {
        lay(op.output, source);
        return {source};
      }
    }
    if (op.kind == kSlice && slice_views_) return rows(op);
    if ((op.kind == kConcat && joins_) || (given && given->joins)) return concatenation(op, given);
    return {};
  }

  std::vector<int32_t> rows(const NewOp& op) {
    int source = op.inputs[0];
    const NewTensor &whole = new_tensors_[source], &part = new_tensors_[op.output];
    if (!whole.axes) return {};
    int axis = outermost(whole);
    int64_t length = std::max(whole.shape[axis], 1), bytes = op.number * whole.size;
    if (bytes % length) return {};
    if (!may_show(op.output) || part.axes != whole.axes) return {};
    for (int other = 0; other < whole.axes; ++other)
      if (other != axis && part.shape[other] != whole.shape[other]) return {};
    if (part.size * whole.shape[axis] != whole.size * part.shape[axis]) return {};
    if (!aligned(bytes / length)) return {};
    lay(op.output, source);
    return {source};
  }

  bool aligned(int64_t offset) const { return !(align_parts_ && offset % alignment_); }

  std::vector<int32_t> concatenation(const NewOp& op, const OpInfo* given) {
    const NewTensor& whole = new_tensors_[op.output];
    int axis = given ? given->concat_axis : op.number;
    if (axis < -whole.axes || axis >= whole.axes) return {};
    if (axis < 0) axis += whole.axes;
    if (given && given->computes) return {};
    for (int outer = 0; outer < axis; ++outer)
      if (whole.shape[outer] != 1) return {};
    int64_t begin = 0;
    for (int tensor : op.inputs) {
      if (!aligned(begin)) return {};
      begin += new_tensors_[tensor].size;
    }
    if (begin != whole.size || !may_show(op.output)) return {};
    std::vector<int32_t> blocks;
    for (int tensor : op.inputs) {
      int block = block_[tensor];
      const NewTensor& held = new_tensors_[block];
      bool owned = group_.outputs_own && is_output(block);
      if (held.size != new_tensors_[tensor].size || held.external || owned || part_[block]) return {};
      blocks.push_back(block);
    }
    std::sort(blocks.begin(), blocks.end());
    if (std::adjacent_find(blocks.begin(), blocks.end()) != blocks.end()) return {};
    for (int block : blocks) part_[block] = 1;
    return op.inputs;
  }

  // The inputs over which the op may write its output.
  std::vector<int32_t> overwritten(const NewOp& op) const {
    std::vector<int32_t> found;
    if (op.kind < 0 || ops_[op.kind].writes.empty()) return found;
    int output = op.output;
    if (block_[output] != output || (group_.outputs_own && is_output(output))) return found;
    for (const WriteRule& rule : ops_[op.kind].writes)
      for (size_t at = 0; at < op.inputs.size(); ++at)
        if ((rule.inputs >> at & 1) && may_write(op, rule, op.inputs[at]) &&
            std::find(found.begin(), found.end(), op.inputs[at]) == found.end())
          found.push_back(op.inputs[at]);
    return found;
  }

  bool may_write(const NewOp& op, const WriteRule& rule, int source) const {
    int block = block_[source];
    const NewTensor &fresh = new_tensors_[op.output], &old = new_tensors_[source], &held = new_tensors_[block];
    bool given = block < static_cast<int>(group_.inputs.size()) && !group_.overwrite_inputs;
    if (given || held.external || part_[block]) return false;
    if (fresh.size != old.size || old.size != held.size || fresh.size <= rule.above_bytes) return false;
    if (rule.same_shape ? !same_shape(fresh, old) : elements(fresh) != elements(old)) return false;
    int shared = 0;
    bool alike = true;
    for (size_t at = 0; at < op.inputs.size(); ++at) {
      if (block_[op.inputs[at]] != block) continue;
      ++shared;
      alike = alike && same_shape(new_tensors_[op.inputs[at]], old);
    }
    if (shared > 1 && !(rule.elementwise && alike)) return false;
    if (!rule.sole_reader) return true;
    for (int tensor = source; tensor >= 0; tensor = source_[tensor])
      if (readers_[tensor] != 1) return false;
    return true;
  }

  static int64_t elements(const NewTensor& tensor) {
    int64_t product = 1;
    for (int axis = 0; axis < tensor.axes; ++axis) product *= tensor.shape[axis];
    return product;
  }

  // Liveness -------------------------------------------------------------------------------------------------------

  int64_t footprint() {
    size_t tensors = new_tensors_.size(), ops = new_ops_.size();
    block_.resize(tensors);
    for (size_t at = 0; at < tensors; ++at) block_[at] = static_cast<int32_t>(at);
    source_.assign(tensors, -1);
    part_.assign(tensors, 0);
    readers_.assign(tensors, 0);
    for (const NewOp& op : new_ops_)
      for (size_t at = 0; at < op.inputs.size(); ++at)
        if (std::find(op.inputs.begin(), op.inputs.begin() + at, op.inputs[at]) == op.inputs.begin() + at)
          ++readers_[op.inputs[at]];
    std::vector<std::vector<int32_t>> shown(ops), written(ops);
    for (size_t at = 0; at < ops; ++at) shown[at] = views(new_ops_[at]);
    for (size_t at = 0; at < ops; ++at) written[at] = overwritten(new_ops_[at]);
    return simulate(shown, written);
  }

  int64_t simulate(const std::vector<std::vector<int32_t>>& shown, const std::vector<std::vector<int32_t>>& written) {
    size_t ops = new_ops_.size();
    std::vector<int64_t> sizes;
    std::vector<int32_t> remaining, created(ops, -1);
    std::vector<std::vector<int32_t>> buffers(new_tensors_.size()), reads(ops);
    for (size_t at = 0; at < group_.inputs.size(); ++at) {
      buffers[at] = {static_cast<int32_t>(at)};
      sizes.push_back(new_tensors_[at].external ? 0 : new_tensors_[at].size);
    }
    size_t given = sizes.size();
    remaining.assign(given, 0);
    std::vector<size_t> seen(given, 0);
    for (size_t at = 0; at < ops; ++at) {
      const NewOp& op = new_ops_[at];
      for (int tensor : op.inputs)
        for (int buffer : buffers[tensor])
          if (seen[buffer] != at + 1) {
            seen[buffer] = at + 1;
            reads[at].push_back(buffer);
            ++remaining[buffer];
          }
      int64_t own = new_tensors_[op.output].size;
      std::vector<int32_t> inner;
      for (size_t place = 0; place < shown[at].size(); ++place) {
        int tensor = shown[at][place];
        if (std::find(shown[at].begin(), shown[at].begin() + place, tensor) != shown[at].begin() + place) continue;
        own -= new_tensors_[tensor].size;
        inner.insert(inner.end(), buffers[tensor].begin(), buffers[tensor].end());
      }
      std::vector<int32_t> once;
      for (int buffer : inner)
        if (std::find(once.begin(), once.end(), buffer) == once.end()) once.push_back(buffer);
      if (once.empty() || own > 0) {
        bool external = new_tensors_[op.output].external;
        created[at] = static_cast<int32_t>(sizes.size());
        sizes.push_back(external ? 0 : std::max<int64_t>(own, 0));
        remaining.push_back(0);
        seen.push_back(0);
        once.push_back(created[at]);
      }
      buffers[op.output] = once;
    }
    std::vector<uint8_t> stays(sizes.size(), 0);
    for (size_t tensor = 0; tensor < given + group_.outputs.size(); ++tensor)
      if (is_output(static_cast<int>(tensor)))
        for (int buffer : buffers[tensor]) stays[buffer] = 1;
    int64_t live = 0, peak = 0;
    for (size_t buffer = 0; buffer < sizes.size(); ++buffer) {
      remaining[buffer] += stays[buffer];
      if (buffer < given && remaining[buffer]) live += sizes[buffer];
    }
    peak = ops ? 0 : live;
    for (size_t at = 0; at < ops; ++at) {
      int64_t released = 0, fresh = 0, merged = 0;
      for (int buffer : reads[at])
        if (!--remaining[buffer]) released += sizes[buffer];
      if (created[at] >= 0) {
        fresh = sizes[created[at]];
        if (!remaining[created[at]]) released += fresh;
      }
      if (released && created[at] >= 0 && buffers[new_ops_[at].output].size() == 1)
        for (int tensor : written[at])
          if (buffers[tensor].size() == 1 && sizes[buffers[tensor][0]] == fresh && !remaining[buffers[tensor][0]])
            merged = fresh;
      peak = std::max(peak, live + fresh + new_ops_[at].workspace - merged);
      live += fresh - released;
    }
    return peak;
  }

  std::vector<TensorInfo> tensors_;
  std::vector<OpInfo> ops_;
  int64_t alignment_ = 1;
  bool align_parts_ = false, slice_views_ = false, joins_ = false, pads_ = false, partial_slices_ = false;
  int32_t most_joined_ = 0;
  std::array<double, 3> helper_units_{};
  std::vector<Run> runs_;
  std::unordered_map<RunKey, int32_t, RunHash> known_;
  RunKey missing_{};

  Group group_;
  std::vector<int32_t> place_;
  std::vector<uint8_t> is_kept_, before_set_;
  std::vector<Region> before_;
  std::vector<Piece> pieces_;
  int32_t underway_ = -1;
  int64_t macs_ = 0, written_macs_ = 0, lasting_ = 0;

  std::vector<NewTensor> new_tensors_;
  std::vector<NewOp> new_ops_;
  std::vector<std::pair<int32_t, Held>> slices_;
  std::vector<std::vector<Held>> parts_;
  std::vector<int32_t> block_, source_, readers_;
  std::vector<uint8_t> part_;
};

}  // namespace

extern "C" {

// Returns null where memory is short.
void* memsched_pieces_new(const int64_t* words) {
  try {
    return new PieceJudge(Reader(words));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void memsched_pieces_free(void* handle) { delete static_cast<PieceJudge*>(handle); }

int32_t memsched_pieces_add(void* handle, const int64_t* words) {
  try {
    static_cast<PieceJudge*>(handle)->add(Reader(words));
    return kDone;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}

// Plan a group, or go on with it where `words` is null; `found` takes (least bytes, multiply-accumulates, runs of each
// op), or the run that is missing.
int32_t memsched_pieces_plan(void* handle, const int64_t* words, int64_t* found) {
  try {
    PieceJudge* judge = static_cast<PieceJudge*>(handle);
    if (words) judge->begin(Reader(words));
    Status status = judge->plan();
    if (status == kMissing) judge->missing_words(found);
    if (status == kDone) {
      found[0] = judge->least();
      found[1] = judge->macs();
      judge->count_runs(found + 2);
    }
    return status;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}

// Judge the group that was planned; `found` takes what `evaluate` returns there.
int32_t memsched_pieces_evaluate(void* handle, int64_t* found) {
  try {
    return static_cast<PieceJudge*>(handle)->evaluate(found);
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}
}
