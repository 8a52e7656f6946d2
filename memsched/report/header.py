"""A C header from a report, for a firmware's build: sizes as macros, the model's hash, and where tensors lie.

It is C99 and C++11. A model's names are not to be trusted: they come into comments only, and as far as their
characters are harmless there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

from msgspec import UNSET

from memsched.base.shown import LINE_COLUMNS
from memsched.base.templates import fill
from memsched.graph.border import Side
from memsched.report.border import float_text
from memsched.report.refusals import refusal_lines
from memsched.report.values.border import BorderRow, EndRow
from memsched.report.values.optimize import OptimizeReport, PoolRow
from memsched.report.values.runtime import FirmwareSection

__all__ = ["arena_header", "comment_text", "identifier", "model_name"]

_HARMLESS = re.compile(r"[^A-Za-z0-9 _.,:;/#@()\[\]<>=+-]")


def model_name(report: OptimizeReport, file_name: str) -> str:
    """Return what macros for the model begin with; ``file_name`` names one that has no name of its own."""
    stem = report.model.path if report.model.path != "-" else file_name
    return identifier(PurePath(stem).stem, "MODEL")


def arena_header(report: OptimizeReport, file_name: str, model_bytes: int | None = None) -> str:
    """Return the text of the header ``file_name`` (a path; its last part names the include guard).

    With a target of TensorFlow Lite Micro it states the arena as a whole: the planned part (the head that was
    predicted, otherwise memsched's arena) and estimates of the persistent part and of the room for planning.

    Of a model that TensorFlow Lite Micro refuses it states nothing: whoever includes it gets the reason as an error.

    Args:
        report: Of ``memsched optimize`` or ``memsched analyze``.
        model_bytes: The size of the model where it is in a C array beside the header.
    """
    written = report.output
    named = None if written is None or written.path == "-" else written.path
    model = report.model.path if named is None else named
    file = PurePath(file_name).name
    # No macro below ends in an underscore, so the guard is none of them.
    guard = f"{identifier(file, 'HEADER')}_"
    name = model_name(report, file_name)
    refused = refusal_lines(report)
    sections = [
        [f"/* Written by memsched {comment_text(report.memsched_version)}; do not edit. */"],
        [f"#ifndef {guard}", f"#define {guard}"],
        ["#include <stddef.h>", "#include <stdint.h>"],
        [
            f"/* {comment_text(PurePath(model).name)}, target {comment_text(report.target.name)} */",
            f'#define {name}_MODEL_SHA256 "{_hexadecimal(report.model.sha256 if written is None else written.sha256)}"',
            f'#define {name}_MEMSCHED_VERSION "{comment_text(report.memsched_version)}"',
        ],
        _array(name, model_bytes),
        *(_stated(report, name) if not refused else [[f'#error "{_HARMLESS.sub("_", refused[0][0])}"']]),
        [f"#endif /* {guard} */"],
    ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _stated(report: OptimizeReport, name: str) -> list[list[str]]:
    return [
        _sizes(report, name),
        _versions(report, name),
        fill("memsched.report", "arena_checks.h", {"name": name}, {}).splitlines(),
        _ends(report, name),
        _pools(report, name),
        _tensors(report, name),
    ]


def _array(name: str, size: int | None) -> list[str]:
    if size is None:
        return []
    return [
        "/* The model, aligned to 16 bytes. */",
        f"#define {name}_MODEL_BYTES {_size(size)}",
        "#if defined(__cplusplus)",
        f'extern "C" const unsigned char {name.lower()}_model[{name}_MODEL_BYTES];',
        "#else",
        f"extern const unsigned char {name.lower()}_model[{name}_MODEL_BYTES];",
        "#endif",
    ]


_SINCE = {"AddDynamicUpdateSlice()": "DYNAMIC_UPDATE_SLICE is there since 2025-11-10."}
"""What firmware must have that is newer than most of TensorFlow Lite Micro, by the call that registers it."""

_SINGLE_PLAN = "Releases of 2022 lay all subgraphs by the plan of the first."


def _versions(report: OptimizeReport, name: str) -> list[str]:
    """Return what the model needs of the release of TensorFlow Lite Micro."""
    if not _is_tflm(report) or report.sections.tflm is None or report.sections.firmware is None:
        return []
    planned = bool(report.sections.tflm.plan)
    needs = [_SINCE[call] for call in report.sections.firmware.resolver_calls if call in _SINCE]
    if any(entry.subgraph for entry in report.sections.tflm.plan):
        needs.append(_SINGLE_PLAN)
    return [
        *(["/* Of the release of TensorFlow Lite Micro:", *(f" * {one}" for one in needs), " */"] if needs else []),
        "/* Whether the model brings offsets (metadata OfflineMemoryAllocation), without which it needs more. */",
        f"#define {name}_HAS_MEMORY_PLAN {int(planned)}",
    ]


def identifier(text: str, default: str) -> str:
    """Return ``text`` as a macro's name: no underscore first and none doubled, as those are the compiler's."""
    name = re.sub(r"[^A-Z0-9]+", "_", text.upper(), flags=re.ASCII).strip("_")
    return f"M_{name}" if name[:1].isdigit() else name or default


def comment_text(text: str) -> str:
    """Return a name in a form that can end no comment and no string."""
    shown = _HARMLESS.sub("_", text)
    return shown if len(shown) <= LINE_COLUMNS else f"{shown[: LINE_COLUMNS - 3]}..."


def _hexadecimal(text: str) -> str:
    return re.sub(r"[^0-9a-f]", "", text, flags=re.ASCII)


def _size(value: int) -> str:
    return f"((size_t){value}u)" if value < 1 << 32 else f"((size_t){value}ull)"


def _sizes(report: OptimizeReport, name: str) -> list[str]:
    firmware = report.sections.firmware if _is_tflm(report) else None
    lines = [f"#define {name}_ARENA_ALIGNMENT {report.target.alignment_bytes}"]
    head = _head(report)
    if firmware is None:
        return [
            *lines,
            "/* The activations alone: an interpreter keeps data of its own beside them. */",
            f"#define {name}_ACTIVATION_BYTES {_size(head)}",
            f"#define {name}_ARENA_BYTES {name}_ACTIVATION_BYTES",
        ]
    lines += [
        "/* The planned part of the arena (its head): activations, and scratch buffers of kernels. */",
        f"#define {name}_ACTIVATION_BYTES {_size(head)}",
        "/* Estimates: the persistent part (its tail), and the room that planning takes for a moment. They hold for:",
        *(f" * - {comment_text(assumption)}" for assumption in firmware.assumptions),
        " */",
    ]
    kept, planning = firmware.persistent_bytes_estimate, firmware.planning_bytes_estimate
    pointers = (
        ("> 0xFFFFFFFFu", kept.bits_64, planning.bits_64),
        ("<= 0xFFFFFFFFu", kept.bits_32, planning.bits_32),
    )
    for test, persistent, room in pointers:
        lines += [
            f"#if UINTPTR_MAX {test}",
            f"#define {name}_PERSISTENT_BYTES {_size(persistent)}",
            f"#define {name}_PLANNING_BYTES {_size(room)}",
            "#endif",
        ]
    more = f" + {name}_KERNEL_BYTES" if firmware.unknown_kernels else ""
    return [
        *lines,
        *_unknown(firmware, name),
        "/* What the array must hold that MicroInterpreter is given: a multiple of the alignment. */",
        f"#define {name}_PLANNED_BYTES \\",
        f"    ({name}_ACTIVATION_BYTES > {name}_PLANNING_BYTES ? {name}_ACTIVATION_BYTES : {name}_PLANNING_BYTES)",
        f"#define {name}_ARENA_BYTES \\",
        f"    (({name}_PERSISTENT_BYTES + {name}_PLANNED_BYTES{more} + {name}_ARENA_ALIGNMENT - 1) \\",
        f"     / {name}_ARENA_ALIGNMENT * {name}_ARENA_ALIGNMENT)",
        *_two_arenas(firmware, name, more),
        *_resolver(firmware, name),
    ]


def _two_arenas(firmware: FirmwareSection, name: str, more: str) -> list[str]:
    kept, planning = firmware.apart_persistent_bytes_estimate, firmware.apart_planning_bytes_estimate
    if kept is None or planning is None:
        return []
    lines = [
        "/* Or two arrays, for MicroAllocator::Create: the second is in use throughout Invoke. Read in sources. */"
    ]
    for test, persistent, room in (
        ("> 0xFFFFFFFFu", kept.bits_64, planning.bits_64),
        ("<= 0xFFFFFFFFu", kept.bits_32, planning.bits_32),
    ):
        lines += [
            f"#if UINTPTR_MAX {test}",
            f"#define {name}_PERSISTENT_ARENA_BYTES \\",
            f"    (({_size(persistent)}{more} + {name}_ARENA_ALIGNMENT - 1) \\",
            f"     / {name}_ARENA_ALIGNMENT * {name}_ARENA_ALIGNMENT)",
            f"#define {name}_NON_PERSISTENT_ARENA_BYTES \\",
            f"    ({name}_ACTIVATION_BYTES > {_size(room)} ? {name}_ACTIVATION_BYTES : {_size(room)})",
            "#endif",
        ]
    return lines


def _unknown(firmware: FirmwareSection, name: str) -> list[str]:
    """State no size of an arena for kernels whose needs are unknown, unless whoever includes it gives them."""
    if not firmware.unknown_kernels:
        return []
    kinds = _HARMLESS.sub("_", ", ".join(firmware.unknown_kernels))
    return [
        f"#ifndef {name}_KERNEL_BYTES",
        f'#error "What the kernels of {kinds} need in the arena is not known: define {name}_KERNEL_BYTES."',
        "#endif",
    ]


def _resolver(firmware: FirmwareSection, name: str) -> list[str]:
    calls, lacking = firmware.resolver_calls, firmware.unsupported_operators
    return [
        "/* What a MicroMutableOpResolver must be told of:",
        *(f" * {comment_text(call)};" for call in calls),
        *([f" * TensorFlow Lite Micro does not have {comment_text(', '.join(lacking))}."] if lacking else ()),
        " */",
        f"#define {name}_RESOLVER_SIZE {len(calls)}",
        *_variables(firmware, name),
    ]


def _variables(firmware: FirmwareSection, name: str) -> list[str]:
    if not firmware.resource_variables:
        return []
    return [
        "/* For MicroResourceVariables::Create, with the allocator that MicroInterpreter is given. */",
        f"#define {name}_RESOURCE_VARIABLES {firmware.resource_variables}",
    ]


def _is_tflm(report: OptimizeReport) -> bool:
    return report.sections.tflm is not None


def _head(report: OptimizeReport) -> int:
    head = None if report.sections.tflm is None else report.sections.tflm.head_bytes
    return report.written.schedule.arena_bytes if head is None else head


def _memories(report: OptimizeReport) -> Sequence[PoolRow]:
    """Return the memories from whose beginnings the tensors' offsets count; none where there is one for all."""
    found = report.sections.pools
    return () if _is_tflm(report) or found is None or found.weighted_traffic is None else found.pools


def _pools(report: OptimizeReport, name: str) -> list[str]:
    pools = _memories(report)
    if not pools:
        return []
    return [
        f"/* What each of the target's memories must hold; {name}_ARENA_BYTES is what a single one for all would. */",
        f"#define {name}_POOLS {len(pools)}",
        *(
            f"#define {name}_POOL_{number}_BYTES {_size(pool.used_bytes or 0)} /* {comment_text(pool.name)} */"
            for number, pool in enumerate(pools)
        ),
    ]


def _tensors(report: OptimizeReport, name: str) -> list[str]:
    rows = _rows(report)
    if not rows:
        said = "TensorFlow Lite Micro lays the tensors itself: optimize with --tflm-plan states their offsets."
        return [f"/* {said} */"] if _is_tflm(report) else ["/* No tensor lies in the arena. */"]
    macro = f"{name}_DEFINE_TENSORS"
    pools = [pool.name for pool in _memories(report)]
    begin = "the begin of the pool named" if pools else "the arena's begin"
    return [
        f"/* Where memsched laid the tensors, in bytes from {begin}; 0 bytes: the size is not known. An",
        f" * interpreter that plans by itself lays them elsewhere. Define {macro} before this file",
        f" * is included to get them as {name.lower()}_tensors[]. */",
        f"#define {name}_TENSORS {len(rows)}",
        f"#ifdef {macro}",
        "static const struct {",
        *(["    size_t pool;"] if pools else ()),
        "    size_t offset;",
        "    size_t bytes;",
        f"}} {name.lower()}_tensors[{name}_TENSORS] = {{",
        *(
            f"    {{{_size(pools.index(pool)) + ', ' if pools else ''}{_size(offset)}, {_size(size)}}}, "
            f"/* {number}: {comment_text(tensor)}{' in ' + comment_text(pool) if pools else ''} */"
            for number, (tensor, pool, offset, size) in enumerate(rows)
        ),
        "};",
        "#endif",
    ]


def _ends(report: OptimizeReport, name: str) -> list[str]:
    """State what inputs and outputs are: how many bytes each takes, and what its integers mean."""
    border = report.sections.border
    changed = {(row.side, row.index): row for row in (() if border is None else border.changed)}
    lines = []
    sides: tuple[tuple[Side, tuple[EndRow, ...]], ...] = (
        ("input", report.written.interface.inputs),
        ("output", report.written.interface.outputs),
    )
    for side, ends in sides:
        for number, end in enumerate(ends):
            macro = f"{name}_{side.upper()}_{number}"
            lines += _change(changed.get((side, number)))
            shape = "".join(f"[{size}]" for size in end.shape)
            what = f"{comment_text(end.dtype)}{shape} {comment_text(end.tensor)}"
            lines.append(f"#define {macro}_BYTES {_size(end.size_bytes)} /* {what} */")
            if end.scale is not None and end.zero_point is not None:
                lines.append(f"#define {macro}_SCALE {_float(end.scale)}")
                lines.append(f"#define {macro}_ZERO_POINT ({end.zero_point})")
    if not lines:
        return []
    return ["/* Inputs and outputs; a quantised value means SCALE * (value - ZERO_POINT). */", *lines]


def _change(row: BorderRow | None) -> list[str]:
    """Say what the caller has to do that the model did before."""
    if row is None:
        return []
    before = f"{comment_text(row.given.dtype)}{''.join(f'[{size}]' for size in row.given.shape)}"
    if row.side == "input":
        halves = "" if row.halves is None else f"; round takes halves {row.halves}"
        return [f"/* The model as given took {before}: for its x give {row.formula}{halves}. */"]
    return [f"/* The model as given made {before}: of this q it is {row.formula}. */"]


def _float(number: float) -> str:
    text = float_text(number)
    return f"{text}f" if any(letter in text for letter in ".e") else f"{text}.0f"


def _rows(report: OptimizeReport) -> Sequence[tuple[str, str, int, int]]:
    """Return (name, pool or "", offset, size) of the tensors whose places hold, with no size where it is not known."""
    sizes = {buffer.tensor: buffer.size_bytes for buffer in report.written.buffers}
    if report.sections.tflm is not None:
        planned = (entry for entry in report.sections.tflm.plan if entry.subgraph == 0)
        return [(entry.tensor, "", entry.offset_bytes, sizes.get(entry.tensor, 0)) for entry in planned]
    return [
        (buffer.tensor, "" if buffer.pool is UNSET else buffer.pool, buffer.offset_bytes, sizes[buffer.tensor])
        for buffer in report.written.buffers
    ]
