"""Which block of its inputs a node needs, rule by rule."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from onnx import TensorProto, helper

from memsched.formats.blocks import Range
from memsched.formats.onnx.blocks.cuts import Cut, needs
from memsched.formats.onnx.blocks.open_rules import OpenRules
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.sizes import Polynomial, fit

_RANGES = {"B": Range(1, 8), "N": Range(1, 4096)}


def _length(said: str) -> Polynomial:
    """Read a product such as "2BN"."""
    digits = "".join(one for one in said if one.isdigit())
    symbols = tuple(sorted(one for one in said if one.isalpha()))
    return Polynomial(((symbols, Fraction(digits or "1")),))


def _needs(
    kind: str,
    shapes: dict[str, str],
    cut: Cut,
    *,
    integers: tuple[int, ...] = (),
    elements: dict[str, int] | None = None,
    **attributes: Any,
) -> Any:
    """Return what a node needs; ``shapes``: of its inputs, then of its output, as words."""
    *inputs, output = shapes
    node = helper.make_node(kind, inputs, [output], **attributes)
    lengths = {name: tuple(map(_length, told.split())) for name, told in shapes.items()}
    known = {inputs[-1]: tuple(_length(str(one)) if one else Polynomial(()) for one in integers)} if integers else {}
    values = OpenValues(_RANGES, {}, lengths, elements or {}, known, frozenset(), {})
    return needs(node, cut, OpenRules(helper.make_graph([node], "g", [], []), values))


@pytest.mark.parametrize(
    ("kind", "shapes", "cut", "expected", "more"),
    [
        ("Unsqueeze", {"x": "B N", "axes": "2", "y": "B 1 1 N"}, Cut(3), (Cut(1), None), {"integers": (1, 2)}),
        ("Unsqueeze", {"x": "B N", "axes": "1", "y": "B 1 N"}, Cut(1), None, {"integers": (1,)}),
        ("Squeeze", {"x": "B 1 N", "axes": "1", "y": "B N"}, Cut(1), (Cut(2), None), {"integers": (1,)}),
        ("Transpose", {"x": "B 4 N", "y": "B N 4"}, Cut(1), (Cut(2),), {"perm": [0, 2, 1]}),
        ("Transpose", {"x": "BN 4", "y": "4 BN"}, Cut(1, True), None, {"perm": [1, 0]}),
        ("Gather", {"x": "50 8", "i": "B N", "y": "B N 8"}, Cut(1), (None, Cut(1)), {"axis": 0}),
        ("Gather", {"x": "B 3 N", "i": "1", "y": "B 1 N"}, Cut(2), (Cut(2), None), {"axis": 1}),
        ("Gather", {"x": "B N 3", "i": "1", "y": "B N 1"}, Cut(1), (Cut(1), None), {"axis": 2}),
        ("Reshape", {"x": "B N 8", "s": "2", "y": "BN 8"}, Cut(0, True), (Cut(1), None), {}),
        ("Reshape", {"x": "BN 8", "s": "3", "y": "B N 8"}, Cut(1), (Cut(0, True), None), {}),
        ("Reshape", {"x": "B N 8", "s": "4", "y": "B N 2 4"}, Cut(1), (Cut(1), None), {}),
        ("Reshape", {"x": "B N 8", "s": "3", "y": "B 8 N"}, Cut(2), None, {}),
        ("MatMul", {"x": "B 4 N 8", "w": "B 4 8 N", "y": "B 4 N N"}, Cut(2), (Cut(2), None), {}),
        ("MatMul", {"x": "B 4 N 8", "w": "B 4 8 N", "y": "B 4 N N"}, Cut(3), (None, Cut(3)), {}),
        ("MatMul", {"x": "B N 8", "w": "8 4", "y": "B N 4"}, Cut(1), (Cut(1), None), {}),
        (
            "Gemm",
            {"x": "8 BN", "w": "8 4", "b": "4", "y": "BN 4"},
            Cut(0, True),
            (Cut(1, True), None, None),
            {"transA": 1},
        ),
        ("Softmax", {"x": "B N N", "y": "B N N"}, Cut(1), (Cut(1),), {"axis": -1}),
        ("Softmax", {"x": "B N N", "y": "B N N"}, Cut(2), None, {"axis": -1}),
        ("LayerNormalization", {"x": "B N 8", "s": "8", "y": "B N 8"}, Cut(2), None, {"axis": 1}),
        ("Add", {"x": "B N 8", "b": "N 1", "y": "B N 8"}, Cut(1), (Cut(1), Cut(0)), {}),
        ("Add", {"x": "B N 8", "b": "1 8", "y": "B N 8"}, Cut(1), (Cut(1), None), {}),
        (
            "ReduceSum",
            {"x": "B 4 N 8", "a": "1", "y": "B N 8"},
            Cut(1),
            (Cut(2), None),
            {"integers": (1,), "keepdims": 0},
        ),
        ("ReduceSum", {"x": "B 4 N", "a": "1", "y": "B 4 1"}, Cut(2), None, {"integers": (2,)}),
        ("Concat", {"x": "B N 8", "z": "B N 8", "y": "B N 16"}, Cut(1), (Cut(1), Cut(1)), {"axis": 2}),
        ("Concat", {"x": "B N 8", "z": "B N 8", "y": "B 2N 8"}, Cut(1), None, {"axis": 1}),
        ("MatMul", {"x": "B 4 BN 8", "w": "B 4 8 6", "y": "B 4 BN 6"}, Cut(2, True), (Cut(2, True), None), {}),
        ("Transpose", {"x": "4 BN 8", "y": "4 8 BN"}, Cut(2, True), None, {"perm": [0, 2, 1]}),
        ("Relu", {"x": "B N", "y": "B N"}, Cut(2), None, {}),
        (
            "Unsqueeze",
            {"x": "B BN", "a": "2", "y": "B 1 1 BN"},
            Cut(3, True),
            (Cut(1, True), None),
            {"integers": (1, 2)},
        ),
        ("CumSum", {"x": "B N", "a": "1", "y": "B N"}, Cut(1), None, {}),
    ],
)
def test_what_a_block_needs(kind: str, shapes: dict[str, str], cut: Cut, expected: Any, more: dict[str, Any]) -> None:
    assert _needs(kind, shapes, cut, **more) == expected


def test_lengths_are_fitted() -> None:
    probes = [{"b": b, "n": n} for b, n in ((1, 3), (2, 7), (3, 12), (5, 18), (4, 31), (7, 40), (6, 57), (8, 91))]
    assert fit([2 * one["n"] for one in probes], probes) == Polynomial(((("n",), Fraction(2)),))
    assert fit([one["b"] * one["n"] ** 3 for one in probes], probes) == Polynomial(
        ((("b", "n", "n", "n"), Fraction(1)),)
    )
    found = fit([one["n"] ** 2 + one["b"] + 5 for one in probes], probes)
    assert found is not None
    assert found.at({"b": 10, "n": 100}) == 10015
    assert fit([-(-one["n"] // 2) for one in probes], probes) is None


@pytest.mark.parametrize(("element", "cut"), [(TensorProto.FLOAT, False), (TensorProto.INT32, True)])
def test_blocks_of_maxima_of_floats_would_lose_nan_elsewhere(element: int, cut: bool) -> None:
    shapes = {"x": "B 4 N 8", "a": "1", "y": "B N 8"}
    found = _needs("ReduceMax", shapes, Cut(1), integers=(1,), elements={"x": element}, keepdims=0)
    assert found == ((Cut(2), None) if cut else None)
