"""Damaged ONNX files: whatever the bytes, the reader succeeds or says in one line what is wrong."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import onnx
import pytest

from memsched.base.errors import MemschedError
from memsched.formats.onnx import reader, writer
from tests.formats.onnx_builder import BOOL, branch, call, constant, function, make, node, value


def rich_model() -> bytes:
    """A small model with everything that the reader treats apart."""
    then = branch("then", node("Relu", "a", "t"), outputs="t")
    other = branch("else", node("Add", "a w", "e"), outputs="e")
    nodes = [
        node("Shape", "x", "s"),
        node("Slice", "s low high", "batch"),
        node("Concat", "batch rest", "target", axis=0),
        node("Reshape", "x target", "a", name="reshape"),
        node("If", "c", "b", then_branch=then, else_branch=other),
        call("F", "b", "d"),
        node("Constant", "", "k", value_floats=[0.5, 2.0]),
        node("Gemm", "d w", "y", name="product", alpha=0.5),
    ]
    weights = [
        constant("w", np.ones((12, 12), np.float32)),
        constant("low", [0]),
        constant("high", [1]),
        constant("rest", [12]),
    ]
    inputs, outputs = [value("x", ["N", 3, 4]), value("c", [], BOOL)], [value("y", None), value("k", [2])]
    functions = [function("F", node("Abs", "p", "m"), node("Neg", "m", "q"))]
    inputs[0].type.tensor_type.shape.dim[0].dim_value = 12
    return bytes(make(nodes, inputs, outputs, weights, functions=functions, domains=["my"]).SerializeToString())


def survives(data: bytes) -> bool:
    message = None
    try:
        module = reader.read(data, "damaged.onnx")
        order = list(range(len(module.graph.ops)))
        writer.serialize(module, {0: order}, {"key": "value"})
    except MemschedError as error:
        message = str(error)
    assert message is None or (message.startswith("damaged.onnx: ") and "\n" not in message)
    return message is None


def test_the_sound_model_reads() -> None:
    assert survives(rich_model())


@pytest.mark.parametrize("seed", range(4))
def test_mutated_bytes_never_crash(seed: int) -> None:
    rng = random.Random(seed)
    data = rich_model()
    read = 0
    for _ in range(700):
        mutated = bytearray(data)
        for _ in range(rng.choice([1, 1, 2, 8])):
            place = rng.randrange(len(mutated))
            action = rng.randrange(4)
            if action == 0:
                mutated[place] ^= 1 << rng.randrange(8)
            elif action == 1:
                mutated[place] = rng.randrange(256)
            elif action == 2:
                del mutated[place : place + rng.randrange(1, 9)]
            else:
                mutated[place:place] = mutated[rng.randrange(len(mutated)) :][: rng.randrange(1, 40)]
        read += survives(bytes(mutated))
    assert 0 < read < 700


def test_every_truncation_is_refused_or_read() -> None:
    data = rich_model()
    assert not any(survives(data[:length]) for length in range(0, len(data) - 200, 3))


def test_the_models_of_the_onnx_package_read_or_say_why() -> None:
    folder = Path(onnx.__file__).parent / "backend/test/data"
    paths = sorted((folder / "simple").glob("**/*.onnx")) + sorted((folder / "pytorch-converted").glob("**/*.onnx"))
    assert len(paths) > 80
    assert sum(survives(path.read_bytes()) for path in paths) > 0.95 * len(paths)
