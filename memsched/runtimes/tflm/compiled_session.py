"""Compare generated C with TensorFlow Lite Micro in a child process."""

from __future__ import annotations

import math
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from memsched.runtimes.tflm.opened import opened
from memsched.runtimes.values import INVOKES

__all__ = ["run"]

_TURNS: Final = 5
_SECONDS: Final = 0.05
"""Minimum duration of a measurement: a hundred times the resolution of the clock in C."""

_MOST_CALLS: Final = 2_000
_FLAGS: Final = ("-std=c99", "-O2")

Array = np.ndarray[Any, Any]
Scale = tuple[float, int] | None


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compile "files" with "compiler", and compare the outputs with those of "model" on "runs" inputs, each run twice.

    Args:
        request: Also contains "arena" (bytes for the interpreter), "seed", "input_scale", and "output_scales" (scale
            and zero point of tensors that are floats in the model and bytes in C; None for other tensors).

    Returns:
        "equal", "vary" (whether outputs differ between inputs), and "time_ratio" (C relative to the interpreter).

    Raises:
        ValueError: The files do not compile, or the program fails.
    """
    program = _compiled(request["compiler"], request["files"])
    interpreter = opened(request["model"], request["arena"])
    detail, scales = interpreter.get_input_details(0), request["output_scales"]
    shape = [int(length) for length in detail["shape"]]
    inputs = _inputs(math.prod(shape), request["runs"], request["seed"])
    given = [_as_floats(one.reshape(shape), request["input_scale"]) for one in inputs]

    def outputs_of(values: Array) -> list[Array]:
        interpreter.set_input(values, 0)
        interpreter.invoke()
        return [np.array(interpreter.get_output(number)) for number in range(len(scales))]

    expected = [outputs_of(values) for values in given for _ in range(INVOKES)]
    found = _made(program, [one for one in inputs for _ in range(INVOKES)], expected[0])
    equal = all(
        np.array_equal(wanted, _as_floats(made, scale))
        for all_wanted, all_made in zip(expected, found, strict=True)
        for wanted, made, scale in zip(all_wanted, all_made, scales, strict=True)
    )
    return {
        "equal": equal,
        "vary": any(not np.array_equal(one, other) for one, other in zip(expected[0], expected[-1], strict=True)),
        "time_ratio": _ratio(lambda: outputs_of(given[-1]), program, inputs[-1]),
    }


def _compiled(compiler: str, files: Mapping[str, bytes]) -> str:
    for name, data in files.items():
        Path(name).write_bytes(data)
    sources = [name for name in files if name.endswith(".c")]
    _answer([compiler, *_FLAGS, *sources, "-o", "program"], b"")
    return str(Path("program").absolute())


def _answer(command: Sequence[str], given: bytes) -> tuple[bytes, bytes]:
    """Run a program, and return its standard output and standard error."""
    done = subprocess.run(command, input=given, capture_output=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.decode("utf-8", "replace").split())[:300]
        raise ValueError(f"{Path(command[0]).name} ended with exit code {done.returncode}: {said}")
    return done.stdout, done.stderr


def _inputs(size: int, count: int, seed: int) -> list[Array]:
    """Return the smallest and the largest values, and random inputs."""
    noise = [
        np.random.default_rng(np.random.SeedSequence([seed, number])).integers(-128, 128, size, dtype=np.int8)
        for number in range(count)
    ]
    return [np.full(size, -128, np.int8), np.full(size, 127, np.int8), *noise]


def _as_floats(values: Array, scale: Scale) -> Array:
    if scale is None:
        return values
    return np.asarray((values.astype(np.float32) - np.float32(scale[1])) * np.float32(scale[0]))


def _made(program: str, inputs: Sequence[Array], like: Sequence[Array]) -> list[list[Array]]:
    """Return the outputs of C for each input, in the shapes of ``like``."""
    written, _ = _answer([program], b"".join(one.tobytes() for one in inputs))
    flat = np.frombuffer(written, np.int8).reshape(len(inputs), -1)
    ends = np.cumsum([one.size for one in like])[:-1]
    return [[part.reshape(one.shape) for part, one in zip(np.split(row, ends), like, strict=True)] for row in flat]


def _ratio(invoke: Callable[[], object], program: str, values: Array) -> float:
    """Return the median of the processor time of C relative to the interpreter."""
    calls = max(1, min(_MOST_CALLS, math.ceil(_SECONDS / max(_seconds(invoke, 1), 1e-9))))
    ratios = []
    for _ in range(_TURNS):
        _, told = _answer([program, str(calls)], values.tobytes())
        ratios.append(float(told) / max(_seconds(invoke, calls), 1e-9))
    return statistics.median(ratios)


def _seconds(invoke: Callable[[], object], calls: int) -> float:
    begun = time.process_time()
    for _ in range(calls):
        invoke()
    return (time.process_time() - begun) / calls
