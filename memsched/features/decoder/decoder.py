"""The pipeline behind ``memsched decoder``: a model whose caches are written in place, and what its texts take."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from memsched.base.errors import UsageError, VerificationError
from memsched.base.frozen import FrozenValue
from memsched.base.units import LONGEST, parse_size
from memsched.commands.options import DecoderOptions
from memsched.formats.capabilities import DecoderCaches, WeightFiles
from memsched.formats.decoders import Decoder
from memsched.formats.files import load_module, read_source
from memsched.formats.known import capability, format_in
from memsched.formats.module import LoadOptions, Module
from memsched.formats.staging import STANDARD_STREAM
from memsched.report.outputs import TOLERANCE
from memsched.runtimes.known import generation
from memsched.runtimes.measure import Measured
from memsched.runtimes.special import words_of
from memsched.runtimes.texts import DecoderFile, TextComparison

__all__ = ["FURTHER", "DecoderModel", "DecoderPhase", "decode_in_place"]

FURTHER: Final = 8
"""Tokens that are computed one at a time behind a prompt."""

_PROMPTS: Final = (1, 2, 7, 31, 97, 257)
"""At which outputs are compared, beside what needs several chunks; primes among them."""

_PARTS: Final = (4, 2, 1)
"""By which the longest text is divided for others."""

_COMPARED: Final = 3


class DecoderPhase(FrozenValue, frozen=True):
    """A prompt, or tokens behind one, in both files.

    Attributes:
        tokens: Of the prompt.
        seconds: Both; of all further tokens where these are the phase. None: not timed.
    """

    tokens: int
    given: Measured
    written: Measured
    seconds: tuple[float, float] | None = None

    def run(self, *, given: bool) -> Measured:
        """Return what one of both took."""
        return self.given if given else self.written


class DecoderModel(FrozenValue, frozen=True):
    """A decoder whose caches are written in place.

    Attributes:
        data: The file.
        prompts: Computed at once as given, in chunks in place: rising.
        tokens: Behind as many.
        texts: How outputs compare.
        special_values: Values that were among those of caches and inputs, in words, on which they compare as well.
    """

    source: Module
    decoder: Decoder
    options: DecoderOptions
    data: bytes
    prompts: tuple[DecoderPhase, ...]
    tokens: tuple[DecoderPhase, ...]
    runtime: str
    texts: tuple[TextComparison, ...]
    special_values: tuple[str, ...]
    budget: int | None
    seconds: float

    def required(self, *, given: bool) -> int:
        """Return what a text of the length that was asked for takes, bytes."""
        return self._at(self.prompts[-1].tokens, given=given)

    @property
    def withheld(self) -> bool:
        """Whether the budget is missed, so that nothing is written; see `DecoderOptions.keep_best`."""
        missed = self.budget is not None and self.required(given=False) > self.budget
        return missed and not self.options.keep_best

    def largest(self, *, given: bool) -> int | None:
        """Return the tokens of the longest text that fits into the budget, by what was measured; None: none does."""
        low, high = 0, 1
        while high < LONGEST and self._at(high, given=given) <= (self.budget or 0):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._at(middle, given=given) <= (self.budget or 0) else (low, middle)
        return low or None

    def _at(self, tokens: int, *, given: bool) -> int:
        runs = [
            [(one.tokens, one.given if given else one.written) for one in row] for row in (self.prompts, self.tokens)
        ]
        opened = max(run.earlier for row in runs for _, run in row)
        return max(opened, *(_through([(at, run.peak) for at, run in row], tokens) for row in runs))


def decode_in_place(source: str, options: DecoderOptions) -> DecoderModel:
    """Make a decoder whose caches are written in place, and measure texts as given and in place.

    Raises:
        MemschedError: The subclass and its message say which file or option is at fault.
        VerificationError: Outputs differ.
    """
    started = time.monotonic()
    if source == STANDARD_STREAM:
        action = "give a file, not standard input"
        raise UsageError("a decoder is run in processes of its own", code="needs-file", action=action)
    if options.tokens <= FURTHER:
        raise UsageError(f"--tokens must be above {FURTHER}", code="option-range")
    budget = parse_size(options.budget) if isinstance(options.budget, str) else options.budget
    data, path = read_source(source)
    form = format_in(data)
    decoder = capability(form, DecoderCaches).open_decoder(data, path, options.dims, options.length)
    prompt = options.tokens - FURTHER
    sizes = decoder.sizes_at(0, 1 if decoder.single else prompt)
    module = load_module(data, path, LoadOptions(dims={**options.dims, **sizes}))
    written = decoder.build()
    folder = Path(path).parent if capability(module, WeightFiles).external_files(module) else None
    with tempfile.TemporaryDirectory(prefix="memsched-") as held:
        file = Path(held, "in_place.onnx")
        file.write_bytes(written)
        both = (
            DecoderFile(Path(path), decoder, folder),
            DecoderFile(file, decoder, folder, capacity=options.tokens),
        )
        prompts_of = _compared(options, prompt)
        runtime, texts = generation.compare_texts(*both, prompts_of, options.chunk, _COMPARED, seed=options.seed)
        _refuse_wrong(texts)
        special_values = _special(both, options)
        lengths = list(dict.fromkeys(max(1, prompt // part) for part in _PARTS))
        prompts = tuple(_prompt(both, length, options, timed=length == prompt) for length in lengths)
        tokens = tuple(_tokens(both, length, options, timed=length == prompt) for length in lengths)
    return DecoderModel(
        source=module,
        decoder=decoder,
        options=options,
        data=written,
        prompts=prompts,
        tokens=tokens,
        runtime=runtime,
        texts=texts,
        special_values=special_values,
        budget=budget,
        seconds=time.monotonic() - started,
    )


def _compared(options: DecoderOptions, prompt: int) -> list[int]:
    """Return the tokens of the prompts on which outputs are compared."""
    most = prompt - _COMPARED
    return sorted({one for one in (*_PROMPTS, 2 * options.chunk + 1) if one <= most} | {1})


def _refuse_wrong(texts: Sequence[TextComparison]) -> None:
    for one in texts:
        if one.message is not None:
            problem = f"in place it does not run a prompt of {one.tokens} tokens: {one.message}"
            raise VerificationError(problem, code="not-run")
        if not one.equal and not (one.error is not None and one.error <= TOLERANCE):
            raise VerificationError(
                f"outputs of a prompt of {one.tokens} tokens differ by {one.error} in place; nothing was written"
            )


def _special(both: tuple[DecoderFile, DecoderFile], options: DecoderOptions) -> tuple[str, ...]:
    """Run both files on special values in caches and inputs; return those that were tried.

    Raises:
        VerificationError: Outputs differ.
    """
    room = options.tokens - _COMPARED
    texts = min(max(_PROMPTS), room), min(2 * options.chunk + 1, room)
    shown = generation.special_texts(*both, texts, options.chunk, _COMPARED, seed=options.seed, tolerance=TOLERANCE)
    if shown is None:
        return ()
    if shown["wrong"] is not None:
        raise VerificationError(f"outputs differ in place {shown['wrong']}; nothing was written")
    return words_of(shown["tried"])


def _prompt(
    both: tuple[DecoderFile, DecoderFile], length: int, options: DecoderOptions, *, timed: bool
) -> DecoderPhase:
    """Return what a prompt takes: at once as given, in chunks in place."""
    single = both[0].decoder.single
    chunk = 1 if single else options.chunk
    whole = [1] * length if single else [length]
    chunks = [min(chunk, length - begin) for begin in range(0, length, chunk)]
    given = generation.run_text(both[0], 0, whole, seed=options.seed)
    written = generation.run_text(both[1], 0, chunks, seed=options.seed)
    times = generation.race_texts(*both, 0, (whole, chunks), seed=options.seed) if timed else None
    return DecoderPhase(length, given, written, times)


def _tokens(
    both: tuple[DecoderFile, DecoderFile], length: int, options: DecoderOptions, *, timed: bool
) -> DecoderPhase:
    """Return what further tokens take behind so many."""
    steps = [1] * FURTHER
    given, written = (generation.run_text(file, length, steps, seed=options.seed) for file in both)
    times = generation.race_texts(*both, length, (steps, steps), seed=options.seed) if timed else None
    return DecoderPhase(length, given, written, times)


def _through(points: Sequence[tuple[int, int]], at: int) -> int:
    """Return the value of the curve of least degree through points; it never falls below the first."""
    total = 0.0
    for place, (x, y) in enumerate(points):
        part = float(y)
        for other, (known, _) in enumerate(points):
            if other != place:
                part *= (at - known) / (x - known)
        total += part
    return max(round(total), min(y for _, y in points)) if at >= points[0][0] else points[0][1]
