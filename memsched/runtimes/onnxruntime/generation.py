"""Decoders in sessions without options: what a prompt and further tokens take, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from memsched.base.errors import UsageError
from memsched.runtimes.child import LONG_TIMEOUT, run_in_child
from memsched.runtimes.measure import LEAST_RUNS, MOST_RUNS, Measured, Opener, SteadyRule, measure, race_two
from memsched.runtimes.race import RaceRule
from memsched.runtimes.texts import DecoderFile, TextComparison

if TYPE_CHECKING:
    from memsched.runtimes.onnxruntime.generation_process import OpenText

__all__ = ["TextOpener", "compare_texts", "race_texts", "run_text", "special_texts"]

_PROCESS: Final = "memsched.runtimes.onnxruntime.generation_process"

_TURNS: Final = RaceRule(2)
"""Behind a first run of each; the quicker of both counts."""


class TextOpener(Opener, frozen=True):
    """A decoder in a session without options, which puts tokens behind ``past`` random ones, so many in each step.

    Attributes:
        file: As `generation_process` has it.
    """

    file: dict[str, Any]
    past: int
    steps: tuple[int, ...]
    seed: int

    @property
    def sizes(self) -> int:
        """How many steps there are."""
        return len(self.steps)

    def prepare(self) -> Callable[[], OpenText]:
        """Return what opens the session; the runtime counts."""
        from memsched.runtimes.onnxruntime.generation_process import OpenText

        return lambda: OpenText(self.file, self.past, self.steps, self.seed)


def run_text(file: DecoderFile, past: int, steps: Sequence[int], *, seed: int) -> Measured:
    """Return what it takes to put tokens behind ``past`` random ones, so many in each step.

    The steps are the sizes that take turns. What opening the session takes is told apart; caches are in the peak.

    Raises:
        UsageError: It does not run.
    """
    passes = SteadyRule(LEAST_RUNS * len(steps), MOST_RUNS * len(steps), peak_from="first run")
    found = measure(TextOpener(_told(file), past, tuple(steps), seed), passes, timeout=LONG_TIMEOUT)
    if isinstance(found, str):
        problem = f"'{file.path.name}' does not run {steps[0]} tokens behind {past}: {found}"
        raise UsageError(problem, code="fails-at-inputs")
    return found


def race_texts(
    first: DecoderFile, second: DecoderFile, past: int, steps: tuple[Sequence[int], Sequence[int]], *, seed: int
) -> tuple[float, float]:
    """Return the seconds that each takes for its steps behind ``past`` tokens, run in turns in one process.

    Raises:
        UsageError: One does not run.
    """
    one, other = (
        TextOpener(_told(file), past, tuple(each), seed) for file, each in zip((first, second), steps, strict=True)
    )
    found = race_two(one, other, _TURNS, timeout=LONG_TIMEOUT)
    if isinstance(found, str):
        raise UsageError(f"the model does not run behind {past} tokens: {found}", code="fails-at-inputs")
    least = found.quickest
    return least[0].clock, least[1].clock


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
    result = run_in_child(f"{_PROCESS}:compare_files", request, LONG_TIMEOUT)
    if not result.ok:
        raise UsageError(f"the model does not run from an empty past: {result.reason}", code="fails-at-inputs")
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
    from memsched.runtimes.special import shown_by  # numpy takes as long as all of this package

    request, alone = (
        {**_comparison(both, texts, chunk, further, seed), "tolerance": tolerance}
        for both in ((first, second), (first, first))
    )
    return shown_by(f"{_PROCESS}:special_files", request, alone, "onnxruntime", LONG_TIMEOUT)


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
