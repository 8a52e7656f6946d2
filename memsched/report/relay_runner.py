"""The C++ that executes the stages of a relay in TensorFlow Lite Micro: one header and one source, C++17.

Types of TensorFlow Lite Micro have been in the namespace ``tflite`` and, since 2026, in ``tflite::micro``: the sources
name them through both, and TfLiteTensor and TfLiteStatus not at all. A model's names come into comments only, and as
far as their characters are harmless there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from memsched.frozen import FrozenValue
from memsched.report.border import end_text
from memsched.report.c_array import MODEL_ALIGNMENT, byte_lines
from memsched.report.header import comment_text, identifier
from memsched.report.values.relay import HandOverRow, RelayReport
from memsched.units import counted

__all__ = ["RunnerFiles", "c_array", "runner_files", "runner_name"]


class RunnerFiles(FrozenValue, frozen=True):
    """Texts of the two files."""

    header: str
    source: str


def runner_name(stem: str) -> str:
    """Return the name of the class for a model whose file has this stem: words in capitals."""
    words = re.findall(r"[A-Za-z0-9]+", stem)
    name = "".join(word[:1].upper() + word[1:] for word in words) or "Model"
    return f"{'M' if name[0].isdigit() else ''}{name}Relay"


def c_array(name: str, data: bytes) -> Iterator[str]:
    """Yield the lines of the definition of a constant array ``name``, aligned as a model must be."""
    yield f"alignas({MODEL_ALIGNMENT}) const unsigned char {name}[{len(data)}] = {{"
    yield from byte_lines(data)
    yield "};"


def runner_files(report: RelayReport, models: Sequence[bytes]) -> RunnerFiles:
    """Return the runner for the stages in ``models``."""
    return RunnerFiles(_header(report), _source(report, models))


def _inputs(report: RelayReport) -> list[tuple[str, int, int, int]]:
    """Return per input of the model its name, bytes, place in the first stage (-1: none) and after the arenas (0)."""
    return [
        (
            one.tensor,
            one.size_bytes,
            report.stages[0].reads.index(one.tensor) if one.tensor in report.stages[0].reads else -1,
            _from_end(report, one.tensor),
        )
        for one in report.runner.inputs
    ]


def _outputs(report: RelayReport) -> list[tuple[str, int, int, int]]:
    """Return per output of the model its name, bytes, place in the last stage (-1: none) and behind the arenas (0)."""
    last = report.stages[-1].makes
    return [
        (
            one.tensor,
            one.size_bytes,
            last.index(one.tensor) if one.tensor in last else -1,
            _from_end(report, one.tensor),
        )
        for one in report.runner.outputs
    ]


def _told(report: RelayReport, side: str, index: int, name: str) -> list[str]:
    """Return comments on an input or output: its name, and how it differs from that of the model as given."""
    lines = [f"  // {side} {index}: {comment_text(name)}"]
    for row in () if report.io is None else report.io.changed:
        if (row.side, row.index) == (side, index):
            given = "x being what it was" if side == "input" else "q being this, is what it was"
            lines += [
                f"  //   {end_text(row.written)}, in place of {end_text(row.given)}:",
                f"  //   {row.formula}, {given}",
            ]
    return lines


def _from_end(report: RelayReport, tensor: str) -> int:
    return next((one.from_end_bytes for one in report.hand_overs if one.tensor == tensor), 0)


def _constants(values: Sequence[int]) -> str:
    return ", ".join(str(value) for value in values)


def _header(report: RelayReport) -> str:
    name, block = report.runner.name, report.result.block_bytes_by_pointer
    guard = f"{identifier(PurePath(report.runner.header).name, 'RELAY')}_"
    inputs, outputs = _inputs(report), _outputs(report)
    custom = report.runner.custom_operators
    stages = [
        f" *   {row.index + 1}: {len(row.ops)} operators, arena {row.arena.bytes} bytes, beside {row.hand_over_bytes}"
        for row in report.stages
    ]
    own = (
        [f"  {name}(unsigned char* block, std::size_t bytes);"]
        if not custom
        else [
            "  // Needs a resolver of the caller's, for the custom operators " + comment_text(", ".join(custom)) + ":",
        ]
    )
    most = max(1, *(sum(1 for one in row.makes) for row in report.stages))
    return "\n".join(
        [
            f"/* Written by memsched {comment_text(report.memsched_version)}; do not edit. C++17.",
            " *",
            f" * {comment_text(PurePath(report.model.path).name)} in {counted(len(report.stages), 'stage')}, which",
            " * TensorFlow Lite Micro executes one after the other in one block of memory. Each stage has its arena at",
            " * the block's begin; what stages hand over lies at its end.",
            *stages,
            " * Their sizes hold for pointers of 32 bits and the target's kernels.",
            " *",
            f" *   alignas({name}::kBlockAlignment) static unsigned char block[{name}::kBlockBytes];",
            f" *   static {name} model(block, sizeof(block));",
            f" *   if (model.Prepare() != {name}::Status::kOk) ...  // before every inference",
            f" *   std::memcpy(model.input(0), image, {name}::kInputBytes[0]);",
            f" *   if (model.Invoke() != {name}::Status::kOk) ...",
            " *   model.output(0) ...                              // until the next Prepare()",
            " *",
            " * It allocates nothing beside the block and itself, throws nothing, and is for one thread.",
            " */",
            f"#ifndef {guard}",
            f"#define {guard}",
            "",
            "#include <cstddef>",
            "#include <cstdint>",
            "",
            '#include "tensorflow/lite/micro/micro_interpreter.h"',
            '#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"',
            "",
            "namespace tflite {",
            "namespace micro {}",
            "}  // namespace tflite",
            "",
            "namespace memsched {",
            "namespace tflm {",
            "// Where TensorFlow Lite Micro has its types depends on its age.",
            "using namespace ::tflite;         // NOLINT",
            "using namespace ::tflite::micro;  // NOLINT",
            "}  // namespace tflm",
            "",
            f"class {name} {{",
            " public:",
            "  enum class Status {",
            "    kOk,",
            "    kBlockTooSmall,      // or not aligned to kBlockAlignment",
            "    kNotPrepared,        // Invoke() without Prepare() before it",
            "    kUnknownOperator,    // the resolver could not be told of all operators",
            "    kWrongSchema,        // the library reads models of another schema",
            "    kAllocationFailed,   // AllocateTensors(): see stage()",
            "    kUnexpectedTensor,   // a tensor is not there, or of another size: see stage()",
            "    kInvokeFailed,       // Invoke() of a stage: see stage()",
            "  };",
            "",
            f"  static constexpr std::size_t kStages = {len(report.stages)};",
            f"  static constexpr std::size_t kBlockAlignment = {MODEL_ALIGNMENT};",
            "  static constexpr std::size_t kBlockBytes =",
            f"      sizeof(void*) > 4 ? {block.bits_64} : {block.bits_32};",
            f"  static constexpr std::size_t kInputs = {len(inputs)};",
            f"  static constexpr std::size_t kOutputs = {len(outputs)};",
            *(line for n, one in enumerate(inputs) for line in _told(report, "input", n, one[0])),
            f"  static constexpr std::size_t kInputBytes[] = {{{_constants([one[1] for one in inputs]) or 0}}};",
            *(line for n, one in enumerate(outputs) for line in _told(report, "output", n, one[0])),
            f"  static constexpr std::size_t kOutputBytes[] = {{{_constants([one[1] for one in outputs]) or 0}}};",
            "",
            "  // block: aligned to kBlockAlignment; bytes: kBlockBytes or more, a multiple of kBlockAlignment.",
            *own,
            "  // With a resolver of the caller's, which outlives this object.",
            f"  {name}(unsigned char* block, std::size_t bytes, const tflm::MicroOpResolver& resolver);",
            f"  ~{name}();",
            f"  {name}(const {name}&) = delete;",
            f"  {name}& operator=(const {name}&) = delete;",
            "",
            "  // Allocates the first stage, so that inputs can be written.",
            "  Status Prepare();",
            "  // Where input i is to be written, after Prepare() and before Invoke(); null where it is not there.",
            "  void* input(std::size_t i);",
            "  // Executes all stages.",
            "  Status Invoke();",
            "  // Output i, after Invoke() and before the next Prepare(); null where it is not there.",
            "  const void* output(std::size_t i);",
            "  // The stage in which the last call ended, from 0.",
            "  std::size_t stage() const { return stage_; }",
            "",
            " private:",
            "  Status Begin(std::size_t stage);",
            "  void End();",
            "  Status Read();",
            "  Status HandOver();",
            "  unsigned char* At(std::size_t from_end) const;",
            "",
            "  unsigned char* block_;",
            "  std::size_t bytes_;",
            "  std::size_t stage_ = 0;",
            "  bool prepared_ = false;",
            "  bool done_ = false;",
            *([] if custom else [f"  tflm::MicroMutableOpResolver<{len(report.runner.resolver_calls)}> own_;"]),
            "  const tflm::MicroOpResolver* resolver_;",
            "  Status resolved_ = Status::kOk;",
            "  tflm::MicroInterpreter* interpreter_ = nullptr;",
            "  alignas(tflm::MicroInterpreter) unsigned char room_[sizeof(tflm::MicroInterpreter)];",
            f"  static constexpr std::size_t kMostMade = {most};",
            "};",
            "",
            "}  // namespace memsched",
            "",
            f"#endif  // {guard}",
            "",
        ]
    )


def _source(report: RelayReport, models: Sequence[bytes]) -> str:
    name = report.runner.name
    arrays = [
        line
        for number, data in enumerate(models)
        for line in (f"// Stage {number + 1}.", *c_array(f"kModel{number}", data), "")
    ]
    return "\n".join(
        [
            f"/* Written by memsched {comment_text(report.memsched_version)}; do not edit. C++17. */",
            f'#include "{PurePath(report.runner.header).name}"',
            "",
            "#include <cstring>",
            "#include <new>",
            "",
            '#include "tensorflow/lite/schema/schema_generated.h"',
            "",
            "namespace memsched {",
            "namespace {",
            "",
            *arrays,
            *_tables(report),
            _COVERS,
            "}  // namespace",
            "",
            *_constructors(report),
            _BODY.replace("@", name),
            "}  // namespace memsched",
            "",
        ]
    )


def _tables(report: RelayReport) -> list[str]:
    """Return the tables that say what each stage reads, keeps and makes."""
    rows = {one.tensor: one for one in report.hand_overs}
    sizes = {one.tensor: one.size_bytes for one in (*report.runner.inputs, *report.runner.outputs)}
    sizes |= {one.tensor: one.size_bytes for one in report.hand_overs}
    lines = [
        "// A tensor of a stage: its bytes, and where it lies behind the arenas, counted from the block's end, or 0.",
        "struct Moved {",
        "  std::size_t bytes;",
        "  std::size_t from_end;",
        "};",
        "",
    ]
    for row in report.stages:
        lines += _moved(f"kReads{row.index}", row.reads, sizes, rows)
        lines += _moved(f"kMakes{row.index}", row.makes, sizes, rows)
    lines += [
        "",
        "struct Stage {",
        "  const unsigned char* model;",
        "  const Moved* reads;",
        "  std::size_t read;",
        "  const Moved* makes;",
        "  std::size_t made;",
        "  std::size_t kept;  // bytes at the block's end that its arena leaves alone",
        "};",
        "",
        "constexpr Stage kStage[] = {",
    ]
    for row in report.stages:
        n = row.index
        lines.append(
            f"    {{kModel{n}, kReads{n}, {len(row.reads)}, kMakes{n}, {len(row.makes)}, {row.hand_over_bytes}}},"
        )
    lines += ["};", ""]
    for title, found in (("kInput", _inputs(report)), ("kOutput", _outputs(report))):
        which = "first" if title == "kInput" else "last"
        lines += [
            f"// Per {title[1:].lower()} of the model its place in the {which} stage, or -1, and behind the arenas.",
            f"constexpr struct {{ int place; std::size_t from_end; }} {title}[] = {{",
            *(f"    {{{place}, {from_end}}}," for _, _, place, from_end in found),
            *(["    {-1, 0},"] if not found else []),
            "};",
            "",
        ]
    return lines


def _moved(name: str, tensors: Sequence[str], sizes: dict[str, int], rows: dict[str, HandOverRow]) -> list[str]:
    listed = [f"{{{sizes[one]}, {rows[one].from_end_bytes if one in rows else 0}}}" for one in tensors]
    return [f"constexpr Moved {name}[] = {{{', '.join(listed or ['{0, 0}'])}}};"]


def _constructors(report: RelayReport) -> list[str]:
    name = report.runner.name
    lines = []
    if not report.runner.custom_operators:
        lines = [
            f"{name}::{name}(unsigned char* block, std::size_t bytes)",
            "    : block_(block), bytes_(bytes), resolver_(&own_) {",
            "  int failed = 0;",
            *(f"  failed += static_cast<int>(own_.{call}) != 0;" for call in report.runner.resolver_calls),
            "  if (failed != 0) resolved_ = Status::kUnknownOperator;",
            "}",
            "",
        ]
    return [
        *lines,
        f"{name}::{name}(unsigned char* block, std::size_t bytes, const tflm::MicroOpResolver& resolver)",
        "    : block_(block), bytes_(bytes), resolver_(&resolver) {}",
        "",
    ]


_COVERS = """\
// Whether tensor i of those that a stage has made would, moved to `begin`, lie over another that is still to be moved.
bool Covers(const Stage& stage, const unsigned char* const* made, std::size_t i, const unsigned char* begin) {
  for (std::size_t j = 0; j < stage.made; ++j) {
    if (j == i || made[j] == nullptr) continue;
    if (begin < made[j] + stage.makes[j].bytes && made[j] < begin + stage.makes[i].bytes) return true;
  }
  return false;
}
"""

_BODY = """\
@::~@() { End(); }

unsigned char* @::At(std::size_t from_end) const { return block_ + bytes_ - from_end; }

void @::End() {
  if (interpreter_ != nullptr) interpreter_->~MicroInterpreter();
  interpreter_ = nullptr;
}

@::Status @::Begin(std::size_t stage) {
  End();
  stage_ = stage;
  const auto* model = ::tflite::GetModel(kStage[stage].model);
#ifdef TFLITE_SCHEMA_VERSION
  if (model->version() != TFLITE_SCHEMA_VERSION) return Status::kWrongSchema;
#endif
  interpreter_ = new (room_) tflm::MicroInterpreter(model, *resolver_, block_, bytes_ - kStage[stage].kept);
  if (static_cast<int>(interpreter_->AllocateTensors()) != 0) return Status::kAllocationFailed;
  for (std::size_t i = 0; i < kStage[stage].read; ++i) {
    const auto* tensor = interpreter_->input(i);
    if (tensor == nullptr || tensor->bytes != kStage[stage].reads[i].bytes) return Status::kUnexpectedTensor;
  }
  for (std::size_t i = 0; i < kStage[stage].made; ++i) {
    const auto* tensor = interpreter_->output(i);
    if (tensor == nullptr || tensor->bytes != kStage[stage].makes[i].bytes) return Status::kUnexpectedTensor;
  }
  return Status::kOk;
}

// Gives the stage what was handed over; of the first one's inputs, keeps what later stages read.
@::Status @::Read() {
  const Stage& stage = kStage[stage_];
  for (std::size_t i = 0; i < stage.read; ++i) {
    if (stage.reads[i].from_end == 0) continue;
    void* inside = interpreter_->input(i)->data.data;
    void* outside = At(stage.reads[i].from_end);
    if (stage_ == 0) {
      std::memcpy(outside, inside, stage.reads[i].bytes);
    } else {
      std::memcpy(inside, outside, stage.reads[i].bytes);
    }
  }
  return Status::kOk;
}

// Moves what the stage has made to the block's end. Its arena is of no more use, so it may be overwritten, but not
// what is still to be moved.
@::Status @::HandOver() {
  const Stage& stage = kStage[stage_];
  const unsigned char* made[kMostMade] = {};
  for (std::size_t i = 0; i < stage.made; ++i) {
    if (stage.makes[i].from_end != 0) {
      made[i] = static_cast<const unsigned char*>(interpreter_->output(i)->data.data);
    }
  }
  // The interpreter's own structures lie where the tensors go.
  End();
  for (std::size_t left = stage.made; left > 0; --left) {
    std::size_t next = 0;
    while (next < stage.made &&
           (made[next] == nullptr || Covers(stage, made, next, At(stage.makes[next].from_end)))) {
      ++next;
    }
    if (next == stage.made) break;
    std::memmove(At(stage.makes[next].from_end), made[next], stage.makes[next].bytes);
    made[next] = nullptr;
  }
  for (std::size_t i = 0; i < stage.made; ++i) {
    if (made[i] != nullptr) return Status::kBlockTooSmall;
  }
  return Status::kOk;
}

@::Status @::Prepare() {
  prepared_ = done_ = false;
  End();
  if (resolved_ != Status::kOk) return resolved_;
  if (bytes_ < kBlockBytes || bytes_ % kBlockAlignment != 0 ||
      reinterpret_cast<std::uintptr_t>(block_) % kBlockAlignment != 0) {
    return Status::kBlockTooSmall;
  }
  const Status status = Begin(0);
  prepared_ = status == Status::kOk;
  return status;
}

void* @::input(std::size_t i) {
  if (!prepared_ || i >= kInputs) return nullptr;
  if (kInput[i].place >= 0) return interpreter_->input(static_cast<std::size_t>(kInput[i].place))->data.data;
  return kInput[i].from_end != 0 ? At(kInput[i].from_end) : nullptr;
}

@::Status @::Invoke() {
  if (!prepared_) return Status::kNotPrepared;
  prepared_ = false;
  for (std::size_t stage = 0; stage < kStages; ++stage) {
    Status status = stage == 0 ? Status::kOk : Begin(stage);
    if (status == Status::kOk) status = Read();
    if (status != Status::kOk) return status;
    if (static_cast<int>(interpreter_->Invoke()) != 0) return Status::kInvokeFailed;
    if (stage + 1 == kStages) break;
    status = HandOver();
    if (status != Status::kOk) return status;
  }
  done_ = true;
  return Status::kOk;
}

const void* @::output(std::size_t i) {
  if (!done_ || i >= kOutputs) return nullptr;
  if (kOutput[i].place >= 0) return interpreter_->output(static_cast<std::size_t>(kOutput[i].place))->data.data;
  return kOutput[i].from_end != 0 ? At(kOutput[i].from_end) : nullptr;
}
"""
