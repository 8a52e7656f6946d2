"""Decoders in sessions without options: what a prompt and further tokens take, each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from memsched.errors import UsageError
from memsched.formats.decoders import Decoder
from memsched.frozen import FrozenValue
from memsched.runtimes.child import run_in_child
from memsched.runtimes.onnxruntime.session_points import STEADY_SECONDS
from memsched.runtimes.special import shown_by

__all__ = ["DecoderFile", "GenerationRun", "TextComparison", "compare_texts", "race_texts", "run_text", "special_texts"]

_PROCESS: Final = "memsched.runtimes.onnxruntime.generation_process"
_TIMEOUT: Final = 1800.0


class DecoderFile(FrozenValue, frozen=True):
    """A decoder in a file.

    Attributes:
        folder: Where weights lie that the file names, if not beside it.
        capacity: Tokens that its buffers hold; None: it gives back longer caches than it was given.
    """

    path: Path
    decoder: Decoder
    folder: Path | None = None
    capacity: int | None = None


class GenerationRun(FrozenValue, frozen=True):
    """What some steps took.

    Attributes:
        opened: Bytes of the process at most while the session was opened; all are above what it had before that.
        idle: What it takes then.
        process: At most while it ran; caches are in it.
        seconds: Of each step, in the quickest of several passes over all of them.
        runs: Such passes until the process stopped growing.
        settled: Whether it did.
    """

    opened: int
    idle: int
    process: int
    seconds: tuple[float, ...]
    runs: int = 0
    settled: bool = True


class TextComparison(FrozenValue, frozen=True):
    """Outputs of a prompt and of further tokens, and the caches behind them, beside those of the model as given.

    Attributes:
        equal: Bit by bit.
        error: The largest difference, relative to the largest value; None where they cannot be compared.
        message: Why not.
    """

    tokens: int
    equal: bool
    error: float | None
    message: str | None


def run_text(file: DecoderFile, past: int, steps: Sequence[int], *, seed: int) -> GenerationRun:
    """Return what it takes to put tokens behind ``past`` random ones, so many in each step.

    Raises:
        UsageError: It does not run.
    """
    request = {"file": _told(file), "past": past, "steps": list(steps), "seed": seed}
    request["seconds"] = STEADY_SECONDS
    result = run_in_child(f"{_PROCESS}:measure", request, _TIMEOUT)
    if not result.ok:
        problem = f"'{file.path.name}' does not run {steps[0]} tokens behind {past}: {_line(result.reason)}"
        raise UsageError(problem, code="not-run")
    taken = {name: result.value[name] for name in ("opened", "idle", "process", "runs", "settled")}
    return GenerationRun(**taken, seconds=tuple(result.value["seconds"]))


def race_texts(
    first: DecoderFile, second: DecoderFile, past: int, steps: tuple[Sequence[int], Sequence[int]], *, seed: int
) -> tuple[float, float]:
    """Return the seconds that each takes for its steps behind ``past`` tokens, run in turns in one process.

    Raises:
        UsageError: One does not run.
    """
    request = {
        "files": [_told(first), _told(second)],
        "past": past,
        "steps": [list(one) for one in steps],
        "seed": seed,
    }
    result = run_in_child(f"{_PROCESS}:race", request, _TIMEOUT)
    if not result.ok:
        raise UsageError(f"the model does not run behind {past} tokens: {_line(result.reason)}", code="not-run")
    seconds: tuple[float, float] = tuple(result.value["seconds"])
    return seconds


def compare_texts(
    first: DecoderFile, second: DecoderFile, prompts: Sequence[int], chunk: int, further: int, *, seed: int
) -> tuple[str, tuple[TextComparison, ...]]:
    """Return the runtime's name, and how the second compares with the first on texts of several lengths.

    Args:
        prompts: Tokens of each text's prompt, which the first computes at once.
        chunk: So many the second computes at a time.
        further: Tokens behind each prompt, one at a time.

    Raises:
        UsageError: The first does not run.
    """
    request = _comparison((first, second), prompts, chunk, further, seed)
    result = run_in_child(f"{_PROCESS}:compare_files", request, _TIMEOUT)
    if not result.ok:
        raise UsageError(f"the model does not run from an empty past: {_line(result.reason)}", code="not-run")
    return f"onnxruntime {result.value['version']}", tuple(TextComparison(**one) for one in result.value["rows"])


def special_texts(
    first: DecoderFile,
    second: DecoderFile,
    texts: tuple[int, int],
    chunk: int,
    further: int,
    *,
    seed: int,
    tolerance: float,
) -> Mapping[str, Any] | None:
    """Return what `memsched.runtimes.special.judged` says of both; None if the first fails.

    Args:
        texts: Tokens of a past whose caches have special values, and of a prompt whose inputs may.
        chunk, further: As `compare_texts` has them, behind each of both.
        tolerance: Relative error that is permitted.
    """
    request, alone = (
        {**_comparison(both, texts, chunk, further, seed), "tolerance": tolerance}
        for both in ((first, second), (first, first))
    )
    return shown_by(f"{_PROCESS}:special_files", request, alone, "onnxruntime", _TIMEOUT)


def _comparison(
    files: tuple[DecoderFile, DecoderFile], prompts: Sequence[int], chunk: int, further: int, seed: int
) -> dict[str, Any]:
    return {
        "files": [_told(one) for one in files],
        "prompts": list(prompts),
        "chunk": chunk,
        "further": further,
        "seed": seed,
    }


def _told(file: DecoderFile) -> dict[str, Any]:
    return {
        "path": str(file.path.absolute()),
        "folder": None if file.folder is None else str(file.folder.absolute()),
        "caches": [asdict(one) for one in file.decoder.caches],
        "others": [{"name": one.name, "axes": list(one.axes)} for one in file.decoder.others],
        "single": file.decoder.single,
        "past_length": file.decoder.past_length,
        "capacity": file.capacity,
    }


def _line(reason: str | None) -> str:
    return " ".join((reason or "it did not run").split())
