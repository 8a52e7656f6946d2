"""Run one layer of attention as exported, in loops over blocks, and by ONNX Runtime's kernel, as written here.

Memory is of fresh processes with sessions without options, beyond what these take for one token; time is the
processor's, on one thread, in turns with the layer as exported.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memsched.formats.blocks import Range
from memsched.formats.onnx.capabilities import OnnxDimensions
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime.ranged import compare_at, draw_at, race
from memsched.runtimes.ranged import RangedRace
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option
from scripts.networks.open_encoders import padding
from scripts.networks.open_layers import OpenBuilder
from tests.runtimes.onnxruntime.measured import run_at

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["BENCH", "layer"]

_WIDTH, _HEADS = 768, 12
_MOST: Final = 8192


def layer(*, masked: bool) -> ModelProto:
    """Return a layer of attention whose batch and length are open, with a mask of tokens that count or without one."""
    net = OpenBuilder("attention", _WIDTH, _HEADS)
    x = net.input("x", "batch", "length", _WIDTH)
    masks = [padding(net, net.input("attention_mask", "batch", "length", integers=True))] if masked else []
    return net.model(net.linear(net.attention(x, *masks), _WIDTH, _WIDTH), "batch", "length", _WIDTH)


def tables(values: Values) -> Iterator[Part]:
    """Yield a row for each length."""
    yield Heading(
        *("mask", ">tokens", ">~exported, MB", ">~loops, MB", ">~kernel, MB", ">~loops, time, x", ">~kernel, time, x"),
        *(">~loops, error", ">~kernel, error"),
    )
    for masked in (False, True):
        yield from _measured(values.tokens, masked=masked)


def _measured(every: Sequence[int], *, masked: bool) -> Iterator[Part]:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{name}.onnx") for name in ("exported", "loops", "kernel")]
        given = layer(masked=masked).SerializeToString(deterministic=True)
        ranges = {"length": Range(1, _MOST, named=True)}
        points = OnnxDimensions().open_model(given, str(files[0]), {}, ranges).points()
        files[0].write_bytes(given)
        for file, kernels in zip(files[1:], (False, True), strict=True):
            file.write_bytes(next(point for point in points if point.kernels == kernels).build())
        rest = [_process(file, 1) for file in files]
        for tokens in every:
            beyond = [_process(file, tokens) - idle for file, idle in zip(files, rest, strict=True)]
            feeds = Path(folder, "feeds.npz")
            draw_at(files[0], {"length": tokens}, feeds, seed=0)
            times = [_race(files[0], file, feeds).processor.ratio for file in files[1:]]
            errors = [one.error or 0.0 for one in compare_at(files, [{"length": tokens}], seed=0)[1][0]]
            yield (
                "of tokens" if masked else "",
                f"{tokens:,}",
                *(f"{max(0, size) / 1e6:,.0f}" for size in beyond),
                *(f"{ratio:.2f}" for ratio in times),
                *(f"{error:.0e}" for error in errors),
            )


def _race(first: Path, second: Path, feeds: Path) -> RangedRace:
    found = race(first, second, feeds, rounds=3, threads=1)
    if isinstance(found, str):
        raise SystemExit(found)
    return found


def _process(file: Path, tokens: int) -> int:
    found = run_at(file, {"length": tokens}, seed=0)
    if not isinstance(found, Measured):
        raise SystemExit(found)
    return found.peak


BENCH = Benchmark(
    __doc__,
    tables,
    (option("--tokens", type=int, nargs="+", default=[64, 512, 2048], metavar="N", help="lengths"),),
    docs="docs/benchmarks/runtimes.md",
)
