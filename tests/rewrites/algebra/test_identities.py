"""Identities: what they make of small models, and that both runtimes compute the same with them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from memsched.lowering.apply import apply_target
from memsched.rewrites.algebra.search import AlgebraSearch
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.load import load_target
from tests.rewrites.algebra.nets import (
    OnnxNet,
    closed,
    drafted,
    onnx_outputs,
    random_net,
    tflite_net,
    tflite_outputs,
    written,
)

EXACT = ("merge", "shift", "cross", "late", "split")


def types(draft: object) -> Counter[str]:
    return Counter(op.type for op in draft.graph.ops)  # type: ignore[attr-defined]


def test_equal_ops_are_executed_once() -> None:
    net = OnnxNet((1, 2, 6, 6))
    data = net.data(net.same("Add", net.same("Relu", "x"), net.same("Relu", "x")))
    module, draft = drafted(data)
    made, way = closed(draft, ("merge",))
    assert [one.kind for one in way] == ["merge"]
    assert types(made) == {"Relu": 1, "Add": 1}
    assert np.array_equal(onnx_outputs(data)[0], onnx_outputs(written(module, made))[0])


def test_what_is_padded_cropped_and_subsampled_is_cropped_once() -> None:
    net = OnnxNet((1, 2, 111, 111))
    data = net.data(net.same("Relu", net.pool(net.crop(net.pad("x", 0, 1), 1, 0))))
    module, draft = drafted(data)
    made, _ = closed(draft, ("shift",))
    # 111 rows, one more of zeros, without the first: every second one is row 1, 3, ... 109, and the zeros.
    assert types(made) == {"Slice": 1, "Pad": 1, "Relu": 1}
    shapes = [made.graph.tensors[op.outputs[0]].shape for op in made.graph.ops]
    assert shapes == [(1, 2, 55, 55), (1, 2, 56, 56), (1, 2, 56, 56)]
    assert np.array_equal(onnx_outputs(data)[0], onnx_outputs(written(module, made))[0])


def test_a_crop_and_a_pad_are_left_as_they_are() -> None:
    net = OnnxNet((1, 1, 8, 8))
    _, draft = drafted(net.data(net.same("Relu", net.pad(net.crop("x", 2, 0, 2), 0, 1))))
    assert closed(draft, ("shift",))[1] == []


def test_what_reads_a_join_is_computed_for_each_part() -> None:
    net = OnnxNet((1, 3, 8, 8))
    joint = net.join([net.same("Relu", "x"), net.same("Tanh", "x")])
    data = net.data(net.pool(net.conv(joint, 6, group=6), 2, 2, "AveragePool"))
    module, draft = drafted(data)
    assert closed(draft, ("split",))[1] == []  # in blocks of channels, sessions without options round otherwise
    made, way = closed(draft, ("split", "sum"))
    assert [one.kind for one in way] == ["split", "split"]
    assert types(made) == {"Relu": 1, "Tanh": 1, "Conv": 2, "AveragePool": 2, "Concat": 1}
    assert made.graph.ops[-1].type == "Concat"
    assert np.array_equal(onnx_outputs(data)[0], onnx_outputs(written(module, made))[0])


def test_a_convolution_of_a_join_is_a_sum_only_where_that_is_permitted() -> None:
    net = OnnxNet((1, 3, 8, 8))
    data = net.data(net.conv(net.join([net.same("Relu", "x"), net.same("Tanh", "x")]), 2))
    module, draft = drafted(data)
    assert closed(draft, EXACT)[1] == []
    made, _ = closed(draft, ("sum",))
    assert types(made) == {"Relu": 1, "Tanh": 1, "Conv": 2, "Add": 1}
    np.testing.assert_allclose(onnx_outputs(written(module, made))[0], onnx_outputs(data)[0], rtol=1e-5, atol=1e-5)


def test_elements_are_repeated_late_and_left_out_early() -> None:
    net = OnnxNet((1, 2, 6, 6))
    data = net.data(net.same("Sigmoid", net.twice("x")), net.crop(net.same("Tanh", "x"), 0, 0, 2))
    module, draft = drafted(data)
    made, _ = closed(draft, ("cross",))
    assert [op.type for op in made.graph.ops] == ["Sigmoid", "Resize", "Slice", "Tanh"]
    for one, two in zip(onnx_outputs(data), onnx_outputs(written(module, made)), strict=True):
        assert np.array_equal(one, two)


def test_what_is_quantised_is_moved_in_its_bytes() -> None:
    net = OnnxNet((1, 2, 6, 6))
    data = net.data(net.flat(net.turned(net.rounded("x"))), net.rounded(net.turned(net.same("Relu", "x"))))
    module, draft = drafted(data)
    made, _ = closed(draft, ("cross",))
    rows = {op.outputs[0]: op.inputs[0] for op in made.graph.ops}
    kinds = {op.outputs[0]: op.type for op in made.graph.ops}
    read, found = made.graph.outputs[0], []
    while read in kinds:
        found.append(kinds[read])
        read = rows[read]
    assert found == ["DequantizeLinear", "Reshape", "Reshape", "Transpose", "QuantizeLinear"]
    for one, two in zip(onnx_outputs(data), onnx_outputs(written(module, made)), strict=True):
        assert np.array_equal(one, two)


def test_what_repeats_elements_is_executed_for_each_reader() -> None:
    net = OnnxNet((1, 3, 8, 8))
    wide = net.spread("x")
    data = net.data(net.same("Add", net.conv(net.same("Add", "x", wide), 3), wide))
    module, draft = drafted(data)
    made, way = closed(draft, ("late",))
    assert [(one.kind, one.op) for one in way] == [("late", "n4")]
    assert types(made) == {"AveragePool": 1, "Expand": 2, "Add": 2, "Conv": 1}
    assert np.array_equal(onnx_outputs(data)[0], onnx_outputs(written(module, made))[0])


def test_what_waits_made_large_is_made_anew_where_that_lowers_the_peak() -> None:
    net = OnnxNet((1, 4, 16, 16))
    wide = net.spread("x")
    inner = net.conv(net.same("Relu", net.conv(net.same("Add", "x", wide), 12)), 4)
    _, draft = drafted(net.data(net.conv(net.same("Add", inner, wide), 2)))
    ideal = load_target("ideal")
    search = AlgebraSearch(draft, ideal)
    points = [point for point in search.run(Run(Limits(None))) if point is not None]
    assert [[one.kind for one in point.way] for point in points] == [["late"]]
    plane = 4 * 16 * 16
    given = schedule_graph(apply_target(draft.graph, ideal), Run(Limits(None))).schedule.peak
    assert (given, points[-1].peak) == ((12 + 4 + 4) * plane, (12 + 4) * plane + 16)


@pytest.mark.parametrize("kinds", [EXACT, (*EXACT, "sum")], ids=["exact", "sums"])
def test_tflite_models_compute_the_same(kinds: tuple[str, ...]) -> None:
    data = tflite_net()
    module, draft = drafted(data)
    made, way = closed(draft, kinds)
    assert {one.kind for one in way} >= {"merge", "shift", "split"}
    (given,), (found,) = tflite_outputs(data), tflite_outputs(written(module, made))
    if "sum" in kinds:
        assert types(made)["ADD"] == 1
        np.testing.assert_allclose(found, given, rtol=1e-5, atol=1e-5)
    else:
        assert np.array_equal(given, found)


@pytest.mark.parametrize("seed", range(24))
def test_random_models_compute_the_same(seed: int) -> None:
    data = random_net(seed)
    module, draft = drafted(data)
    for kinds in (EXACT, (*EXACT, "sum")):
        made, way = closed(draft, kinds, rounds=2)
        if not way:
            continue
        for one, two in zip(onnx_outputs(data, seed), onnx_outputs(written(module, made), seed), strict=True):
            if "sum" in kinds:
                np.testing.assert_allclose(two, one, rtol=1e-5, atol=1e-5 * float(np.abs(one).max() + 1e-9))
            else:
                assert np.array_equal(one, two), [one.kind for one in way]
