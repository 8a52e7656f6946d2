"""ONNX files that were made to harm: absurd counts, depth, cycles, bombs of functions, names of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.small_models import chain, floats, model_of
from tests.trust.conftest import Hostile

EXA = 2**60


def weight(dims: list[int], *, external: bool = False) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
    if external:
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="w.bin")
    return tensor


def with_weight(dims: list[int], **more: Any) -> bytes:
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return model_of([node], [floats("x", [1, 8])], [floats("y", [1, 8])], [weight(dims, **more)])


def filled(kind: str, shape: list[int]) -> bytes:
    """An op that makes a tensor of the shape that a constant states."""
    second = "x" if kind == "Expand" else ""
    inputs = [second, "s"] if second else ["s"]
    node = [helper.make_node(kind, inputs, ["a"]), helper.make_node("ReduceSum", ["a"], ["y"], keepdims=0)]
    shapes = [numpy_helper.from_array(np.array(shape, np.int64), "s")]
    return model_of(node, [floats("x", [1])], [floats("y", [])], shapes)


def field(number: int, content: bytes) -> bytes:
    """One field of a protobuf message that holds bytes."""
    length, size = bytearray(), len(content)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | 2]) + bytes(length) + content


def nested(levels: int) -> bytes:
    """An If in the branch of an If, and so on; protobuf's own parser has a limit of a hundred messages."""
    graph = field(1, field(2, b"y") + field(4, b"Relu") + field(1, b"x"))
    for _ in range(levels):
        branch = field(5, field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05")
        graph = field(1, field(1, b"c") + field(2, b"y") + field(4, b"If") + branch) + field(12, field(1, b"y"))
    return b"\x08\x09" + field(8, b"\x10\x11") + field(7, graph)


def functions(*bodies: tuple[str, list[str]], call: str = "F0") -> bytes:
    """Functions of one input and output that call others in a row."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my", 1)]
    made = []
    for name, called in bodies:
        nodes, last = [], "p"
        for step, other in enumerate(called):
            domain = "" if other == "Relu" else "my"
            nodes.append(helper.make_node(other, [last], [f"{last}{step}"], domain=domain))
            last = f"{last}{step}"
        made.append(helper.make_function("my", name, ["p"], [last], nodes, imports))
    node = helper.make_node(call, ["x"], ["y"], domain="my")
    graph = helper.make_graph([node], "main", [floats("x", [1, 8])], [floats("y", [1, 8])])
    return bytes(helper.make_model(graph, opset_imports=imports, functions=made, ir_version=9).SerializeToString())


def doubling(levels: int) -> bytes:
    """Each function calls the next one twice: 2 ** levels nodes, once they are inlined."""
    bodies = [(f"F{level}", [f"F{level + 1}"] * 2) for level in range(levels)]
    return functions(*bodies, (f"F{levels}", ["Relu"]))


def sparse_exabytes() -> bytes:
    values = numpy_helper.from_array(np.ones(1, np.float32), "w")
    indices = numpy_helper.from_array(np.zeros(1, np.int64), "i")
    weight = onnx.SparseTensorProto(values=values, indices=indices, dims=[EXA, EXA])
    nodes = [helper.make_node("ReduceMax", ["w"], ["most"]), helper.make_node("Add", ["x", "most"], ["y"])]
    return model_of(nodes, [floats("x", [1, 8])], [floats("y", None)], sparse_initializer=[weight])


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "an input of exabytes": (
        lambda: model_of(
            [helper.make_node("Relu", ["x"], ["y"])], [floats("x", [EXA, EXA])], [floats("y", [EXA, EXA])]
        ),
        "'x'",
    ),
    "a weight of exabytes": (lambda: with_weight([EXA, EXA]), "'w'"),
    "a weight of exabytes outside": (lambda: with_weight([EXA, EXA], external=True), "2^62"),
    "a weight with a negative size": (lambda: with_weight([-1, 8]), "'w'"),
    "a constant of shape that fills exabytes": (lambda: filled("ConstantOfShape", [EXA, EXA]), ""),
    "an Expand to exabytes": (lambda: filled("Expand", [EXA, EXA]), ""),
    "10,000 nested subgraphs": (lambda: nested(10_000), "decoded"),
    "a function that calls itself": (lambda: functions(("F0", ["F0"])), "F0"),
    "functions that call each other": (lambda: functions(("F0", ["F1"]), ("F1", ["F0"])), "F"),
    "functions that double 60 times": (lambda: doubling(60), "function"),
    "functions that call 10,000 deep": (
        lambda: functions(*[(f"F{i}", [f"F{i + 1}"]) for i in range(10_000)], ("F10000", ["Relu"])),
        "function",
    ),
    "a length beyond the file": (lambda: chain()[:-20] + b"\x3a\xff\xff\xff\xff\x0f", "decoded"),
    "a varint without an end": (lambda: b"\x08" + b"\xff" * 1000, "decoded"),
    "groups in groups": (lambda: b"\x0b" * 1_000_000, ""),
    "a million empty fields": (lambda: b"\x3a\x00" * 1_000_000, "IR version"),
    "two functions of one name": (lambda: functions(("F0", ["Relu"]), ("F0", ["Relu", "Relu"])), "F0"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(hostile: Hostile, case: str) -> None:
    make, word = REFUSED[case]
    hostile(make(), word)


def test_a_sparse_weight_of_exabytes(accepted: Hostile) -> None:
    """It holds one number; how many zeros it stands for costs nothing."""
    accepted(sparse_exabytes())


ODD_NAMES = {
    "controls": "a\x00\x1b[2J\x07\x08\r\n\tb",
    "quotes": "'\"`$(touch pwned);&|<>",
    "html": "</script><img src=x onerror=alert(1)>{{7*7}}",
    "bidi": "a\u202eb\u2066c\u2069\u200fd\ufeff",
    "rich markup": "[red]a[/red][link=file:///]b",
    "path": "../../etc/passwd",
    "format": "%s%n{0}{x.__class__}",
    "empty-looking": "\u200b\u00a0 ",
    "long": "n" * 1_000_000,
}


@pytest.mark.parametrize("case", ODD_NAMES)
def test_odd_names_are_data(accepted: Hostile, case: str) -> None:
    name = ODD_NAMES[case]
    nodes = [helper.make_node("Relu", ["x"], [name], name=name), helper.make_node("Neg", [name], ["y"])]
    done = accepted(model_of(nodes, [floats("x", [1, 8])], [floats("y", [1, 8])]))
    for line in done.out.split("\n"):
        assert len(line) < 400


def test_a_name_of_ten_megabytes(accepted: Hostile) -> None:
    name = "n" * 10_000_000
    nodes = [helper.make_node("Relu", ["x"], [name], name=name), helper.make_node("Neg", [name], ["y"])]
    accepted(model_of(nodes, [floats("x", [1, 8])], [floats("y", [1, 8])]))


def test_a_name_of_ten_megabytes_in_an_error(hostile: Hostile) -> None:
    node = helper.make_node("Relu", ["n" * 10_000_000], ["y"])
    hostile(model_of([node], [floats("x", [1, 8])], [floats("y", [1, 8])]), "nnn")


def test_an_op_that_reads_a_million_times(accepted: Hostile) -> None:
    nodes = [helper.make_node("Max", ["x"] * 1_000_000, ["y"])]
    accepted(model_of(nodes, [floats("x", [1, 8])], [floats("y", [1, 8])]))


def test_30000_graph_inputs(accepted: Hostile) -> None:
    model = onnx.ModelProto.FromString(chain())
    model.graph.ClearField("input")
    model.graph.input.extend(floats(name, [1]) for name in ["x", *(f"i{i}" for i in range(100_000))])
    accepted(model.SerializeToString())
