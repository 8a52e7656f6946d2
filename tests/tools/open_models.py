"""Write random models with open dimensions in blocks and run them at five sizes each: right everywhere, or it stops.

python -m tests.tools.open_models --count 500
python -m tests.tools.open_models --count 500 --kernels
python -m tests.tools.open_models --count 500 --sums
python -m tests.tools.open_models --count 500 --images
"""

from __future__ import annotations

import argparse
import random
import sys

from tests.formats.onnx.blocks.random_layers import compare, compare_kernels, compare_sums
from tests.formats.onnx.blocks.rows.compare import compare as compare_images

__all__ = ["main"]

_LONGEST = 400


def main() -> int:
    """Compare models, and print how many had loops."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--images", action="store_true", help="networks on images, in loops over rows")
    parser.add_argument("--kernels", action="store_true", help="attention by kernels, as far as they apply")
    parser.add_argument("--sums", action="store_true", help="what adds up over tokens, a block at a time")
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.count)
    if asked.kernels:
        kernels = [compare_kernels(seed, _sizes(seed)) for seed in seeds]
        print(f"{len(kernels)} models, {sum(map(bool, kernels))} of them with {sum(kernels)} kernels: 0 wrong")
        return 0
    if asked.sums:
        loops = [compare_sums(seed, _sizes(seed)) for seed in seeds]
    elif asked.images:
        loops = [compare_images(seed, _image_sizes(seed)) for seed in seeds]
    else:
        loops = [compare(seed, _sizes(seed)) for seed in seeds]
    print(f"{len(loops)} models, {sum(map(bool, loops))} of them in {sum(loops)} loops, at 5 sizes each: 0 wrong")
    return 0


def _image_sizes(seed: int) -> list[tuple[int, int, int]]:
    numbers = random.Random(seed)
    return [(numbers.randint(1, 3), 12 * numbers.randint(1, 9), 12 * numbers.randint(1, 6)) for _ in range(5)]


def _sizes(seed: int) -> list[tuple[int, int]]:
    numbers = random.Random(seed)
    return [(numbers.randint(1, 3), length) for length in (2, 3, *(numbers.randint(4, _LONGEST) for _ in range(3)))]


if __name__ == "__main__":
    sys.exit(main())
