"""Pieces of random layers in the real runtimes: each is the slice of the whole, or it was refused with a reason."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.rewrites.tile import onnx_layers, onnx_pieces, tflite_layers
from tests.rewrites.tile.onnx_layer import Layer
from tests.rewrites.tile.onnx_pieces import Verdict


def check(found: Verdict, least: float) -> None:
    assert found.failures == []
    assert found.equal + found.refused == found.pieces
    assert found.equal >= least * found.pieces, "most regions of most layers can be computed by themselves"
    codes = {reason.rpartition(": ")[2] for reason in found.reasons}
    assert not codes & {"attributes", "lengths-differ", "no-rule", "shared-axes"}


@pytest.mark.parametrize("seed", range(3))
def test_pieces_of_random_onnx_layers(seed: int) -> None:
    check(onnx_pieces.judge(seed, 200), 0.8)


@pytest.mark.parametrize("maker", [maker for maker, _ in onnx_layers.KINDS], ids=lambda maker: maker.__name__)
def test_every_kind_of_onnx_layer(maker: Callable[[random.Random], Layer]) -> None:
    r = random.Random(7)
    check(onnx_pieces.judge(7, 0, layers=[maker(r) for _ in range(10)]), 0.2)


def test_resizes_whose_corners_meet() -> None:
    """Not all have elements that meet between the corners, and not all scales are powers of two."""
    r = random.Random(5)
    drawn = [onnx_layers.resize(r) for _ in range(400)]
    stated = "coordinate_transformation_mode"
    chosen = [layer for layer in drawn if layer.attributes.get(stated) == "align_corners"]
    check(onnx_pieces.judge(5, 0, layers=chosen), 0.4)
    others = [tflite_layers.resize(r) for _ in range(200)]
    check(tflite_layers.judge(5, 0, layers=[one for one in others if "alignCorners" in one.options]), 0.5)


@pytest.mark.parametrize("seed", range(2))
def test_pieces_of_random_tflite_layers(seed: int) -> None:
    check(tflite_layers.judge(seed, 150), 0.8)


@pytest.mark.parametrize("maker", [maker for maker, _ in tflite_layers.KINDS], ids=lambda maker: maker.__name__)
def test_every_kind_of_tflite_layer(maker: Callable[[random.Random], tflite_layers.Layer]) -> None:
    r = random.Random(7)
    check(tflite_layers.judge(7, 0, layers=[maker(r) for _ in range(8)]), 0.2)
