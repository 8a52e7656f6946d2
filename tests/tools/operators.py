"""Which rewrites take which operators, or why not: `python -m tests.tools.operators --write` makes docs/operators.md.

Every operator with a rule is read from a model of its own, of the cases that the table of cuts is made of, and each
rewrite is asked by the code that it asks itself. An operator is taken where one of its cases is.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import onnx
from onnx import ModelProto

from memsched.base.errors import MemschedError
from memsched.check.algebra import KNOWN
from memsched.features.distribute.space import Space
from memsched.formats.blocks import Range
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx.blocks.cuts import Cut, needs
from memsched.formats.onnx.blocks.open_rules import OpenRules
from memsched.formats.onnx.blocks.probes import OpenValues, probe
from memsched.formats.onnx.blocks.regions import OpenGraph
from memsched.formats.onnx.blocks.rows.field import row_ops
from memsched.formats.onnx.kernels import layer_kernels as onnx_kernels
from memsched.formats.onnx.light import lighten
from memsched.formats.onnx.raised import raised
from memsched.formats.onnx.standard import Axes
from memsched.formats.tflite.kernels import layer_kernels as tflite_kernels
from memsched.graph.kernel import KernelRefusal
from memsched.graph.model import Graph, Op
from memsched.ops.geometry import describe
from memsched.ops.rules import Geometry, Refusal, WholeAxis
from memsched.ops.table import OPERATORS, SHAPED
from memsched.rewrites.recompute.rewrite import repeatable
from tests.tools.cuts import onnx_cases, tflite_cases
from tests.tools.cuts.case import Case, Operand, draw
from tests.tools.cuts.models import model_of

__all__ = ["PAGE", "REWRITES", "YES", "answers", "cases_of", "model_of_case", "page", "table"]

PAGE: Final = Path(__file__).parents[2] / "docs" / "operators.md"

YES: Final = "yes"
_CASES: Final = 24
"""Cases of an operator that are asked about, at most."""

_LENGTHS: Final = {"N": Range(12, 240, 12, named=True)}

_HEAD: Final = """# Operators

Which rewrites take them: `python -m tests.tools.operators --write`.

"""


def cases_of() -> Mapping[str, Sequence[Case]]:
    """Return the cases of each operator, of one type after the other."""
    found: dict[str, dict[str, list[Case]]] = defaultdict(lambda: defaultdict(list))
    for case in itertools.chain(_products_of_images(), onnx_cases.cases(), tflite_cases.cases()):
        found[case.kind][case.dtype].append(case)
    turns = {kind: itertools.zip_longest(*types.values()) for kind, types in found.items()}
    return {kind: tuple(case for turn in some for case in turn if case is not None) for kind, some in turns.items()}


def _products_of_images() -> Iterator[Case]:
    """Yield products with an axis that their rows lie along behind two others, as images have it."""
    x, weights = Operand((2, 3, 12, 7), "uint8"), onnx_cases.constant(np.ones((7, 5)), "int8")
    zero, scale = onnx_cases.constant(3, "uint8"), onnx_cases.constant(0.1, "float32")
    yield Case("MatMulInteger", (x, weights, zero))
    yield Case("QLinearMatMul", (x, scale, zero, weights, scale, onnx_cases.constant(1, "int8"), scale, zero))


def model_of_case(case: Case) -> bytes | None:
    """Return a model of one operator; None where the runtime has no kernel for this case."""
    rng = np.random.default_rng(0)
    given = ((place, one) for place, one in enumerate(case.operands) if one is not None and one.value is None)
    return model_of([case], {f"x0_{place}": draw(one, "plain", rng) for place, one in given})


def _reason(refusal: str) -> str:
    """Return a refusal without the name of the op."""
    return refusal.partition("): ")[2] or refusal


def _of_geometry(graph: Graph) -> Geometry | str:
    found = describe(graph, 0)
    return _reason(found.reason) if isinstance(found, Refusal) else found


def _fixed(geometry: Geometry, otherwise: str) -> str:
    long = [reason for axis, reason in sorted(geometry.fixed.items()) if geometry.shape[axis] > 1]
    return long[0] if long else otherwise


def _tiles(module: Module) -> str:
    geometry = _of_geometry(module.graph)
    if isinstance(geometry, str):
        return geometry
    read = module.graph.ops[0].positions
    for axis, length in enumerate(geometry.shape):
        maps = (one for place in read for one in geometry.operands[place])
        if length > 1 and axis not in geometry.fixed and any(one.output == axis for one in maps):
            return YES
    return _fixed(geometry, "no axis of its output follows one of its inputs")


def _repeats(module: Module) -> str:
    # What an op makes alone is an output of the graph, which nothing makes twice.
    graph = Graph(module.graph.name, module.graph.tensors, module.graph.ops, module.graph.inputs, ())
    return YES if all(repeatable(graph)) else graph.ops[0].effects.words()


def _shares(module: Module) -> str:
    geometry = _of_geometry(module.graph)
    if isinstance(geometry, str):
        return geometry
    divided = set(Space.of(module.graph).divisions[0]) - {"whole"}
    return YES if divided else _fixed(geometry, "neither its rows nor its channels follow from parts of its inputs")


def _exchanges(module: Module) -> str:
    return YES if module.graph.ops[0].type in KNOWN else "no identity of it is known"


def _emits(module: Module) -> str:
    found = (onnx_kernels if module.format == "onnx" else tflite_kernels)(module)[0]
    return found.reason if isinstance(found, KernelRefusal) else YES


# Open lengths -----------------------------------------------------------------------------------------------------


def _opened(model: ModelProto) -> Iterator[tuple[ModelProto, int]]:
    """Yield the model with one axis of its first input open, or of all inputs that have one like it."""
    inputs = [value.type.tensor_type.shape for value in model.graph.input]
    for axis in range(len(inputs[0].dim)):
        length = inputs[0].dim[axis].dim_value
        alike = [
            place
            for place, shape in enumerate(inputs)
            if len(shape.dim) == len(inputs[0].dim) and shape.dim[axis].dim_value == length
        ]
        for places in ([0], alike) if alike != [0] else ([0],):
            found = ModelProto()
            found.CopyFrom(model)
            for place in places:
                found.graph.input[place].type.tensor_type.shape.dim[axis].dim_param = "N"
            for value in found.graph.output:
                value.type.tensor_type.ClearField("shape")
            yield found, axis


def _values(data: bytes) -> OpenValues | None:
    light = ModelProto.FromString(data)
    lighten(light, Path())
    try:
        return probe(light, _LENGTHS)
    except MemschedError:
        return None


def _by_blocks(module: Module, data: bytes) -> str:
    for opened, _ in _opened(raised(onnx.load_model_from_string(data))):
        values, node = _values(opened.SerializeToString()), opened.graph.node[-1]
        lengths = values.shapes.get(node.output[0], ()) if values is not None else ()
        for axis, length in enumerate(lengths):
            is_open = length is not None and length.constant() is None
            if values is not None and is_open and needs(node, Cut(axis), OpenRules(opened.graph, values)) is not None:
                return YES
    if module.graph.ops[0].type in SHAPED:
        return "an operand tells all its lengths"
    geometry = _of_geometry(module.graph)
    if isinstance(geometry, str):
        return geometry
    moved = (one.rule for maps in geometry.operands.values() for one in maps)
    if any(not isinstance(one, WholeAxis) for one in moved):
        return _fixed(geometry, "its elements follow from others than those at their places")
    return _fixed(geometry, "it needs all of its inputs for any part of its output")


def _by_rows(module: Module, data: bytes) -> str:
    for opened, axis in _opened(raised(onnx.load_model_from_string(data))):
        values = _values(opened.SerializeToString()) if axis == Axes.ROWS else None
        if values is not None and any(row_ops(OpenGraph(opened.graph, values, values.typical))):
            return YES
    geometry = _of_geometry(module.graph)
    if isinstance(geometry, str):
        return geometry
    return geometry.fixed.get(Axes.ROWS, "its rows, along axis 2, do not follow from rows of its inputs")


_Question = Callable[[Module, bytes], str]
_FIXED: Final = "its format states all lengths"
_UNRULED: Final = {"repetitions": "yes, if it has no effects"}
_APART: Final = "it is a function, which is taken apart"

REWRITES: Final[Mapping[str, _Question]] = {
    "tiles": lambda module, _: _tiles(module),
    "blocks of open lengths": _by_blocks,
    "rows of open images": _by_rows,
    "repetitions": lambda module, _: _repeats(module),
    "shares of devices": lambda module, _: _shares(module),
    "algebra": lambda module, _: _exchanges(module),
    "C": lambda module, _: _emits(module),
}
"""Rewrites by the head of their column."""

_OPEN: Final = frozenset({"blocks of open lengths", "rows of open images"})


def answers(kind: str, cases: Sequence[Case]) -> Mapping[str, str]:
    """Return per rewrite `YES`, or why it does not take an operator: what its first case has against it."""
    found: dict[str, str] = {}
    asked = 0
    is_onnx = not kind.isupper() or kind == "LRN"
    for case in cases:
        data = model_of_case(case)
        if data is None:
            continue
        module = load_module(data, "given.onnx" if is_onnx else "given.tflite", LoadOptions())
        if len(module.graph.ops) != 1 or module.graph.ops[0].type != kind:
            continue  # a function, or an older form of another operator
        asked += 1
        for rewrite, ask in REWRITES.items():
            if found.get(rewrite) != YES:
                told = _FIXED if rewrite in _OPEN and not is_onnx else ask(module, data)
                found[rewrite] = told if told == YES else found.get(rewrite, told)
        if asked == _CASES or set(found.values()) == {YES}:
            break
    return found


def table() -> Mapping[str, Mapping[str, str]]:
    """Return what each rewrite says of each operator that has a rule, by its type."""
    return {kind: answers(kind, cases) for kind, cases in sorted(cases_of().items()) if kind in OPERATORS}


def page(known: Mapping[str, Mapping[str, str]]) -> str:
    """Return docs/operators.md."""
    rows = [("operator", *REWRITES), ("---",) * (1 + len(REWRITES))]
    for kind, found in known.items():
        rows.append((kind, *(found.get(rewrite, _APART) for rewrite in REWRITES)))
    unknown = Graph("", (), (Op("one", "others", (), ()),), (), ())
    rows.append(("others", *(_UNRULED.get(rewrite, str(_of_geometry(unknown))) for rewrite in REWRITES)))
    return _HEAD + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


if __name__ == "__main__":
    text = page(table())
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
