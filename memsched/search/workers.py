"""Processes that search side by side. They leave Ctrl-C to the process that started them, and end when it ends."""

from __future__ import annotations

import copyreg
import os
import select
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.reduction import ForkingPickler
from types import MappingProxyType
from typing import Any, TypeVar

from memsched.base.frozen import FrozenValue

__all__ = ["submitted", "worker_pool"]

_Result = TypeVar("_Result")


def _read_only(mapping: dict[Any, Any]) -> MappingProxyType[Any, Any]:
    return MappingProxyType(mapping)


# Attributes of ops may be read-only, and Python alone cannot send such a mapping to another process.
copyreg.pickle(MappingProxyType, lambda mapping: (_read_only, (dict(mapping),)))


def worker_pool(
    workers: int, begin: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
) -> ProcessPoolExecutor:
    """Return a pool of ``workers`` processes, each of which first calls ``begin(*arguments)``."""
    return ProcessPoolExecutor(workers, get_context("spawn"), _begin, (begin, tuple(map(_shared, arguments))))


class _SharedArgument(FrozenValue, frozen=True):
    """An argument in shared memory: if a process dies at its start, what its pipe does not hold is waited for."""

    data: Any


def _shared(argument: object) -> object:
    """Return what stands for an argument of a process that begins: itself, or the memory that it is in."""
    try:
        data = ForkingPickler.dumps(argument)
    except (RuntimeError, TypeError):
        # Shared memory goes to a process that begins and nowhere else; it is small.
        return argument
    if len(data) < select.PIPE_BUF:
        return argument
    shared = get_context("spawn").RawArray("c", len(data))
    shared.raw = bytes(data)
    return _SharedArgument(shared)


def submitted(pool: ProcessPoolExecutor, function: Callable[..., _Result], *arguments: object) -> Future[_Result]:
    """Submit a call; where a process of the pool has died, the future says so as those begun earlier do."""
    try:
        return pool.submit(function, *arguments)
    except BrokenProcessPool as error:
        lost: Future[_Result] = Future()
        lost.set_exception(error)
        return lost


def _begin(begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="end with parent", daemon=True).start()
    if begin is not None:
        begin(*(_loaded(one) for one in arguments))


def _loaded(argument: object) -> Any:
    return ForkingPickler.loads(argument.data.raw) if isinstance(argument, _SharedArgument) else argument


def _end_with_parent() -> None:
    # A killed parent sends its workers no message, and they would wait for work for ever.
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
