"""Print how little memory MobileNetV2 0.35 at 144 x 144 needs for how much work, beside msf-CNN's published points.

The network is that of `scripts.networks.mobilenet_tflite`. *Without the input* is the planned part of TensorFlow
Lite Micro's arena less the 62,208 bytes of the image in it: the padding of the image counts, and once the image was
read, later layers use its room. msf-CNN's points count no input (Huang and Baccelli, "msf-CNN: Patch-based Multi-Stage
Fusion with Convolutional Neural Networks for TinyML", 2025). Each file is executed in the package tflite-micro on 20
inputs, twice in a row on each, beside the file as given: outputs must be equal bit by bit, and vary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, effort, time_limit
from scripts.bench.tflm_arena import arena

PUBLISHED = ((10.0, 67_996), (30.0, 21_389), (38.0, 15_199))
"""msf-CNN's points: extra multiply-accumulates in percent, and bytes without the input."""

_WIDTH, _SIDE = 0.35, 144


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per point, and whether each is below the published one."""
    from scripts.networks.mobilenet_tflite import mobilenet_v2

    yield Heading(
        *("extra work permitted", ">msf-CNN", ">without the input", ">planned part"),
        *("extra work", "flash", "~time", "bit-equal"),
    )
    image = math.prod((_SIDE, _SIDE, 3))
    worse = []
    with TemporaryDirectory() as folder:
        model = Path(folder) / "mobilenetv2_035_144_int8.tflite"
        model.write_bytes(mobilenet_v2(_WIDTH, _SIDE))
        for percent, published in PUBLISHED:
            one = arena(
                model, percent, values.time_limit, tile=True, budget_for="activations", effort_limit=values.effort
            )
            if one.bytes - image >= published or one.extra > percent or not one.verified:
                worse.append(f"{percent:g} %")
            yield (
                f"{percent:g} %",
                *(f"{size:,}" for size in (published, one.bytes - image, one.bytes)),
                f"{one.extra:.1f} %",
                f"{one.flash:+.0f} %",
                f"{one.time:.2f}",
                "yes" if one.verified else "NO",
            )
    yield ""
    yield Verdict(
        f"not below the published point at {', '.join(worse)}" if worse else "below every published point",
        wrong=bool(worse),
    )


BENCH = Benchmark(__doc__, tables, (time_limit(100.0), effort()), docs="docs/benchmarks/runtimes.md")
