"""The process of one model of a batch: ``python -m memsched.commands.batch.child NUMBER``; see `process`."""

from __future__ import annotations

import dataclasses
import gc
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import msgspec

from memsched.base.errors import InternalError, MemschedError
from memsched.commands.batch.process import BatchJob, JobProgress
from memsched.commands.calls import Hooks
from memsched.commands.options import BatchOptions, Options
from memsched.report.batch import figures
from memsched.report.values.batch import BatchAnswer, SavedModel
from memsched.search.limits import POLL_SECONDS
from memsched.search.memory_limit import MemoryWatch, memory_limited
from memsched.search.messages import Channel
from memsched.search.processes import end_with_parent

if TYPE_CHECKING:
    from memsched.commands.results import OptimizeResult
    from memsched.search.progress import Progress

__all__ = ["main"]


def main(channel: Channel) -> int:
    """Answer the request of the process that started this one."""
    gc.disable()  # as the command line does
    request = channel.hear()
    end_with_parent(channel, group=True)
    into = Path(request.pop("into"))
    job = BatchJob(**{**request, "options": BatchOptions(**request["options"])})
    try:
        with memory_limited(job.options.memory_limit, lambda error: _refuse(job, error, channel)) as memory:
            answer = _answer(job, into, _Teller(channel, memory), memory)
    except MemschedError as error:
        answer = _failed(job, error.exit_code, str(error))
    channel.tell({"answer": msgspec.to_builtins(answer)})
    return 0


def _refuse(job: BatchJob, error: MemschedError, channel: Channel) -> None:
    channel.tell({"answer": msgspec.to_builtins(_failed(job, error.exit_code, str(error)))})


class _Teller:
    """Passes news on, but not more often than anyone can read, and says when the search has ended."""

    def __init__(self, channel: Channel, memory: MemoryWatch) -> None:
        self._channel = channel
        self._memory = memory
        self._last = -POLL_SECONDS

    def __call__(self, progress: Progress) -> None:
        if progress.stage == "verification":
            self._memory.search_ended()
        if progress.seconds - self._last >= POLL_SECONDS:
            self._last = progress.seconds
            news = JobProgress(progress.stage, progress.best_peak, progress.lower_bound)
            self._channel.tell({"news": asdict(news)})


def _answer(job: BatchJob, into: Path, tell: Callable[[Progress], None], memory: MemoryWatch) -> BatchAnswer:
    from memsched.commands.optimize.optimize import optimize

    try:
        stop = None if memory.limit is None else memory.stop
        hooks = Hooks(on_progress=tell, stop=stop, output=str(Path(job.folder, job.output)))
        result = optimize(job.source, Options(**asdict(job.options)), hooks)
        memory.search_ended()
        saved = _save(result, job, into)
    except MemschedError as error:
        return _failed(job, error.exit_code, str(error))
    except MemoryError:
        return _failed(job, 1, "not enough memory for this model")
    except Exception as error:  # as on the command line: one bad model is no reason for a traceback
        return _failed(job, 1, f"internal error: {type(error).__name__}: {error} (please report it)")
    return BatchAnswer(exit_code=3 if result.missed else 0, error=None, saved=saved)


def _failed(job: BatchJob, code: int, message: str) -> BatchAnswer:
    return BatchAnswer(exit_code=code, error=message.replace(job.source, job.shown), saved=None)


def _save(result: OptimizeResult, job: BatchJob, into: Path) -> SavedModel:
    """Write model and report, with the paths that the user knows; return the figures for the summary.

    A result that is withheld has figures alone.
    """
    from memsched.commands.results import Report, save_outputs
    from memsched.formats.capabilities import WeightFiles
    from memsched.formats.known import capability

    values, output = result.report.values, result.report.values.output
    if output is None:
        raise InternalError("the report of an optimised model names no output")
    if result.withheld:
        return SavedModel(output=None, report=None, figures=figures(values, output))
    external = bool(capability(result.module, WeightFiles).external_files(result.module))
    below = PurePath(job.own_folder if external else "")
    (into / below).mkdir(exist_ok=True)
    output = msgspec.structs.replace(output, path=str(Path(job.folder) / below / job.output))
    model = msgspec.structs.replace(values.model, path=job.shown)
    report = Report(msgspec.structs.replace(values, model=model, output=output))
    save_outputs(
        dataclasses.replace(result, report=report),
        model_path=into / below / job.output,
        report_path=into / below / job.report,
    )
    return SavedModel(
        output=(below / job.output).as_posix(),
        report=(below / job.report).as_posix(),
        figures=figures(report.values, output),
    )


if __name__ == "__main__":
    sys.exit(main(Channel.inherited(sys.argv[1])))
