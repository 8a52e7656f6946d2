"""Emitted models: planned, written, compiled, executed, and compared with the model's own runtime."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from memsched.base.errors import ModelError
from memsched.codegen.code import c_files
from memsched.codegen.layers import layer_codes
from memsched.codegen.onchip import OnChipPlan, plan
from memsched.codegen.onchip.network import OnChipNetwork
from memsched.codegen.program import program_of
from memsched.commands.optimize.optimize import load
from memsched.formats.capabilities import KernelContents
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.graph.kernel import LayerKernel
from memsched.lowering.apply import apply_target
from memsched.search.limits import Limits
from memsched.targets.load import load_target
from memsched.targets.model import Target
from tests.codegen.execute import execute

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
FLAGS = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror")

Values = np.ndarray[Any, Any]


def chip(size: int, alignment: int = 1) -> Target:
    """Return an accelerator with so many bytes on chip."""
    return msgspec.structs.replace(load_target("diannao"), on_chip_bytes=size, alignment_bytes=alignment)


@dataclass(frozen=True)
class EmittedCase:
    """A model with its plan, what its layers compute, and the files."""

    module: Module
    network: OnChipNetwork
    found: OnChipPlan
    kernels: tuple[LayerKernel, ...]
    files: dict[str, bytes]


def emitted(model: bytes, target: Target, seconds: float = 30.0, **ways: Any) -> EmittedCase:
    """Return ``model`` as C for ``target``."""
    module = load(model)
    found = plan(module.graph, target, Limits(seconds), **ways)
    network = OnChipNetwork(apply_target(module.graph, target))
    kernels = capability(module, KernelContents).layer_kernels(module)
    program = program_of(network, found, layer_codes(network, kernels))
    known = tuple(one for one in kernels if isinstance(one, LayerKernel))
    return EmittedCase(module, network, found, known, c_files(program, "model", target.name))


def emitted_somewhere(model: bytes, sizes: Sequence[int], **ways: Any) -> tuple[EmittedCase, int]:
    """Return ``model`` as C for the first of these sizes of on-chip memory that all its layers fit in some pieces."""
    for size in sizes[:-1]:
        found = _where_it_fits(model, size, **ways)
        if found is not None:
            return found, size
    return emitted(model, chip(sizes[-1]), **ways), sizes[-1]


def _where_it_fits(model: bytes, size: int, **ways: Any) -> EmittedCase | None:
    try:
        return emitted(model, chip(size), **ways)
    except ModelError as error:
        if "does not fit" not in str(error):
            raise
        return None


def random_inputs(case: EmittedCase, seed: int) -> list[Values]:
    """Return inputs as the model's file has them."""
    rng = np.random.default_rng(seed)
    graph = case.network.graph
    found: list[Values] = []
    for tensor in graph.inputs:
        one = graph.tensors[tensor]
        if one.dtype == "int8":
            found.append(rng.integers(-128, 128, one.shape, dtype=np.int8))
        else:
            found.append(rng.standard_normal(one.shape or ()).astype(np.float32))
    return found


def channels_last(case: EmittedCase, tensor: int, values: Values) -> Values:
    """Return a tensor's values as they lie on chip and in the C program's memory."""
    moved = case.network.maps[tensor].axes == (0, 2, 3, 1)
    return np.ascontiguousarray(np.transpose(values, (0, 2, 3, 1)) if moved else values)


def as_in_file(case: EmittedCase, tensor: int, data: bytes) -> Values:
    """Return an output's bytes as values in the file's order."""
    one, place = case.network.graph.tensors[tensor], case.network.maps[tensor]
    values = np.frombuffer(data, np.int8 if one.dtype == "int8" else np.float32)
    if place.axes == (0, 2, 3, 1):
        values = np.transpose(values.reshape(place.batch, place.rows, place.columns, place.channels), (0, 3, 1, 2))
    return values.reshape(one.shape or ())


def compiled(files: dict[str, bytes], folder: Path, *flags: str, compiler: str | None = COMPILER) -> Path:
    """Write and compile the files; any warning is an error."""
    assert compiler is not None
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    host = folder / "host"
    sources = sorted(str(folder / name) for name in files if name.endswith(".c"))
    done = subprocess.run(
        [compiler, *FLAGS, *flags, *sources, "-lm", "-o", str(host)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return host


def executed(case: EmittedCase, host: Path, inputs: Sequence[Values], *, late: bool) -> tuple[list[Values], str]:
    """Run the program; it must move what was planned, group by group, and nothing beyond its memories."""
    folder, graph = host.parent, case.network.graph
    given, made = [], []
    for number, (tensor, values) in enumerate(zip(graph.inputs, inputs, strict=True)):
        given.append(folder / f"input_{number}")
        given[-1].write_bytes(channels_last(case, tensor, values).tobytes())
    made = [folder / f"output_{number}" for number in range(len(graph.outputs))]
    done = subprocess.run(
        [host, *(("-late",) if late else ()), folder / "weights.bin", *given, *made],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return [as_in_file(case, tensor, path.read_bytes()) for tensor, path in zip(graph.outputs, made, strict=True)], (
        done.stdout.strip()
    )


def in_runtime(model: bytes, case: EmittedCase, inputs: Sequence[Values]) -> list[Values]:
    """Return the outputs of the model's own runtime: reference kernels for 8 bits."""
    graph = case.network.graph
    if case.module.format == "onnx":
        import onnxruntime

        onnxruntime.set_default_logger_severity(3)
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        feed = {graph.tensors[tensor].name: values for tensor, values in zip(graph.inputs, inputs, strict=True)}
        return list(session.run([graph.tensors[tensor].name for tensor in graph.outputs], feed))
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(model, arena_size=30_000_000)
    for number, values in enumerate(inputs):
        interpreter.set_input(values, number)
    interpreter.invoke()
    return [interpreter.get_output(number).copy() for number in range(len(graph.outputs))]


def by_the_plan(case: EmittedCase, inputs: Sequence[Values]) -> list[Values]:
    """Return the outputs of the plan, carried out in Python; it must move what was planned, group by group."""
    graph = case.network.graph
    given = [channels_last(case, tensor, values) for tensor, values in zip(graph.inputs, inputs, strict=True)]
    done = execute(case.network, case.found, case.kernels, given)
    assert done.moved == tuple((group.cost.read, group.cost.written) for group in case.found.groups)
    return [as_in_file(case, tensor, one.tobytes()) for tensor, one in zip(graph.outputs, done.outputs, strict=True)]


def differences(case: EmittedCase, found: Sequence[Values], wanted: Sequence[Values]) -> list[str]:
    """Return what is wrong: 8 bits must be equal, floats within 1e-5 of the largest."""
    wrong = []
    for tensor, one, other in zip(case.network.graph.outputs, found, wanted, strict=True):
        name = case.network.graph.tensors[tensor].name
        if one.dtype == np.int8:
            if not np.array_equal(one, other):
                wrong.append(f"{name}: {np.count_nonzero(one != other)} of {one.size} values differ")
        else:
            error = error_of(one, other)
            if not error <= 1e-5:
                wrong.append(f"{name}: {error:.2g} off")
    return wrong


def error_of(found: Values, wanted: Values) -> float:
    """Return how far values are off at most, in parts of the largest."""
    return float(np.abs(found - wanted).max()) / max(1.0, float(np.abs(wanted).max()))
