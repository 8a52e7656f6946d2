"""Calls a compiled runner in a process that has loaded the library of the package tflite-micro; prints what it gave.

Arguments: the library of the runner, the model, and how many inputs.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

_ROOM = 4096
"""Bytes beyond the block: the package is built with compression, for which allocators and kernels keep more."""


def main() -> None:
    import tflite_micro.python.tflite_micro as package

    folder = Path(next(iter(package.__path__)))
    ctypes.CDLL(str(next(folder.glob("_runtime*.so"))), mode=ctypes.RTLD_GLOBAL)
    from tflite_micro.python.tflite_micro import runtime

    from memsched.formats.tflite.model import parse

    library, model, runs = ctypes.CDLL(sys.argv[1]), Path(sys.argv[2]).read_bytes(), int(sys.argv[3])
    for name in ("new", "input", "output"):
        getattr(library, f"runner_{name}").restype = ctypes.c_void_p
    for name in ("block_bytes", "stage", "input_bytes", "output_bytes"):
        getattr(library, f"runner_{name}").restype = ctypes.c_size_t
    main_graph = parse(model).subgraphs[0]
    whole = runtime.Interpreter.from_bytes(model, arena_size=1 << 22)
    draw = np.random.default_rng(0)
    inputs = [whole.get_input_details(number) for number in range(len(main_graph.inputs))]
    size = library.runner_block_bytes()
    said: dict[str, Any] = {"block": size, **_errors(library, size)}
    block, runner = _made(library, size + _ROOM)
    found, expected = [], []
    for _ in range(runs):
        values = [draw.integers(-128, 128, one["shape"]).astype(one["dtype"]) for one in inputs]
        for number, value in enumerate(values):
            whole.set_input(value, number)
        whole.invoke()
        expected.append([np.array(whole.get_output(n)).tobytes().hex() for n in range(len(main_graph.outputs))])
        found += [_run(library, runner, values, len(main_graph.outputs)) for _ in range(2)]
    library.runner_delete(ctypes.c_void_p(runner))
    del block
    said["equal"] = found == [one for one in expected for _ in range(2)]
    said["vary"] = len({str(one) for one in expected}) > 1
    sys.stdout.write(f"{json.dumps(said)}\n")


def _made(library: Any, size: int, shift: int = 0) -> tuple[Any, int]:
    memory = ctypes.create_string_buffer(size + 32)
    begin = -(-ctypes.addressof(memory) // 16) * 16 + shift
    return memory, library.runner_new(ctypes.c_void_p(begin), ctypes.c_size_t(size))


def _run(library: Any, runner: int, values: list[Any], outputs: int) -> list[str] | str:
    one = ctypes.c_void_p(runner)
    if status := library.runner_prepare(one):
        return f"Prepare: {status} in {library.runner_stage(one)}"
    for number, value in enumerate(values):
        place = library.runner_input(one, ctypes.c_size_t(number))
        ctypes.memmove(place, value.tobytes(), library.runner_input_bytes(ctypes.c_size_t(number)))
    if status := library.runner_invoke(one):
        return f"Invoke: {status} in {library.runner_stage(one)}"
    return [
        ctypes.string_at(
            library.runner_output(one, ctypes.c_size_t(number)), library.runner_output_bytes(ctypes.c_size_t(number))
        ).hex()
        for number in range(outputs)
    ]


def _errors(library: Any, size: int) -> dict[str, Any]:
    """Return what the runner says where it is not given what it needs."""
    said: dict[str, Any] = {}
    for name, bytes_, shift in (("small", size - 16, 0), ("odd", size + 8, 0), ("unaligned", size, 8)):
        memory, runner = _made(library, bytes_, shift)
        said[name] = library.runner_prepare(ctypes.c_void_p(runner))
        library.runner_delete(ctypes.c_void_p(runner))
        del memory
    memory, runner = _made(library, size + _ROOM)
    one = ctypes.c_void_p(runner)
    said["unprepared"] = library.runner_invoke(one)
    said["early"] = [library.runner_input(one, ctypes.c_size_t(0)), library.runner_output(one, ctypes.c_size_t(0))]
    library.runner_prepare(one)
    library.runner_invoke(one)
    said["again"] = library.runner_invoke(one)
    said["beyond"] = library.runner_output(one, ctypes.c_size_t(99))
    library.runner_delete(one)
    del memory
    return said


if __name__ == "__main__":
    main()
