"""Runs models in the real TensorFlow Lite Micro, each in a process of its own: a check that fails aborts it."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

__all__ = ["Ran", "needs_tflm", "run_all", "same_outputs"]

needs_tflm = pytest.mark.skipif(
    importlib.util.find_spec("tflite_micro") is None, reason="the package tflite-micro is not installed"
)

_ARENA = 12_000_000
_RUNS = 3
_HEAD = re.compile(r"Arena allocation head (\d+) bytes")
_TOTAL = re.compile(r"Arena allocation total (\d+) bytes")


@dataclass(frozen=True)
class Ran:
    """What TFLM made of a model.

    Attributes:
        outputs: Per run over random inputs the outputs; empty where it was refused.
        log: What it wrote, with the reason of a refusal.
        head: Bytes of the arena's planned part; 0 where it was refused.
        total: Bytes of the whole arena in a process of 64 bits.
    """

    outputs: tuple[tuple[Any, ...], ...]
    log: str
    head: int
    total: int

    @property
    def refused(self) -> bool:
        """Whether it did not load, or did not run."""
        return not self.outputs


def run_all(models: Sequence[bytes], *, runs: int = _RUNS) -> list[Ran]:
    """Run models, each on the same random inputs, in a forked process each."""
    with tempfile.TemporaryDirectory() as folder:
        request, answer = Path(folder, "request"), Path(folder, "answer")
        request.write_bytes(pickle.dumps((list(models), runs)))
        subprocess.run([sys.executable, __file__, str(request), str(answer)], check=True, timeout=600)
        found: list[tuple[Any, str]] = pickle.loads(answer.read_bytes())  # noqa: S301 - written by this module
    return [_ran(outputs, log) for outputs, log in found]


def same_outputs(first: Ran, second: Ran) -> bool:
    """Whether two models ran and gave the same outputs, bit by bit."""
    if first.refused or second.refused:
        return False
    return all(
        len(one) == len(two)
        and all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, two, strict=True))
        for one, two in zip(first.outputs, second.outputs, strict=True)
    )


def _ran(outputs: Any, log: str) -> Ran:
    head, total = _HEAD.search(log), _TOTAL.search(log)
    return Ran(tuple(outputs or ()), log, int(head[1]) if head else 0, int(total[1]) if total else 0)


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
    from tflite_micro.python.tflite_micro import runtime

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


def _serve(request: Path, answer: Path) -> None:
    import tflite_micro.python.tflite_micro.runtime  # noqa: F401 - once for all children

    models, runs = pickle.loads(request.read_bytes())  # noqa: S301 - written by this module
    results = []
    for model in models:
        with tempfile.TemporaryFile() as log, tempfile.TemporaryFile() as outputs:
            child = os.fork()
            if not child:
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
            results.append((None, text or "aborted") if failed else (pickle.load(outputs), text))  # noqa: S301
    answer.write_bytes(pickle.dumps(results))


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), Path(sys.argv[2]))
