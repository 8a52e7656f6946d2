"""What computing again costs, what a sequence with repetitions needs, and what no repetition can save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.dag import MOST_FOR_BITSETS, ancestor_bitsets, descendant_bitsets, members
from memsched.graph.dialect import Dialect
from memsched.graph.liveness import Storage, evaluate, match_in_place
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.rewrites.recompute.rewrite import extra_bytes, rematerialise
from memsched.targets.model import Target

__all__ = [
    "MACS_PER_BYTE",
    "CostStatus",
    "GraphWork",
    "RematPoint",
    "Scope",
    "judge",
    "least_peak",
    "work_of",
]

MACS_PER_BYTE: Final = 1
"""What a byte read or written counts as, in multiply-accumulates."""

Scope = Literal["all", "groups", ""]
CostStatus = Literal["optimal", "least_for_groups", "feasible"]

PROOFS: Final[dict[Scope, str]] = {
    "all": "all orders and all repetitions",
    "groups": "sequences that execute groups of ops as one",
    "": "",
}
_STATUSES: Final[dict[Scope, CostStatus]] = {
    "all": "optimal",
    "groups": "least_for_groups",
    "": "feasible",
}


class GraphWork(FrozenValue, frozen=True):
    """What the ops of a graph cost to execute once.

    Attributes:
        macs: Multiply-accumulates per op.
        bytes: Bytes that each op reads and writes.
    """

    macs: tuple[int, ...]
    bytes: tuple[int, ...]

    def cost(self, op: int) -> int:
        """Return the cost of one execution: multiply-accumulates, and `MACS_PER_BYTE` for each byte; 1 at least."""
        return max(1, self.macs[op] + MACS_PER_BYTE * self.bytes[op])

    @property
    def costs(self) -> tuple[int, ...]:
        """The cost of one execution per op."""
        return tuple(self.cost(op) for op in range(len(self.macs)))

    @property
    def total(self) -> int:
        """The cost of all ops together."""
        return sum(self.costs)


class RematPoint(FrozenValue, frozen=True):
    """A sequence of executions with what it needs and costs.

    Attributes:
        peak: Bytes, by liveness of the graph that `rewrite.rematerialise` makes of the sequence.
        cost: Of the repetitions, as `GraphWork.cost` says.
        extra_macs: Multiply-accumulates of the repetitions.
        extra_bytes: Bytes that the repetitions read and write.
        sequence: Indices of ops, each at least once; without repetition the order that was given.
        cost_bound: No sequence of the kind that ``scope`` names meets ``peak`` at a lower cost.
        scope: What ``cost_bound`` holds for: all orders and repetitions; those that execute certain groups of ops as
            one; "" where nothing was proven.
        method: What found the sequence.
    """

    peak: int
    cost: int
    extra_macs: int
    extra_bytes: int
    sequence: tuple[int, ...]
    cost_bound: int = 0
    scope: Scope = ""
    method: str = ""

    @property
    def proof(self) -> str:
        """What ``cost_bound`` holds for, in words; "" where nothing was proven."""
        return PROOFS[self.scope]

    @property
    def status(self) -> CostStatus:
        """Return "optimal" where no order and no repetitions have this peak at a lower cost, else what was proven."""
        return _STATUSES[self.scope] if self.cost <= self.cost_bound else "feasible"


def work_of(graph: Graph) -> GraphWork:
    """Return what the ops of ``graph`` cost."""
    return GraphWork(tuple(op.macs for op in graph.ops), tuple(extra_bytes(graph, op) for op in range(len(graph.ops))))


def judge(graph: Graph, sequence: Sequence[int], target: Target, dialect: Dialect, method: str = "") -> RematPoint:
    """Return ``sequence`` without useless repetitions and with its true peak; linear time.

    Args:
        graph: Not lowered.

    Raises:
        InternalError: An op is missing, or comes before its inputs.
    """
    found = rematerialise(graph, sequence, dialect)
    storage = Storage.of(apply_target(found.graph, target))
    peak = evaluate(storage, range(len(storage.reads))).peak
    work = work_of(graph)
    cost = sum(map(work.cost, found.sequence)) - work.total
    return RematPoint(peak, cost, found.extra_macs, found.extra_bytes, found.sequence, method=method)


def least_peak(graph: Graph, repeat: Sequence[bool]) -> int:
    """Return bytes below which no order and no repetition brings the peak.

    An op's first execution needs what it reads and writes. Beside that, a value that is computed once (a graph input,
    what may not be repeated) is live when the op follows it and precedes one that reads it, and a kept one from then
    on. Takes ops^2 / 8 bytes.

    Args:
        graph: With the target's rules applied, its ops in a possible order.
        repeat: Per op whether it may be executed again.
    """
    storage = Storage.of(graph)
    sizes = storage.sizes
    count = len(storage.reads)
    live = [storage.variables] * count
    if count <= MOST_FOR_BITSETS:
        before, after = ancestor_bitsets(storage.preds), descendant_bitsets(storage.succs)
        for buffer, creator in enumerate(storage.creator):
            if creator >= 0 and repeat[creator]:
                continue
            span = after[creator] if creator >= 0 else (1 << count) - 1
            if not storage.kept[buffer]:
                until = 0
                for user in storage.users[buffer]:
                    until |= before[user]
                span &= until
            for op in members(span):
                live[op] += 0 if buffer in storage.reads[op] else sizes[buffer]
    # All outputs live at the end, in every sequence.
    largest = max(storage.initial_residue(), storage.final_residue())
    for op, reads in enumerate(storage.reads):
        own = sum(sizes[buffer] for buffer in (*reads, *storage.creates[op]))
        pairs = [pair for pair in storage.takes[op] if not storage.kept[pair[1]]]
        merged = sum(sizes[created] for created, _ in match_in_place(pairs, sizes)) if pairs else 0
        largest = max(largest, live[op] + own + storage.workspace[op] - merged)
    return largest
