"""Budgets over order, in-place writes, pieces and repetitions together: met or not, extra work, seconds.

    python -m scripts.bench.budget

Every model is given 75, 50 and 35 % of the arena that its file's order takes under its target; all that `--allow`
knows is permitted, with up to 50 % extra work.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from memsched.compiler import optimize
from scripts.networks.catalogue import build

_ROOT = Path(__file__).resolve().parents[2]
_SHARES = (75, 50, 35)
_NETWORKS = ("nasnet_a", "randwire1", "hrnet_w18_small_v1", "unetpp", "resnet18", "googlenet", "transformer")
_FILES = ("person_detect.tflite", "mobilenetv2_035_96_int8.tflite", "nasnetmobile_int8.tflite")


def main() -> int:
    """Print the table; 1 where a larger budget cost more than a smaller one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for each run")
    parser.add_argument("--max-extra-macs", type=float, default=50.0)
    parser.add_argument("models", nargs="*", type=Path, help="default: ten of models/ and scripts/networks")
    args = parser.parse_args()
    print("| model | target | arena as given | budget | needs | met | extra work | how | s |")
    print("|---|---|---|---|---|---|---|---|---|")
    worse = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in args.models or _models(Path(folder)):
            worse += _rows(path, args.time_limit, args.max_extra_macs)
    print(f"\n{worse} of the larger budgets cost more than a smaller one")
    return worse > 0


def _models(folder: Path) -> Iterator[Path]:
    for name in _FILES:
        yield _ROOT / "models" / name
    for name in _NETWORKS:
        path = folder / f"{name}.onnx"
        path.write_bytes(build(name).SerializeToString())
        yield path


def _rows(path: Path, seconds: float, percent: float) -> int:
    target = "tflm" if path.suffix == ".tflite" else None
    given = optimize(str(path), target=target, solver="file", verify=False)
    arena = given.report["baselines"]["file_order"]["arena_bytes"]
    costs: list[float] = []
    for share in _SHARES:
        budget = arena * share // 100
        started = time.monotonic()
        result = optimize(
            str(path),
            target=target,
            budget=budget,
            tile=True,
            remat=True,
            max_extra_macs=percent,
            time_limit=seconds,
            verify=False,
        )
        report = result.report
        tiling, remat = report["tiling"], report["remat"]
        pieces = tiling is not None and tiling["applied"]
        again = remat is not None and remat["applied"]
        extra = (tiling["extra_macs_percent"] if pieces else 0.0) + (remat["extra_work_percent"] if again else 0.0)
        met = report["budget"]["met"]
        costs.append(extra if met else float("inf"))
        how = " + ".join(["pieces"] * pieces + ["again"] * again) or "order"
        needs = report["budget"]["required_bytes"]
        print(
            f"| {path.stem} | {report['target']['name']} | {arena:,} | {share} % | {needs:,} "
            f"| {'yes' if met else 'no'} | {extra:.1f} % | {how} | {time.monotonic() - started:.0f} |",
            flush=True,
        )
    return sum(larger > smaller for larger, smaller in itertools.pairwise(costs))


if __name__ == "__main__":
    sys.exit(main())
