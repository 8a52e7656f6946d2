"""The pipeline behind ``memsched batch``: many models, each by itself, and one summary of them all.

Who runs a model is the caller's choice: processes here (`process`) or a cluster (`dask`). What comes out
does not depend on it, nor on how many run at a time.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Protocol

from memsched.base.errors import OutputError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.commands.batch.inputs import BatchModel, check_apart
from memsched.commands.batch.process import BatchJob, JobProgress, JobResult, ProcessDiedError
from memsched.commands.calls import seconds_of
from memsched.commands.levels import ALLOWED, BY_DEFAULT, BY_NAME
from memsched.commands.options import BatchOptions
from memsched.formats.staging import make_folder, staged_files
from memsched.report.batch import Row, Status, dump_csv, dump_html, dump_summary, summary
from memsched.report.values.batch import BatchOptionsSection, BatchReport, SavedModel
from memsched.search.limits import POLL_SECONDS

__all__ = ["SUMMARIES", "BatchResult", "Event", "JobRunner", "run_batch"]

SUMMARIES = ("batch.csv", "batch.html", "batch.json")
"""Written into the folder of the outputs, the one that names the others' files last."""

_REPORT = ".json"


class JobRunner(Protocol):
    """Who optimises a model."""

    def run(self, job: BatchJob, tell: Callable[[JobProgress], None]) -> JobResult:
        """Return what became of one model; called from several threads at once.

        Raises:
            ProcessDiedError: Whatever worked on it is gone; it may be tried again.
        """

    def cancel(self) -> None:
        """End what is running soon, with `ProcessDiedError`, and begin nothing more."""


class Event(FrozenValue, frozen=True):
    """Something happened to the model of that index: it began, there is news, it goes back into the queue, or ended."""

    index: int
    kind: str
    news: JobProgress | None = None
    row: Row | None = None


class BatchResult(FrozenValue, frozen=True):
    """What became of all models; ``summary`` is what batch.json holds."""

    rows: tuple[Row, ...]
    summary: BatchReport
    exit_code: int


def run_batch(
    models: Sequence[BatchModel],
    options: BatchOptions,
    folder: str,
    runner: JobRunner,
    *,
    parallel: int = 1,
    retries: int = 1,
    on_event: Callable[[Event], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> BatchResult:
    """Optimise each model and write it with its report into ``folder``, and the summaries at the end.

    A model that fails is a row of the summary and stops nothing. One whose process died is tried again, at the end.

    Args:
        parallel: Models at a time.
        retries: How often a model is tried again whose process died.
        on_event: Called with each event, in this thread or another.
        stop: True ends what is running; what is done is kept.

    Raises:
        UsageError: Not a single model at a time.
        OutputError: The folder cannot be made or written, or an output would overwrite an input.
    """
    if parallel < 1:
        raise UsageError(f"--workers {parallel} is not possible", code="option-range", action="give 1 or more")
    started = time.monotonic()
    check_apart(models, folder, SUMMARIES)
    make_folder(folder)
    run = _BatchState(models, options, folder, runner, retries, on_event)
    with ThreadPoolExecutor(parallel, thread_name_prefix="memsched-batch") as threads:
        try:
            run.all(threads, stop)
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            runner.cancel()
    told = _options_section(options)
    data = summary(run.rows, options=told, interrupted=run.stopped, seconds=time.monotonic() - started)
    with staged_files() as files:
        for name, text in zip(SUMMARIES, (dump_csv(data), dump_html(data), dump_summary(data)), strict=True):
            files.add(Path(folder, name), text.encode())
        files.commit()
    return BatchResult(tuple(run.rows), data, data.exit_code)


def _options_section(options: BatchOptions) -> BatchOptionsSection:
    """Return the options as the summary has them: each permission by itself."""
    values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    del values["allow"], values["level"]
    allow, known = options.permitted, (*ALLOWED, *BY_NAME)
    values |= {name: name in allow for name in known if name not in BY_DEFAULT}
    values |= {"in_place": "inplace" in allow, "free_pieces": options.free}
    values |= {"solver": options.order_solver, "time_limit": seconds_of(options)}
    return BatchOptionsSection(**values)


class _BatchState:
    """One batch under way."""

    def __init__(
        self,
        models: Sequence[BatchModel],
        options: BatchOptions,
        folder: str,
        runner: JobRunner,
        retries: int,
        on_event: Callable[[Event], None],
    ) -> None:
        self._models = models
        self._options = options
        self._folder = folder
        self._runner = runner
        self._retries = retries
        self._on_event = on_event
        self._attempts = [0] * len(models)
        self._began = [0.0] * len(models)
        self.rows = [Row(model.name, model.path, Status.NOT_RUN) for model in models]
        self.stopped = False

    def all(self, threads: ThreadPoolExecutor, stop: Callable[[], bool]) -> None:
        """Run all models, and take what comes of each."""
        pending = {threads.submit(self._one, index): index for index in range(len(self._models))}
        while pending and not self.stopped:
            done, _ = wait(pending, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            self.stopped = stop()
            for future in sorted(done, key=pending.__getitem__):
                index = pending.pop(future)
                again = self._take(index, future)
                if again and not self.stopped:
                    pending[threads.submit(self._one, index)] = index

    def _one(self, index: int) -> JobResult:
        self._attempts[index] += 1
        self._began[index] = time.monotonic()
        self._on_event(Event(index, "begins"))
        model = self._models[index]
        job = BatchJob(
            model.path, model.path, self._folder, model.output, model.report, model.name, options=self._options
        )
        return self._runner.run(job, lambda news: self._on_event(Event(index, "news", news=news)))

    def _take(self, index: int, future: Future[JobResult]) -> bool:
        """Note what became of a model; return whether it is to be tried again."""
        try:
            answer = future.result()
            row = self._saved(index, answer)
        except ProcessDiedError as error:
            if self.stopped:
                return False
            if self._attempts[index] <= self._retries:
                self._on_event(Event(index, "again"))
                return True
            row = self._row(index, Status.FAILED, 1, str(error))
        except (OutputError, OSError) as error:
            row = self._row(index, Status.FAILED, OutputError.exit_code, str(error))
        self.rows[index] = row
        self._on_event(Event(index, "ends", row=row))
        return False

    def _saved(self, index: int, answer: JobResult) -> Row:
        if answer.error is not None or answer.saved is None:
            return self._row(index, Status.FAILED, answer.exit_code, answer.error)
        with staged_files() as files:
            # The report names the model's file, so it is written after it.
            for name, data in sorted(answer.files.items(), key=lambda file: file[0].endswith(_REPORT)):
                path = Path(self._folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                files.add(path, data)
            files.commit()
        status = Status.BUDGET_MISSED if answer.exit_code else Status.DONE
        return self._row(index, status, answer.exit_code, None, answer.saved)

    def _row(self, index: int, status: Status, code: int, error: str | None, saved: SavedModel | None = None) -> Row:
        model = self._models[index]
        seconds = time.monotonic() - self._began[index]
        return Row(model.name, model.path, status, code, error, self._attempts[index], seconds, saved)
