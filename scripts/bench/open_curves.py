"""Compare what ``analyze --dim NAME=64..4096`` says of the process at ten sizes with what fresh processes take there.

The command runs what it shows as far as this machine can; all ten sizes are run again, on other inputs. "from" says
whether a figure was measured by the command or follows from the model and others.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import memsched
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, option, positional
from scripts.networks.catalogue import build
from tests.runtimes.onnxruntime.measured import run_at

_LENGTHS: Final = MappingProxyType({"length": (64, 4096)})
_RANGES: Final[Mapping[str, Mapping[str, tuple[int, ...]]]] = MappingProxyType(
    {
        "bert_open": _LENGTHS,
        "gpt2_prefill_open": _LENGTHS,
        "modernbert_open": _LENGTHS,
        "whisper_open": {"frames": (64, 8192)},
        "unet_open": {"height": (64, 512, 16), "width": (64, 512, 16)},
        "superres_open": {"height": (32, 512), "width": (32, 512)},
    }
)
_PERMITTED: Final = 5.0
"""Percent."""


def tables(values: Values) -> Iterator[Part]:
    """Yield a row for each model and size, and whether all were close."""
    yield Heading("model", "at", ">requested, MB", ">~said, MB", ">~measured, MB", ">~off, %", "from")
    far = []
    for model in values.models or _RANGES:
        worst = 0.0
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "given.onnx")
            path.write_bytes(build(model).SerializeToString(deterministic=True))
            curve = memsched.analyze(path, dims=dict(_RANGES[model])).report.values.sections.curve
            for row in () if curve is None else curve.rows:
                found = run_at(path, row.sizes, seed=values.seed)
                if isinstance(found, str):
                    raise SystemExit(found)
                said = row.process_bytes or 0
                off = 100 * (said - found.peak) / found.peak
                worst = max(worst, abs(off))
                at = " x ".join(f"{size:,}" for name, size in row.sizes.items() if name in _RANGES[model])
                sizes = (row.requested_bytes, said, found.peak)
                source = "the model" if row.measured_bytes is None else "a run"
                yield (model, at, *(f"{size / 1e6:,.0f}" for size in sizes), f"{off:+.1f}", source)
        far += [f"{model} {worst:.1f} %"] * (worst > _PERMITTED)
    yield Verdict(f"\nfurther off than {_PERMITTED:g} %: {', '.join(far) or 'none'}", bool(far))


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", help=f"of {', '.join(_RANGES)}", metavar="MODEL"),
        option("--seed", type=int, default=1, metavar="N", help="of the inputs"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
