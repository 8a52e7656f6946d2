"""Parts searched side by side give what they give one by one; a dead process loses nothing."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from multiprocessing.process import BaseProcess
from typing import Any

import pytest

from memsched.graph.contraction import single_op_tasks
from memsched.graph.liveness import Storage
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule import parallel
from memsched.solve.schedule.parallel import SegmentJob, search_all
from tests.random_graphs import random_graph, random_layered_graph


def jobs(count: int) -> list[SegmentJob]:
    rng = random.Random(11)
    tasks = [single_op_tasks(Storage.of(random_graph(rng, 12))) for _ in range(count)]
    return [SegmentJob(part, 0, 10_000, 100_000) for part in tasks]


def never() -> bool:
    return False


def test_same_results_as_one_by_one() -> None:
    work = jobs(6)
    alone = search_all(work, Run(Limits(None, workers=1)))
    assert search_all(work, Run(Limits(None, workers=2))) == alone
    assert all(result is not None and result.complete for result in alone)


def test_a_process_that_dies_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    work = jobs(3)
    alone = search_all(work, Run(Limits(None, workers=1)))
    monkeypatch.setattr(parallel, "_search_until", _die)
    assert search_all(work, Run(Limits(None, workers=2))) == alone


class Lossy(Executor):
    """Finishes every other job, fails every third, and forgets the rest."""

    def __init__(self) -> None:
        self._count = 0

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self._count += 1
        if self._count % 2:
            future.set_result(function(*arguments))
        elif self._count % 3 == 0:
            future.set_exception(RuntimeError("the worker is gone"))
        else:
            future.cancel()
        return future


def test_another_executor_gives_the_same_and_what_it_loses_is_done_here() -> None:
    work = jobs(6)
    alone = search_all(work, Run(Limits(None, workers=1)))
    assert search_all(work, Run(Limits(None, executor=Lossy()))) == alone


def _die(_job: SegmentJob, _seconds: float) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _all_end(processes: Sequence[BaseProcess]) -> bool:
    # Asked more than once: a process that the pool's own thread has just waited for still counts as alive for a moment.
    for _ in range(300):
        for process in processes:
            process.join(1)
        if not any(process.is_alive() and _exists(process) for process in processes):
            return True
    return False


def _exists(process: BaseProcess) -> bool:
    # Two threads wait for a process here, and the one that comes second learns nothing from `multiprocessing`.
    assert process.pid is not None
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_stopping_ends_the_processes() -> None:
    hard = single_op_tasks(Storage.of(random_layered_graph(random.Random(3), 2_000, width=300)))
    work = [SegmentJob(hard, 0, 1_000_000, 10_000_000)] * 2
    asked = iter([False] * 5)
    assert search_all(work, Run(Limits(None, workers=2), stop=lambda: next(asked, True))) == [None, None]
    assert _all_end(multiprocessing.active_children())


def test_the_deadline_ends_the_processes() -> None:
    hard = single_op_tasks(Storage.of(random_layered_graph(random.Random(3), 2_000, width=300)))
    work = [SegmentJob(hard, 0, 1_000_000, 10_000_000)] * 2
    results = search_all(work, Run(Limits(0.2, workers=2)))
    assert all(result is None or not result.complete for result in results)
    assert _all_end(multiprocessing.active_children())
