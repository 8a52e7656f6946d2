"""Pieces of a depthwise layer of one channel: each has a multiplier of its own."""

from __future__ import annotations

import numpy as np
import pytest

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.tflite import rewriter
from memsched.ops.rules import Refusal
from memsched.rewrites.tile.pieces import TilingGroup
from memsched.runtimes.litert.runner import LiteRtRunner
from memsched.runtimes.runner import CompareFiles
from memsched.runtimes.tflm.runner import TflmRunner
from tests.formats.tflite_builder import O, Sub, T, build, options, unpack
from tests.rewrites.tile.test_rewrite import tiled


def spread(padding: int) -> bytes:
    """One channel becomes 16, of which a maximum keeps little."""
    rng = np.random.default_rng(0)
    side = 24 if padding == 0 else 22
    weights = rng.integers(-127, 128, (1, 3, 3, 16), np.int8).tobytes()
    bias = rng.integers(-9999, 9999, 16, np.int64).tobytes()
    tensors = [
        T("x", (1, 24, 24, 1), "INT16", scales=(0.0001,)),
        T("w", (1, 3, 3, 16), "INT8", weights, scales=(0.01,) * 16, axis=3),
        T("b", (16,), "INT64", bias, scales=(0.000001,) * 16, axis=0),
        T("a", (1, side, side, 16), "INT16", scales=(0.001,)),
        T("y", (1, side // 2, side // 2, 16), "INT16", scales=(0.001,)),
    ]
    depthwise = options("DepthwiseConv2DOptions", padding=padding, strideH=1, strideW=1, depthMultiplier=16)
    pool = options("Pool2DOptions", padding=1, strideH=2, strideW=2, filterHeight=2, filterWidth=2)
    return build(
        Sub(tensors, [O("DEPTHWISE_CONV_2D", [0, 1, 2], [3], depthwise), O("MAX_POOL_2D", [3], [4], pool)], [0], [4])
    )


@pytest.mark.parametrize("axes", [(3,), (1, 3)])
@pytest.mark.parametrize("padding", [0, 1])
def test_each_piece_states_its_own_multiplier(padding: int, axes: tuple[int, ...]) -> None:
    """By rows, too, a padded piece has another padding besides."""
    data = spread(padding)
    module = load_module(data, "net.tflite", LoadOptions())
    found = tiled(module, TilingGroup((0, 1), axes, (3,) * len(axes)), rewriter)
    assert not isinstance(found, Refusal), found
    main = unpack(found[1]).subgraphs[0]
    made = [
        (one.builtinOptions.depthMultiplier, main.tensors[one.outputs[0]].shape[3])
        for one in main.operators
        if hasattr(one.builtinOptions, "depthMultiplier")
    ]
    assert len(made) == 3 ** len(axes)
    assert all(stated == channels for stated, channels in made)
    assert sum(channels for _, channels in made) == 16 * 3 ** (len(axes) - 1)
    for runner in (LiteRtRunner(), TflmRunner()):
        assert runner.compare(CompareFiles(data, found[1], LoadOptions(), 1, 0.0, 0.0, 0))[0], runner.name
