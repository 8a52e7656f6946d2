"""NaN, infinities, -0.0, denormals and the largest values: what exact algebra makes of them, it made of them before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest

from memsched.runtimes.compare import disagreement
from memsched.runtimes.litert.session import MODES, opened
from memsched.runtimes.special import SPECIALS, Special, mixed
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.rewrites.algebra.nets import OnnxNet, closed, drafted, random_net, tflite_net, written

EXACT = ("merge", "shift", "cross", "late", "split")
LEVELS = ("ORT_DISABLE_ALL", "ORT_ENABLE_ALL")


def special(shape: Any, kind: Special) -> Any:
    rng = np.random.default_rng(len(kind))
    return mixed(rng.normal(size=shape).astype(np.float32), kind, rng)


def onnx_outputs(data: bytes, level: str) -> Mapping[Special, list[Any]]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    options.intra_op_num_threads, options.log_severity_level = 2, 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    return {kind: list(session.run(None, {given.name: special(given.shape, kind)})) for kind in SPECIALS}


def tflite_outputs(data: bytes, mode: str) -> Mapping[Special, list[Any]]:
    interpreter = opened(data, mode)
    interpreter.allocate_tensors()
    (given,) = interpreter.get_input_details()
    found = {}
    for kind in SPECIALS:
        interpreter.set_tensor(given["index"], special(given["shape"], kind))
        interpreter.invoke()
        found[kind] = [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]
    return found


def assert_same(data: bytes, run: Any, modes: tuple[str, ...]) -> None:
    module, draft = drafted(data)
    made, way = closed(draft, EXACT)
    file = written(module, made) if way else data
    for mode in modes:
        expected, found = run(data, mode), run(file, mode)
        for kind in SPECIALS:
            assert disagreement(expected[kind], found[kind]) is None, (kind, mode, way)


def net_of(kind: str, how: str) -> bytes:
    """Return a model in which an operator could be exchanged with what moves its elements, or be divided."""
    net = OnnxNet((2, 3, 5, 5) if kind == "Conv" else (2, 3, 9, 9))
    if how == "joined":
        joint = net.join(["x", net.same("Neg", "x")])
        if kind == "Conv":
            return net.data(net.conv(joint, 6, group=2))
        if kind.endswith("Pool"):
            return net.data(net.pool(joint, 1, 1, kind))
        return net.data(net.same(kind, joint, net.join([net.same("Abs", "x"), "x"])))
    if how == "subsampled":
        return net.data(net.pool(net.crop("x", 1, 0), 1, 2, kind))
    return net.data(net.same(kind, net.twice("x")))


@pytest.mark.parametrize("seed", [3, 17, 21, 40, 56, 77])
def test_random_models_make_the_same_of_special_values(seed: int) -> None:
    assert_same(random_net(seed), onnx_outputs, LEVELS)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        *(
            (kind, "joined")
            for kind in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Pow", "Conv", "AveragePool", "MaxPool")
        ),
        *((kind, "subsampled") for kind in ("AveragePool", "MaxPool")),
        *((kind, "repeated") for kind in ("Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sin", "Cos", "Softplus", "Elu")),
    ],
)
def test_operators_make_the_same_of_special_values(kind: str, how: str) -> None:
    assert_same(net_of(kind, how), onnx_outputs, LEVELS)


@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MAX_POOL_2D"])
def test_tflite_pools_of_floats_clamp_infinities(kind: str) -> None:
    """A crop in place of a window of one element would keep them."""
    ends = [np.array(one, np.int32).tobytes() for one in ((0, 1, 1, 0), (1, 9, 9, 4), (1, 1, 1, 1))]
    tensors = [T("x", (1, 9, 9, 4)), T("cropped", (1, 8, 8, 4)), T("y", (1, 4, 4, 4))]
    tensors += [T(f"c{place}", (4,), "INT32", data=data) for place, data in enumerate(ends)]
    pool = options("Pool2DOptions", padding=1, strideH=2, strideW=2, filterHeight=1, filterWidth=1)
    ops = [O("STRIDED_SLICE", [0, 3, 4, 5], [1], options("StridedSliceOptions")), O(kind, [1], [2], pool)]
    assert_same(build(Sub(tensors, ops, [0], [2])), tflite_outputs, MODES)


def test_tflite_models_make_the_same_of_special_values() -> None:
    assert_same(tflite_net(), tflite_outputs, MODES)
