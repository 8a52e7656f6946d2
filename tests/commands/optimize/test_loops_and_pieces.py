"""Loops and pieces in one model: what no loop can hold is computed piece by piece beside loops."""

from __future__ import annotations

import numpy as np

from memsched.commands.optimize.choose import FinalModel
from memsched.commands.optimize.driver import Driver
from memsched.commands.optimize.optimize import optimize
from memsched.commands.optimize.place import Request, place, prepare
from memsched.commands.optimize.rewrite import Pricing, Rewrite
from memsched.commands.optimize.tile import TileRewrite
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.runtimes.tflm.interpreter import needs_tflm, run_all, same_outputs

_PERCENT = 30.0


def _stem_and_branches(*, side: int = 48, wide: int = 24, parts: int = 4) -> bytes:
    """Build an image that is made wide and narrow again, and then branches that are joined, pooled and read twice."""
    numbers = np.random.default_rng(3)
    tensors: list[T] = []
    ops: list[O] = []

    def value(*shape: int) -> int:
        tensors.append(T(f"t{len(tensors)}", shape, "INT8", scales=(0.05,), zero_point=-128))
        return len(tensors) - 1

    def conv(read: int, channels: int, kernel: int = 1, stride: int = 1) -> int:
        given = tensors[read].shape
        data = numbers.integers(-127, 128, (channels, kernel, kernel, given[3])).astype(np.int8)
        scales = [0.01] * channels
        tensors.append(T(f"w{len(tensors)}", data.shape, "INT8", data.tobytes(), scales=scales))
        bias = numbers.integers(-500, 500, channels).astype(np.int32)
        tensors.append(T(f"b{len(tensors)}", (channels,), "INT32", bias.tobytes(), scales=[0.05 * 0.01] * channels))
        weights = (len(tensors) - 2, len(tensors) - 1)
        made = value(1, -(-given[1] // stride), -(-given[2] // stride), channels)
        stated = {"strideH": stride, "strideW": stride, "dilationHFactor": 1, "dilationWFactor": 1}
        ops.append(O("CONV_2D", (read, *weights), (made,), options("Conv2DOptions", padding=0, **stated)))
        return made

    image = value(1, side, side, 3)
    narrow = conv(conv(image, wide, 3), 4, 3, 2)
    branches = [conv(narrow, 8, 3) for _ in range(parts)]
    joined = value(1, side // 2, side // 2, 8 * parts)
    ops.append(O("CONCATENATION", branches, (joined,), options("ConcatenationOptions", axis=3)))
    pooled = value(1, side // 4, side // 4, 8 * parts)
    # What a pool pads in steps of two is nothing that a loop could take.
    stated = {"padding": 0, "strideH": 2, "strideW": 2, "filterHeight": 3, "filterWidth": 3}
    ops.append(O("AVERAGE_POOL_2D", (joined,), (pooled,), options("Pool2DOptions", **stated)))
    ends = [conv(pooled, 2), conv(pooled, 3)]
    return build(Sub(tensors, ops, (image,), ends))


def _alone(data: bytes) -> list[int]:
    """Return what the model requires in loops alone, and in pieces alone."""
    module = load_module(data, "net.tflite", LoadOptions())
    prepared = prepare(module, load_target("tflm"), in_place=True)
    request = Request(Run(Limits(None, effort=6.0)))
    given = FinalModel(module, data, prepared, place(module, prepared, request))

    def required(rewrite: Rewrite) -> int:
        limits = Request(Run(Limits(None, effort=6.0)))
        return Driver(given, (rewrite,), limits, Pricing(_PERCENT)).run().placed.required

    return [required(TileRewrite(forms=("loops",))), required(TileRewrite(forms=("pieces",)))]


@needs_tflm
def test_loops_and_pieces_together_need_less_than_either_alone() -> None:
    data = _stem_and_branches()
    result = optimize(data, target="tflm", level=2, max_extra_macs=_PERCENT, effort=12.0, time_limit=None)
    forms = {group["form"] for group in result.report["sections"]["tile"]["groups"]}
    assert forms == {"loop", "pieces"}
    required = result.report["sections"]["requirement"]["bytes"]
    assert required < 0.9 * min(_alone(data))
    assert result.report["sections"]["requirement"]["measured_bytes"] in {None, required}
    given, written = run_all([data, result.model])
    assert same_outputs(given, written)
