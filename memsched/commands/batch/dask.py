"""Models of a batch on a dask.distributed cluster, whose workers need no disk in common with this machine.

A task carries the model's bytes, the files that these refer to and the target in full; what comes back are the outputs'
bytes. The task is the scheduler's, so a worker that dies loses nothing: another one gets it. On the worker the model is
optimised in a process of its own (`process`), as here.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from memsched.base.errors import MemschedError, OutputError
from memsched.commands.batch.process import BatchJob, JobProgress, JobResult, ProcessDiedError, Processes
from memsched.commands.options import BatchOptions
from memsched.formats.capabilities import WeightFiles
from memsched.formats.files import read_source
from memsched.formats.known import capability, format_in
from memsched.report.values.batch import SavedModel
from memsched.runtimes.child import TIMEOUT, temporary_folder
from memsched.search.dask import PATIENCE_SECONDS
from memsched.search.limits import POLL_SECONDS

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["DaskCluster"]

_BESIDE = PurePath("model")
_TARGET = "target/target.toml"
_RUNNING = "running"

_AHEAD = 2
"""Models under way for each thread of the cluster: the next one travels while one is worked on."""


class DaskCluster:
    """Runs jobs on the cluster of a client; see `cluster.connect`."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._futures: set[Future[Any]] = set()
        self._cancelled = False

    @property
    def parallel(self) -> int:
        """Return how many models to keep under way."""
        threads: dict[str, int] = self._client.nthreads()
        return max(1, _AHEAD * sum(threads.values()))

    def run(self, job: BatchJob, tell: Callable[[JobProgress], None]) -> JobResult:
        """Optimise one model on some worker and return the result.

        Raises:
            ProcessDiedError: The workers that tried it died, or the cluster is gone.
        """
        try:
            options, files = _carried(job)
        except MemschedError as error:
            return JobResult(error.exit_code, str(error), {}, None)
        request = {**dataclasses.asdict(job), "options": options}
        tell(JobProgress("on the cluster", 0, 0))
        future = self._submit(request, files)
        try:
            self._wait(future)
            code, message, outputs, saved = future.result(timeout=TIMEOUT)
        except ProcessDiedError:
            raise
        except (Exception, asyncio.CancelledError) as error:  # the batch survives any failure of the cluster
            reason = " ".join(str(error).split())[:200]
            raise ProcessDiedError(f"the cluster lost it: {type(error).__name__}: {reason}") from None
        finally:
            with self._lock:
                self._futures.discard(future)
        if message == _DIED:
            raise ProcessDiedError(outputs["reason"].decode())
        return JobResult(code, message, outputs, saved)

    def _submit(self, request: Mapping[str, Any], files: Mapping[str, bytes]) -> Future[Any]:
        with self._lock:
            if self._cancelled or self._client.status != _RUNNING:
                raise ProcessDiedError("cancelled" if self._cancelled else "the cluster's scheduler is gone")
            with warnings.catch_warnings():
                # That the model is large is known; scattered, it would be lost with the worker that holds it.
                warnings.simplefilter("ignore")
                future: Future[Any] = self._client.submit(_run_carried, request, dict(files), pure=False)
            self._futures.add(future)
            return future

    def _wait(self, future: Future[Any]) -> None:
        """Wait until there is a result; a scheduler that is gone for long would never give one.

        Raises:
            ProcessDiedError: It is gone, or everything was cancelled.
        """
        seen = time.monotonic()
        while not future.done():
            if self._cancelled:
                raise ProcessDiedError("cancelled")
            if self._client.status == _RUNNING:
                seen = time.monotonic()
            elif time.monotonic() - seen > PATIENCE_SECONDS:
                raise ProcessDiedError("the cluster's scheduler is gone")
            time.sleep(POLL_SECONDS)

    def cancel(self) -> None:
        """Let nothing more begin; what a worker works on it ends, and its result is dropped."""
        with self._lock:
            self._cancelled = True
            futures = list(self._futures)
        if futures and self._client.status == _RUNNING:
            with contextlib.suppress(Exception):
                self._client.cancel(futures, force=True)


_DIED = "\0died"


def _carried(job: BatchJob) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the options as a worker takes them, and all files that it needs, by name.

    Raises:
        MemschedError: The model, what it refers to, or the target cannot be read.
    """
    data, _ = read_source(job.source)
    folder, name = Path(job.source).parent, Path(job.source).name
    files = {str(_BESIDE / name): data}
    for location in capability(format_in(data), WeightFiles).references(data, folder):
        with contextlib.suppress(OSError):  # missing weights are for the reader to judge
            files[str(_BESIDE / location)] = (folder / location).read_bytes()
    options = dataclasses.asdict(job.options)
    if job.options.target is not None and job.options.target.endswith(".toml"):
        from memsched.targets.load import load_target
        from memsched.targets.text import to_toml

        files[_TARGET] = to_toml(load_target(job.options.target)).encode()
        options["target"] = _TARGET
    return options, files


def _run_carried(
    request: dict[str, Any], files: dict[str, bytes]
) -> tuple[int, str | None, dict[str, bytes], SavedModel | None]:
    """Optimise a model that was carried here; runs on a worker, and returns an `JobResult`'s values."""
    with temporary_folder() as folder:
        for location, data in files.items():
            path = _inside(folder, location)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        options = {**request["options"]}
        if _TARGET in files:
            options["target"] = str(folder / _TARGET)
        source = folder / _BESIDE / PurePath(request["source"]).name
        job = BatchJob(**{**request, "source": str(source), "options": BatchOptions(**options)})
        try:
            answer = Processes().run(job, lambda _: None)
        except ProcessDiedError as error:
            return 1, _DIED, {"reason": str(error).encode()}, None
        return answer.exit_code, answer.error, dict(answer.files), answer.saved


def _inside(folder: Path, location: str) -> Path:
    """Return the place of a file below ``folder``; refuse one that would lie elsewhere."""
    path = Path(os.path.normpath(folder / PurePath(location)))
    if not path.is_relative_to(folder):
        raise OutputError(f"'{location}' does not lie beside the model", code="outside-folder")
    return path
