"""Runs models in the real TensorFlow Lite Micro, each in a process of its own: a check that fails aborts it."""

from __future__ import annotations

import atexit
import importlib.util
import pickle
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

__all__ = ["Ran", "needs_tflm", "run_all", "same_outputs"]

needs_tflm = pytest.mark.skipif(
    importlib.util.find_spec("tflite_micro") is None, reason="the package tflite-micro is not installed"
)

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
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    pickle.dump((list(models), runs), server.stdin)
    server.stdin.flush()
    found: list[tuple[Any, str]] = pickle.load(server.stdout)  # noqa: S301 - written by this module
    return [_ran(outputs, log) for outputs, log in found]


@cache
def _server() -> subprocess.Popen[bytes]:
    """Start the process that forks, once for all tests: to start Python and TFLM costs more than most models do."""
    command = [sys.executable, "-m", "tests.runtimes.tflm.server"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
    atexit.register(server.communicate)
    return server


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
