"""Run encoders as given and as ``optimize --dim NAME=1..N`` writes them: memory, time on one thread and two, errors.

Memory is of fresh processes with sessions without options, above what they had before: up to 512 tokens the middle one
of three, as what opening takes is partly chance, and so of races on two threads. Activations are what a process takes
beyond that of the file as given at the smallest size, so that whatever loops add to a session counts as well. Time is
the processor's of sessions with one thread, and the clock's of sessions with two, in turns in one process: the median.
The last table compares outputs at twenty sizes, primes among them.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import memsched
from memsched.formats.blocks import Range
from memsched.formats.onnx.capabilities import OnnxDimensions, OnnxWeightPlacement
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime.ranged import compare_at, draw_at, race
from memsched.runtimes.ranged import RangedRace
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, option, positional
from scripts.networks.catalogue import OPEN, build
from tests.runtimes.onnxruntime.measured import run_at

__all__ = ["BENCH", "tables"]

_Sizes = Mapping[str, int]

_MOST: Final = 8192
"""Tokens of the ranges."""

_TOKENS: Final = (64, 512, 2048, 8192)
_SHORT: Final = 512
"""A file has to be no worse up to this."""

_LENGTHS: Final = (1, 2, 3, 5, 7, 16, 31, 64, 97, 128, 131, 256, 257, 509, 512, 769, 1009, 1021, 1536, 2039)
_MOST_ACTIVATIONS, _MOST_ONE, _MOST_TWO = 5.0, 1.15, 1.3
_MOST_SHORT_MEMORY, _MOST_SHORT_TIME, _MOST_ERROR = 1.15, 1.1, 1e-5
_CHANCES: Final = 3
"""Processes for a short length."""

_WORK: Final = 4096
"""Tokens that each file computes in a race, at least, but for its most rounds."""

_MOST_ROUNDS: Final = 128
"""A round of few tokens is short, and single rounds of two threads vary by a third."""


def _tokens(number: int) -> dict[str, int]:
    return {"length": number}


def _frames(stride: int) -> Callable[[int], dict[str, int]]:
    return lambda number: {"frames": stride * number}


def _patches(number: int) -> dict[str, int]:
    """Return an image of about so many patches, as square as these permit."""
    rows = max(one for one in range(1, int(number**0.5) + 1) if number % one == 0)
    rows = rows if rows * rows * 3 > number else int(number**0.5)
    return {"height": 16 * rows, "width": 16 * max(1, number // rows)}


_AT: Final[Mapping[str, Callable[[int], dict[str, int]]]] = MappingProxyType(
    {"whisper_open": _frames(2), "conformer_open": _frames(4), "vit_open": _patches}
)
"""Sizes that give a number of tokens."""

_MULTIPLES: Final[Mapping[str, int]] = MappingProxyType({"conformer_open": 4})
"""Of which the lengths of a range are multiples."""

_LARGEST: Final[Mapping[str, int]] = MappingProxyType({"vit_open": 4096})
"""Tokens of an image of 1,024 x 1,024; others have as many as a range has."""


def tables(values: Values) -> Iterator[Part]:
    """Yield what each encoder takes at each size, what is missed, and how outputs compare."""
    models = values.models or tuple(OPEN)
    missed: list[str] = []
    with tempfile.TemporaryDirectory() as held:
        folder = values.keep or Path(held)
        folder.mkdir(parents=True, exist_ok=True)
        yield Heading(
            *("model", ">tokens", ">~MB", ">~blocks, MB", ">~memory, x", ">~activations, %"),
            *(">~one thread, x", ">~two threads, x"),
        )
        for model in models:
            files = _files(model, folder, ways=(values.first, values.kernels))
            yield from _measured(model, files, values.tokens or _TOKENS, missed)
        yield ""
        yield Heading("model", ">sizes", ">bit-equal", ">~largest error")
        for model in models:
            yield _compared(model, _files(model, folder, ways=(values.first, values.kernels)), missed)
    yield Verdict(f"\nmissed: {', '.join(missed) or 'nothing'}", bool(missed))


def _files(model: str, folder: Path, *, ways: tuple[bool, bool]) -> tuple[Path, Path]:
    """Return the file as given and the one written, which are made where ``folder`` has none.

    Args:
        ways: Whether to take the first that ``optimize`` tries, untried; and whether that may have kernels.
    """
    given, written = folder / f"{model}.onnx", folder / f"{model}_blocks.onnx"
    if not given.exists():
        given.write_bytes(build(model).SerializeToString(deterministic=True))
    if not written.exists():
        at = _AT.get(model, _tokens)
        ends = zip(at(_LARGEST.get(model, _MOST)).items(), at(1).values(), strict=True)
        ranges = {name: (least, most, _MULTIPLES.get(model, 1)) for (name, most), least in ends}
        first, kernels = ways
        if first:
            spans = {name: Range(*ends, named=True) for name, ends in ranges.items()}
            opened = OnnxDimensions().open_model(given.read_bytes(), str(given), {}, spans)
            points = [point for point in opened.points() if not point.reassociates]
            built = next(point for point in points if kernels or not point.kernels).build()
            written.write_bytes(OnnxWeightPlacement().weights_first(built))
        else:
            written.write_bytes(
                memsched.optimize(given, dims=ranges, allow=("reorder", "inplace", "fuse") if kernels else None).model
            )
    return given, written


def _measured(model: str, files: tuple[Path, Path], every: Sequence[int], missed: list[str]) -> Iterator[Part]:
    at, largest = _AT.get(model, _tokens), _LARGEST.get(model, _MOST)
    rest = _taken(files[0], at(1), _CHANCES)
    for tokens in dict.fromkeys(min(one, largest) for one in every):
        sizes = at(tokens)
        first, second = (_taken(file, sizes, _CHANCES if tokens <= _SHORT else 1) for file in files)
        activations = 100 * max(0, second - rest) / max(1, first - rest)
        one, two = _times(files, sizes, tokens)
        if tokens <= _SHORT:
            wrong = (second > _MOST_SHORT_MEMORY * first, one > _MOST_SHORT_TIME, two > _MOST_SHORT_TIME)
        else:
            wrong = tokens == largest and activations > _MOST_ACTIVATIONS, one > _MOST_ONE, two > _MOST_TWO
        figures = f"{activations:.1f}" if tokens > _SHORT else "", f"{one:.2f}", f"{two:.2f}"
        names = "memory" if tokens <= _SHORT else "activations", "one thread", "two threads"
        missed += [f"{model} at {tokens:,}: {name}" for name, miss in zip(names, wrong, strict=True) if miss]
        yield model, f"{tokens:,}", f"{first / 1e6:,.0f}", f"{second / 1e6:,.0f}", f"{second / first:.3f}", *figures


def _times(files: tuple[Path, Path], sizes: _Sizes, tokens: int) -> tuple[float, float]:
    """Return the written file's processor time on one thread, and its time on two, as multiples."""
    with tempfile.TemporaryDirectory() as folder:
        feeds = Path(folder, "feeds.npz")
        draw_at(files[0], sizes, feeds, seed=0)
        rounds = max(1, min(_MOST_ROUNDS, 2 * _WORK // tokens))
        one = _raced(files, feeds, rounds, threads=1).processor.ratio
        # Where a process finds its memory and its threads is chance: a tenth for short runs on two threads.
        races = [_raced(files, feeds, rounds, threads=2) for _ in range(_CHANCES if tokens <= _SHORT else 1)]
    return one, statistics.median(found.clock.ratio for found in races)


def _raced(files: tuple[Path, Path], feeds: Path, rounds: int, *, threads: int) -> RangedRace:
    found = race(*files, feeds, rounds=rounds, threads=threads)
    if isinstance(found, str):
        raise SystemExit(found)
    return found


def _compared(model: str, files: tuple[Path, Path], missed: list[str]) -> tuple[str, ...]:
    at = _AT.get(model, _tokens)
    sizes = [{**at(tokens), "batch": 1 + place % 3 * (tokens < _SHORT)} for place, tokens in enumerate(_LENGTHS)]
    _, rows = compare_at(files, sizes, seed=0)
    found = [row[0] for row in rows if row]
    worst = max((one.error if one.error is not None else float("inf") for one in found), default=float("inf"))
    missed += [f"{model}: outputs"] * (worst > _MOST_ERROR or len(found) < len(sizes))
    return model, f"{len(found)}", f"{sum(one.equal for one in found)}", f"{worst:.1e}"


def _taken(file: Path, sizes: _Sizes, runs: int) -> int:
    """Return the bytes of the run that takes the middle: what opening a session takes is partly chance."""
    return sorted(_ran(file, sizes).peak for _ in range(runs))[runs // 2]


def _ran(file: Path, sizes: _Sizes) -> Measured:
    found = run_at(file, sizes, seed=0)
    if isinstance(found, str):
        raise SystemExit(f"{file.name} at {dict(sizes)}: {found}")
    return found


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", help=f"of {', '.join(OPEN)}", metavar="MODEL"),
        option("--tokens", type=int, nargs="+", metavar="N", help=f"sizes; default: {' '.join(map(str, _TOKENS))}"),
        option("--first", action="store_true", help="the first way of those that optimize tries, without its trials"),
        option("--kernels", action="store_true", help="ONNX Runtime's kernel where it applies, as with --allow fuse"),
        option("--keep", type=Path, metavar="FOLDER", help="where files are kept, and taken from in another run"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
