"""Loops over blocks of tokens, run beside the model as given, at lengths of every kind."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper

from memsched.formats.blocks import Range
from memsched.formats.onnx.blocks import held, tokens
from memsched.formats.onnx.blocks.body import write
from memsched.formats.onnx.blocks.probes import OpenValues, probe
from memsched.formats.onnx.blocks.tokens import groups, token_points
from memsched.formats.onnx.light import lighten
from memsched.formats.onnx.structure import graphs_of
from tests.formats.onnx.blocks.layers import Layers
from tests.formats.onnx.blocks.random_layers import compare

_RANGES = {"batch": Range(1, 8), "length": Range(1, 8192)}
_LENGTHS = (1, 2, 15, 16, 17, 31, 64, 97, 149)


def _values(model: ModelProto) -> OpenValues:
    light = ModelProto()
    light.CopyFrom(model)
    lighten(light, Path())
    return probe(light, _RANGES)


def _plain() -> ModelProto:
    net = Layers()
    x = net.op("Add", "x", net.attention("x"))
    return net.model(net.op("Add", x, net.feed_forward(x)))


def _masked() -> ModelProto:
    net = Layers()
    mask = net.padding_mask()
    x = net.op("Add", "x", net.attention("x", mask))
    x = net.op("Add", x, net.feed_forward(x))
    return net.model(net.op("Add", x, net.attention(x, mask)))


def _causal() -> ModelProto:
    net = Layers()
    x = net.op("Add", "x", net.attention("x", causal=True))
    x = net.op("Add", x, net.feed_forward(x, flat=True))
    return net.model(net.op("Add", x, net.attention(x, causal=True)))


def _feeds(model: ModelProto, batch: int, length: int) -> dict[str, npt.NDArray[Any]]:
    numbers = np.random.default_rng(length)
    feeds: dict[str, npt.NDArray[Any]] = {"x": numbers.standard_normal((batch, length, 16)).astype(np.float32)}
    if any(value.name == "attention_mask" for value in model.graph.input):
        mask = numbers.integers(0, 2, (batch, length))
        mask[:, 0] = 1
        feeds["attention_mask"] = mask
    return feeds


@pytest.mark.parametrize("make", [_plain, _masked, _causal])
@pytest.mark.parametrize("block_bytes", [1, 3000, 100_000, 16 << 20])
def test_blocks_compute_the_same_bits_at_every_length(make: Callable[[], ModelProto], block_bytes: int) -> None:
    model = make()
    graph, nests = groups(model, _values(model))
    written = write(model, graph, nests, block_bytes)
    onnx.checker.check_model(written)
    plain = onnxruntime.InferenceSession(model.SerializeToString())
    blocks = onnxruntime.InferenceSession(written.SerializeToString())
    for length in _LENGTHS:
        feeds = _feeds(model, 1 + length % 3, length)
        expected, found = plain.run(None, feeds)[0], blocks.run(None, feeds)[0]
        # Products of other heights may be added up in another order.
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
        assert found.shape == expected.shape


@pytest.mark.parametrize("make", [_plain, _masked, _causal])
def test_weights_that_are_held_once_give_the_same(
    make: Callable[[], ModelProto], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "LARGE_WEIGHT", 1)
    model = make()
    values = dataclasses.replace(_values(model), ranges={"batch": Range(1, 8), "length": Range(1, 8192, named=True)})
    graph, nests = groups(model, values)
    written = write(model, graph, nests, 3000, once=True)
    onnx.checker.check_model(written)
    views = {node.output[0]: node.input[0] for node in written.graph.node if node.name.endswith("_held_node")}
    weights = {tensor.name for tensor in model.graph.initializer if tensor.name in views.values()}
    read = {name for scope in graphs_of(written.graph)[1:] for node in scope.graph.node for name in node.input}
    assert weights
    assert views.keys() <= read
    assert not weights & read
    plain = onnxruntime.InferenceSession(model.SerializeToString())
    blocks = onnxruntime.InferenceSession(written.SerializeToString())
    for length in _LENGTHS:
        feeds = _feeds(model, 1 + length % 3, length)
        expected, found = plain.run(None, feeds)[0], blocks.run(None, feeds)[0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_layers_with_weights_may_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "LARGE_WEIGHT", 256)
    monkeypatch.setattr(tokens, "SMALL_BLOCK", 256)
    model = _masked()
    points = token_points(model, _values(model))
    assert [re.findall(r"\d+ MB|whole|unpacked", point.name) for point in points] == [
        *(["16 MB", "whole"], ["16 MB"], ["16 MB", "unpacked"], ["4 MB"], ["4 MB", "unpacked"]),
    ]
    assert [len(points[place].rows) for place in (0, 1)] == [2, 3]
    written = onnx.load_model_from_string(points[0].build())
    weights = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) == 2}
    inner = {name for scope in graphs_of(written.graph)[1:] for node in scope.graph.node for name in node.input}
    assert inner
    assert not weights & inner
    plain, blocks = (onnxruntime.InferenceSession(one.SerializeToString()) for one in (model, written))
    for length in _LENGTHS:
        feeds = _feeds(model, 1 + length % 3, length)
        expected, found = plain.run(None, feeds)[0], blocks.run(None, feeds)[0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("make", [_plain, _masked, _causal])
def test_every_large_value_is_in_a_loop(make: Callable[[], ModelProto]) -> None:
    model = make()
    values = _values(model)
    graph, nests = groups(model, values)
    written = onnx.load_model_from_string(token_points(model, values)[0].build())
    stream = graph.bytes_of("x")
    made = {name for node in written.graph.node for name in node.output}
    assert max(graph.bytes_of(name) for name in made & graph.maker.keys()) <= stream
    assert [len(nest) for nest in nests].count(2) == [node.op_type for node in model.graph.node].count("Softmax")


def test_the_number_of_nodes_does_not_depend_on_the_range() -> None:
    model = _masked()
    light = ModelProto()
    light.CopyFrom(model)
    lighten(light, Path())
    counts = set()
    for most in (1024, 8192, 65536):
        values = probe(light, {"batch": Range(1, 8), "length": Range(1, most)})
        written = onnx.load_model_from_string(token_points(model, values)[0].build())
        counts.add(len(list(_all_nodes(written.graph))))
    assert len(counts) == 1


def _all_nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)


def test_a_model_without_long_axes_has_no_loops() -> None:
    model = _plain()
    light = ModelProto()
    light.CopyFrom(model)
    lighten(light, Path())
    assert token_points(model, probe(light, {"batch": Range(1, 8), "length": Range(1, 8)})) == ()


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_compute_the_same_in_blocks(seed: int) -> None:
    compare(seed, [(2, 2), (1, 17), (3, 31), (1, 83)])


def test_tokens_of_images_are_as_many_as_these_have_patches() -> None:
    """Their lengths follow from those of images by no polynomial, and are short: of 1,024 rows 64."""
    net = Layers()
    net.inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, "height", "width"])]
    image = net.op("Conv", "image", net.weight(16, 3, 16, 16), kernel_shape=[16, 16], strides=[16, 16])
    flat = net.op("Reshape", image, net.op("Concat", net.size(image, 0), net.integers(16, -1), axis=0))
    x = net.op("Transpose", flat, perm=[0, 2, 1])
    model = net.model(net.op("Add", x, net.attention(x)))
    light = ModelProto()
    light.CopyFrom(model)
    lighten(light, Path())
    side = Range(16, 1024, named=True)
    values = probe(light, {"batch": Range(1, 64), "height": side, "width": side})
    assert sorted(values.typical.values()) == [1, 64, 64, 1024, 1024]
    _, nests = groups(model, values)
    assert [len(nest) for nest in nests] == [2]
    written = onnx.load_model_from_string(token_points(model, values)[0].build())
    plain, blocks = (onnxruntime.InferenceSession(one.SerializeToString()) for one in (model, written))
    for batch, height, width in ((1, 16, 16), (2, 50, 199), (1, 400, 528)):
        feeds = {"image": np.random.default_rng(height).standard_normal((batch, 3, height, width)).astype(np.float32)}
        expected, found = plain.run(None, feeds)[0], blocks.run(None, feeds)[0]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
