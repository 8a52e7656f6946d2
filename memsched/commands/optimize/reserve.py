"""How much of a limit of time a search leaves for verification: as much as runs of the model as given tell."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Final

from memsched.base.errors import MemschedError, RuntimeUnavailableError
from memsched.formats.module import LoadOptions, Module
from memsched.formats.staging import STANDARD_STREAM
from memsched.plan.values import TargetModule
from memsched.runtimes.known import default_interpreter_of, has_sessions, runners_for
from memsched.runtimes.runner import CompareFiles
from memsched.search.run import Run
from memsched.targets.model import Target

__all__ = ["KEPT", "SESSIONS", "search_of", "search_until_verification"]

KEPT: Final = "of the time limit are kept for verification"
"""What a stage ends with that says so."""

_MOST_RESERVED: Final = 0.25
"""Largest fraction of the time limit for checking and writing what was found."""

_MOST_FOR_RUNS: Final = 0.6
"""The same for runs of both models, where one takes so long: those of PP-OCR at 640 x 640 take 12 of 20 s."""

_COMPARISONS: Final = 4.0
"""Verification runs both models on three inputs, and at a second size: as often as so many comparisons on one."""

_WITH_INTERPRETER: Final = 8.0
"""The same where LiteRT's default interpreter is measured as well, and may refuse the first file for a second one."""

SESSIONS: Final = 3.0
"""How many times as long as verification sessions of ONNX Runtime take at least, run until further runs add nothing."""

_SHORT: Final = 0.1
"""Fraction of the time limit up to which verification, as foreseen, needs no run beforehand, and that one may take."""

_MACS_PER_SECOND: Final = 50e6
"""That a runtime's reference kernels do on a slow machine, as `memsched relay` foresees it."""

_RUNS: Final = 14
"""Runs of a model that take as long as verification does, as `memsched relay` foresees it."""


def search_of(run: Run) -> Run:
    """Return a run that ends so early that checking and writing end in time: they take about as long as reading did."""
    limit = run.limits.time_limit
    return run if limit is None else _shorter(run, limit, min(run.elapsed(), _MOST_RESERVED * limit))


def search_until_verification(
    run: Run, module: Module, data: bytes, options: LoadOptions, prepared: TargetModule, *, named: bool = True
) -> Run:
    """Return what `search_of` does, and leave the time that verification takes.

    If that may be long, the model as given is first run in its runtime; progress then says what is left.

    Args:
        named: The user named the limit, which verification keeps to as well. Otherwise the limit only divides the time
            between the search and verification.
    """
    limit, within = run.limits.time_limit, search_of(run)
    foreseen = _RUNS * sum(op.macs for graph in module.graphs for op in graph.ops) / _MACS_PER_SECOND
    if not limit or foreseen <= _SHORT * limit:
        return within
    if not named:
        return _shorter(within, within.limits.time_limit or 0.0, _MOST_FOR_RUNS * limit)
    begun = run.clock()
    with contextlib.suppress(MemschedError):
        _compare(module, data, options, prepared.target, run.limits.seed, _SHORT * limit)
    seconds = min(_comparisons(module, prepared.target) * (run.clock() - begun), _MOST_FOR_RUNS * limit)
    peak = prepared.baselines["file_order"].schedule.peak
    run.tell(f"{seconds:.1f} s, {100 * seconds / limit:.0f} %, {KEPT}", peak, None)
    return _shorter(within, within.limits.time_limit or 0.0, seconds)


def _comparisons(module: Module, target: Target) -> float:
    """Return how often verification takes as long as a comparison on one input."""
    if has_sessions(module.format):
        return _COMPARISONS * (1 + SESSIONS)
    return _COMPARISONS if default_interpreter_of(module, target) is None else _WITH_INTERPRETER


def _shorter(run: Run, limit: float, seconds: float) -> Run:
    left = max(0.0, limit - seconds)
    return dataclasses.replace(run, limits=dataclasses.replace(run.limits, time_limit=left))


def _compare(
    module: Module, data: bytes, options: LoadOptions, target: Target, seed: int, timeout_seconds: float
) -> None:
    """Run the model as given beside itself, on one input, in the first runtime that is installed."""
    source = data if module.path == STANDARD_STREAM else Path(module.path)
    for runner in runners_for(module, target):
        with contextlib.suppress(RuntimeUnavailableError):
            runner.compare(CompareFiles(source, source, options, 1, 0.0, 0.0, seed, timeout_seconds=timeout_seconds))
            return
