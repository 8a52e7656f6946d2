"""Models as C that streams: planned, compiled, run in a process of their own, and compared with the model's runtime."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memsched.codegen.streaming.check import check_stream
from memsched.codegen.streaming.emit import StreamCode, stream_code
from memsched.codegen.streaming.host import host_program
from memsched.codegen.streaming.network import stream_network
from memsched.codegen.streaming.plan import InputPlace, StreamPlan, plan_stream
from memsched.commands.optimize.optimize import load
from memsched.formats.capabilities import KernelContents
from memsched.formats.known import capability
from memsched.graph.kernel import LayerKernel
from tests.codegen.harness import COMPILER

__all__ = ["PLACES", "extremes", "in_reference", "in_tflm", "run_streamed", "streamed", "tflm_runner"]

Array = np.ndarray[Any, Any]

PLACES: tuple[InputPlace, ...] = ("held", "elsewhere", "rows")
FLAGS = ("-std=c99", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
SANITIZERS = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def streamed(model: bytes, place: InputPlace) -> tuple[StreamPlan, StreamCode]:
    """Return a model's plan, which is checked, and its files."""
    module = load(model)
    network = stream_network(module.graph, capability(module, KernelContents).layer_kernels(module))
    plan = plan_stream(network, place)
    check_stream(plan)
    return plan, stream_code(plan, "model.tflite")


def run_streamed(plan: StreamPlan, code: StreamCode, inputs: Sequence[Array], folder: Path, *flags: str) -> list[Array]:
    """Compile the files, and return the outputs of one run per input, in one process."""
    assert COMPILER is not None
    for name, data in {**code.files, "host.c": host_program(plan).encode()}.items():
        (folder / name).write_bytes(data)
    program = folder / "program"
    sources = (str(folder / "model.c"), str(folder / "host.c"))
    subprocess.run([COMPILER, *FLAGS, *flags, *sources, "-o", str(program)], check=True)
    given = b"".join(one.astype(np.int8).tobytes() for one in inputs)
    done = subprocess.run([str(program)], input=given, stdout=subprocess.PIPE, check=True)
    return list(np.frombuffer(done.stdout, np.int8).reshape(len(inputs), -1))


def extremes(size: int, count: int, seed: int = 0) -> list[Array]:
    """Return inputs of so many bytes: both ends of the range, smooth ones, and noise."""
    random = np.random.default_rng(seed)
    noise = random.integers(-128, 128, (count, size), dtype=np.int64)
    smooth = np.clip(np.cumsum(noise, axis=1) // 3, -128, 127)
    found = [np.full(size, 127), np.full(size, -128)]
    found += [smooth[number] if number % 4 == 1 else noise[number] for number in range(count - len(found))]
    return [one.astype(np.int8) for one in found]


def _borders(model: bytes) -> dict[str, tuple[float, int]]:
    """Return scale and zero of the model's input and output, where these are floats."""
    kernels = capability(module := load(model), KernelContents).layer_kernels(module)
    families = {"quantize": "input", "dequantize": "output"}
    return {
        families[one.family]: (one.numbers["scale"], int(one.numbers["zero"]))
        for one in kernels
        if isinstance(one, LayerKernel) and one.family in families
    }


def _given(values: Array, shape: Sequence[int], borders: dict[str, tuple[float, int]]) -> Array:
    """Return an input as the runtime takes it."""
    shaped = np.asarray(values.reshape([int(length) for length in shape]))
    if "input" not in borders:
        return shaped
    scale, zero = borders["input"]
    return np.asarray((shaped.astype(np.float32) - np.float32(zero)) * np.float32(scale))


def _made(values: Array, borders: dict[str, tuple[float, int]]) -> Array:
    """Return an output in 8 bits."""
    if "output" not in borders:
        return np.array(values).reshape(-1)
    scale, zero = borders["output"]
    return np.asarray(np.round(values.reshape(-1) / np.float32(scale)) + zero).astype(np.int8)


def in_reference(model: bytes, inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs of LiteRT without delegates."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(
        model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    )
    interpreter.allocate_tensors()
    (given,), (made, *_) = interpreter.get_input_details(), interpreter.get_output_details()
    borders, found = _borders(model), []
    for one in inputs:
        interpreter.set_tensor(given["index"], _given(one, given["shape"], borders))
        interpreter.invoke()
        found.append(_made(interpreter.get_tensor(made["index"]), borders))
    return found


def tflm_runner(model: bytes, arena: int = 1 << 24) -> Callable[[Array], Array]:
    """Return what runs a model in TensorFlow Lite Micro, on 8 bits."""
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(model, arena_size=arena)
    shape, borders = interpreter.get_input_details(0)["shape"], _borders(model)

    def run(values: Array) -> Array:
        interpreter.set_input(_given(values, shape, borders), 0)
        interpreter.invoke()
        return _made(interpreter.get_output(0), borders)

    return run


def in_tflm(model: bytes, inputs: Sequence[Array]) -> list[Array]:
    """Return the outputs of TensorFlow Lite Micro."""
    run = tflm_runner(model)
    return [run(one) for one in inputs]
