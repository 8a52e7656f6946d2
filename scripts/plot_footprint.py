"""Draw the footprint of each step before and after optimising, from two memsched reports, as an SVG or PNG picture."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def draw(before: dict[str, Any], after: dict[str, Any], output: Path) -> None:
    """Write the picture of two reports of one model: ``before`` by analyze, ``after`` by optimize."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise SystemExit("drawing needs matplotlib: pip install 'memsched[bench]'") from None
    mpl.use("svg" if output.suffix == ".svg" else "agg")
    mpl.rcParams["svg.hashsalt"] = "memsched"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    for report, colour, label in ((before, "#c0562f", "file order"), (after, "#1f6f8b", "memsched")):
        sizes = [step["footprint_bytes"] / 1024 for step in report["steps"]]
        peak = report["result"]["peak_bytes"] / 1024
        axes.step(range(len(sizes)), sizes, where="mid", color=colour, linewidth=1.2, label=f"{label}: {peak:,.1f} KB")
        axes.axhline(peak, color=colour, linewidth=0.8, linestyle="--")
    bound = after["result"]["lower_bound_bytes"] / 1024
    proof = "proven optimal" if after["result"]["status"] == "optimal" else f"lower bound {bound:,.1f} KB"
    name = Path(after["model"]["path"]).stem
    axes.set_title(f"{name}, target {after['target']['name']}: activation memory per step ({proof})", fontsize=10)
    axes.set_xlabel("step")
    axes.set_ylabel("footprint, KB")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(output, dpi=150, metadata={"Date": None} if output.suffix == ".svg" else None)


def main() -> None:
    """Read the reports named on the command line and draw them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="report of memsched analyze")
    parser.add_argument("after", type=Path, help="report of memsched optimize")
    parser.add_argument("-o", "--output", type=Path, required=True, help="picture to write, .svg or .png")
    arguments = parser.parse_args()
    reports = [json.loads(path.read_text(encoding="utf-8")) for path in (arguments.before, arguments.after)]
    draw(reports[0], reports[1], arguments.output)


if __name__ == "__main__":
    main()
