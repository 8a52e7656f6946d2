"""Attention by the kernel MultiHeadAttention, run beside the model as given: heads, masks and scales of every kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, checker

from memsched.formats.blocks import Range
from memsched.formats.onnx.blocks import fused, held
from memsched.formats.onnx.blocks.attention import find_attention
from memsched.formats.onnx.blocks.fused import kernel_points, write_kernels
from memsched.formats.onnx.blocks.probes import OpenValues, probe
from memsched.formats.onnx.blocks.regions import OpenGraph
from memsched.formats.onnx.light import lighten
from tests.formats.onnx.blocks.layers import Layers

_RANGES: Final = {"batch": Range(1, 8), "length": Range(2, 4096, named=True)}
_LEAST: Final = float(np.finfo(np.float32).min)


class _Net(Layers):
    """Attention whose parts are chosen one by one."""

    def attending(self, x: str, *, scale: str, mask: str, flat: bool = False, moves: bool = True) -> str:
        """Attend; ``scale`` and ``mask`` say how scores are made."""
        orders = ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        parts = [self.split_heads(self.linear(x, self.width, self.width), order) for order in orders]
        if flat:
            parts = [self._flat(part, turned=place == 1) for place, part in enumerate(parts)]
        if scale == "queries":
            parts[0] = self.op("Mul", parts[0], self.constant(np.float32(0.3)))
        scores = self.op("MatMul", parts[0], parts[1])
        if scale in {"Div", "Mul"}:
            scores = self.op(scale, scores, self.constant(np.float32(2 if scale == "Div" else 0.4)))
        scores = self._masked(scores, mask)
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), parts[2])
        if not moves:
            return self.op("ReduceMean", mixed, axes=[1], keepdims=0)
        if flat:
            parted = self.integers(self.heads), self.size(x, 1), self.integers(self.width // self.heads)
            mixed = self.op("Reshape", mixed, self.op("Concat", self.size(x, 0), *parted, axis=0))
        joined = self.op("Transpose", mixed, perm=[0, 2, 1, 3])
        whole = self.size(joined, 0), self.size(joined, 1), self.integers(self.width)
        return self.op("Reshape", joined, self.op("Concat", *whole, axis=0))

    def _flat(self, part: str, *, turned: bool) -> str:
        depth, length = self.integers(self.width // self.heads), self.size("x", 1)
        tail = (depth, length) if turned else (length, depth)
        return self.op("Reshape", part, self.op("Concat", self.integers(-1), *tail, axis=0))

    def _masked(self, scores: str, kind: str) -> str:
        if kind == "none":
            return scores
        if kind == "slope":
            rows = self.constant(np.linspace(0, 1, self.heads, dtype=np.float32).reshape(1, -1, 1, 1))
            return self.op("Add", scores, self.op("Mul", rows, self.op("Cast", self._shown(), to=1)))
        if kind == "where":
            seen = self.op("Cast", self._shown(), to=9)
            return self.op("Where", seen, scores, self.constant(np.float32(-1e9)))
        absent = self.op("Sub", self.constant(np.float32(1)), self.op("Cast", self._shown(kind == "square"), to=1))
        return self.op("Add", scores, self.op("Mul", absent, self.constant(np.float32(_LEAST))))

    def _shown(self, square: bool = False) -> str:
        self.padding_mask()
        mask = self.op("Unsqueeze", "attention_mask", self.integers(1, 2))
        if not square:
            return mask
        length = self.size("x", 1)
        shape = self.op("Concat", self.size("x", 0), self.integers(1), length, length, axis=0)
        return self.op("Expand", mask, shape)


def _values(model: ModelProto) -> OpenValues:
    light = ModelProto()
    light.CopyFrom(model)
    lighten(light, Path())
    return probe(light, _RANGES)


def _written(model: ModelProto, kernels: int) -> ModelProto:
    values = _values(model)
    graph = OpenGraph(model.graph, values, values.typical)
    found = find_attention(graph, model.graph)
    assert len(found) == kernels
    written = write_kernels(model, graph, found)
    checker.check_model(written)
    kinds = [node.op_type for node in written.graph.node]
    assert (kinds.count("MultiHeadAttention"), kinds.count("Softmax")) == (kernels, 0)
    return written


def _feeds(model: ModelProto, batch: int, length: int) -> dict[str, npt.NDArray[Any]]:
    numbers = np.random.default_rng(length)
    feeds: dict[str, npt.NDArray[Any]] = {"x": numbers.standard_normal((batch, length, 16)).astype(np.float32)}
    if any(value.name == "attention_mask" for value in model.graph.input):
        feeds["attention_mask"] = numbers.integers(0, 2, (batch, length))
    return feeds


def _apart(model: ModelProto, written: ModelProto, lengths: tuple[int, ...]) -> float:
    """Return how far outputs are apart at most, relative to the largest; texts without any token are among them."""
    plain, kernels = (onnxruntime.InferenceSession(one.SerializeToString()) for one in (model, written))
    worst = 0.0
    for length in lengths:
        feeds = _feeds(model, 1 + length % 3, length)
        expected, found = plain.run(None, feeds)[0], kernels.run(None, feeds)[0]
        assert found.shape == expected.shape
        worst = max(worst, float(np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-3)))
    return worst


@given(
    heads=st.sampled_from([1, 2, 4, 8]),
    scale=st.sampled_from(["Div", "Mul", "queries", "none"]),
    mask=st.sampled_from(["none", "add", "square", "where", "slope"]),
    flat=st.booleans(),
    lengths=st.tuples(st.integers(2, 6), st.integers(7, 200)),
)
@settings(max_examples=10, deadline=None, derandomize=True)
def test_kernels_give_the_same_whatever_heads_masks_and_scales(
    heads: int, scale: str, mask: str, flat: bool, lengths: tuple[int, int]
) -> None:
    net = _Net(heads=heads)
    flat = flat and mask == "none"
    model = net.model(net.op("Add", "x", net.attending("x", scale=scale, mask=mask, flat=flat)))
    assert _apart(model, _written(model, 1), lengths) <= 1e-5


def test_what_reads_results_otherwise_gets_them() -> None:
    net = _Net(heads=4)
    y = net.attending("x", scale="Div", mask="add", moves=False)
    model = net.model(net.linear(y, 4, 16))
    assert _apart(model, _written(model, 1), (2, 3, 65)) <= 1e-5


def test_layers_share_a_mask_and_other_lengths_are_refused() -> None:
    net = _Net(heads=2)
    x = net.op("Add", "x", net.attending("x", scale="Div", mask="square"))
    rows = next(node.output[0] for node in reversed(net.nodes) if node.op_type == "Mul")
    heads = net.split_heads(x, (0, 2, 1, 3)), net.split_heads(x, (0, 2, 3, 1)), net.split_heads(x, (0, 2, 1, 3))
    scores = net.op("Add", net.op("MatMul", heads[0], heads[1]), rows)
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1), heads[2])
    model = net.model(net.linear(net.op("ReduceSum", mixed, net.integers(1), keepdims=0), 8, 16))
    written = _written(model, 2)
    assert _apart(model, written, (2, 31)) <= 1e-5
    session = onnxruntime.InferenceSession(written.SerializeToString())
    with pytest.raises(Exception, match="length_must_be_2_to_4096"):
        session.run(None, _feeds(model, 1, 1))


def test_a_mask_that_loses_its_column_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "LARGEST_FLOAT", 0.0)
    net = _Net()
    model = net.model(net.op("Add", "x", net.attending("x", scale="Div", mask="add")))
    assert _apart(model, _written(model, 1), (31,)) > 1e-3


@pytest.mark.parametrize("kind", ["causal", "infinite", "mild", "read"])
def test_other_attention_stays_as_it_is(kind: str) -> None:
    net = _Net()
    if kind == "causal":
        model = net.model(net.attention("x", causal=True))
    else:
        fill = {"infinite": -np.inf, "mild": -9.0, "read": -1e9}[kind]
        x = net.attending("x", scale="Div", mask="where")
        for tensor in net.constants.values():
            if tensor.raw_data == np.float32(-1e9).tobytes():
                tensor.raw_data = np.float32(fill).tobytes()
        if kind == "read":
            weights = next(node.output[0] for node in net.nodes if node.op_type == "Softmax")
            x = net.op("Add", x, net.op("MatMul", net.op("ReduceMean", weights, axes=[1], keepdims=0), "x"))
        model = net.model(x)
    values = _values(model)
    assert not find_attention(OpenGraph(model.graph, values, values.typical), model.graph)
    assert kernel_points(model, values) == ()


@pytest.mark.parametrize("least", [256, 1 << 16])
def test_the_rest_goes_into_loops(least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "LARGE_WEIGHT", least)
    net = _Net()
    x = net.op("Add", "x", net.attending("x", scale="Div", mask="add"))
    model = net.model(net.op("Add", x, net.feed_forward(x)))
    points = kernel_points(model, _values(model))
    kinds = [[row.kind for row in point.rows] for point in points]
    alone = int(least > 256)
    assert kinds == [*[["kernel", "loop"]] * alone, ["kernel"], *[["kernel", "loop"]] * (2 - alone)]
    assert all(point.kernels for point in points)
    written = ModelProto.FromString(points[1 - alone].build())
    nodes = [node.op_type for node in written.graph.node]
    assert (nodes.count("MultiHeadAttention"), nodes.count("Loop")) == (1, 1)
    assert _apart(model, written, (2, 97)) <= 1e-5
    assert points[1 - alone].build() == points[1 - alone].build()
