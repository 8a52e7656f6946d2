"""Runs models in the real TensorFlow Lite Micro, each in a process of its own: a check that fails aborts it."""

from __future__ import annotations

import atexit
import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from memsched.formats.tflite.model import parse
from memsched.runtimes.tflm.session import Trial
from memsched.runtimes.tflm.verification import predicted

__all__ = ["needs_tflm", "run_all", "same_outputs"]

needs_tflm = pytest.mark.skipif(
    importlib.util.find_spec("tflite_micro") is None, reason="the package tflite-micro is not installed"
)

_RUNS = 3


def run_all(models: Sequence[bytes], *, runs: int = _RUNS) -> list[Trial]:
    """Run models, each on the same random inputs and twice in a row on each, in a forked process each.

    Of each that runs, the arena must be the one predicted, head and tail, to the byte.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    pickle.dump((list(models), runs), server.stdin)
    server.stdin.flush()
    found: list[Trial] = pickle.load(server.stdout)  # noqa: S301 - written by this module
    for data, one in zip(models, found, strict=True):
        told = None if one.refused else predicted(parse(data))
        assert told is None or told == (one.head, one.tail)
    return found


@cache
def _server() -> subprocess.Popen[bytes]:
    """Start the process that forks, once for all tests: to start Python and TFLM costs more than most models do."""
    command = [sys.executable, "-m", "tests.runtimes.tflm.server"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
    atexit.register(server.communicate)
    return server


def same_outputs(first: Trial, second: Trial) -> bool:
    """Whether two models ran and gave the same outputs, bit by bit."""
    if first.outputs is None or second.outputs is None:
        return False
    return all(
        len(one) == len(two)
        and all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(one, two, strict=True))
        for one, two in zip(first.outputs, second.outputs, strict=True)
    )
