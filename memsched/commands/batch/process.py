"""One model of a batch in a process of its own, which may crash or be killed without harm to the others.

This is the parent's side; `child` is the other. They speak JSON, one object per line: a request to the child's
standard input, news and one answer back. The child's input stays open as long as its parent lives; when it ends, the
child ends itself and what it started.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from memsched.commands.options import BatchOptions
from memsched.errors import MemschedError
from memsched.report.values.batch import BatchAnswer, SavedModel
from memsched.runtimes.child import temporary_folder
from memsched.search.processes import Death, start_process
from memsched.typed import converted

__all__ = ["BatchJob", "JobProgress", "JobResult", "ProcessDiedError", "Processes"]


@dataclass(frozen=True, slots=True)
class BatchJob:
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


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a search is: the best peak in bytes, and the bound where one holds."""

    stage: str
    best_peak: int
    lower_bound: int | None


@dataclass(frozen=True, slots=True)
class JobResult:
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
        """Optimise one model and return what came of it.

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
            with log.open("wb") as errors:
                process = self._start(folder, errors)
            try:
                answer = _talk(process, {**request, "into": str(into)}, tell)
            finally:
                _end(process)
                with self._lock:
                    self._running.discard(process)
            if answer is None:
                raise ProcessDiedError(_how_it_died(Death(process.returncode, log)))
            files = {path.relative_to(into).as_posix(): path.read_bytes() for path in _files(into)}
            return JobResult(answer.exit_code, answer.error, files, answer.saved)

    def _start(self, folder: Path, errors: IO[bytes]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._cancelled:
                raise ProcessDiedError("cancelled")
            process = start_process(
                "memsched.commands.batch.child",
                folder=folder,
                output=subprocess.PIPE,
                errors=errors,
                spoken_to=True,
                own_group=True,
            )
            self._running.add(process)
            return process

    def cancel(self) -> None:
        """End all processes, and let none begin any more."""
        with self._lock:
            self._cancelled = True
            for process in self._running:
                _kill(process)


def _talk(
    process: subprocess.Popen[bytes], request: Mapping[str, Any], tell: Callable[[JobProgress], None]
) -> BatchAnswer | None:
    """Send the request, pass news on, and return the answer; None where the process ended without one."""
    if process.stdin is None or process.stdout is None:
        return None
    try:
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        for line in process.stdout:
            message = json.loads(line)
            if "answer" in message:
                return converted(message["answer"], BatchAnswer)
            tell(JobProgress(**message["news"]))
    except (OSError, ValueError):
        return None
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    """Leave nothing of the process behind."""
    _kill(process)
    for stream in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):
            if stream is not None:
                stream.close()
    process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    elif process.poll() is None:
        process.kill()


def _how_it_died(death: Death) -> str:
    if death.signal is not None:
        return f"its process was ended by {death.signal}{': out of memory?' if death.out_of_memory() else ''}"
    last = death.last_line(200)
    return f"its process ended with code {death.code}{f': {last}' if last else ''}"


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
