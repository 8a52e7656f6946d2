"""Run decoders as exported and with their caches in place: prompts, and tokens behind them, at several lengths.

Every figure is of a fresh process with a session without options. "Beyond idle" is what running takes above what the
session takes once it is open, caches included; outputs and caches are compared on texts of several lengths.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from memsched.commands.options import DecoderOptions
from memsched.features.decoder.decoder import FURTHER, DecoderPhase, decode_in_place
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option
from scripts.networks.catalogue import build

_NETWORK = "gpt2_cached_open"


def tables(values: Values) -> Iterator[Part]:
    """Yield two rows for each length."""
    yield Heading(
        *("step", ">~caches, MB", ">~as given, MB", ">~in place, MB", ">~beyond idle, MB", ">~in place, MB"),
        *(">~part, %", ">~time, x"),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "given.onnx")
        path.write_bytes(build(_NETWORK).SerializeToString(deterministic=True))
        for tokens in values.tokens:
            made = decode_in_place(str(path), DecoderOptions(tokens=tokens + FURTHER, chunk=values.chunk))
            caches = made.decoder.bytes_per_token() * tokens
            yield _row(f"prompt of {tokens:,}", caches, made.prompts[-1])
            yield _row(f"token behind {tokens:,}", caches, made.tokens[-1])


def _row(step: str, caches: int, phase: DecoderPhase) -> tuple[str, ...]:
    runs = phase.given, phase.written
    beyond = [max(1, one.peak - one.opened.resident) for one in runs]
    seconds = phase.seconds or (1.0, 1.0)
    return (
        step,
        f"{caches / 1e6:,.0f}",
        *(f"{one.peak / 1e6:,.0f}" for one in runs),
        *(f"{size / 1e6:,.0f}" for size in beyond),
        f"{100 * beyond[1] / beyond[0]:.0f}",
        f"{seconds[1] / seconds[0]:.2f}",
    )


BENCH = Benchmark(
    __doc__,
    tables,
    (
        option("--tokens", type=int, nargs="+", default=[1024, 4096], metavar="N", help="of the texts before"),
        option("--chunk", type=int, default=128, metavar="N", help="tokens of a prompt computed at a time"),
    ),
    docs="docs/benchmarks/runtimes.md",
)
