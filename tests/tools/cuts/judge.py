"""Cases whole and in pieces, as memsched writes them, in the installed runtimes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx import rewriter as onnx_rewriter
from memsched.formats.tflite import rewriter as tflite_rewriter
from memsched.graph.model import Graph, Region
from memsched.ops.cuts import Verdict, role
from memsched.ops.geometry import described
from memsched.ops.ranges import PieceNeeds, deduce
from memsched.ops.rules import Geometry, Refusal
from memsched.rewrites.tile.pieces import Pieces, TilingGroup, plan_pieces
from memsched.rewrites.tile.rewrite import rewrite
from tests.tools.cuts.case import SETS, Case, Sets, draw
from tests.tools.cuts.models import Session, model_of

__all__ = ["Found", "judge"]

Array = Any
_JOINS = {"Concat", "CONCATENATION"}
_COUNTS = (2, 3, 0)
"""Pieces per axis; 0: one for each element, 8 at most."""

_ROUNDING = 1e-4
"""Share of an output's largest magnitude up to which it counts as rounded."""


@dataclass
class Found:
    """What was seen of a kind of cut: how many were compared, how many differ, and an example."""

    exact: int = 0
    rounds: int = 0
    differs: int = 0
    example: str = ""

    @property
    def verdict(self) -> Verdict:
        """Return the worst that was seen."""
        return "differs" if self.differs else "rounds" if self.rounds else "exact"


Key = tuple[str, str, str]
"""Operator, role of the axis, element type."""


def judge(cases: Sequence[Case], sessions: Sequence[Session], seed: int = 0) -> dict[Key, Found]:
    """Return what every cut of ``cases`` that memsched can write gave in ``sessions`` of one runtime."""
    result: dict[Key, Found] = {}
    by_opset: dict[int, list[Case]] = {}
    for case in cases:
        by_opset.setdefault(case.opset, []).append(case)
    for opset, some in sorted(by_opset.items()):
        able = _able(some, sessions, opset)
        for first in range(0, len(able), 60):
            _judge(able[first : first + 60], sessions, seed, result)
    return result


def _able(cases: Sequence[Case], sessions: Sequence[Session], opset: int) -> list[Case]:
    """Return the cases that every session runs."""
    if not cases:
        return []
    feeds = [_feeds(cases, values, 0) for values in SETS]
    data = model_of(cases, feeds[0])
    if data is not None and all(not isinstance(one.run(data, feeds), str) for one in sessions):
        return list(cases)
    if len(cases) == 1:
        return []
    middle = len(cases) // 2
    return [*_able(cases[:middle], sessions, opset), *_able(cases[middle:], sessions, opset)]


def _feeds(cases: Sequence[Case], values: Sets, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng([seed, SETS.index(values)])
    return {
        f"x{number}_{place}": draw(operand, values, rng)
        for number, case in enumerate(cases)
        for place, operand in enumerate(case.operands)
        if operand is not None and operand.value is None
    }


def _judge(cases: Sequence[Case], sessions: Sequence[Session], seed: int, result: dict[Key, Found]) -> None:
    feeds = {values: _feeds(cases, values, seed) for values in SETS}
    data = model_of(cases, feeds["plain"])
    assert data is not None
    module = load_module(data, "given", LoadOptions())
    given = list(feeds.values())
    for one in sessions:
        expected = one.run(data, given)
        assert not isinstance(expected, str)
        for cut in _cuts(module, cases):
            for part, found in _run(cut, module, one, given):
                for number, values in enumerate(SETS):
                    _note(part, module, cases, result, (one.name, values), expected[number], found[number])
        for joined in _joins(module.graphs[0], cases):
            made = joined.run(one, given)
            for number, values in enumerate(SETS if made else ()):
                cut = Cut(keys=joined.keys, words=joined.words)
                _note(cut, module, cases, result, (one.name, values), expected[number], made[number])


def _run(
    cut: Cut, module: Module, session: Session, given: Sequence[Mapping[str, Array]]
) -> Iterator[tuple[Cut, list[dict[str, Array]]]]:
    """Yield what a session makes of all cases that are cut, or of those that it runs in pieces."""
    found = session.run(cut.write(module), given)
    if not isinstance(found, str):
        yield cut, found
    elif len(cut.groups) == 1:
        (op,) = cut.keys
        print(f"it does not run {session.name}: {cut.keys[op]}, {cut.words[op]}: {found[:200]}")
    else:
        middle = len(cut.groups) // 2
        for some in (cut.groups[:middle], cut.groups[middle:]):
            ops = [pieces.group.ops[0] for pieces in some]
            part = Cut(some, {op: cut.keys[op] for op in ops}, {op: cut.words[op] for op in ops}, cut.geometries)
            yield from _run(part, module, session, given)


def _note(
    cut: Cut,
    module: Module,
    cases: Sequence[Case],
    result: dict[Key, Found],
    where: tuple[str, Sets],
    expected: Mapping[str, Array],
    found: Mapping[str, Array],
) -> None:
    """Add what a run showed of every op that is cut."""
    graph = module.graphs[0]
    for op, key in cut.keys.items():
        name = graph.tensors[graph.ops[op].outputs[0]].name
        seen = result.setdefault(key, Found())
        verdict = compared(expected[name], found[name], where[1])
        setattr(seen, verdict, getattr(seen, verdict) + 1)
        if verdict != "exact" and (not seen.example or (verdict == "differs" and "rounds" in seen.example)):
            case = cases[int(name[1:])]
            shapes = [operand and operand.shape for operand in case.operands]
            seen.example = f"{verdict} {', '.join(where)}: {shapes}, {cut.words[op]}, {dict(case.attributes)}"
            seen.example += _difference(expected[name], found[name])


def _difference(first: Array, second: Array) -> str:
    if first.shape != second.shape or first.dtype != second.dtype:
        return f" {first.shape} {second.shape}"
    places = np.argwhere(first.reshape(-1) != second.reshape(-1))
    differing = [(first.reshape(-1)[at].item(), second.reshape(-1)[at].item()) for at in places[:, 0]]
    shown = [pair for pair in differing if not (pair[0] != pair[0] and pair[1] != pair[1])]
    shown.sort(key=lambda pair: bool(np.isfinite(pair[0]) and np.isfinite(pair[1])))
    return f" {len(shown)} of {first.size}: {shown[0][0]!r} {shown[0][1]!r}" if shown else " zeros"


def compared(first: Array, second: Array, values: Sets) -> Verdict:
    """Return how two outputs differ; NaN is NaN, whatever its sign and payload, and -0.0 is not 0.0.

    Of huge values one that is rounded otherwise may overflow, or be all that is left of a difference.
    """
    if first.dtype != second.dtype or first.shape != second.shape:
        return "differs"
    if first.dtype.kind != "f":
        return "exact" if np.array_equal(first, second) else "differs"
    bits = f"u{first.dtype.itemsize}"
    nan = np.isnan(first) & np.isnan(second)
    same = (first.view(bits) == second.view(bits)) | nan
    if same.all():
        return "exact"
    if values == "huge":
        return "rounds"
    finite = np.isfinite(first) & np.isfinite(second)
    if not (same | finite).all():
        return "differs"
    largest = float(np.abs(first[np.isfinite(first)].astype(np.float64)).max(initial=0.0))
    share = _ROUNDING if first.dtype.itemsize > 2 else 2.0**-9
    off = np.abs(first[~same & finite].astype(np.float64) - second[~same & finite].astype(np.float64))
    return "rounds" if off.max() <= max(largest * share, 1e-44) else "differs"


@dataclass(frozen=True)
class Join:
    """A concatenation cut along the axis that it joins: each piece is one of the parts that it touches."""

    op: int
    name: str
    case: Case
    axis: int
    parts: tuple[Mapping[int, Region], ...]
    """Of each piece: the operands that it reads, and which part of each."""

    shapes: tuple[tuple[int, ...], ...]
    """Of the pieces."""

    key: Key

    @property
    def keys(self) -> dict[int, Key]:
        """Return the op with what the table names its cut by."""
        return {self.op: self.key}

    @property
    def words(self) -> dict[int, str]:
        """Return the op with how it is cut."""
        return {self.op: f"axis {self.axis} in {len(self.parts)}"}

    def run(self, session: Session, given: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """Return the pieces beside each other; nothing where the session does not run them."""
        cases: list[Case] = []
        feeds: list[dict[str, Array]] = [{} for _ in given]
        for number, (reads, shape) in enumerate(zip(self.parts, self.shapes, strict=True)):
            operands = []
            for place, (position, region) in enumerate(reads.items()):
                operand = self.case.operands[position]
                assert operand is not None
                cut = tuple(slice(*ends) for ends in region.ranges)
                operands.append(replace(operand, shape=tuple(stop - start for start, stop in region.ranges)))
                for one, values in zip(feeds, given, strict=True):
                    one[f"x{number}_{place}"] = np.ascontiguousarray(values[f"x{self.name[1:]}_{position}"][cut])
            output = self.case.output and replace(self.case.output, shape=shape)
            cases.append(replace(self.case, operands=tuple(operands), output=output))
        data = model_of(cases, feeds[0])
        found = "it was refused" if data is None else session.run(data, feeds)
        if isinstance(found, str):
            return []
        pieces = range(len(cases))
        return [{self.name: np.concatenate([one[f"y{at}"] for at in pieces], self.axis)} for one in found]


def _joins(graph: Graph, cases: Sequence[Case]) -> Iterator[Join]:
    """Yield concatenations in 2 and 3 pieces along the axis that they join, which `plan_pieces` does not write."""
    for op, value in enumerate(graph.ops):
        geometry, name = described(graph, op), graph.tensors[value.outputs[0]].name
        if isinstance(geometry, Refusal) or value.type not in _JOINS:
            continue
        for axis, length in enumerate(geometry.shape):
            word = role(geometry, axis, value.positions)
            for count in (2, 3) if word == "moved" else ():
                ends = [length * at // count for at in range(count + 1)]
                around = [(0, size) for size in geometry.shape]
                wanted = [Region((*around[:axis], part, *around[axis + 1 :])) for part in itertools.pairwise(ends)]
                needed = [deduce(geometry, value, one) for one in wanted]
                parts = tuple(
                    {
                        position: read.region
                        for position, read in zip(value.positions, one.inputs, strict=True)
                        if read.region is not None
                    }
                    for one in needed
                    if isinstance(one, PieceNeeds)
                )
                shapes = tuple(tuple(stop - start for start, stop in one.ranges) for one in wanted)
                key = (value.type, word, graph.tensors[value.inputs[0]].dtype)
                yield Join(op, name, cases[int(name[1:])], axis, parts, shapes, key)


@dataclass
class Cut:
    """All cases cut along an axis of each into as many pieces, where memsched can write that."""

    groups: list[Pieces] = field(default_factory=list)
    keys: dict[int, Key] = field(default_factory=dict)
    words: dict[int, str] = field(default_factory=dict)
    geometries: Mapping[int, Geometry | Refusal] = field(default_factory=dict)

    def write(self, module: Module) -> bytes:
        """Return the file."""
        onnx = module.format == "onnx"
        dialect = (onnx_rewriter if onnx else tflite_rewriter).dialect(module)
        graph = rewrite(module.graphs[0], self.groups, dialect, self.geometries).graph
        order = range(len(graph.ops))
        if onnx:
            return onnx_rewriter.serialize(module, graph, order, {})
        return tflite_rewriter.serialize(module, graph, order)


def _cuts(module: Module, cases: Sequence[Case]) -> Iterator[Cut]:
    graph = module.graphs[0]
    dialect = (onnx_rewriter if module.format == "onnx" else tflite_rewriter).dialect(module)
    geometries = {op: described(graph, op) for op in range(len(graph.ops))}
    rank = max(len(graph.tensors[op.outputs[0]].shape or ()) for op in graph.ops)
    for axis in range(rank):
        for count in _COUNTS:
            cut = Cut(geometries=geometries)
            for op in range(len(graph.ops)):
                _add(cut, graph, op, axis, count, dialect, cases)
            if cut.groups:
                yield cut


def _add(cut: Cut, graph: Graph, op: int, axis: int, count: int, dialect: Any, cases: Sequence[Case]) -> None:
    geometry = cut.geometries[op]
    shape = graph.tensors[graph.ops[op].outputs[0]].shape or ()
    if isinstance(geometry, Refusal) or axis >= len(shape) or axis in geometry.fixed:
        return
    name = graph.tensors[graph.ops[op].outputs[0]].name
    if graph.ops[op].outputs[0] not in graph.outputs or graph.ops[op].type != cases[int(name[1:])].kind:
        return  # a part of a function
    parts = count or min(shape[axis], 8)
    if not 1 < parts <= shape[axis] or (not count and parts <= 3):
        return
    for padded in ((), (op,)):
        pieces = plan_pieces(graph, TilingGroup((op,), (axis,), (parts,), (), padded), dialect, cut.geometries)
        if isinstance(pieces, Pieces):
            cut.groups.append(pieces)
            kind = graph.ops[op].type
            dtype = graph.tensors[graph.ops[op].inputs[0]].dtype
            cut.keys[op] = (kind, role(geometry, axis, graph.ops[op].positions), dtype)
            cut.words[op] = f"axis {axis} in {parts}"
            return
