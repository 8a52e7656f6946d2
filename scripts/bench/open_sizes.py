"""Run networks with open sizes as they are and as ``optimize --dim NAME=1..N`` writes them, at several sizes.

Every figure is of a fresh process with a session without options, above what it had before that; activations are what
it takes beyond that at the smallest size. Time is the median of runs in turns.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

import memsched
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime.ranged import draw_at, race
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, option, positional
from scripts.networks.catalogue import OPEN, OPEN_IMAGES, build
from tests.runtimes.onnxruntime.measured import run_at

__all__ = ["BENCH", "tables"]

_RANGES: Final[Mapping[str, Mapping[str, tuple[int, ...]]]] = MappingProxyType(
    {
        "whisper_open": {"frames": (16, 16_384)},
        "conformer_open": {"frames": (16, 32_768)},
        "vit_open": {"height": (32, 1440), "width": (32, 1440)},
        "sd_vae_decoder_open": {"height": (1, 64), "width": (1, 64)},
        "sd_unet_open": {"height": (8, 64, 8), "width": (8, 64, 8)},
        "unet_open": {"height": (16, 512, 16), "width": (16, 512, 16)},
        "unet_transposed_open": {"height": (16, 512, 16), "width": (16, 512, 16)},
        "superres_open": {"height": (1, 512), "width": (1, 512)},
        "esrgan_open": {"height": (1, 256), "width": (1, 256)},
    }
)
_TOKENS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType({"length": (1, 8192)})
_LONG: Final = 1024
_PARTS: Final = (64, 16, 4, 2)
"""By which the largest size is divided."""
_IMAGE_PARTS: Final = (8, 2, 1)
_SLOWDOWN: Final = 60.0
_QUICK: Final = 10.0
"""Percent of time that may be added, of networks that give images and of others."""


def tables(models: Sequence[str], parts: Sequence[int] | None) -> Iterator[Part]:
    """Yield a row for each model and size."""
    yield Heading("model", "at", ">~MB", ">~blocks, MB", ">~activations, %", ">~time, x")
    kept = []
    for model in models:
        with tempfile.TemporaryDirectory() as folder:
            given, written = Path(folder, "given.onnx"), Path(folder, "written.onnx")
            given.write_bytes(build(model).SerializeToString(deterministic=True))
            ranges = _RANGES.get(model, _TOKENS)
            slowdown = _SLOWDOWN if model in OPEN_IMAGES else _QUICK
            result = memsched.optimize(given, dims=dict(ranges), max_slowdown=slowdown)
            kept += [model] * bool(result.report.values.output and result.report.values.output.unchanged)
            written.write_bytes(result.model)
            usual = _IMAGE_PARTS if model in OPEN_IMAGES else _PARTS
            yield from _rows(model, (given, written), ranges, parts or usual)
    yield Verdict(f"\nnothing gained: {', '.join(kept) or 'none'}", bool(kept))


def _rows(
    model: str, files: tuple[Path, Path], ranges: Mapping[str, tuple[int, ...]], parts: Sequence[int]
) -> Iterator[Part]:
    least = {name: ends[0] for name, ends in ranges.items()}
    rest = [_ran(file, least) for file in files]
    for part in parts:
        sizes = {name: max(ends[0], ends[1] // part // 8 * 8) for name, ends in ranges.items()}
        first, second = (_ran(file, sizes) for file in files)
        grown = max(first.peak - rest[0].peak, 1), max(second.peak - rest[1].peak, 0)
        yield (
            model,
            " x ".join(f"{size:,}" for size in sizes.values()),
            f"{first.peak / 1e6:,.0f}",
            f"{second.peak / 1e6:,.0f}",
            f"{100 * grown[1] / grown[0]:.1f}",
            f"{_ratio(files, sizes):.2f}",
        )


def _ratio(files: tuple[Path, Path], sizes: Mapping[str, int]) -> float:
    feeds = files[0].with_name("feeds.npz")
    draw_at(files[0], sizes, feeds, seed=0)
    found = race(*files, feeds, rounds=2 if max(sizes.values()) > _LONG else 10)
    if isinstance(found, str):
        raise SystemExit(found)
    return found.clock.ratio


def _ran(file: Path, sizes: Mapping[str, int]) -> Measured:
    found = run_at(file, sizes, seed=0)
    if isinstance(found, str):
        raise SystemExit(f"{file.name} at {dict(sizes)}: {found}")
    return found


def _tables(values: Values) -> Iterator[Part]:
    yield from tables(values.models or (*OPEN, *OPEN_IMAGES), values.parts)


BENCH = Benchmark(
    __doc__,
    _tables,
    (
        positional("models", help=f"of {', '.join((*OPEN, *OPEN_IMAGES))}", metavar="MODEL"),
        option("--parts", type=int, nargs="+", metavar="N", help="measure at the largest size divided by these"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
