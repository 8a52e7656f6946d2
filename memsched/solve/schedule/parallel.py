"""Exact searches of independent parts, side by side in processes, with the same results as one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks
from memsched.search.limits import POLL_SECONDS
from memsched.search.run import Run
from memsched.search.workers import submitted, worker_pool
from memsched.solve.schedule import exact
from memsched.solve.schedule.exact import ExactResult

__all__ = ["SegmentJob", "search_all"]


class SegmentJob(FrozenValue, frozen=True):
    """One part to search, and the bounds (bytes) that hold for it whatever the other parts give."""

    tasks: Tasks
    lower_bound: int
    upper_bound: int
    max_states: int


def search_all(jobs: Sequence[SegmentJob], run: Run) -> list[ExactResult | None]:
    """Return the result of each job; None for those that were not begun or not finished when it was time to stop.

    Args:
        run: When to end, and where to search: in ``workers`` processes, with one worker or one job here, or where
            there is an ``executor`` there, and here what is lost there. The results are the same.
    """
    workers, executor = run.limits.workers, run.limits.executor
    if executor is not None and len(jobs) > 1:
        seconds = run.remaining()
        return _gathered(jobs, [executor.submit(_search_until, job, seconds) for job in jobs], run.over)
    if workers == 1 or len(jobs) < 2:
        return [None if run.over() else _search_here(job, run.over) for job in jobs]
    return _search_in_processes(jobs, min(workers, len(jobs)), run)


def _search_here(job: SegmentJob, stop: Callable[[], bool]) -> ExactResult:
    return exact.search(
        job.tasks, lower_bound=job.lower_bound, upper_bound=job.upper_bound, max_states=job.max_states, stop=stop
    )


def _search_until(job: SegmentJob, seconds: float) -> ExactResult:
    """Search ``job`` in a process of its own; ends by itself after ``seconds``."""
    end = time.monotonic() + seconds
    return _search_here(job, lambda: time.monotonic() >= end)


def _search_in_processes(jobs: Sequence[SegmentJob], workers: int, run: Run) -> list[ExactResult | None]:
    pool = worker_pool(workers)
    seconds = run.remaining()
    futures = [submitted(pool, _search_until, job, seconds) for job in jobs]
    pending = _wait(futures, run.over)
    processes = list((pool._processes or {}).values()) if pending else []
    pool.shutdown(wait=not pending, cancel_futures=True)
    for process in processes:
        # Not SIGTERM, which one that has hardly started can miss.
        process.kill()
    return _gathered(jobs, futures, run.over)


def _wait(futures: Sequence[Future[ExactResult]], stop: Callable[[], bool]) -> set[Future[ExactResult]]:
    """Wait for the futures, or until it is time to stop; return those that are not done."""
    pending = set(futures)
    while pending and not stop():
        wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
        # Not what `wait` returns: it goes on to wait for a future that was cancelled without a word.
        pending = {future for future in pending if not future.done()}
    return pending


def _gathered(
    jobs: Sequence[SegmentJob], futures: Sequence[Future[ExactResult]], stop: Callable[[], bool]
) -> list[ExactResult | None]:
    for future in _wait(futures, stop):
        future.cancel()
    return [_outcome(future, job, stop) for future, job in zip(futures, jobs, strict=True)]


def _outcome(future: Future[ExactResult], job: SegmentJob, stop: Callable[[], bool]) -> ExactResult | None:
    """Return what was found elsewhere; a job that was lost there is done again here, unless it is time to stop."""
    if not future.done() or future.cancelled() or future.exception() is not None:
        return None if stop() else _search_here(job, stop)
    return future.result()
