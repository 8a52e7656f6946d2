"""The command line of the generators."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from memsched.base.errors import MemschedError
from memsched.search.limits import Limits
from scripts.networks.catalogue import (
    CLASSIFIERS,
    EXPORTED,
    NAMES,
    OPEN,
    OPEN_IMAGES,
    OPEN_TEXTS,
    SHARED,
    STAGED,
    build,
)
from scripts.networks.table import rows

_OTHERS = (*CLASSIFIERS, *STAGED, *SHARED, *EXPORTED, *OPEN, *OPEN_TEXTS, *OPEN_IMAGES)


def main() -> int:
    """Write networks to files, or print their figures; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.networks",
        description="Write networks of the scheduling literature as small ONNX models, or print their figures.",
        epilog=f"Networks: {', '.join(NAMES)}; and, not among all: {', '.join(_OTHERS)}.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks; with --table none means all")
    parser.add_argument("--all", action="store_true", help="all networks")
    parser.add_argument("-o", "--output", type=Path, help="the file for one network, the folder for several")
    parser.add_argument("--activations", choices=("fused", "kept"), default="fused", help="default: %(default)s")
    parser.add_argument("--table", action="store_true", help="print the figures instead of writing files")
    parser.add_argument("--target", default="paper", help="target of the figures; default: %(default)s")
    parser.add_argument("--seconds", type=float, default=60, help="time limit per network; default: %(default)s")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.names if name not in (*NAMES, *_OTHERS)]
    if unknown:
        parser.error(f"there is no network '{unknown[0]}': choose from {', '.join((*NAMES, *_OTHERS))}")
    names = NAMES if arguments.all or (arguments.table and not arguments.names) else tuple(arguments.names)
    kept = arguments.activations == "kept"
    if arguments.table:
        for line in rows(names, arguments.target, Limits(time_limit=arguments.seconds), keep_activations=kept):
            print(line, flush=True)
        return 0
    if not names or arguments.output is None:
        parser.error("name a network, or --all, and say with -o where to write; or ask for --table")
    folder = arguments.output if arguments.all or len(names) > 1 else None
    for name in names:
        path = folder / f"{name}.onnx" if folder else arguments.output
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(build(name, keep_activations=kept).SerializeToString(deterministic=True))
        print(f"{path}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (MemschedError, OSError) as error:
        sys.exit(f"error: {error}")
