"""A dask.distributed cluster, as a client and as an executor of `concurrent.futures`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from memsched import __version__
from memsched.base.errors import RuntimeUnavailableError, UsageError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["PATIENCE_SECONDS", "connect", "executor_at"]

PATIENCE_SECONDS: Final = 20.0
"""Without a word of the scheduler or of a worker, until they are given up."""

_TALKATIVE = ("distributed", "asyncio", "tornado")
"""Loggers that print tracebacks of connections that are lost."""


@contextlib.contextmanager
def connect(address: str) -> Iterator[Client]:
    """Give a client of the cluster whose scheduler is at ``address``, such as "tcp://host:8786".

    Raises:
        RuntimeUnavailableError: dask.distributed is not installed.
        UsageError: No scheduler answers, it has no worker, or a worker has another version of memsched.
    """
    try:
        import distributed
    except ImportError:
        raise RuntimeUnavailableError(
            "--dask needs dask.distributed, which is not installed: pip install distributed"
        ) from None
    # Dask's log of lost workers would disturb the table, which reports the effect on each model itself.
    for name in (*_TALKATIVE, *list(logging.root.manager.loggerDict)):
        if name.partition(".")[0] in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        client = distributed.Client(address, timeout=PATIENCE_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        problem = f"no scheduler answers there ({type(error).__name__}: {reason})"
        raise UsageError(problem, code="no-scheduler", location=f"--dask {address}") from None
    try:
        _check_workers(client, address)
        yield client
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=5)


def _check_workers(client: Client, address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=PATIENCE_SECONDS)
    except TimeoutError:
        action = "start some with 'dask worker'"
        where = f"--dask {address}"
        raise UsageError("the scheduler has no workers", code="no-workers", location=where, action=action) from None
    try:
        versions = client.run(_version)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        problem = f"memsched cannot be used on the workers ({reason})"
        raise UsageError(problem, code="worker-unusable", location=f"--dask {address}") from None
    for worker, version in sorted(versions.items()):
        if version != __version__:
            problem = f"worker {worker} has memsched {version}, here it is {__version__}"
            raise UsageError(problem, code="other-version", location=f"--dask {address}")


def _version() -> str:
    return __version__


@contextlib.contextmanager
def executor_at(address: str | None) -> Iterator[Executor | None]:
    """Give an executor on the cluster at ``address``, see `connect`; None where no address is given."""
    if address is None:
        yield None
        return
    with connect(address) as client:
        executor: Executor = client.get_executor(pure=False)
        yield executor
