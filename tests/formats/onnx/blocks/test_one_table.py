"""What the operator table says at fixed lengths it says at open ones, for every operator of ONNX."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction

import numpy as np
import onnx
from onnx import GraphProto

from memsched.formats.blocks import Range
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.blocks.cuts import Cut, needs
from memsched.formats.onnx.blocks.open_rules import OpenRules
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.standard import Opset
from memsched.formats.onnx.structure import op_type
from memsched.graph.model import Graph
from memsched.ops.geometry import describe
from memsched.ops.rules import POINTWISE, Refusal
from memsched.ops.table import SHAPED
from tests.tools.cuts.case import Case, draw
from tests.tools.cuts.models import model_of
from tests.tools.cuts.onnx_cases import cases

TOLD = {"Resize"}
"""Operators whose cases are told the lengths of their outputs."""


def _first_cases() -> Iterator[Case]:
    """Yield a few cases of each operator."""
    found = sorted((one for one in cases() if one.opset >= Opset.LOOPS_OVER_SEQUENCES), key=lambda one: one.kind)
    for _, some in itertools.groupby(found, key=lambda one: one.kind):
        yield from itertools.islice((one for one in some if one.dtype in {"float32", "int8", "bool"}), 3)


def _model(case: Case) -> onnx.ModelProto | None:
    rng = np.random.default_rng(0)
    feeds = {
        f"x0_{place}": draw(one, "plain", rng)
        for place, one in enumerate(case.operands)
        if one is not None and one.value is None
    }
    data = model_of([case], feeds)
    return None if data is None else onnx.load_model_from_string(data)


def _followers(graph: Graph, axis: int) -> dict[int, int] | None:
    """Return the axis of each operand that goes with an axis of the output; None where a block of it isn't known."""
    geometry = describe(graph, 0)
    if isinstance(geometry, Refusal) or axis in geometry.fixed:
        return None
    found = {}
    for position, maps in geometry.operands.items():
        for place, one in enumerate(maps):
            if one.output == axis and one.rule != POINTWISE:
                return None
            if one.output == axis:
                found[position] = place
    return found if found and found.keys() <= set(graph.ops[0].positions) else None


def _open(graph: GraphProto, axis: int, followers: Mapping[int, int]) -> OpenValues:
    """Return the values of a graph of one node in which an axis is of open length."""
    node, shapes = graph.node[0], {}
    for value in (*graph.input, *graph.output):
        shapes[value.name] = [_number(dim.dim_value) for dim in value.type.tensor_type.shape.dim]
    for tensor in graph.initializer:
        shapes[tensor.name] = [_number(length) for length in tensor.dims]
    length = Polynomial(((("N",), Fraction(1)),))
    shapes[node.output[0]][axis] = length
    for position, place in followers.items():
        shapes[node.input[position]][place] = length
    elements = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
    whole = {"N": Range(1, 4096)}
    return OpenValues(
        whole, {}, {name: tuple(one) for name, one in shapes.items()}, elements, {}, frozenset(), {"N": 64}
    )


def _number(length: int) -> Polynomial:
    return Polynomial((((), Fraction(length)),)) if length else Polynomial(())


def test_every_operator_that_is_known_at_fixed_lengths_is_known_at_open_ones() -> None:
    seen, missed = set(), set()
    for case in _first_cases():
        model = _model(case)
        if model is None or case.kind in SHAPED or case.kind in TOLD:
            continue
        graph = load_module(model.SerializeToString(), "given", LoadOptions()).graphs[0]
        if len(graph.ops) > 1:
            continue  # a function, whose parts are known
        shape = graph.tensors[graph.outputs[0]].shape or ()
        for axis in range(len(shape)):
            followers = _followers(graph, axis) if shape[axis] > 1 else None
            if followers is None:
                continue
            values = _open(model.graph, axis, followers)
            found = needs(model.graph.node[0], Cut(axis), OpenRules(model.graph, values))
            expected = [Cut(followers[at]) if at in followers else None for at in range(len(model.graph.node[0].input))]
            seen.add(case.kind)
            if found is None or list(found) != expected:
                missed.add((op_type(model.graph.node[0]), case.dtype, axis, found))
    assert missed == set()
    assert len(seen) > 100
