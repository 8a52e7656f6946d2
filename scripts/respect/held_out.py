"""Reward and gap of orders on the held-out graphs of a training: `python -m scripts.respect.held_out FOLDER`."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

import numpy as np
import torch

from memsched.features.pipeline.respect_policy import policy_order
from scripts.respect.dataset import COUNTS, load_or_make
from scripts.respect.orders import asap_order, random_order
from scripts.respect.training import costs, make_batch, peaks


def main() -> None:
    """Print a row per kind of order, all cut by the same rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="the folder that `scripts.respect.train` wrote")
    kept = load_or_make(parser.parse_args().run / "held-out.npz", 1020, 1_000_003)
    choices = np.arange(len(kept)) // 5 % len(COUNTS)
    batch = make_batch(kept, np.arange(len(kept)), choices, torch.device("cpu"))
    parents = [[[int(parent) for parent in node if parent >= 0] for node in graph] for graph in batch.parents]
    memory = [[int(size) for size in sizes] for sizes in batch.memory]
    rng = random.Random(0)
    orders = {
        "shipped policy": [policy_order(*pair) for pair in zip(parents, memory, strict=True)],
        "file order": [list(range(len(graph))) for graph in parents],
        "ASAP order": [asap_order(graph, []) for graph in parents],
        "random order": [random_order(graph, rng) for graph in parents],
        "exact order": np.argsort(batch.labels, axis=1, kind="stable").tolist(),
    }
    best = np.maximum(peaks(batch, batch.labels), 1)
    print("| order | 1 - R | gap, % |\n| --- | ---: | ---: |")
    for name, found in orders.items():
        cost, stages = costs(batch, torch.tensor(found))
        print(f"| {name} | {cost.mean():.4f} | {100 * (peaks(batch, stages) / best - 1).mean():.2f} |")


if __name__ == "__main__":
    main()
