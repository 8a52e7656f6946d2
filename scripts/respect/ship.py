"""Make of a training what the package ships, and record it: `python -m scripts.respect.ship FOLDER...`.

Writes the two ONNX models in few bits, the curve (csv and svg) and docs/respect.json with settings, counts and hashes.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from memsched.features.pipeline.respect_policy import policy_order
from scripts.respect.dataset import Dataset, load_or_make
from scripts.respect.export import export
from scripts.respect.policy import Policy
from scripts.respect.quantise import ship
from scripts.respect.training import make_batch

_ROOT = Path(__file__).parents[2]
_COMPARED = 200


def main() -> None:
    """Export, compare with PyTorch, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "runs", type=Path, nargs="+", help="folders that `scripts.respect.train` wrote; the last one's is shipped"
    )
    runs: list[Path] = parser.parse_args().runs
    policy = Policy()
    policy.load_state_dict(torch.load(runs[-1] / "best.pt", map_location="cpu"))
    paths = ship(*export({name: value.numpy() for name, value in policy.state_dict().items()}))
    same = _same_orders(policy, load_or_make(runs[-1] / "held-out.npz", 0, 0))
    print(f"PyTorch and what ships give the same order for {same} of {_COMPARED} held-out graphs")
    curves = [_curve(run) for run in runs]
    record = {
        "runs": [_run_record(run, curve) for run, curve in zip(runs, curves, strict=True)],
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths},
    }
    (_ROOT / "docs" / "respect.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    with (_ROOT / "scripts" / "respect" / "curve.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["run", *curves[0][0]], lineterminator="\n")
        writer.writeheader()
        for run, curve in zip(runs, curves, strict=True):
            writer.writerows({"run": run.name, **row} for row in curve)
    _plot({run.name: curve for run, curve in zip(runs, curves, strict=True)})


def _curve(run: Path) -> list[dict[str, str]]:
    with (run / "curve.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _run_record(run: Path, curve: list[dict[str, str]]) -> dict[str, object]:
    best = [row for row in curve if row["replaced"] == "1"][-1]
    return {
        "name": run.name,
        **json.loads((run / "settings.json").read_text(encoding="utf-8")),
        "updates": int(curve[-1]["update"]),
        "graphs_decoded": int(curve[-1]["graphs"]),
        "seconds": int(curve[-1]["seconds"]),
        "best_at_update": int(best["update"]),
        "held_out_cost": [float(curve[0]["held_out_cost"]), float(best["held_out_cost"])],
        "held_out_gap_percent": [float(curve[0]["held_out_gap"]), float(best["held_out_gap"])],
    }


def _same_orders(policy: Policy, kept: Dataset) -> int:
    rows: NDArray[np.int64] = np.arange(_COMPARED)
    batch = make_batch(kept, rows, np.zeros(_COMPARED, np.int64), torch.device("cpu"))
    with torch.no_grad():
        theirs = policy.decode(batch.embeddings, batch.children).orders.tolist()
    parents = [[[int(parent) for parent in node if parent >= 0] for node in graph] for graph in batch.parents]
    return sum(
        policy_order(graph, [int(size) for size in memory]) == order
        for graph, memory, order in zip(parents, batch.memory, theirs, strict=True)
    )


def _plot(curves: dict[str, list[dict[str, str]]]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "memsched"
    from matplotlib import pyplot as plt

    figure, (costs, gaps) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for (name, rows), colour in zip(curves.items(), ("#8a8a8a", "#c0562f", "#1f6f8b"), strict=False):
        updates = [int(row["update"]) for row in rows]
        costs.plot(updates, [float(row["held_out_cost"]) for row in rows], color=colour, label=f"{name}, held out")
        sampled = [float(row["cost"]) for row in rows[1:]]
        costs.plot(updates[1:], sampled, color=colour, linestyle=":", label=f"{name}, sampled in training")
        gaps.plot(updates, [float(row["held_out_gap"]) for row in rows], color=colour)
    costs.set_ylabel("1 - R")
    gaps.set_ylabel("gap of peak to exact, held out, %")
    gaps.set_ylim(bottom=0)
    costs.legend(frameon=False, fontsize=8)
    for axes in (costs, gaps):
        axes.set_xlabel("updates")
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(_ROOT / "docs" / "images" / "respect_curve.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
