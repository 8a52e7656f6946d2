"""One model of a batch in a process of its own, which may crash or be killed without harm to the others.

This is the parent's side; `child` is the other. It is sent a request, and sends news and one answer back. When its
parent is gone, it ends itself and what it started.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from memsched.base.errors import MemschedError
from memsched.base.frozen import FrozenValue
from memsched.base.typed import converted
from memsched.commands.options import BatchOptions
from memsched.report.values.batch import BatchAnswer, SavedModel
from memsched.runtimes.child import temporary_folder
from memsched.search.messages import Channel, LostError
from memsched.search.processes import Death, start_process

__all__ = ["BatchJob", "JobProgress", "JobResult", "ProcessDiedError", "Processes"]


class BatchJob(FrozenValue, frozen=True):
    """One model to optimise.

    Attributes:
        source: Where the file lies.
        shown: The path that report and messages name.
        folder: Of the outputs, as the report names it.
        output: The file to write.
        report: The report to write.
        own_folder: Below ``folder``, for a model with external data: two models may name one weights file.
    """

    source: str
    shown: str
    folder: str
    output: str
    report: str
    own_folder: str
    options: BatchOptions


class JobProgress(FrozenValue, frozen=True):
    """How far a search is: the best peak in bytes, and the bound where one holds."""

    stage: str
    best_peak: int
    lower_bound: int | None


class JobResult(FrozenValue, frozen=True):
    """What became of one model.

    Attributes:
        exit_code: That of `memsched optimize` with these options.
        error: One line; None where there is a model.
        files: Path below the folder of outputs to content.
        saved: For the summary; None where there is no model.
    """

    exit_code: int
    error: str | None
    files: Mapping[str, bytes]
    saved: SavedModel | None


class ProcessDiedError(MemschedError):
    """The process ended without an answer; the message says how."""


class Processes:
    """Runs jobs, each in a process of its own; `cancel` ends all of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._cancelled = False

    def run(self, job: BatchJob, tell: Callable[[JobProgress], None]) -> JobResult:
        """Optimise one model and return the result.

        Raises:
            ProcessDiedError: The process was killed, or ended without an answer.
            OutputError: There is no room for temporary files.
        """
        with temporary_folder() as folder:
            into, log = folder / "outputs", folder / "log"
            into.mkdir()
            source = str(Path(job.source).absolute())
            target = job.options.target
            if target is not None and target.endswith(".toml"):
                target = str(Path(target).absolute())
            options = dataclasses.replace(job.options, target=target)
            request = asdict(dataclasses.replace(job, source=source, options=options))
            process, channel = self._start(folder, log)
            try:
                answer = _talk(channel, {**request, "into": str(into)}, tell)
            finally:
                _kill(process)
                process.wait()
                channel.close()
                with self._lock:
                    self._running.discard(process)
            if answer is None:
                raise ProcessDiedError(_how_it_died(Death(process.returncode, log)))
            files = {path.relative_to(into).as_posix(): path.read_bytes() for path in _files(into)}
            return JobResult(answer.exit_code, answer.error, files, answer.saved)

    def _start(self, folder: Path, log: Path) -> tuple[subprocess.Popen[bytes], Channel]:
        with self._lock, log.open("wb") as said:
            if self._cancelled:
                raise ProcessDiedError("cancelled")
            process, channel = start_process("memsched.commands.batch.child", folder=folder, log=said, own_group=True)
            self._running.add(process)
            return process, channel

    def cancel(self) -> None:
        """End all processes, and let none begin any more."""
        with self._lock:
            self._cancelled = True
            for process in self._running:
                _kill(process)


def _talk(channel: Channel, request: Mapping[str, Any], tell: Callable[[JobProgress], None]) -> BatchAnswer | None:
    """Send the request, pass news on, and return the answer; None where the process ended without one."""
    try:
        channel.tell(request)
        while True:
            message = channel.hear()
            if "answer" in message:
                return converted(message["answer"], BatchAnswer)
            tell(JobProgress(**message["news"]))
    except LostError:
        return None


def _kill(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()


def _how_it_died(death: Death) -> str:
    last = "out of memory?" if death.out_of_memory() else death.last_line(200)
    return f"its process {death.how()}{f': {last}' if last else ''}"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
