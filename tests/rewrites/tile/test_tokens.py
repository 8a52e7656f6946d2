"""Transformers in pieces: tokens of feed-forward layers, heads of attention, samples of a batch, in every layer."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

import memsched
from tests.small_models import floats, model_of

TOKENS, WIDTH, HIDDEN, HEADS = 16, 8, 64, 4


def weight(name: str, *shape: int) -> Any:
    values = np.random.default_rng([*name.encode()]).normal(size=shape) / np.sqrt(shape[0])
    return numpy_helper.from_array(values.astype(np.float32), name)


def feed_forward(layers: int, batch: int = 1) -> bytes:
    """Layers that are equally wide: cutting one of them alone gains nothing."""
    nodes, weights = [], []
    for layer, (given, made) in enumerate(pairwise(["x", *(f"v{i}" for i in range(layers - 1)), "y"])):
        weights += [weight(f"in{layer}", WIDTH, HIDDEN), weight(f"out{layer}", HIDDEN, WIDTH)]
        nodes += [
            helper.make_node("MatMul", [given, f"in{layer}"], [f"a{layer}"], f"a{layer}"),
            helper.make_node("Erf", [f"a{layer}"], [f"b{layer}"], f"b{layer}"),
            helper.make_node("Mul", [f"a{layer}", f"b{layer}"], [f"c{layer}"], f"c{layer}"),
            helper.make_node("MatMul", [f"c{layer}", f"out{layer}"], [f"d{layer}"], f"out{layer}"),
            # Each token depends on all of the layer before.
            helper.make_node("Softmax", [f"d{layer}"], [made], f"d{layer}", axis=1),
        ]
    shape = [batch, TOKENS, WIDTH]
    return model_of(nodes, [floats("x", shape)], [floats("y", shape)], weights)


def attention() -> bytes:
    """One layer of attention whose scores are far larger than its input."""
    tokens, size = 4 * TOKENS, WIDTH // HEADS
    nodes, weights = [], [weight(name, WIDTH, WIDTH) for name in ("wq", "wk", "wv")]
    shape = numpy_helper.from_array(np.array([1, tokens, HEADS, size], np.int64), "split")
    back = numpy_helper.from_array(np.array([1, tokens, WIDTH], np.int64), "join")
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}_flat"], f"{name}_flat"),
            helper.make_node("Reshape", [f"{name}_flat", "split"], [f"{name}_heads"], f"{name}_heads"),
            helper.make_node("Transpose", [f"{name}_heads"], [name], name, perm=order),
        ]
    nodes += [
        helper.make_node("MatMul", ["q", "k"], ["scores"], "scores"),
        helper.make_node("Softmax", ["scores"], ["shares"], "shares", axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["mixed"], "mixed"),
        helper.make_node("Transpose", ["mixed"], ["turned"], "turned", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["turned", "join"], ["y"], "y"),
    ]
    dims = [1, tokens, WIDTH]
    return model_of(nodes, [floats("x", dims)], [floats("y", dims)], [*weights, shape, back])


def in_pieces(data: bytes) -> dict[str, Any]:
    result = memsched.optimize(data, level=2, max_extra_macs=0.0, max_slowdown=None, effort=10)
    assert result.verification is not None
    assert result.verification.outputs_equal
    return dict(result.report.data)


def test_every_layer_is_cut_where_only_all_of_them_lower_the_peak() -> None:
    report = in_pieces(feed_forward(5))
    along = {group["ops"][0]: group["axis_names"] for group in report["sections"]["tile"]["groups"]}
    # A last Softmax alone may be in pieces along another axis.
    assert {name: along[name] for name in along if name != "d4"} == {f"a{i}": ["axis 1"] for i in range(5)}
    assert report["sections"]["tile"]["extra_macs"] == 0
    hidden, given = 4 * TOKENS * HIDDEN, 4 * TOKENS * WIDTH
    assert report["sections"]["tile"]["untiled"]["peak_bytes"] >= 2 * hidden
    assert report["written"]["schedule"]["peak_bytes"] <= 2 * given + 3 * hidden // 8


def test_heads_are_computed_one_after_the_other() -> None:
    report = in_pieces(attention())
    (group,) = (one for one in report["sections"]["tile"]["groups"] if one["pieces"] == [HEADS])
    # No images, so no channels.
    assert group["axis_names"] == ["axis 1"]
    assert report["written"]["schedule"]["peak_bytes"] < 0.6 * report["sections"]["tile"]["untiled"]["peak_bytes"]


def test_samples_of_a_batch_are_computed_apart() -> None:
    report = in_pieces(feed_forward(1, batch=2 * TOKENS))
    assert any(0 in group["axes"] for group in report["sections"]["tile"]["groups"])
    assert report["written"]["schedule"]["peak_bytes"] < 0.5 * report["sections"]["tile"]["untiled"]["peak_bytes"]
