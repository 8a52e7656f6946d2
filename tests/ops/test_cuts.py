"""The table of cuts: complete, as the installed runtimes have it, and what is proposed follows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.graph.model import Graph, Op, Tensor
from memsched.ops.cuts import TABLE, VERDICTS, table, verdict
from memsched.ops.geometry import describe, described
from memsched.ops.rules import Geometry, Refusal
from memsched.ops.table import OPERATORS
from memsched.targets.text import parse_toml
from tests.small_models import floats, model_of
from tests.tools.cuts import onnx_cases, tflite_cases
from tests.tools.cuts.judge import compared, judge
from tests.tools.cuts.models import Runtime, cases_for, sessions
from tests.tools.cuts.table import RUNTIMES, merged, read, spread, text_of

AGAIN: dict[Runtime, set[str]] = {
    "onnxruntime": {"Relu", "Max", "ReduceMax", "MaxPool", "Concat", "MatMul"},
    "litert": {"MAXIMUM", "MAX_POOL_2D"},
    "tflm": {"MAXIMUM"},
}
"""Operators that are compared again here: a few of each kind, with those that are known to differ."""

WITHOUT_KERNEL = {"HardSwish", "Mish"}
"""Functions, which are executed as their parts."""


def test_every_operator_with_a_rule_is_in_the_table() -> None:
    known = {kind for cuts in read(TABLE).values() for kind, _, _ in cuts}
    assert set(OPERATORS) - known == WITHOUT_KERNEL
    assert known <= set(OPERATORS)


def test_every_operator_with_a_rule_has_a_case() -> None:
    made = {case.kind for case in (*onnx_cases.cases(), *tflite_cases.cases())}
    assert made == set(OPERATORS)


def test_the_table_is_written_as_it_is_read() -> None:
    tables = read(TABLE)
    assert text_of(tables) == TABLE.read_text(encoding="utf-8")
    seen = {key: one for key, one in tables["litert"].items() if key[0] == "ADD"}
    assert merged(tables["litert"], seen) == tables["litert"]
    assert set(parse_toml(TABLE.read_text(encoding="utf-8"))) == set(RUNTIMES)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_runtimes_show_what_the_table_says(runtime: Runtime) -> None:
    cases = [one for one in cases_for(runtime) if one.kind in AGAIN[runtime] and one.dtype in {"float32", "int8"}]
    found = judge(cases, sessions(runtime))
    assert {kind for kind, _, _ in found} == AGAIN[runtime]
    for key, seen in found.items():
        assert VERDICTS.index(seen.verdict) <= VERDICTS.index(verdict(*key)), f"{key}: {seen.example}"


def test_what_is_known_to_differ_differs_again() -> None:
    """A maximum loses NaN by the lane that they lie in; transposed convolutions of parts are rounded otherwise."""
    known: tuple[tuple[Runtime, str, str], ...] = (
        ("onnxruntime", "ReduceMax", "float32"),
        ("litert", "TRANSPOSE_CONV", "int8"),
    )
    for runtime, kind, dtype in known:
        cases = [one for one in cases_for(runtime) if (one.kind, one.dtype) == (kind, dtype)]
        assert "differs" in {seen.verdict for seen in judge(cases, sessions(runtime)).values()}


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ([1.0, np.nan], [1.0, -np.nan], "exact"),
        ([0.0, 1.0], [-0.0, 1.0], "rounds"),
        ([1.0, 3.0], [1.0, np.nextafter(np.float32(3), np.float32(4))], "rounds"),
        ([1.0, np.nan], [1.0, 2.0], "differs"),
        ([1.0, np.inf], [1.0, 2.0], "differs"),
        ([1.0, 2.0], [1.0, 2.1], "differs"),
    ],
)
def test_how_outputs_differ(first: list[float], second: list[float], wanted: str) -> None:
    assert compared(np.array(first, np.float32), np.array(second, np.float32), "plain") == wanted


def test_whole_numbers_differ_by_one() -> None:
    assert compared(np.array([4], np.int8), np.array([5], np.int8), "plain") == "differs"


def test_what_is_lost_at_some_lengths_of_sums_is_lost_at_all() -> None:
    found = spread(
        {
            ("CONV_2D", "channels", "int8"): "exact",
            ("CONV_2D", "channels>128", "int8"): "differs",
            ("CONV_2D", "rows", "float32"): "exact",
            ("CONV_2D", "rows>128", "float32"): "rounds",
        }
    )
    assert list(found.values()) == ["differs", "differs", "exact", "rounds"]


def test_the_table_says_it_of_all_lengths() -> None:
    for cuts in read(TABLE).values():
        assert spread(cuts) == cuts


def test_an_entry_is_looked_up_by_operator_role_and_type() -> None:
    cuts = table({"Conv": ["rows exact float32 float16", "window rounds float32"]})
    assert cuts == {
        ("Conv", "rows", "float32"): "exact",
        ("Conv", "rows", "float16"): "exact",
        ("Conv", "window", "float32"): "rounds",
    }


def reduced(kind: str, dtype: str, axes: tuple[int, ...]) -> Graph:
    made = tuple(1 if axis in axes else 8 for axis in range(4))
    tensors = (Tensor("x", 0, (8, 8, 8, 8), dtype), Tensor("y", 0, made, dtype))
    stated: dict[str, Any] = {"axes": axes, "keepdims": 1}
    return Graph("one", tensors, (Op("op", kind, (0,), (1,), attributes=stated, positions=(0,)),), (0,), (1,))


def test_maxima_of_floats_stay_whole_and_others_do_not() -> None:
    found = describe(reduced("ReduceMax", "float32", (2, 3)), 0)
    assert isinstance(found, Geometry)
    assert set(found.fixed) == {0, 1}
    for kind, dtype in (("ReduceMax", "int8"), ("ReduceMean", "float32")):
        graph = reduced(kind, dtype, (2, 3))
        assert describe(graph, 0) == described(graph, 0)


@pytest.mark.parametrize(("constant", "fixed"), [(True, {1}), (False, {0, 1})])
def test_rows_of_a_product_with_constants_are_cut_without_another_bit(constant: bool, fixed: set[int]) -> None:
    """ONNX Runtime packs constants in one way for any number of rows; others it divides by how many there are."""
    ends = [floats("x", [64, 300])] if constant else [floats("x", [64, 300]), floats("w", [300, 48])]
    weights = [numpy_helper.from_array(np.ones((300, 48), np.float32), "w")] if constant else []
    data = model_of([helper.make_node("MatMul", ["x", "w"], ["y"])], ends, [floats("y", [64, 48])], weights)
    found = describe(load_module(data, "net.onnx", LoadOptions()).graphs[0], 0, exact=True)
    assert isinstance(found, Geometry)
    assert set(found.fixed) == fixed


def test_what_was_never_compared_is_not_cut() -> None:
    assert verdict("Conv", "window", "complex64") == "differs"
    found = describe(reduced("ReduceSum", "complex64", (1,)), 0)
    assert not isinstance(found, Refusal)
    assert set(found.fixed) == {0, 2, 3}


@pytest.mark.parametrize(("runtime", "cut"), [("tflm", True), ("litert", False), ("", False)])
def test_pieces_are_judged_by_the_runtime_that_they_are_for(runtime: str, cut: bool) -> None:
    """LiteRT rounds channels of an int8 depthwise convolution otherwise in pieces; TensorFlow Lite Micro does not."""
    assert verdict("DEPTHWISE_CONV_2D", "groups", "int8", runtime) == ("exact" if cut else "differs")
    shapes = [(1, 8, 8, 16), (1, 3, 3, 16), (1, 8, 8, 16)]
    tensors = tuple(Tensor(name, 0, shape, "int8") for name, shape in zip("xwy", shapes, strict=True))
    stated: dict[str, Any] = {"constant_shape_1": shapes[1], "padding": "SAME", "strides": (1, 1), "dilations": (1, 1)}
    op = Op("op", "DEPTHWISE_CONV_2D", (0,), (2,), attributes=stated, positions=(0,))
    found = describe(Graph("one", tensors, (op,), (0,), (2,), cut_for=runtime), 0)
    assert isinstance(found, Geometry)
    assert (3 not in found.fixed) is cut


def test_what_a_runtime_was_not_compared_in_is_judged_by_the_others() -> None:
    assert verdict("DEPTHWISE_CONV_2D", "window", "uint8", "tflm") == "exact"
    assert verdict("Conv", "rows", "float32", "tflm") == "exact"
