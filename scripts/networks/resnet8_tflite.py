"""ResNet-8 for CIFAR-10 as a quantised TFLite file with random weights, as MLPerf Tiny's image classification has it.

    python -m scripts.networks.resnet8_tflite resnet8_int8.tflite

Three stacks of 16, 32 and 64 channels, the last two with a convolution of 1 x 1 beside them; the activation behind each
sum is ReLU6, as everywhere in these files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.networks.mobilenet_tflite import QuantisedBuilder

__all__ = ["resnet8"]

_STACKS = ((16, 1), (32, 2), (64, 2))


def resnet8(size: int = 32, classes: int = 10, seed: int = 0) -> bytes:
    """Return the file: input (1, size, size, 3) int8."""
    build = QuantisedBuilder(seed, b"ResNet-8 with random weights")
    given = build.image(size)
    current = build.conv("stem", given, 16, 3, 1, relu=True)
    for number, (channels, stride) in enumerate(_STACKS):
        name, source = f"stack{number}", current
        inner = build.conv(f"{name}/first", source, channels, 3, stride, relu=True)
        inner = build.conv(f"{name}/second", inner, channels, 3, 1, relu=False)
        if stride > 1:
            source = build.conv(f"{name}/beside", source, channels, 1, stride, relu=False)
        current = build.add(f"{name}/add", source, inner, relu=True)
    return build.finish(given, build.head(current, classes))


def main() -> None:
    """Write the file that the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    given.output.write_bytes(resnet8(seed=given.seed))


if __name__ == "__main__":
    main()
