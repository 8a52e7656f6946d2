"""Train the learned stage scheduler on synthetic DAGs: `python -m scripts.respect.train --out FOLDER`.

Needs the extra ``respect`` (PyTorch, numba). Uses a GPU when there is one. `python -m scripts.respect.ship` makes of
the folder what the package ships.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main() -> None:
    """Make or read the graphs, train, and keep settings, curve and weights."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder for graphs, weights and curve")
    parser.add_argument("--graphs", type=int, default=100_000, help="labelled graphs")
    parser.add_argument("--updates", type=int, default=1_000_000, help="updates at most")
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop training after that long")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--rate", type=float, default=1e-4)
    parser.add_argument("--start", type=Path, help="weights to go on from: another run's best.pt")
    parser.add_argument("--seed", type=int, default=0, help="of weights, batches and samples")
    parser.add_argument("--graph-seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()

    import numpy as np
    import torch

    from scripts.respect.dataset import COUNTS, load_or_make
    from scripts.respect.policy import Policy
    from scripts.respect.training import batches, make_batch, train

    torch.set_num_threads(asked.threads)
    torch.manual_seed(asked.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    asked.out.mkdir(parents=True, exist_ok=True)
    dataset = load_or_make(asked.out / f"graphs-{asked.graphs}-{asked.graph_seed}.npz", asked.graphs, asked.graph_seed)
    kept = load_or_make(asked.out / "held-out.npz", 1020, 1_000_003)
    choices = np.arange(len(kept)) // 5 % len(COUNTS)
    held_out = [make_batch(kept, rows, choices[rows], device) for rows in np.array_split(np.arange(len(kept)), 4)]
    settings = {
        "graphs": len(dataset),
        "graphs_drawn": dataset.drawn,
        "held_out": len(kept),
        "batch": asked.batch,
        "rate": asked.rate,
        "graph_seed": asked.graph_seed,
        "seed": asked.seed,
        "starts_from_weights": asked.start is not None,
        "device": str(device),
        "threads": asked.threads,
        "torch": torch.__version__,
    }
    (asked.out / "settings.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    print(settings, flush=True)
    policy = Policy()
    if asked.start:
        policy.load_state_dict(torch.load(asked.start, map_location="cpu"))
    _, progress = train(
        policy.to(device),
        batches(dataset, asked.batch, asked.seed, device),
        held_out,
        asked.out,
        updates=asked.updates,
        seconds=asked.seconds,
        rate=asked.rate,
    )
    print(progress)


if __name__ == "__main__":
    main()
