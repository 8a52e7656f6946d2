"""The built-in target says what the installed LiteRT does without a delegate: tensors that share have one address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from memsched.targets.load import load_target

schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
interpreter = pytest.importorskip("ai_edge_litert.interpreter")
flatbuffers = pytest.importorskip("flatbuffers")

TARGET = load_target("litert")
OPTIONS = {
    "ADD": "Add",
    "SUB": "Sub",
    "MUL": "Mul",
    "DIV": "Div",
    "RESHAPE": "Reshape",
    "SQUEEZE": "Squeeze",
    "EXPAND_DIMS": "ExpandDims",
    "SOFTMAX": "Softmax",
}
UNARY = [
    "ABS", "CAST", "CEIL", "COS", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH", "L2_NORMALIZATION", "LEAKY_RELU", "LOG",
    "LOGISTIC", "LOG_SOFTMAX", "NEG", "RELU", "RELU6", "ROUND", "RSQRT", "SIGN", "SIN", "SOFTMAX", "SQRT", "SQUARE",
    "TANH",
]  # fmt: skip
BINARY = [
    "ADD", "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "MUL", "POW", "PRELU", "SQUARED_DIFFERENCE", "SUB",
]  # fmt: skip
Step = tuple[str, list[int], list[int]]
FLAT = (1, 16)


def addresses(
    steps: Sequence[Step],
    shapes: Sequence[tuple[int, ...]],
    outputs: list[int],
    constants: Mapping[int, Any] | None = None,
) -> list[int | None]:
    """Return per tensor where it lies, in bytes from the lowest one; tensor 0 is the graph's input."""
    model = schema.ModelT()
    model.version, model.description = 3, ""
    model.buffers, model.operatorCodes = [schema.BufferT()], []
    graph = schema.SubGraphT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = [], [], [0], outputs
    for index, shape in enumerate(shapes):
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = f"t{index}", list(shape), schema.TensorType.FLOAT32, 0
        if constants and index in constants:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(constants[index].tobytes(), np.uint8)
            model.buffers.append(buffer)
            tensor.buffer, tensor.type = len(model.buffers) - 1, schema.TensorType.INT32
        graph.tensors.append(tensor)
    for kind, inputs, made in steps:
        code = schema.OperatorCodeT()
        code.builtinCode = getattr(schema.BuiltinOperator, kind)
        code.deprecatedBuiltinCode, code.version = min(code.builtinCode, 127), 1
        operator = schema.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = len(model.operatorCodes), inputs, made
        model.operatorCodes.append(code)
        if kind in OPTIONS:
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, f"{OPTIONS[kind]}Options")
            operator.builtinOptions = getattr(schema, f"{OPTIONS[kind]}OptionsT")()
            if kind == "RESHAPE":
                operator.builtinOptions.newShape = list(shapes[made[0]])
            elif kind == "SQUEEZE":
                operator.builtinOptions.squeezeDims = []
            elif kind == "SOFTMAX":
                operator.builtinOptions.beta = 1.0
        graph.operators.append(operator)
    model.subgraphs = [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    runner = interpreter.Interpreter(
        model_content=bytes(builder.Output()),
        experimental_op_resolver_type=interpreter.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
        num_threads=1,
    )
    runner.allocate_tensors()
    found: list[int | None] = []
    for index in range(len(shapes)):
        given = constants is not None and index in constants
        found.append(None if given else runner.tensor(index)().__array_interface__["data"][0])
    lowest = min(address for address in found if address is not None)
    return [None if address is None else address - lowest for address in found]


def written_in_place() -> set[str]:
    return {name for rule in TARGET.in_place for name in rule.ops}


def test_inputs_are_kept_and_other_tensors_reused() -> None:
    found = addresses([("NEG", [i], [i + 1]) for i in range(4)], [FLAT] * 5, [4])
    assert TARGET.inputs == "kept"
    assert found == [0, 64, 128, 64, 128]
    assert TARGET.alignment_bytes == 64


@pytest.mark.parametrize("kind", UNARY)
def test_unary_ops_share_memory_as_the_target_says(kind: str) -> None:
    found = addresses([("NEG", [0], [1]), (kind, [1], [2]), ("NEG", [2], [3])], [FLAT] * 4, [3])
    assert (found[1] == found[2]) == (kind in written_in_place())


@pytest.mark.parametrize("kind", BINARY)
def test_binary_ops_share_memory_as_the_target_says(kind: str) -> None:
    steps: list[Step] = [("NEG", [0], [1]), ("NEG", [0], [2]), (kind, [1, 2], [3]), ("NEG", [3], [4])]
    found = addresses(steps, [FLAT] * 5, [4])
    assert (found[3] in found[1:3]) == (kind in written_in_place())


@pytest.mark.parametrize("kind", ["ADD", "SUB", "MUL", "DIV"])
def test_only_an_input_that_no_other_op_reads_is_overwritten(kind: str) -> None:
    start: list[Step] = [("NEG", [0], [1]), ("NEG", [0], [2]), ("NEG", [1], [5])]
    found = addresses([*start, (kind, [1, 2], [3]), ("MAXIMUM", [3, 5], [4])], [FLAT] * 6, [4])
    assert found[3] == found[2]
    both = [*start, ("NEG", [2], [6]), (kind, [1, 2], [3]), ("MAXIMUM", [3, 5], [7]), ("MAXIMUM", [7, 6], [4])]
    found = addresses(both, [FLAT] * 8, [4])
    assert found[3] not in found[1:3]
    assert all(rule.sole_reader for rule in TARGET.in_place)


def test_an_op_that_reads_a_tensor_twice_does_not_overwrite_it() -> None:
    found = addresses([("NEG", [0], [1]), ("ADD", [1, 1], [2]), ("NEG", [2], [3])], [FLAT] * 4, [3])
    assert found[1] != found[2]
    assert not any(rule.elementwise for rule in TARGET.in_place)


@pytest.mark.parametrize(("elements", "shared"), [(1, False), (2, True), (3, True)])
def test_small_tensors_are_not_written_in_place(elements: int, shared: bool) -> None:
    steps: list[Step] = [("NEG", [0], [1]), ("NEG", [0], [2]), ("ADD", [1, 2], [3]), ("NEG", [3], [4])]
    found = addresses(steps, [(1, elements)] * 5, [4])
    assert (found[3] in found[1:3]) == shared
    assert {rule.above_bytes for rule in TARGET.in_place} == {7}


VIEWS = [("RESHAPE", (16, 1)), ("SQUEEZE", (16,)), ("EXPAND_DIMS", (1, 1, 16))]


@pytest.mark.parametrize(("kind", "shape"), VIEWS)
def test_views_share_even_where_the_source_is_read_later(kind: str, shape: tuple[int, ...]) -> None:
    constants = {5: np.array(0, np.int32)} if kind == "EXPAND_DIMS" else None
    inputs = [1, 5] if constants else [1]
    steps: list[Step] = [("NEG", [0], [1]), (kind, inputs, [2]), ("NEG", [2], [3]), ("NEG", [1], [4])]
    found = addresses(steps, [FLAT, FLAT, shape, shape, FLAT, ()][: 6 if constants else 5], [3, 4], constants)
    assert found[1] == found[2]
    assert kind in TARGET.views[0].ops


def test_graph_inputs_are_not_viewed_or_overwritten_and_outputs_own_their_bytes() -> None:
    column = (16, 1)
    found = addresses([("RESHAPE", [0], [1]), ("NEG", [1], [2])], [FLAT, column, column], [2])
    assert found[1] != found[0]
    found = addresses([("NEG", [0], [1]), ("RESHAPE", [1], [2])], [FLAT, FLAT, column], [2])
    assert found[1] != found[2]
    found = addresses([("SOFTMAX", [0], [1]), ("NEG", [1], [2])], [FLAT] * 3, [2])
    assert found[1] != found[0]
    found = addresses([("NEG", [0], [1]), ("SOFTMAX", [1], [2])], [FLAT] * 3, [2])
    assert found[1] != found[2]
    assert TARGET.outputs_own


def test_views_of_one_tensor_are_not_overwritten_while_it_has_other_readers() -> None:
    column = (16, 1)
    steps: list[Step] = [
        ("NEG", [0], [1]),
        ("RESHAPE", [1], [2]),
        ("RESHAPE", [1], [3]),
        ("SOFTMAX", [2], [4]),
        ("MAXIMUM", [4, 3], [5]),
    ]
    found = addresses(steps, [FLAT, FLAT, column, column, column, column], [5])
    assert found[1] == found[2] == found[3] != found[4]
    alone: list[Step] = [("NEG", [0], [1]), ("RESHAPE", [1], [2]), ("SOFTMAX", [2], [3]), ("NEG", [3], [4])]
    found = addresses(alone, [FLAT, FLAT, column, column, column], [4])
    assert found[1] == found[2] == found[3]


def test_a_tensor_that_no_op_names_gets_no_memory() -> None:
    with pytest.raises(ValueError, match="null"):
        addresses([("NEG", [0], [1]), ("NEG", [1], [2])], [FLAT] * 4, [2])
    assert not TARGET.dead_tensors_allocated
