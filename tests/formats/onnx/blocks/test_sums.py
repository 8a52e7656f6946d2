"""Sums along an axis of open length in loops, run beside the model as given: attention over keys, pools, two passes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, checker, helper, shape_inference

from memsched.commands.optimize.over_sizes import RangeRequest, _permitted
from memsched.commands.options import Options
from memsched.formats.blocks import BlockPoint, Range
from memsched.formats.onnx.blocks import sums
from memsched.formats.onnx.blocks.probes import OpenValues, probe
from memsched.formats.onnx.blocks.regions import OpenGraph
from memsched.formats.onnx.blocks.sums import find_sums, sum_points
from memsched.formats.onnx.blocks.sums_body import SumGroup, write_sums
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime.ranged import draw_at, run_on
from tests.formats.onnx.blocks.layers import Layers
from tests.formats.onnx.blocks.random_layers import compare_sums

_MOST: Final = 2048
_RANGES: Final = {"batch": Range(1, 8), "length": Range(1, _MOST, named=True)}
_LATENTS: Final = 6
_LEAST: Final = float(np.finfo(np.float32).min)


class _Net(Layers):
    """What adds up over tokens."""

    def attending(self, mask: str = "none") -> str:
        """Let a few latent vectors attend to all tokens."""
        width, depth = self.width, self.width // self.heads
        latents = self.linear(self.weight(1, _LATENTS, width), width, width)
        shape = self.integers(1, _LATENTS, self.heads, depth)
        queries = self.op("Transpose", self.op("Reshape", latents, shape), perm=[0, 2, 1, 3])
        keys = self.split_heads(self.linear("x", width, width), (0, 2, 3, 1))
        values = self.split_heads(self.linear("x", width, width), (0, 2, 1, 3))
        scores = self.op("Div", self.op("MatMul", queries, keys), self.constant(np.float32(0.7)))
        mixed = self.op("MatMul", self.op("Softmax", self._masked(scores, mask), axis=-1), values)
        joined = self.op("Transpose", mixed, perm=[0, 2, 1, 3])
        return self.linear(self.op("Reshape", joined, self.integers(0, _LATENTS, width)), width, width)

    def _masked(self, scores: str, mask: str) -> str:
        if mask == "none":
            return scores
        absent = self.op("Sub", self.constant(np.float32(1)), self.op("Cast", self._shown(), to=TensorProto.FLOAT))
        if mask == "least":
            return self.op("Add", scores, self.op("Mul", absent, self.constant(np.float32(_LEAST))))
        seen = self.op("Equal", absent, self.constant(np.float32(0)))
        return self.op("Where", seen, scores, self.constant(np.float32(-np.inf)))

    def _shown(self) -> str:
        self.padding_mask()
        return self.op("Unsqueeze", "attention_mask", self.integers(1, 2))

    def pooled(self, kind: str, opset: int, axes: Sequence[int], keep: int) -> str:
        """Add up what a feed-forward layer makes of each token: positive numbers, which do not cancel out."""
        wide = self.op("Sigmoid", self.feed_forward("x"))
        if kind == "MatMul":
            return self.op("MatMul", self.op("Transpose", wide, perm=[0, 2, 1]), self.linear("x", self.width, 8))
        if kind == "ReduceSum" or opset >= 18:
            return self.op(kind, wide, self.integers(*axes), keepdims=keep)
        return self.op(kind, wide, axes=list(axes), keepdims=keep)

    def linear_attention(self, *, masked: bool = False) -> str:
        """Weigh values by a softmax of keys over all tokens, and let each token read the sums."""
        wide = 8 * self.width
        keys, values = self.linear("x", self.width, wide), self.linear("x", self.width, wide)
        if masked:
            shown = self.op("Unsqueeze", self.op("Cast", "attention_mask", to=TensorProto.BOOL), self.integers(2))
            keys = self.op("Where", shown, keys, self.constant(np.float32(-np.inf)))
        shares = self.op("Softmax", keys, axis=1)
        sums_of = self.op("MatMul", self.op("Transpose", shares, perm=[0, 2, 1]), values)
        return self.linear(self.op("MatMul", self.linear("x", self.width, wide), sums_of), wide, self.width)

    def finished(self, output: str, opset: int = 17) -> ModelProto:
        """Return the model, whatever its output's shape."""
        graph = helper.make_graph(
            self.nodes,
            "sums",
            self.inputs,
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            list(self.constants.values()),
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        return shape_inference.infer_shapes(model)


def _found(model: ModelProto, values: OpenValues | None = None) -> tuple[OpenGraph, list[SumGroup]]:
    values = values or probe(model, _RANGES)
    graph = OpenGraph(model.graph, values, values.typical)
    return graph, find_sums(graph)


def _session(model: ModelProto | bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(
        model if isinstance(model, bytes) else model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _feeds(model: ModelProto, batch: int, length: int) -> dict[str, Any]:
    rng = np.random.default_rng(length)
    feeds: dict[str, Any] = {"x": rng.standard_normal((batch, length, 16)).astype(np.float32)}
    if len(model.graph.input) > 1:
        feeds["attention_mask"] = (rng.random((batch, length)) < 0.6).astype(np.int64)
        feeds["attention_mask"][-1, : length // 2] = 0
    return feeds


def _error(model: ModelProto, written: ModelProto | bytes, lengths: Sequence[int]) -> float:
    """Return the largest error of outputs, beside the largest output; what is no number has to be none in both."""
    plain, loops = _session(model), _session(written)
    worst = 0.0
    for length in lengths:
        for batch in (1, 3):
            feeds = _feeds(model, batch, length)
            expected, found = plain.run(None, feeds)[0], loops.run(None, feeds)[0]
            assert expected.shape == found.shape
            assert np.array_equal(np.isnan(expected), np.isnan(found))
            worst = max(worst, _largest(expected - found) / max(1e-6, _largest(expected)))
    return worst


def _largest(values: Any) -> float:
    return float(np.abs(np.nan_to_num(values)).max())


def _written(model: ModelProto, block: int) -> tuple[ModelProto, list[SumGroup]]:
    graph, found = _found(model)
    written = write_sums(model, graph, found, block)
    checker.check_model(written)
    return written, found


@given(
    mask=st.sampled_from(["none", "least", "infinite"]),
    opset=st.sampled_from([13, 17, 18]),
    heads=st.sampled_from([1, 2, 4]),
    block=st.sampled_from([2000, 20_000, 1 << 24]),
    lengths=st.lists(st.integers(1, _MOST), min_size=2, max_size=2),
)
@settings(max_examples=6, deadline=None)
def test_attention_is_the_same_a_block_of_keys_at_a_time(
    mask: str, opset: int, heads: int, block: int, lengths: list[int]
) -> None:
    net = _Net(heads=heads)
    model = net.finished(net.attending(mask), opset)
    written, (group,) = _written(model, block)
    assert group.kind == "attention"
    assert set(group.region.read) <= {"x", "attention_mask"}
    assert _error(model, written, [*lengths, 1, 2, 997, _MOST]) <= 1e-5


@pytest.mark.parametrize("mask", ["least", "infinite"])
def test_rows_without_any_key_are_what_they_were(mask: str) -> None:
    net = _Net()
    model = net.finished(net.attending(mask))
    written, _ = _written(model, 2000)
    plain, loops = _session(model), _session(written)
    for length in (1, 5, 311, _MOST):
        feeds = _feeds(model, 2, length)
        feeds["attention_mask"][0] = 0
        expected, found = plain.run(None, feeds)[0], loops.run(None, feeds)[0]
        assert np.isnan(expected[0]).all() == (mask == "infinite")
        np.testing.assert_allclose(found, expected, atol=1e-5 * max(1e-6, _largest(expected)))


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("kind", ["ReduceSum", "ReduceMean", "ReduceMax", "MatMul"])
@pytest.mark.parametrize(("axes", "keep"), [((1,), 1), ((-2,), 0), ((1, 2), 0)])
def test_sums_means_maxima_and_products_are_added_up(kind: str, opset: int, axes: Sequence[int], keep: int) -> None:
    net = _Net()
    model = net.finished(net.pooled(kind, opset, axes, keep), opset)
    written, (group,) = _written(model, 20_000)
    assert group.kind == {"ReduceSum": "sum", "ReduceMean": "mean", "ReduceMax": "most", "MatMul": "product"}[kind]
    assert _error(model, written, [1, 2, 31, 509, _MOST]) <= (0 if kind == "ReduceMax" else 1e-5)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("opset", [13, 18])
def test_a_softmax_over_tokens_takes_two_passes(monkeypatch: pytest.MonkeyPatch, opset: int, masked: bool) -> None:
    monkeypatch.setattr(sums, "BLOCKS", (40_000, 10_000))
    net = _Net()
    if masked:
        net.padding_mask()
    model = net.finished(net.linear_attention(masked=masked), opset)
    points = sum_points(model, probe(model, _RANGES))
    names = {node.name for node in model.graph.node}
    assert points
    for point in points:
        assert point.reassociates
        assert {name for row in point.rows for name in row.ops} <= names
        assert any("softmax" in name for name in point.rows[0].ops)
        assert _error(model, point.build(), [1, 3, 127, 1021, _MOST]) <= 1e-5


@pytest.mark.parametrize("seed", [1, 2])
def test_random_networks_are_added_up(seed: int) -> None:
    assert compare_sums(seed, [(1, 2), (2, 397)])


def test_other_lengths_are_refused() -> None:
    net = _Net()
    model = net.finished(net.attending())
    written, _ = _written(model, 20_000)
    with pytest.raises(Exception, match="length_must_be_1_to_2048"):
        _session(written).run(None, _feeds(model, 1, _MOST + 1))


def test_what_can_be_cut_otherwise_or_is_read_is_left() -> None:
    net = _Net()
    model = net.model(net.attention("x"))
    assert not _found(model)[1]  # blocks of queries give the same bits
    assert not sum_points(model, probe(model, _RANGES))
    net = _Net()
    model = net.finished(net.attending())
    shares = next(node.output[0] for node in model.graph.node if node.op_type == "Softmax")
    model.graph.output.append(helper.make_tensor_value_info(shares, TensorProto.FLOAT, None))
    assert all(group.kind != "attention" for group in _found(model)[1])
    # Over no token at all a product is 0, and a quotient is no number.
    net = _Net()
    model = net.finished(net.attending())
    ranges = {**_RANGES, "length": Range(0, _MOST, named=True)}
    assert not _found(model, probe(model, ranges))[1]


def test_sums_are_tried_where_that_is_permitted_alone() -> None:
    def asked(*, reassociate: bool) -> RangeRequest:
        allow = ("reorder", "inplace", "algebra", *(("reassociate",) if reassociate else ()))
        return RangeRequest({}, Options(allow=allow), None, None)

    point = BlockPoint("sums", (), lambda: b"", reassociates=True)
    assert [_permitted(point, asked(reassociate=one)) for one in (False, True)] == [False, True]
    assert _permitted(BlockPoint("blocks", (), lambda: b""), asked(reassociate=False))
    # Among numbers the largest is the same in any order, but NaN is kept or lost by where it lies.
    net = _Net()
    model = net.finished(net.pooled("ReduceMax", 17, (1,), 1))
    assert all(one.reassociates for one in sum_points(model, probe(model, _RANGES)))


def test_the_process_takes_less(tmp_path: Path) -> None:
    net = _Net(width=64)
    model = net.finished(net.attending())
    values = probe(model, {**_RANGES, "length": Range(1, 65_536, named=True)})
    point = sum_points(model, values)[-1]
    paths = [tmp_path / "net.onnx", tmp_path / "sums.onnx"]
    onnx.save(model, paths[0])
    paths[1].write_bytes(point.build())
    feeds = tmp_path / "feeds.npz"
    draw_at(paths[0], {"batch": 1, "length": 65_536}, feeds, seed=0)
    given_run, sums_run = (run_on(path, feeds) for path in paths)
    assert isinstance(given_run, Measured)
    assert isinstance(sums_run, Measured)
    assert sums_run.peak < 0.5 * given_run.peak
