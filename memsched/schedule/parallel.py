"""Exact searches of independent parts, side by side in processes, with the same results as one by one."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context

from memsched.graph.contraction import Tasks
from memsched.schedule import exact
from memsched.schedule.exact import ExactResult

__all__ = ["Job", "search_all"]

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Job:
    """One part to search, and the bounds (bytes) that hold for it whatever the other parts give."""

    tasks: Tasks
    lower_bound: int
    upper_bound: int
    max_states: int


def search_all(
    jobs: Sequence[Job], *, workers: int, deadline: float, stop: Callable[[], bool]
) -> list[ExactResult | None]:
    """Return the result of each job; None for those that were not begun or not finished when it was time to stop.

    Args:
        workers: Processes; with one, or one job, everything runs here. The results are the same.
        deadline: On `time.monotonic`; may be infinite.
        stop: True ends the searches.
    """
    if workers == 1 or len(jobs) < 2:
        return [None if stop() else _search_here(job, stop) for job in jobs]
    return _search_in_processes(jobs, min(workers, len(jobs)), deadline, stop)


def _search_here(job: Job, stop: Callable[[], bool]) -> ExactResult:
    return exact.search(
        job.tasks, lower_bound=job.lower_bound, upper_bound=job.upper_bound, max_states=job.max_states, stop=stop
    )


def _search_until(job: Job, seconds: float) -> ExactResult:
    """Search ``job`` in a process of its own; ends by itself after ``seconds``."""
    end = time.monotonic() + seconds
    return _search_here(job, lambda: time.monotonic() >= end)


def _leave_interrupts_to_the_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _search_in_processes(
    jobs: Sequence[Job], workers: int, deadline: float, stop: Callable[[], bool]
) -> list[ExactResult | None]:
    seconds = max(0.0, deadline - time.monotonic()) if deadline < math.inf else math.inf
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _leave_interrupts_to_the_parent)
    futures = [pool.submit(_search_until, job, seconds) for job in jobs]
    pending = set(futures)
    while pending and not stop():
        _, pending = wait(pending, timeout=_POLL_SECONDS, return_when=FIRST_COMPLETED)
    processes = list((pool._processes or {}).values()) if pending else []
    pool.shutdown(wait=not pending, cancel_futures=True)
    for process in processes:
        process.terminate()
    return [_outcome(future, job, stop) for future, job in zip(futures, jobs, strict=True)]


def _outcome(future: Future[ExactResult], job: Job, stop: Callable[[], bool]) -> ExactResult | None:
    """Return what a process found; a job whose process died is done again here, unless it is time to stop."""
    if not future.done() or future.cancelled():
        return None
    try:
        return future.result()
    except BrokenProcessPool:
        return None if stop() else _search_here(job, stop)
