"""The C++ that executes the stages of a relay in TensorFlow Lite Micro: one header and one source, C++17.

Types of TensorFlow Lite Micro have been in the namespace ``tflite`` and, since 2026, in ``tflite::micro``: the sources
name them through both, and TfLiteTensor and TfLiteStatus not at all. A model's names come into comments only, and as
far as their characters are harmless there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath

from memsched.base.frozen import FrozenValue
from memsched.base.templates import fill
from memsched.base.units import counted
from memsched.report.border import end_text
from memsched.report.c_array import byte_lines
from memsched.report.header import comment_text, identifier
from memsched.report.values.relay import HandOverRow, RelayReport
from memsched.runtimes.arena_facts import ALIGNMENT

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
    yield f"alignas({ALIGNMENT}) const unsigned char {name}[{len(data)}] = {{"
    yield from byte_lines(data)
    yield "};"


def runner_files(report: RelayReport, models: Sequence[bytes]) -> RunnerFiles:
    """Return the runner for the stages in ``models``."""
    return RunnerFiles(_header(report), _source(report, models))


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


def _header(report: RelayReport) -> str:
    runner, block = report.runner, report.result.block_bytes_by_pointer
    values: dict[str, str | int] = {
        "version": comment_text(report.memsched_version),
        "model": comment_text(PurePath(report.model.path).name),
        "stages_counted": counted(len(report.stages), "stage"),
        "class": runner.name,
        "guard": f"{identifier(PurePath(runner.header).name, 'RELAY')}_",
        "stages": len(report.stages),
        "alignment": ALIGNMENT,
        "block_64": block.bits_64,
        "block_32": block.bits_32,
        "inputs": len(runner.inputs),
        "outputs": len(runner.outputs),
        "input_bytes": _constants([one.size_bytes for one in runner.inputs]),
        "output_bytes": _constants([one.size_bytes for one in runner.outputs]),
        "most_made": max(1, *(len(row.makes) for row in report.stages)),
    }
    constructor = [f"  {runner.name}(unsigned char* block, std::size_t bytes);"]
    resolver: list[str] = []
    if runner.custom_operators:
        custom = comment_text(", ".join(runner.custom_operators))
        constructor = [f"  // Needs a resolver of the caller's, for the custom operators {custom}:"]
    else:
        resolver = [f"  tflm::MicroMutableOpResolver<{len(runner.resolver_calls)}> own_;"]
    blocks = {
        "stage_comments": [
            f" *   {row.index + 1}: {len(row.ops)} operators, "
            f"arena {row.arena.bytes} bytes, beside {row.hand_over_bytes}"
            for row in report.stages
        ],
        "input_comments": _comments(report, "input", [one.tensor for one in runner.inputs]),
        "output_comments": _comments(report, "output", [one.tensor for one in runner.outputs]),
        "own_constructor": constructor,
        "own_resolver": resolver,
    }
    return fill("memsched.report", "relay.h", values, blocks)


def _constants(values: Sequence[int]) -> str:
    return ", ".join(str(value) for value in values) or "0"


def _comments(report: RelayReport, side: str, names: Sequence[str]) -> list[str]:
    return [line for number, name in enumerate(names) for line in _told(report, side, number, name)]


def _source(report: RelayReport, models: Sequence[bytes]) -> str:
    runner, stages = report.runner, report.stages
    rows = {one.tensor: one for one in report.hand_overs}
    sizes = {one.tensor: one.size_bytes for one in (*runner.inputs, *runner.outputs)}
    sizes |= {one.tensor: one.size_bytes for one in report.hand_overs}
    values = {
        "version": comment_text(report.memsched_version),
        "header": PurePath(runner.header).name,
        "class": runner.name,
    }
    blocks = {
        "models": [
            line
            for number, data in enumerate(models)
            for line in (f"// Stage {number + 1}.", *c_array(f"kModel{number}", data), "")
        ],
        "moved": [
            line
            for row in stages
            for line in (
                _moved(f"kReads{row.index}", row.reads, sizes, rows),
                _moved(f"kMakes{row.index}", row.makes, sizes, rows),
            )
        ],
        "stages": [
            f"    {{kModel{n}, kReads{n}, {len(row.reads)}, kMakes{n}, {len(row.makes)}, {row.hand_over_bytes}}},"
            for row in stages
            for n in (row.index,)
        ],
        "inputs": _places(stages[0].reads, [one.tensor for one in runner.inputs], rows),
        "outputs": _places(stages[-1].makes, [one.tensor for one in runner.outputs], rows),
        "own_constructor": [] if runner.custom_operators else _own_constructor(runner.name, runner.resolver_calls),
    }
    return fill("memsched.report", "relay.cc", values, blocks)


def _moved(name: str, tensors: Sequence[str], sizes: dict[str, int], rows: dict[str, HandOverRow]) -> str:
    listed = [f"{{{sizes[one]}, {rows[one].from_end_bytes if one in rows else 0}}}" for one in tensors]
    return f"constexpr Moved {name}[] = {{{', '.join(listed or ['{0, 0}'])}}};"


def _places(at_stage: Sequence[str], tensors: Sequence[str], rows: dict[str, HandOverRow]) -> list[str]:
    """Return entries for inputs or outputs of the model: the place at its stage (-1: none) and behind the arenas."""
    places = [
        (at_stage.index(one) if one in at_stage else -1, rows[one].from_end_bytes if one in rows else 0)
        for one in tensors
    ]
    return [f"    {{{place}, {from_end}}}," for place, from_end in places or [(-1, 0)]]


def _own_constructor(name: str, calls: Sequence[str]) -> list[str]:
    """Return the constructor of a runner with a resolver of its own."""
    return [
        f"{name}::{name}(unsigned char* block, std::size_t bytes)",
        "    : block_(block), bytes_(bytes), resolver_(&own_) {",
        "  int failed = 0;",
        *(f"  failed += static_cast<int>(own_.{call}) != 0;" for call in calls),
        "  if (failed != 0) resolved_ = Status::kUnknownOperator;",
        "}",
        "",
    ]
