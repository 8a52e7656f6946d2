"""Who makes and who reads each buffer, as arrays: with them an order of very many ops is evaluated at one go."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Final

from memsched.base.units import MOST_BYTES
from memsched.graph.model import Graph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]

__all__ = ["MANY_OPS", "Uses", "neighbours_of", "rows_of", "steps_of", "sums", "uses_of"]

Rows = tuple[tuple[int, ...], ...]

MANY_OPS: Final = 4_000
"""Ops, or buffers, from which on arrays are faster than lists."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Uses:
    """The buffers of a `Storage` as arrays.

    Attributes:
        users: The ops that read buffer 0, then those that read buffer 1, and so on.
        begins: Per buffer where its users begin in ``users``, and where the last one's end.
        creator: Per buffer the op that creates it, -1 for what is given.
        sizes: Bytes per buffer.
        kept: Per buffer whether it is live to the end.
        workspace: Bytes per op.
        takes: The pairs (created buffer, read buffer) that these may merge, one after the other, each behind its op:
            a row per pair.
        befores: The ops that must come directly before op 0, then those before op 1, and so on; and per op where its
            own begin, as in ``begins``.
    """

    users: Numbers
    begins: Numbers
    creator: Numbers
    sizes: Numbers
    kept: NDArray[np.bool_]
    workspace: Numbers
    takes: Numbers
    befores: tuple[Numbers, Numbers]

    def initial_residue(self) -> int:
        """Bytes of what is given and either read or kept: what is needed before step 0, variables apart."""
        return int(self.sizes[(self.creator < 0) & (self.kept | (self.begins[1:] > self.begins[:-1]))].sum())

    def lifetimes(self, steps: Numbers) -> tuple[Numbers, Numbers]:
        """Return per buffer the step that creates it and the last one that needs it.

        What is given has the first step -1; what is kept has the number of steps as its last; what is given and never
        needed has -1 as both.

        Args:
            steps: What `steps_of` gives for an order.
        """
        import numpy as np

        given = self.creator < 0
        first = np.where(given, -1, steps[self.creator]) if len(steps) else np.full(len(self.sizes), -1)
        last = first.copy()
        used = np.flatnonzero(self.begins[1:] > self.begins[:-1])
        if len(used):
            last[used] = np.maximum.reduceat(steps[self.users], self.begins[used])
        last[self.kept] = len(steps)
        return first, last


def uses_of(
    sizes: Sequence[int],
    creator: Sequence[int],
    reads: Sequence[Sequence[int]],
    kept: Sequence[bool],
    workspace: Sequence[int],
    takes: Sequence[Sequence[tuple[int, int]]],
    befores: tuple[Numbers, Numbers],
) -> Uses | None:
    """Return the arrays of a `Storage`; None where its bytes are too many for 64 bits."""
    import numpy as np

    if sum(sizes) + sum(workspace) > MOST_BYTES:
        return None
    pairs = _joined(chain.from_iterable(takes)).reshape(-1, 2)
    users, begins = _grouped(_joined(reads), _owners(reads), len(sizes))
    return Uses(
        users=users,
        begins=begins,
        creator=np.array(creator, dtype=np.int64),
        sizes=np.array(sizes, dtype=np.int64),
        kept=np.array(kept, dtype=np.bool_),
        workspace=np.array(workspace, dtype=np.int64),
        takes=np.column_stack((_owners(takes), pairs)),
        befores=befores,
    )


def neighbours_of(graph: Graph) -> tuple[tuple[Numbers, Numbers], tuple[Numbers, Numbers]]:
    """Return what `dag.predecessors` and `dag.successors_of` do, each as `rows_of` takes it."""
    import numpy as np

    reads, writes = [op.inputs for op in graph.ops], [op.outputs for op in graph.ops]
    producer = np.full(len(graph.tensors), -1)
    producer[_joined(writes)] = _owners(writes)
    asked = _joined(graph.dependencies).reshape(-1, 2)
    before = np.concatenate((producer[_joined(reads)], asked[:, 0]))
    after = np.concatenate((_owners(reads), asked[:, 1]))
    made, count = before >= 0, len(graph.ops)
    pairs = np.sort(after[made] * count + before[made])
    after, before = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], count)
    return _grouped(after, before, count), _grouped(before, after, count)


def rows_of(values: Numbers, begins: Numbers) -> Rows:
    """Return ``values`` cut where ``begins`` says."""
    listed = tuple(values.tolist())
    return tuple([listed[begin:end] for begin, end in pairwise(begins.tolist())])


def _joined(rows: Iterable[Sequence[int]]) -> Numbers:
    """Return the numbers of all ``rows``, one row after the other."""
    import numpy as np

    return np.fromiter(chain.from_iterable(rows), dtype=np.int64)


def _owners(rows: Sequence[Sequence[object]]) -> Numbers:
    """Return for each thing in ``rows`` which of them it is in."""
    import numpy as np

    return np.repeat(np.arange(len(rows)), np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)))


def _grouped(keys: Numbers, values: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """Return the values of key 0, then those of key 1, and so on, each in their order; and where each key's begin."""
    import numpy as np

    begins = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys, minlength=count), out=begins[1:])
    return values[np.argsort(keys, kind="stable")], begins


def steps_of(order: Sequence[int]) -> Numbers:
    """Return per op the step of ``order`` that executes it."""
    import numpy as np

    steps = np.empty(len(order), dtype=np.int64)
    steps[np.array(order, dtype=np.int64)] = np.arange(len(order))
    return steps


def sums(places: Numbers, amounts: Numbers, count: int) -> Numbers:
    """Return per place from 0 to ``count`` the sum of its amounts."""
    import numpy as np

    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, places, amounts)
    return total
