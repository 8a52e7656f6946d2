"""Runs models for `interpreter` as the product's child process does, but for all tests in one process.

In: a pickled pair of the models and how often each is run. Out: a `Trial` for each. It ends with its input.
"""

from __future__ import annotations

import gc
import pickle
import sys

import numpy as np
from tflite_micro.python.tflite_micro import runtime

from memsched.runtimes.tflm.session import InputDraws, attempt

_ARENA = 12_000_000
_PATIENCE = 600
"""Seconds after which a model that waits for ever is ended."""


def main() -> None:
    """Answer requests until there are no more."""
    assert runtime  # imported once, and with it what random numbers need
    np.random.default_rng(0)
    gc.freeze()
    while True:
        try:
            models, runs = pickle.load(sys.stdin.buffer)  # noqa: S301 - written by tests.runtimes.tflm.interpreter
        except EOFError:
            return
        trials = [attempt(model, _ARENA, InputDraws(runs, 0), patience=_PATIENCE) for model in models]
        pickle.dump(trials, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
