"""What callers are told to do at a model's border, against the kernels that did it in the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.formats.capabilities import BorderRewrites
from memsched.formats.files import load_module
from memsched.formats.known import capability
from memsched.formats.module import LoadOptions
from memsched.graph.border import BorderStep
from memsched.runtimes.borders import BorderFormulas, told
from tests.formats.tflite_builder import O, Sub, T, build, int32s
from tests.runtimes.tflm.interpreter import needs_tflm
from tests.small_models import model_of

COUNT = 4096


def floats(scale: float, bound: int) -> Any:
    """Values around all quantised ones, many of them half-way between two, and far beyond the range."""
    rng = np.random.default_rng(5)
    halves = (rng.integers(-2 * bound, 2 * bound, COUNT // 2).astype(np.float32) / 2) * np.float32(scale)
    anywhere = rng.normal(0, bound * scale, COUNT - len(halves) - 4)
    edges = [0.0, -0.0, 1e30, -1e30]
    return np.concatenate([halves, anywhere, edges]).astype(np.float32).reshape(1, COUNT)


def one_border(data: bytes, side: str) -> BorderFormulas:
    module = load_module(data, "model", LoadOptions())
    found = capability(module, BorderRewrites).borders(module)
    (border,) = [one for one in found.found if one.side == side]
    return BorderFormulas(told([border]))


def tflite_border(dtype: str, scale: float, zero: int) -> bytes:
    """One quantised operator with a QUANTIZE before it and a DEQUANTIZE behind it."""
    shape = (1, COUNT)
    tensors = [
        T("x", shape),
        T("q", shape, dtype, scales=(scale,), zero_point=zero),
        T("r", shape, dtype, scales=(scale,), zero_point=zero),
        T("y", shape),
    ]
    ops = [O("QUANTIZE", (0,), (1,)), O("RELU", (1,), (2,)), O("DEQUANTIZE", (2,), (3,))]
    return build(Sub(tensors, ops, (0,), (3,)))


def assert_quantised(data: bytes, values: Any, scale: float, found: Any) -> None:
    """Check what a kernel made of ``values``, but of those beyond 32 bits, which it may cast to anything."""
    inside = np.abs(values / scale) < 2**31
    assert np.array_equal(found[inside], one_border(data, "input").inputs([values])[0][inside])


GRIDS = [("INT8", 0.0078125, 0), ("INT8", 0.1, -128), ("INT8", 0.023, 17), ("INT16", 3.1e-5, 0)]


@needs_tflm
@pytest.mark.parametrize(("dtype", "scale", "zero"), GRIDS)
def test_quantising_is_what_tflm_does(dtype: str, scale: float, zero: int) -> None:
    from tflite_micro.python.tflite_micro import runtime

    tensors = [T("x", (1, COUNT)), T("q", (1, COUNT), dtype, scales=(scale,), zero_point=zero)]
    data = build(Sub(tensors, [O("QUANTIZE", (0,), (1,))], (0,), (1,)))
    interpreter = runtime.Interpreter.from_bytes(data, arena_size=1 << 20)
    values = floats(scale, 300 if dtype == "INT8" else 40000)
    interpreter.set_input(values, 0)
    interpreter.invoke()
    assert_quantised(tflite_border(dtype, scale, zero), values, scale, interpreter.get_output(0))


@pytest.mark.parametrize("resolver", ["BUILTIN_REF", "BUILTIN_WITHOUT_DEFAULT_DELEGATES", "AUTO"])
@pytest.mark.parametrize(("dtype", "scale", "zero"), GRIDS)
def test_quantising_is_what_litert_does(dtype: str, scale: float, zero: int, resolver: str) -> None:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    tensors = [T("x", (1, COUNT)), T("q", (1, COUNT), dtype, scales=(scale,), zero_point=zero)]
    data = build(Sub(tensors, [O("QUANTIZE", (0,), (1,))], (0,), (1,)))
    kernels = getattr(OpResolverType, resolver)
    interpreter = Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    values = floats(scale, 300 if dtype == "INT8" else 40000)
    if resolver != "BUILTIN_REF":
        # Its fast kernels round halves, and what is next to them, in ways of their own; what is verified has none.
        values = one_border(tflite_border(dtype, scale, zero), "input").on_grid(0, values)
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], values)
    interpreter.invoke()
    found = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    assert_quantised(tflite_border(dtype, scale, zero), values, scale, found)


@pytest.mark.parametrize(("kind", "scale", "zero"), [(np.int8, 0.1, -7), (np.uint8, 0.0123, 128), (np.uint16, 1e-4, 9)])
def test_onnx_rounds_halves_to_even_and_back(kind: Any, scale: float, zero: int) -> None:
    import onnxruntime

    dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    constants = [
        numpy_helper.from_array(np.float32(scale), "scale"),
        numpy_helper.from_array(np.array(zero, kind), "zero"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="quantise"),
        helper.make_node("Identity", ["q"], ["r"], name="middle"),
        helper.make_node("DequantizeLinear", ["r", "scale", "zero"], ["y"], name="back"),
    ]
    shape = [1, COUNT]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    data = _opset_21(model_of(nodes, [x], [y], constants))
    q = helper.make_tensor_value_info("q", dtype, shape)
    session = onnxruntime.InferenceSession(_opset_21(model_of(nodes[:1], [x], [q], constants)))
    values = floats(scale, 300 if np.dtype(kind).itemsize == 1 else 40000)
    quantised = one_border(data, "input").inputs([values])[0]
    assert np.array_equal(session.run(None, {"x": values})[0], quantised)
    whole = onnxruntime.InferenceSession(data)
    back = one_border(data, "output").outputs([quantised])[0]
    assert np.array_equal(whole.run(None, {"x": values})[0], back)


def _opset_21(data: bytes) -> bytes:
    import onnx

    model = onnx.load_model_from_string(data)
    model.opset_import[0].version, model.ir_version = 21, 10
    return bytes(model.SerializeToString())


@needs_tflm
@pytest.mark.parametrize("scale", [0.1, 1 / 256, 0.023])
@pytest.mark.parametrize(("dtype", "zero"), [("INT8", -128), ("INT8", 5), ("INT16", 0)])
def test_what_was_given_comes_of_what_is_given_now(dtype: str, zero: int, scale: float) -> None:
    from tflite_micro.python.tflite_micro import runtime

    kind = np.int8 if dtype == "INT8" else np.int16
    values = np.arange(COUNT).astype(kind).reshape(1, COUNT)
    tensors = [T("q", (1, COUNT), dtype, scales=(scale,), zero_point=zero), T("y", (1, COUNT))]
    data = build(Sub(tensors, [O("DEQUANTIZE", (0,), (1,))], (0,), (1,)))
    interpreter = runtime.Interpreter.from_bytes(data, arena_size=1 << 20)
    interpreter.set_input(values, 0)
    interpreter.invoke()
    found = one_border(tflite_border(dtype, scale, zero), "output").outputs([values])[0]
    assert interpreter.get_output(0).tobytes() == found.tobytes()


@needs_tflm
@pytest.mark.parametrize("direction", ["UINT8", "INT8"])
def test_unsigned_integers_are_signed_ones_moved(direction: str) -> None:
    from tflite_micro.python.tflite_micro import runtime

    other = {"UINT8": "INT8", "INT8": "UINT8"}[direction]
    zeros = {"UINT8": 100, "INT8": -28}
    tensors = [
        T("given", (1, 256), direction, scales=(0.1,), zero_point=zeros[direction]),
        T("made", (1, 256), other, scales=(0.1,), zero_point=zeros[other]),
    ]
    more = T("end", (1, 256), other, scales=(0.1,), zero_point=zeros[other])
    data = build(Sub(tensors, [O("QUANTIZE", (0,), (1,))], (0,), (1,)))
    interpreter = runtime.Interpreter.from_bytes(data, arena_size=1 << 20)
    values = np.arange(256).astype(np.uint8).view(np.uint8 if direction == "UINT8" else np.int8).reshape(1, 256)
    interpreter.set_input(values, 0)
    interpreter.invoke()
    whole = build(Sub([*tensors, more], [O("QUANTIZE", (0,), (1,)), O("RELU", (1,), (2,))], (0,), (2,)))
    assert np.array_equal(interpreter.get_output(0), one_border(whole, "input").inputs([values])[0])


def test_values_on_the_grid_are_what_integers_say_exactly() -> None:
    steps = [
        BorderStep("t", "TRANSPOSE", "transpose", "", permutation=(0, 2, 3, 1)),
        BorderStep("q", "QUANTIZE", "quantize", "int8", 0.1, 3),
    ]
    one = {"side": "input", "place": 0, "given": "x", "written": "q", "kind": ["float32", [1, 3, 4, 5], False]}
    plain = [{**vars_of(step), "permutation": list(step.permutation)} for step in steps]
    formulas = BorderFormulas([{**one, "steps": plain}])
    values = np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype(np.float32)
    near = formulas.on_grid(0, values)
    assert near.shape == values.shape
    assert near.dtype == np.float32
    assert np.abs(near - values).max() <= 0.0500001
    assert np.array_equal(formulas.inputs([near])[0], formulas.inputs([values])[0])
    assert np.array_equal(formulas.on_grid(0, near), near)
    assert formulas.on_grid(1, values) is values


def vars_of(step: BorderStep) -> dict[str, Any]:
    import dataclasses

    return dataclasses.asdict(step)


def test_axes_are_moved_as_the_operator_does() -> None:
    tensors = [T("x", (1, 2, 3, 4)), T("axes", (4,), "INT32", int32s(0, 2, 3, 1)), T("t", (1, 3, 4, 2))]
    ops = [O("TRANSPOSE", (0, 1), (2,)), O("EXP", (2,), (3,))]
    data = build(Sub([*tensors, T("y", (1, 3, 4, 2))], ops, (0,), (3,)))
    values = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    assert np.array_equal(one_border(data, "input").inputs([values])[0], values.transpose(0, 2, 3, 1))
