"""Sizes for what an ONNX model leaves open: from its weights, tables and metadata, or usual ones that fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.formats.module import LoadOptions
from memsched.formats.onnx.assumed_sizes import candidates
from tests.small_models import floats, model_of

node = helper.make_node
INT64 = TensorProto.INT64


def weight(name: str, *shape: int) -> onnx.TensorProto:
    rng = np.random.default_rng(len(name))
    return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)


def numbers(name: str, value: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(value, np.int64), name)


def convolutions(shape: Sequence[Any], *, classes: int | None = None) -> bytes:
    """Return a net for images of ``shape``, fully convolutional or with a product behind features of one size."""
    nodes = [
        node("Conv", ["x", "c1"], ["a"], "a", pads=[1] * 4, strides=[2, 2]),
        node("Conv", ["a", "c2"], ["b"], "b", pads=[1] * 4, strides=[2, 2]),
    ]
    weights = [weight("c1", 4, 3, 3, 3), weight("c2", 4, 4, 3, 3)]
    if classes is None:
        return model_of([*nodes, node("Relu", ["b"], ["y"], "r")], [floats("x", shape)], [floats("y", None)], weights)
    nodes += [node("Flatten", ["b"], ["f"], "f"), node("Gemm", ["f", "w"], ["y"], "fc")]
    return model_of(nodes, [floats("x", shape)], [floats("y", ["batch", 3])], [*weights, weight("w", classes, 3)])


def tokens(rows: int | None = None, width: int = 16, *, by: str = "shape") -> bytes:
    """Return a net that attends to all of its tokens, with a table of positions or without."""
    ids = helper.make_tensor_value_info("ids", INT64, ["batch", "sequence"])
    inputs, weights, value = [ids], [weight("emb", 100, width)], "e"
    nodes = [node("Gather", ["emb", "ids"], ["e"], "e")]
    if rows is not None and by == "shape":
        weights += [weight("table", rows, width), numbers("all", [range(rows)]), numbers("zero", [0]), numbers("at", 1)]
        weights += [numbers("one", [1])]
        nodes += [
            node("Shape", ["ids"], ["s"], "s"),
            node("Gather", ["s", "at"], ["n"], "n"),
            node("Unsqueeze", ["n", "zero"], ["end"], "end"),
            node("Slice", ["all", "zero", "end", "one"], ["places"], "places"),
            node("Gather", ["table", "places"], ["p"], "p"),
            node("Add", ["e", "p"], ["h"], "h"),
        ]
        value = "h"
    elif rows is not None:
        inputs.append(helper.make_tensor_value_info("position_ids", INT64, ["batch", "sequence"]))
        weights.append(weight("table", rows, width))
        nodes += [node("Gather", ["table", "position_ids"], ["p"], "p"), node("Add", ["e", "p"], ["h"], "h")]
        value = "h"
    nodes += [
        node("Transpose", [value], ["t"], "t", perm=[0, 2, 1]),
        node("MatMul", [value, "t"], ["scores"], "scores"),
        node("Softmax", ["scores"], ["soft"], "soft", axis=-1),
        node("MatMul", ["soft", value], ["y"], "y"),
    ]
    return model_of(nodes, inputs, [floats("y", ["batch", "sequence", width])], weights)


def decoder(heads: int = 2, width: int = 8) -> bytes:
    """Return one layer of a decoder: past keys and values are inputs, and come back with a token's behind them."""
    hidden = heads * width
    weights = [weight("emb", 50, hidden), numbers("split", [0, 0, heads, width]), numbers("join", [0, 0, hidden])]
    weights += [weight(f"w{one}", hidden, hidden) for one in "qkv"]
    nodes = [node("Gather", ["emb", "input_ids"], ["x"], "x")]
    for one in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{one}"], [f"{one}1"], f"{one}1"),
            node("Reshape", [f"{one}1", "split"], [f"{one}2"], f"{one}2"),
            node("Transpose", [f"{one}2"], [f"{one}3"], f"{one}3", perm=[0, 2, 1, 3]),
        ]
    for one, name in (("k", "key"), ("v", "value")):
        nodes.append(node("Concat", [f"past_key_values.0.{name}", f"{one}3"], [f"present.0.{name}"], name, axis=2))
    nodes += [
        node("Transpose", ["present.0.key"], ["kt"], "kt", perm=[0, 1, 3, 2]),
        node("MatMul", ["q3", "kt"], ["scores"], "scores"),
        node("Softmax", ["scores"], ["soft"], "soft", axis=-1),
        node("MatMul", ["soft", "present.0.value"], ["o"], "o"),
        node("Transpose", ["o"], ["turned"], "turned", perm=[0, 2, 1, 3]),
        node("Reshape", ["turned", "join"], ["y"], "y"),
    ]
    ids = helper.make_tensor_value_info("input_ids", INT64, ["batch", "sequence"])
    past = [floats(f"past_key_values.0.{name}", ["batch", heads, "past", width]) for name in ("key", "value")]
    present = [floats(f"present.0.{name}", ["batch", heads, "past + sequence", width]) for name in ("key", "value")]
    return model_of(nodes, [ids, *past], [floats("y", ["batch", "sequence", hidden]), *present], weights)


def first(data: bytes, **stated: Any) -> LoadOptions:
    return next(candidates(data, "m.onnx", LoadOptions(**stated)))


def sizes(options: LoadOptions) -> dict[str, int]:
    return {one.dimension: one.size for one in options.assumed}


def test_an_open_batch_is_one_and_nothing_is_tried() -> None:
    found = list(candidates(convolutions(["batch", 3, 64, 64]), "m.onnx", LoadOptions()))
    assert [(one.dims, sizes(one)) for one in found] == [({"batch": 1}, {"batch": 1})]
    assert not found[0].assumed[0].free


def test_a_closed_model_gets_nothing() -> None:
    assert first(convolutions([1, 3, 64, 64])) == LoadOptions()


@pytest.mark.parametrize("shape", [["batch", 3, "height", "width"], [None, None, None, None], ["?", 3, "?", "?"]])
def test_channels_follow_from_weights_and_an_image_has_a_usual_size(shape: Any) -> None:
    data = convolutions(shape)
    found = list(candidates(data, "m.onnx", LoadOptions()))
    shapes = [one.input_shapes.get("x") or (1, 3, one.dims["height"], one.dims["width"]) for one in found[:3]]
    assert shapes == [(1, 3, 224, 224), (1, 3, 256, 256), (1, 3, 320, 320)]
    assert any(one.free for one in found[0].assumed)


def test_the_only_size_that_fits_is_no_guess() -> None:
    found = first(convolutions(["batch", 3, "h", "w"], classes=4 * 80 * 80))
    assert sizes(found) == {"batch": 1, "h": 320, "w": 320}
    assert not any(one.free for one in found.assumed)


def test_a_name_is_one_length_in_all_inputs() -> None:
    """By its place in the mask alone, N would be a batch."""
    nodes = [node("MatMul", ["x", "w"], ["h"], "h"), node("Mul", ["h", "m"], ["y"], "y")]
    inputs = [floats("x", ["B", "N", "D"]), floats("m", ["N", 1]), floats("z", [1, "D"])]
    (found, *_) = candidates(model_of(nodes, inputs, [floats("y", None)], [weight("w", 7, 4)]), "m.onnx", LoadOptions())
    assert found.dims == {"B": 1, "N": 128, "D": 7}


@pytest.mark.parametrize("name", ["-1", "None"])
def test_a_name_for_all_that_an_exporter_does_not_know_is_no_name(name: str) -> None:
    assert first(convolutions([name, 3, name, name])).input_shapes == {"x": (1, 3, 224, 224)}


def test_metadata_tell_the_size_of_an_image() -> None:
    model = onnx.load_model_from_string(convolutions(["batch", 3, "h", "w"]))
    model.metadata_props.add(key="imgsz", value="[640, 640]")
    assert sizes(first(model.SerializeToString())) == {"batch": 1, "h": 640, "w": 640}


def test_features_follow_from_the_weights_that_read_them() -> None:
    nodes = [node("Cast", ["x"], ["c"], "c", to=TensorProto.FLOAT), node("Gemm", ["c", "w"], ["y"], "y", transB=1)]
    data = model_of(nodes, [floats("x", ["n", "features"])], [floats("y", None)], [weight("w", 5, 37)])
    (found,) = candidates(data, "m.onnx", LoadOptions())
    assert sizes(found) == {"n": 1, "features": 37}


@pytest.mark.parametrize("by", ["shape", "input"])
def test_a_table_of_positions_tells_the_longest_length(by: str) -> None:
    found = first(tokens(77, by=by))
    assert sizes(found) == {"batch": 1, "sequence": 77}
    assert "77 rows" in found.assumed[1].reason


def test_a_very_long_table_is_not_filled() -> None:
    assert sizes(first(tokens(40_000, 2, by="input")))["sequence"] == 1024


def test_without_a_table_a_length_is_a_usual_one() -> None:
    found = first(tokens())
    assert sizes(found) == {"batch": 1, "sequence": 128}
    assert found.assumed[1].free


def test_what_is_stated_is_not_assumed() -> None:
    assert sizes(first(tokens(), dims={"sequence": 9})) == {"batch": 1}
    assert first(tokens(), input_shapes={"ids": (2, 9)}).assumed == ()


def test_a_decoder_has_tokens_in_its_caches() -> None:
    (found,) = candidates(decoder(), "m.onnx", LoadOptions())
    assert found.dims == {"batch": 1, "sequence": 1, "past": 128}
    assert all(one.decoder for one in found.assumed)


def test_a_damaged_model_is_left_to_the_reader() -> None:
    assert first(b"\x08\x09") == LoadOptions()
    model = onnx.load_model_from_string(convolutions(["batch", None, "h", "w"]))
    model.graph.node[0].attribute.add(name="group", type=onnx.AttributeProto.STRING, s=b"x")
    assert first(model.SerializeToString()).input_shapes in ({}, {"x": (1, 3, 224, 224)})
