"""Policy gradient with a rollout baseline (RESPECT, equations 2, 3, 5 and 6)."""

from __future__ import annotations

import copy
import csv
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scripts.respect.cut import compiled_cut
from scripts.respect.dataset import COUNTS, Dataset
from scripts.respect.policy import Policy

__all__ = ["Batch", "Progress", "batches", "costs", "evaluate", "make_batch", "peaks", "train"]

Integers = NDArray[np.int64]

COLUMNS = ("update", "graphs", "seconds", "cost", "baseline", "held_out_cost", "held_out_gap", "replaced")


@dataclass(frozen=True, slots=True)
class Batch:
    """Graphs that are decoded at once, each with one number of stages.

    Attributes:
        embeddings: [graph, node, column].
        children: [graph, node, node].
        counts: Stages per graph.
        labels: [graph, node]: exact stages.
    """

    embeddings: Tensor
    children: Tensor
    parents: Integers
    memory: Integers
    sizes: Integers
    counts: Integers
    labels: Integers


@dataclass(slots=True)
class Progress:
    """How far a training is.

    Attributes:
        updates: Steps of the optimiser.
        graphs: Graphs decoded for them, repeated ones included.
        replaced: How often the baseline was.
        recent: Mean cost of the sampled orders and of the baseline's, per update since the last look.
    """

    updates: int = 0
    graphs: int = 0
    seconds: float = 0.0
    replaced: int = 0
    recent: list[tuple[float, float]] = field(default_factory=list)


def batches(dataset: Dataset, size: int, seed: int, device: torch.device) -> Iterator[Batch]:
    """Yield batches without end, each epoch in another order; numbers of stages are drawn evenly."""
    rng = np.random.default_rng(seed)
    while True:
        shuffled = rng.permutation(len(dataset))
        for begin in range(0, len(dataset) - size + 1, size):
            yield make_batch(dataset, shuffled[begin : begin + size], rng.integers(0, len(COUNTS), size), device)


def make_batch(dataset: Dataset, rows: Integers, choices: Integers, device: torch.device) -> Batch:
    """Return the graphs ``rows``, each with the number of stages that ``choices`` says."""
    parents = dataset.parents[rows].astype(np.int64)
    graph, child, slot = np.nonzero(parents >= 0)
    children = np.zeros((*parents.shape[:2], parents.shape[1]), np.float32)
    children[graph, parents[graph, child, slot], child] = 1
    return Batch(
        embeddings=torch.from_numpy(dataset.embeddings[rows]).to(device),
        children=torch.from_numpy(children).to(device),
        parents=parents,
        memory=dataset.memory[rows].astype(np.int64),
        sizes=dataset.sizes[rows].astype(np.int64),
        counts=np.array(COUNTS, np.int64)[choices],
        labels=dataset.stages[rows, choices].astype(np.int64),
    )


def costs(batch: Batch, orders: Tensor) -> tuple[NDArray[np.float64], Integers]:
    """Return 1 - R per graph (equations 2, 3 and 5) and the stages that the orders lead to.

    Stage sequences are vectors of stage numbers from 1, an entry per node.
    """
    stages = compiled_cut()(
        orders.cpu().numpy().astype(np.int64), batch.parents, batch.memory, batch.sizes, batch.counts
    )
    ours, exact = stages + 1.0, batch.labels + 1.0
    lengths = np.sqrt((ours**2).sum(1)) * np.sqrt((exact**2).sum(1))
    return 1.0 - (ours * exact).sum(1) / np.maximum(lengths, 1e-8), stages


def peaks(batch: Batch, stages: Integers) -> NDArray[np.float64]:
    """Return the parameters of the largest stage per graph."""
    rows = np.arange(len(stages))[:, None]
    loads = np.zeros((len(stages), max(COUNTS)), np.float64)
    np.add.at(loads, (rows, stages), batch.memory)
    result: NDArray[np.float64] = loads.max(1)
    return result


def evaluate(policy: Policy, held_out: list[Batch]) -> tuple[NDArray[np.float64], float]:
    """Return 1 - R of greedy decoding per held-out graph, and the mean gap of peak parameters to exact, in percent."""
    found, gaps = [], []
    with torch.no_grad():
        for batch in held_out:
            cost, stages = costs(batch, policy.decode(batch.embeddings, batch.children).orders)
            found.append(cost)
            gaps.append(peaks(batch, stages) / np.maximum(peaks(batch, batch.labels), 1) - 1)
    return np.concatenate(found), 100 * float(np.concatenate(gaps).mean())


class _Trainer:
    def __init__(self, policy: Policy, held_out: list[Batch], folder: Path, rate: float) -> None:
        self.policy = policy
        self.held_out = held_out
        self.folder = folder
        self.optimiser = torch.optim.Adam(policy.parameters(), lr=rate)
        self.progress = Progress()
        self.started = time.monotonic()
        self.baseline = copy.deepcopy(policy)
        self.baseline_costs, gap = evaluate(policy, held_out)
        self.replaced = True
        with (folder / "curve.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(COLUMNS)
        self.write(float(self.baseline_costs.mean()), gap)

    def reinforce(self, batch: Batch) -> None:
        """Step along equation 6; b(G) is the cost of the baseline's greedy order."""
        with torch.no_grad():
            baseline, _ = costs(batch, self.baseline.decode(batch.embeddings, batch.children).orders)
        decoded = self.policy.decode(batch.embeddings, batch.children, sample=True)
        cost, _ = costs(batch, decoded.orders)
        advantage = torch.from_numpy(cost - baseline).to(torch.float32).to(batch.embeddings.device)
        self.step((advantage * decoded.likelihood).mean())
        self.progress.graphs += len(cost)
        self.progress.updates += 1
        self.progress.recent.append((float(cost.mean()), float(baseline.mean())))

    def step(self, loss: Tensor) -> None:
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.optimiser.step()

    def look(self) -> None:
        """Measure on held-out graphs, replace the baseline if the policy is better, and keep both."""
        found, gap = evaluate(self.policy, self.held_out)
        better = self.baseline_costs - found
        error = float(better.std(ddof=1)) / math.sqrt(len(better))
        # One-sided paired t-test at 5 %, as rollout baselines are replaced.
        self.replaced = bool(better.mean() > 1.645 * error)
        if self.replaced:
            self.baseline.load_state_dict(self.policy.state_dict())
            self.baseline_costs = found
            self.progress.replaced += 1
        self.write(float(found.mean()), gap)
        torch.save(self.policy.state_dict(), self.folder / "policy.pt")
        torch.save(self.baseline.state_dict(), self.folder / "best.pt")

    def write(self, held_out_cost: float, gap: float) -> None:
        progress = self.progress
        progress.seconds = time.monotonic() - self.started
        recent = np.array(progress.recent or [(math.nan, math.nan)])
        cost, baseline = recent.mean(0)
        progress.recent.clear()
        numbers = (cost, baseline, held_out_cost, gap)
        row: list[object] = [progress.updates, progress.graphs, round(progress.seconds)]
        row += ["" if math.isnan(number) else f"{number:.5f}" for number in numbers] + [int(self.replaced)]
        with (self.folder / "curve.csv").open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(row)
        print(*row, flush=True)


def train(
    policy: Policy,
    source: Iterator[Batch],
    held_out: list[Batch],
    folder: Path,
    *,
    updates: int,
    seconds: float,
    rate: float,
    every: int = 100,
) -> tuple[Policy, Progress]:
    """Train ``policy`` and return the best one on held-out graphs, with how much it was trained.

    Args:
        folder: Where curve.csv, policy.pt (the last) and best.pt (the baseline) are kept.
        updates: At most that many.
        seconds: Stop after that many.
        every: Updates between looks at held-out graphs.
    """
    trainer = _Trainer(policy, held_out, folder, rate)
    for number in range(1, updates + 1):
        if time.monotonic() - trainer.started > seconds:
            break
        trainer.reinforce(next(source))
        if number % every == 0:
            trainer.look()
    trainer.progress.seconds = time.monotonic() - trainer.started
    return trainer.baseline, trainer.progress
