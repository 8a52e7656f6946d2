"""Make of a training what the package ships, and record it: `python -m scripts.respect.ship --run FOLDER`.

Writes the two ONNX models, the curve (csv and svg) and docs/respect.json with settings, counts and hashes.
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

from memsched.pipeline.respect_policy import policy_order
from scripts.respect.dataset import Dataset, load_or_make
from scripts.respect.export import export
from scripts.respect.policy import Policy
from scripts.respect.training import make_batch

_ROOT = Path(__file__).parents[2]
_CURVE = _ROOT / "scripts" / "respect" / "curve.csv"
_COMPARED = 200


def main() -> None:
    """Export, compare with PyTorch, and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="the folder that train_respect wrote")
    run: Path = parser.parse_args().run
    policy = Policy()
    policy.load_state_dict(torch.load(run / "best.pt", map_location="cpu"))
    paths = export(
        {name: value.numpy() for name, value in policy.state_dict().items()}, _ROOT / "memsched" / "pipeline"
    )
    kept = load_or_make(run / "held-out.npz", 0, 0)
    same = _same_orders(policy, kept)
    print(f"PyTorch and ONNX Runtime give the same order for {same} of {_COMPARED} held-out graphs")
    _CURVE.write_text((run / "curve.csv").read_text(encoding="utf-8"), encoding="utf-8")
    with _CURVE.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    settings = json.loads((run / "settings.json").read_text(encoding="utf-8"))
    shipped = [row for row in rows if row["replaced"] == "1"][-1]
    record = {
        **settings,
        "updates": int(rows[-1]["update"]),
        "graphs_decoded": int(rows[-1]["graphs"]),
        "seconds": int(rows[-1]["seconds"]),
        "shipped_at_update": int(shipped["update"]),
        "held_out_cost": [float(rows[0]["held_out_cost"]), float(shipped["held_out_cost"])],
        "held_out_gap_percent": [float(rows[0]["held_out_gap"]), float(shipped["held_out_gap"])],
        "sha256": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths},
    }
    (_ROOT / "docs" / "respect.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    _plot(rows)


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


def _plot(rows: list[dict[str, str]]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "respect"
    from matplotlib import pyplot as plt

    figure, left = plt.subplots(figsize=(7, 3.5))
    updates = [int(row["update"]) for row in rows]
    left.plot(updates[1:], [float(row["cost"]) for row in rows[1:]], color="tab:gray", label="1 - R, sampled")
    left.plot(updates, [float(row["held_out_cost"]) for row in rows], color="tab:blue", label="1 - R, held out, greedy")
    left.set_xlabel("updates")
    left.set_ylabel("1 - R")
    right = left.twinx()
    right.plot(updates, [float(row["held_out_gap"]) for row in rows], color="tab:orange", label="gap, held out")
    right.set_ylabel("gap of peak to exact, %")
    figure.legend(loc="upper right", bbox_to_anchor=(0.88, 0.88))
    figure.tight_layout()
    figure.savefig(_ROOT / "docs" / "images" / "respect_curve.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
