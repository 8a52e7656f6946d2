"""Run one layer of attention as exported, in loops over blocks, and by ONNX Runtime's kernel MultiHeadAttention.

Memory is of fresh processes with sessions without options, beyond what these take for one token; time is the
processor's, on one thread, in turns with the layer as exported.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from memsched.formats.blocks import Range
from memsched.formats.onnx.format import OnnxFormat
from memsched.runtimes.onnxruntime.ranged import RangedRace, RangedRun, compare_at, draw_at, race, run_at
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option
from scripts.networks.open_layers import OpenBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["BENCH", "layer"]

_WIDTH, _HEADS = 768, 12
_MOST: Final = 8192
_MICROSOFT: Final = "com.microsoft"


def layer(*, kernel: bool) -> ModelProto:
    """Return a layer of attention whose batch and length are open, without a mask."""
    from onnx import helper

    net = OpenBuilder("attention", _WIDTH, _HEADS)
    x = net.input("x", "batch", "length", _WIDTH)
    if kernel:
        parts = [net.linear(x, _WIDTH, _WIDTH) for _ in range(3)]
        mixed = net.op("MultiHeadAttention", *parts, domain=_MICROSOFT, num_heads=_HEADS)
    else:
        mixed = net.attention(x)
    model = net.model(net.linear(mixed, _WIDTH, _WIDTH), "batch", "length", _WIDTH)
    if kernel:
        model.opset_import.append(helper.make_opsetid(_MICROSOFT, 1))
    return model


def tables(values: Values) -> Iterator[Part]:
    """Yield a row for each length."""
    yield Heading(
        *(">tokens", ">~exported, MB", ">~loops, MB", ">~kernel, MB", ">~loops, time, x", ">~kernel, time, x"),
        *(">~loops, error", ">~kernel, error"),
    )
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{name}.onnx") for name in ("exported", "loops", "kernel")]
        models = [layer(kernel=kernel).SerializeToString(deterministic=True) for kernel in (False, True)]
        ranges = {"length": Range(1, _MOST, named=True)}
        loops = OnnxFormat().open_model(models[0], str(files[0]), {}, ranges).points()[0].build()
        for file, model in zip(files, (models[0], loops, models[1]), strict=True):
            file.write_bytes(model)
        rest = [_process(file, 1) for file in files]
        for tokens in values.tokens:
            beyond = [_process(file, tokens) - idle for file, idle in zip(files, rest, strict=True)]
            feeds = Path(folder, "feeds.npz")
            draw_at(files[0], {"length": tokens}, feeds, seed=0)
            times = [_race(files[0], file, feeds).processor.ratio for file in files[1:]]
            errors = [one.error or 0.0 for one in compare_at(files, [{"length": tokens}], seed=0)[1][0]]
            yield (
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
    if not isinstance(found, RangedRun):
        raise SystemExit(found)
    return found.process


BENCH = Benchmark(
    __doc__,
    tables,
    (option("--tokens", type=int, nargs="+", default=[64, 512, 2048], metavar="N", help="lengths"),),
    docs="docs/benchmarks/runtimes.md",
)
