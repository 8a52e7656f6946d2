"""Inputs and outputs in another form, from the command to the real runtimes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import memsched
from memsched.base.errors import InternalError
from memsched.check.border import check_border, check_interface
from memsched.formats.capabilities import BorderRewrites
from memsched.formats.files import load_module
from memsched.formats.known import capability, format_of
from memsched.formats.module import LoadOptions
from memsched.graph.border import Border, BorderTensor, Interface
from memsched.graph.model import Graph
from memsched.runtimes.borders import BorderFormulas, told
from tests.bordered_nets import Kind, bordered, bordered_net, two_inputs
from tests.formats.tflite_builder import O, Sub, T, build, options, unpack
from tests.permissions import allowed
from tests.runtimes.tflm.interpreter import needs_tflm
from tests.small_models import model_of
from tests.suites import Draws

EFFORT = 0.3


def plain_net(channels: Sequence[int] = (8, 8, 8, 8)) -> bytes:
    """An int8 network of convolutions from 1 x 16 x 16 x 3."""
    rng = np.random.default_rng(3)
    tensors = [T("x", (1, 16, 16, 3), "INT8", scales=(0.05,), zero_point=-1)]
    ops = []
    current, depth = 0, 3
    for number, width in enumerate(channels):
        drawn = rng.integers(-127, 128, (width, 3, 3, depth)).astype(np.int8)
        bias = rng.integers(-300, 300, width).astype(np.int32)
        tensors += [
            T(f"w{number}", drawn.shape, "INT8", drawn.tobytes(), scales=(0.004,) * width),
            T(f"b{number}", (width,), "INT32", bias.tobytes(), scales=(0.0002,) * width),
            T(f"c{number}", (1, 16, 16, width), "INT8", scales=(0.06,), zero_point=3),
        ]
        stated = options("Conv2DOptions", padding=0, strideH=1, strideW=1, dilationHFactor=1, dilationWFactor=1)
        last = len(tensors) - 1
        ops.append(O("CONV_2D", (current, last - 2, last - 1), (last,), stated))
        current, depth = last, width
    return build(Sub(tensors, ops, (0,), (current,)))


IO = ("reorder", "inplace", "io")


def run(data: bytes, target: str = "tflm", **more: Any) -> tuple[bytes, dict[str, Any]]:
    done = memsched.optimize(data, target=target, effort=EFFORT, **{"allow": IO, **more})
    return done.model, dict(done.report.data)


def assert_proven(report: dict[str, Any]) -> None:
    assert report["sections"]["verification"]["outputs_equal"] is True
    assert report["sections"]["verification"]["outputs_vary"] is True
    after = report["sections"]["verification"]["arena_after"]
    assert after is None or after["as_predicted"]
    assert report["sections"]["requirement"]["bytes"] <= report["sections"]["requirement"]["given_bytes"]


BOTH: list[Kind] = ["transpose", "quantize"]


@needs_tflm
@pytest.mark.parametrize("target", ["tflm", "litert"])
def test_a_float_image_becomes_what_the_first_layer_reads(target: str) -> None:
    given = bordered(plain_net(), [BOTH], [["quantize", "transpose"]], signature=True)
    model, report = run(given, target)
    assert_proven(report)
    section = report["sections"]["border"]
    assert section["applied"]
    image, result = section["changed"]
    assert (image["given"]["dtype"], image["given"]["shape"]) == ("float32", [1, 3, 16, 16])
    assert (image["written"]["dtype"], image["written"]["shape"]) == ("int8", [1, 16, 16, 3])
    assert (image["written"]["scale"], image["written"]["zero_point"]) == (0.05, -1)
    assert image["formula"] == "clamp(round(transpose(x, [0, 2, 3, 1]) / 0.05) - 1, -128, 127)"
    assert "away" in image["halves"]
    assert result["formula"] == "transpose((q - 3) * 0.06, [0, 3, 1, 2])"
    assert result["halves"] is None
    assert report["written"]["interface"]["inputs"] == [image["written"]]
    assert report["written"]["interface"]["outputs"] == [result["written"]]
    assert section["given_bytes"] > section["bytes"] == report["sections"]["requirement"]["bytes"]
    if target == "tflm":
        assert report["sections"]["verification"]["runtime"].startswith("tflite-micro")
    written = unpack(model).subgraphs[0]
    assert len(written.operators) == 4
    # The tensors that are gone take no bytes of firmware any more.
    assert len(written.tensors) == len(unpack(plain_net()).subgraphs[0].tensors)


def test_signatures_name_the_new_tensors() -> None:
    from ai_edge_litert.interpreter import Interpreter

    given = bordered(plain_net(), [BOTH], [["quantize"]], signature=True)
    model, report = run(given, "litert")
    assert report["sections"]["border"]["applied"]
    old, new = (Interpreter(model_content=data) for data in (given, model))
    values = np.random.default_rng(0).integers(-128, 128, (1, 16, 16, 3)).astype(np.int8)
    floats = ((values.astype(np.float32) + 1) * np.float32(0.05)).transpose(0, 3, 1, 2)
    before = old.get_signature_runner("serving_default")(given_0=floats)["made_0"]
    after = new.get_signature_runner("serving_default")(given_0=values)["made_0"]
    assert after.dtype == np.int8
    assert np.array_equal((after.astype(np.float32) - 3) * np.float32(0.06), before)


@needs_tflm
@pytest.mark.quick
def test_several_inputs_each_by_itself() -> None:
    given = bordered(two_inputs(), [["quantize"], ["shift"]], [["quantize"], []])
    _, report = run(given)
    assert_proven(report)
    assert [(row["side"], row["index"]) for row in report["sections"]["border"]["changed"]] == [
        ("input", 0),
        ("input", 1),
        ("output", 0),
    ]
    assert report["sections"]["border"]["changed"][1]["formula"] == "clamp(x - 128, -128, 127)"


@needs_tflm
@pytest.mark.quick
def test_a_shared_input_stays_and_says_why() -> None:
    given = unpack(bordered(two_inputs(), [["quantize"], ["quantize"]], [[], []]))
    graph = given.subgraphs[0]
    # The first float input goes into an operator of floats and out of the model as well.
    extra = unpack(build(Sub([T("a", (1, 8, 8, 4)), T("e", (1, 8, 8, 4))], [O("EXP", (0,), (1,))], (0,), (1,))))
    tensor, operator = extra.subgraphs[0].tensors[1], extra.subgraphs[0].operators[0]
    given.operatorCodes.append(extra.operatorCodes[0])
    graph.tensors.append(tensor)
    operator.opcodeIndex, operator.inputs = len(given.operatorCodes) - 1, [graph.inputs[0]]
    operator.outputs = [len(graph.tensors) - 1]
    graph.operators.append(operator)
    graph.outputs = [*graph.outputs, len(graph.tensors) - 1]
    from tests.formats.tflite_builder import pack

    _, report = run(pack(given))
    assert_proven(report)
    section = report["sections"]["border"]
    assert [row["index"] for row in section["changed"]] == [1]
    (kept,) = section["kept"]
    name = graph.tensors[graph.inputs[0]].name.decode()
    assert kept["tensor"] == name
    assert re.findall(r"'[^']*'|[A-Z]{2,}", kept["reason"]) == [f"'{name}'", "EXP", "'e'"]


def edge(ops: Sequence[O], tensors: Sequence[T], inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
    return build(Sub(tensors, ops, inputs, outputs))


SHAPE = (1, 8, 8, 4)


def quantised(name: str, scale: float = 0.1, zero: int = 0, dtype: str = "INT8") -> T:
    return T(name, SHAPE, dtype, scales=(scale,), zero_point=zero)


REFUSED = [
    (
        "an output that is read inside",
        edge(
            [O("RELU", (0,), (1,)), O("DEQUANTIZE", (1,), (2,)), O("EXP", (2,), (3,))],
            [quantised("x"), quantised("r"), T("y", SHAPE), T("e", SHAPE)],
            (0,),
            (2, 3),
        ),
        {"y": ["'y'", "EXP", "'e'"]},
    ),
    (
        "the quantised input is an output itself",
        edge(
            [O("QUANTIZE", (0,), (1,)), O("RELU", (1,), (2,))],
            [T("x", SHAPE), quantised("q"), quantised("r")],
            (0,),
            (1, 2),
        ),
        {"x": ["QUANTIZE", "'q'", "output"]},
    ),
    (
        "the input is an output",
        edge(
            [O("QUANTIZE", (0,), (1,)), O("RELU", (1,), (2,))],
            [T("x", SHAPE), quantised("q"), quantised("r")],
            (0,),
            (0, 2),
        ),
        {"x": ["output"]},
    ),
    (
        "another scale",
        edge(
            [O("QUANTIZE", (0,), (1,)), O("RELU", (1,), (2,))],
            [quantised("x", 0.1), quantised("q", 0.2), quantised("r", 0.2)],
            (0,),
            (2,),
        ),
        {"x": ["QUANTIZE", "'q'", "int8", "int8", "scale"]},
    ),
    (
        "floats would be larger",
        edge(
            [O("DEQUANTIZE", (0,), (1,)), O("EXP", (1,), (2,))],
            [quantised("x"), T("f", SHAPE), T("y", SHAPE)],
            (0,),
            (2,),
        ),
        {"x": ["DEQUANTIZE", "'f'", "1,024", "256"]},
    ),
    (
        "floats to integers",
        edge(
            [O("CAST", (0,), (1,), options("CastOptions")), O("NEG", (1,), (2,))],
            [T("x", SHAPE), T("i", SHAPE, "INT32"), T("n", SHAPE, "INT32")],
            (0,),
            (2,),
        ),
        {"x": ["CAST", "'i'", "int32", "float32"]},
    ),
    (
        "nothing but the border",
        edge(
            [O("QUANTIZE", (0,), (1,)), O("DEQUANTIZE", (1,), (2,))],
            [T("x", SHAPE), quantised("q"), T("y", SHAPE)],
            (0,),
            (2,),
        ),
        {"y": ["DEQUANTIZE", "'y'", "input"]},
    ),
]
"""What has to stay, each with the names, types and sizes in its reason, in turn."""


@pytest.mark.parametrize(("data", "reasons"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_has_to_stay_is_named(data: bytes, reasons: dict[str, list[str]]) -> None:
    def named(reason: str) -> list[str]:
        return re.findall(r"'[^']*'|[A-Z]{2,}|(?:int|float)\d+|scale|input|output|[\d,]{3,}", reason)

    module = load_module(data, "net.tflite", LoadOptions())
    found = capability(module, BorderRewrites).borders(module)
    assert {tensor: named(reason) for tensor, reason in found.refusals} == reasons
    _, report = run(data, "litert")
    kept = {row["tensor"]: named(row["reason"]) for row in report["sections"]["border"]["kept"]}
    assert {tensor: kept[tensor] for tensor in reasons} == reasons


def test_without_operators_at_the_border_nothing_changes() -> None:
    model, report = run(plain_net(), "tflm", tflm_plan=False)
    assert model == plain_net()
    assert report["sections"]["border"] == {
        "applied": False,
        "given_bytes": report["sections"]["requirement"]["given_bytes"],
        "bytes": report["sections"]["requirement"]["bytes"],
        "changed": [],
        "kept": [],
    }


def test_not_without_permission() -> None:
    given = bordered(plain_net(), [BOTH], [["quantize"]])
    done = memsched.optimize(given, target="tflm", level=3, effort=EFFORT)
    values = done.report.data
    assert values["sections"]["border"] is None
    module = load_module(done.model, "net.tflite", LoadOptions())
    assert [module.graph.tensors[tensor].dtype for tensor in (*module.graph.inputs, *module.graph.outputs)] == [
        "float32"
    ] * 2


@needs_tflm
def test_a_budget_that_an_order_meets_asks_nothing_of_the_caller() -> None:
    given = bordered(plain_net(), [BOTH], [["quantize"]])
    _, least = run(given)
    required = least["sections"]["requirement"]
    budgets = [*range(required["bytes"] - 200, required["given_bytes"], 700), required["given_bytes"]]
    changed: list[bool] = []
    for budget in budgets:
        done = memsched.optimize(
            given, target="tflm", allow=("reorder", "inplace", "tile", "io"), budget=budget, effort=EFFORT
        )
        assert done.budget_met or not changed, "a larger budget fails where a smaller one succeeds"
        if done.budget_met:
            changed.append(
                done.report.data["sections"]["border"] is not None and done.report.data["sections"]["border"]["applied"]
            )
    assert changed[0]
    assert not changed[-1]


@needs_tflm
@pytest.mark.parametrize("target", ["tflm", "tflm-reference"])
def test_pieces_and_loops_begin_at_the_new_input(target: str) -> None:
    given = bordered(plain_net((8, 32, 32, 4)), [BOTH], [["quantize"]])
    _, alone = run(given, target)
    _, report = run(given, target, allow=("all", "io"), max_extra_macs=100.0, budget_for="activations")
    assert_proven(report)
    assert report["sections"]["border"]["applied"]
    assert report["sections"]["tile"]["applied"]
    assert report["written"]["schedule"]["peak_bytes"] < alone["written"]["schedule"]["peak_bytes"]


@needs_tflm
@pytest.mark.parametrize("target", ["tflm", "litert"])
def test_random_networks(target: str, draws: Draws) -> None:
    applied = 0
    for seed in range(draws(4, 24)):
        data = bordered_net(seed)
        model, report = run(data, target)
        if slight := report["output"]["slight_bytes"]:
            # What saves less than 1 % is written where a budget needs it, and has to be proven all the same.
            assert model == data
            least = report["sections"]["requirement"]["given_bytes"] - slight
            model, report = run(data, target, budget=str(least))
            assert model != data
            assert report["sections"]["requirement"]["bytes"] <= least
        assert report["sections"]["verification"]["outputs_equal"] is True, (seed, report["sections"]["verification"])
        after = report["sections"]["verification"]["arena_after"]
        assert after is None or after["as_predicted"]
        assert report["sections"]["requirement"]["bytes"] <= report["sections"]["requirement"]["given_bytes"]
        applied += report["sections"]["border"]["applied"]
    assert applied >= draws(1, 8)


# ONNX


def onnx_net(batch: int | str | None = 1, *, casts: bool = False) -> bytes:
    """Floats, channels last, that are moved and quantised at once; a few layers; and back."""
    constants = [
        numpy_helper.from_array(np.float32(0.02), "scale"),
        numpy_helper.from_array(np.uint8(128), "zero"),
        numpy_helper.from_array(np.random.default_rng(0).normal(size=(1, 4, 3, 3)).astype(np.float32), "w"),
        numpy_helper.from_array(np.float32(0.5), "scale_out"),
        numpy_helper.from_array(np.uint8(100), "zero_out"),
    ]
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], name="t", perm=[0, 3, 1, 2]),
        helper.make_node("QuantizeLinear", ["t", "scale", "zero"], ["q"], name="q"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], name="d"),
        helper.make_node("Conv", ["d", "w"], ["c"], name="c", pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"], name="r"),
        helper.make_node("QuantizeLinear", ["r", "scale_out", "zero_out"], ["p"], name="p"),
        helper.make_node("DequantizeLinear", ["p", "scale_out", "zero_out"], ["y"], name="y"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 16, 16, 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 1, 8, 8])
    if casts:
        nodes.insert(0, helper.make_node("Cast", ["wide"], ["x"], name="narrow", to=TensorProto.FLOAT))
        x = helper.make_tensor_value_info("wide", TensorProto.DOUBLE, [batch, 16, 16, 4])
    return model_of(nodes, [x], [y], constants)


@pytest.mark.parametrize("casts", [False, True])
def test_onnx(casts: bool) -> None:
    given = onnx_net(casts=casts)
    model, report = run(given, "onnxruntime", order_guarantee="session")
    assert_proven(report)
    section = report["sections"]["border"]
    assert section["applied"]
    image, result = section["changed"]
    inner = "float32(x)" if casts else "x"
    assert image["formula"] == f"clamp(round(transpose({inner}, [0, 3, 1, 2]) / 0.02) + 128, 0, 255)"
    assert "even" in image["halves"]
    assert image["written"] == {
        "tensor": "q",
        "shape": [1, 4, 16, 16],
        "dtype": "uint8",
        "size_bytes": 1024,
        "scale": 0.02,
        "zero_point": 128,
    }
    assert result["formula"] == "(q - 100) * 0.5"
    import onnx

    read = onnx.load_model_from_string(model)
    onnx.checker.check_model(read, full_check=True)
    assert [value.name for value in (*read.graph.input, *read.graph.output)] == ["q", "p"]
    assert {tensor.name for tensor in read.graph.initializer} == {"scale", "zero", "w", "scale_out", "zero_out"}


def test_onnx_with_an_open_batch_stays_open() -> None:
    import onnx

    done = memsched.optimize(
        onnx_net("N"), allow=("reorder", "inplace", "io"), effort=EFFORT, dims={"N": 1}, order_guarantee="session"
    )
    values = done.report.data
    assert values["sections"]["border"]["applied"]
    assert values["sections"]["verification"]["outputs_equal"]
    assert [size["outcome"] for size in values["sections"]["verification"]["other_sizes"]] == ["equal", "equal"]
    graph = onnx.load_model_from_string(done.model).graph
    assert graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert graph.output[0].type.tensor_type.shape.dim[0].dim_param == "N"


@pytest.mark.parametrize("tile", [False, True])
def test_onnx_whose_shape_is_stated(tile: bool) -> None:
    data = onnx_net(None)
    done = memsched.optimize(
        data,
        allow=allowed(io=True, tile=tile),
        effort=EFFORT,
        input_shapes={"x": (1, 16, 16, 4)},
        order_guarantee="session",
    )
    assert done.report.data["sections"]["border"]["applied"]
    assert done.report.data["sections"]["verification"]["outputs_equal"]


def test_onnx_scales_of_each_channel_stay() -> None:
    constants = [
        numpy_helper.from_array(np.full(4, 0.02, np.float32), "scale"),
        numpy_helper.from_array(np.zeros(4, np.int8), "zero"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="q", axis=1),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], name="y", axis=1),
        helper.make_node("Relu", ["y"], ["z"], name="z"),
    ]
    x, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 8]) for name in "xz")
    _, report = run(model_of(nodes, [x], [z], constants), "onnxruntime")
    (kept,) = report["sections"]["border"]["kept"]
    assert kept["tensor"] == "x"
    assert "QuantizeLinear 'q'" in kept["reason"]


# The checker.


def checked() -> tuple[Graph, Graph, tuple[Border, ...], Interface, Interface]:
    data = bordered(plain_net(), [BOTH], [["quantize"]])
    module = load_module(data, "net.tflite", LoadOptions())
    borders = capability(module, BorderRewrites).borders(module).found
    again = load_module(run(data)[0], "net.tflite", LoadOptions())
    ends = format_of(module).interface(module), format_of(again).interface(again)
    graph = again.graphs[0]
    return module.graphs[0], graph, borders, *ends


@pytest.mark.quick
def test_the_checker_sees_what_is_wrong() -> None:
    before, after, borders, given, written = checked()
    check_border(before, after, borders)
    check_interface(borders, given, written)
    image, result = borders
    first, second = image.steps

    def wrong(*changed: Border, graph: Graph = after) -> None:
        with pytest.raises(InternalError):
            check_border(before, graph, changed)

    wrong(image)
    wrong(result)
    wrong(dataclasses.replace(image, steps=(second,)), result)
    wrong(dataclasses.replace(image, steps=(second, first)), result)
    wrong(dataclasses.replace(image, steps=(dataclasses.replace(first, permutation=(0, 1, 2, 3)), second)), result)
    wrong(dataclasses.replace(image, steps=(first, dataclasses.replace(second, dtype="int16"))), result)
    wrong(dataclasses.replace(image, steps=(first, dataclasses.replace(second, kind="cast"))), result)
    wrong(dataclasses.replace(image, place=1), result)
    wrong(dataclasses.replace(image, written=image.given), result)
    wrong(image, result, graph=dataclasses.replace(after, ops=after.ops[1:]))
    wrong(image, result, graph=dataclasses.replace(after, inputs=()))

    def other(tensor: BorderTensor, **values: Any) -> Interface:
        return dataclasses.replace(written, inputs=(dataclasses.replace(tensor, **values),))

    for values in ({"scale": 0.06}, {"zero_point": 0}, {"dtype": "uint8"}, {"name": "y"}, {"shape": (1, 3, 16, 16)}):
        with pytest.raises(InternalError):
            check_interface(borders, given, other(written.inputs[0], **values))


@needs_tflm
@pytest.mark.parametrize("change", [{"scale": 0.051}, {"zero_point": 2}, {"permutation": (0, 3, 2, 1)}])
def test_the_runtimes_refute_what_is_told_wrongly(change: dict[str, Any]) -> None:
    from memsched.runtimes.litert import verification as litert
    from memsched.runtimes.tflm import verification as tflm

    data = bordered(plain_net(), [BOTH], [["quantize"]])
    model, _ = run(data)
    module = load_module(data, "net.tflite", LoadOptions())
    image, result = capability(module, BorderRewrites).borders(module).found
    for runtime in (tflm, litert):
        assert runtime.verify(data, model, borders=(image, result)).outputs_equal is True
    steps = tuple(
        dataclasses.replace(step, **{name: value for name, value in change.items() if getattr(step, name)})
        for step in image.steps
    )
    for runtime in (tflm, litert):
        found = runtime.verify(data, model, borders=(dataclasses.replace(image, steps=steps), result))
        assert found.outputs_equal is False
    assert BorderFormulas(told((image,))).outputs([1])[0] == 1
