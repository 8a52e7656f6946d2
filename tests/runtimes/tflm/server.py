"""Runs models in TensorFlow Lite Micro for `interpreter`, each in a fork of a process that has imported it.

In: a pickled pair of the models and how often each is run. Out: for each its outputs, None where it was refused, and
what it wrote. It ends with its input.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import sys
import tempfile
from typing import Any

import numpy as np
from tflite_micro.python.tflite_micro import runtime

_ARENA = 12_000_000
_PATIENCE = 600
"""Seconds after which a model that waits for ever is ended."""


def _details(get: Any) -> list[Any]:
    found: list[Any] = []
    with contextlib.suppress(Exception):
        while True:
            found.append(get(len(found)))
    return found


def _values(detail: Any, generator: np.random.Generator) -> Any:
    kind = np.dtype(detail["dtype"])
    if kind.kind in "iu":
        return generator.integers(np.iinfo(kind).min, np.iinfo(kind).max, detail["shape"], kind, endpoint=True)
    if kind.kind == "b":
        return generator.integers(0, 2, detail["shape"]).astype(kind)
    return generator.standard_normal(detail["shape"]).astype(kind)


def _run(model: bytes, runs: int) -> list[tuple[Any, ...]]:
    interpreter = runtime.Interpreter.from_bytes(model, arena_size=_ARENA)
    inputs = _details(interpreter.get_input_details)
    found = []
    for seed in range(runs):
        generator = np.random.default_rng(seed)
        for index, detail in enumerate(inputs):
            interpreter.set_input(_values(detail, generator), index)
        interpreter.invoke()
        found.append(tuple(np.array(output) for output in _details(interpreter.get_output)))
    interpreter.print_allocations()
    return found


def _forked(model: bytes, runs: int) -> tuple[Any, str]:
    with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as outputs:
        child = os.fork()
        if not child:
            signal.alarm(_PATIENCE)
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                pickle.dump(_run(model, runs), outputs)
                outputs.flush()
            except Exception as error:
                log.write(f"{type(error).__name__}: {error}\n".encode())
                log.flush()
                os._exit(1)
            os._exit(0)
        failed = os.waitpid(child, 0)[1]
        log.seek(0)
        outputs.seek(0)
        text = log.read().decode("utf-8", "replace")
        return (None, text or "aborted") if failed else (pickle.load(outputs), text)  # noqa: S301


def main() -> None:
    """Answer requests until there are no more."""
    np.random.default_rng(0)  # what that imports, too
    gc.freeze()
    while True:
        try:
            models, runs = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by tests.runtimes.tflm.interpreter
        except EOFError:
            return
        pickle.dump([_forked(model, runs) for model in models], sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
