"""The networks with open sizes: they run at any, and only operators that compute sizes know them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto

from scripts.networks.catalogue import OPEN, OPEN_IMAGES, OPEN_TEXTS
from scripts.networks.open_layers import OpenBuilder
from scripts.networks.open_variants import by_distance

_NETWORKS = {**OPEN, **OPEN_TEXTS, **OPEN_IMAGES}
_SMALL = {"layers": 2, "width": 32, "heads": 4}
_CUT = {**_SMALL, "tokens": 50, "positions": 64}
_LENGTHS = [{"batch": 1, "length": 8}, {"batch": 3, "length": 13}]
_FRAMES = [{"batch": 1, "frames": 32}, {"batch": 2, "frames": 53}]
_IMAGES = [{"batch": 1, "height": 16, "width": 24}, {"batch": 2, "height": 37, "width": 41}]
_LATENTS = [{"batch": 1, "height": 4, "width": 6}, {"batch": 2, "height": 7, "width": 5}]

# The arguments that make a network small, and two sets of sizes, of which one is of primes.
SMALL: dict[str, tuple[dict[str, Any], list[dict[str, int]]]] = {
    "bert_open": (_SMALL, _LENGTHS),
    "modernbert_open": (_SMALL, _LENGTHS),
    "whisper_open": (_SMALL, _FRAMES),
    "conformer_open": (_SMALL, _FRAMES),
    "vit_open": (_SMALL, [{"batch": 1, "height": 32, "width": 48}, {"batch": 2, "height": 83, "width": 113}]),
    "gpt2_open": (_SMALL, _LENGTHS),
    "bert_square_open": (_CUT, _LENGTHS),
    "conformer_relative_open": ({**_SMALL, "channels": 8, "positions": 64}, _FRAMES),
    "gpt2_prefill_open": (_CUT, _LENGTHS),
    "gpt2_cached_open": (_CUT, [{"batch": 1, "length": 8, "past": 0}, {"batch": 3, "length": 5, "past": 11}]),
    "sd_vae_decoder_open": ({"layers": 1, "widths": (16, 8), "groups": 4}, _LATENTS),
    "sd_unet_open": (
        {"widths": (8, 16), "heads": 2, "groups": 4},
        [{**sizes, "tokens": 3 + number} for number, sizes in enumerate(_LATENTS)],
    ),
    "unet_open": ({"layers": 3, "width": 4}, _IMAGES),
    "unet_transposed_open": ({"layers": 3, "width": 4}, _IMAGES),
    "superres_open": ({"layers": 2, "width": 8}, _LATENTS),
    "esrgan_open": ({"layers": 1, "width": 8, "growth": 4}, _LATENTS),
}


@functools.cache
def small(name: str) -> ModelProto:
    return _NETWORKS[name](**SMALL[name][0])


def session_of(network: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(network.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feeds_of(network: ModelProto, sizes: Mapping[str, int], seed: int) -> dict[str, Any]:
    source = np.random.default_rng(seed)
    feeds: dict[str, Any] = {}
    for value in network.graph.input:
        shape = [sizes[dim.dim_param] if dim.dim_param else dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.name == "attention_mask":
            feeds[value.name] = (np.arange(shape[1]) < shape[1] - np.arange(shape[0])[:, None]).astype(np.int64)
        elif value.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            feeds[value.name] = source.integers(0, 50, shape)
        else:
            feeds[value.name] = source.standard_normal(shape).astype(np.float32)
    return feeds


def run(session: onnxruntime.InferenceSession, feeds: Mapping[str, Any]) -> Sequence[Any]:
    return list(session.run(None, dict(feeds)))


def test_every_network_is_tested() -> None:
    assert SMALL.keys() == _NETWORKS.keys()


@pytest.mark.parametrize("name", SMALL)
def test_runs_at_two_sizes_and_depends_on_its_inputs(name: str) -> None:
    network = small(name)
    onnx.checker.check_model(network, full_check=True)
    session = session_of(network)
    stated = [value.type.tensor_type.shape.dim for value in network.graph.output]
    found = []
    for sizes in SMALL[name][1]:
        outputs, other = (run(session, feeds_of(network, sizes, seed)) for seed in (1, 2))
        for dims, output, changed in zip(stated, outputs, other, strict=True):
            assert np.isfinite(output).all()
            assert 0.01 < output.std() < 10
            assert not np.allclose(output, changed)
            # A length that no input has is named, but follows from theirs.
            lengths = zip(dims, output.shape, strict=True)
            assert all((dim.dim_value or sizes.get(dim.dim_param, length)) == length for dim, length in lengths)
        found.append([output.shape for output in outputs])
    assert found[0] != found[1]


@pytest.mark.parametrize("name", SMALL)
def test_sizes_are_computed_where_the_network_needs_them(name: str) -> None:
    network = small(name)
    dims = [dim for value in network.graph.input for dim in value.type.tensor_type.shape.dim]
    assert {dim.dim_param for dim in dims if dim.dim_param} == SMALL[name][1][0].keys()
    # What is computed of the inputs has no size that inference knows in every axis.
    inferred = onnx.shape_inference.infer_shapes(network, data_prop=True).graph.value_info
    shapes = {value.name: value.type.tensor_type.shape.dim for value in inferred}
    layers = [node for node in network.graph.node if node.op_type in {"Conv", "MatMul", "Softmax"}]
    assert layers
    for node in layers:
        dims = shapes.get(node.output[0], [])
        assert not dims or not all(dim.HasField("dim_value") for dim in dims), node.name


@pytest.mark.parametrize("name", ["bert_open", "modernbert_open", "bert_square_open"])
def test_what_the_mask_hides_changes_nothing_that_it_shows(name: str) -> None:
    network = small(name)
    session = session_of(network)
    feeds = feeds_of(network, {"batch": 1, "length": 11}, 1)
    feeds["attention_mask"][0, 7:] = 0
    before = run(session, feeds)[0]
    feeds["input_ids"][0, 7:] += 1
    np.testing.assert_allclose(run(session, feeds)[0][0, :7], before[0, :7], atol=1e-6)
    feeds["attention_mask"][0, 7:] = 1
    assert not np.allclose(run(session, feeds)[0][0, :7], before[0, :7])


def test_a_text_in_parts_gives_the_scores_of_the_whole() -> None:
    network = small("gpt2_cached_open")
    session = session_of(network)
    whole = feeds_of(network, {"batch": 2, "length": 13, "past": 0}, 1)
    expected = run(session, whole)
    first = run(session, {**whole, "input_ids": whole["input_ids"][:, :6]})
    past = dict(zip(list(whole)[1:], first[1:], strict=True))
    second = run(session, {"input_ids": whole["input_ids"][:, 6:], **past})
    for one, other in zip(expected, second, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    changed = whole["input_ids"].copy()
    changed[:, 12] += 1
    for one, other in zip(expected[1:], run(session, {**whole, "input_ids": changed})[1:], strict=True):
        np.testing.assert_allclose(one[:, :, :12], other[:, :, :12], atol=1e-6)


@pytest.mark.parametrize("length", [1, 4, 7])
def test_scores_of_distances_come_to_lie_under_their_keys(length: int) -> None:
    net = OpenBuilder("distances", 6, 3)
    network = net.model(by_distance(net, net.input("scores", "batch", 3, "rows", "offsets")), *["?"] * 4)
    scores = np.random.default_rng(0).standard_normal((2, 3, length, 2 * length - 1)).astype(np.float32)
    (found,) = run(session_of(network), {"scores": scores})
    for row in range(length):
        for key in range(length):
            # Offsets go from the greatest, length - 1, down; the distance is row - key.
            assert (found[:, :, row, key] == scores[:, :, row, length - 1 - (row - key)]).all()
