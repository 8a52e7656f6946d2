"""Order, in-place writes and addresses in one integer program: the least arena over all orders of the tasks.

Time and addresses span a plane. A buffer is a rectangle in it: from its creator's step to its last reader's, and from
its offset to offset + size. Rectangles must not overlap, tasks run one after another, and the highest end of a
rectangle, the arena, is minimised. Variables are

- the first step of every task (its ops follow in their fixed inner order),
- per buffer whose last reader depends on the order the end of its lifetime,
- per buffer its offset, in units of the alignment,
- per in-place pair a literal: the output has the input's offset and the input's lifetime ends one step earlier,
  which asks that all its other readers have run.

Lifetimes follow `memsched.graph.liveness`; what always lives lies below everything else. The peak is held under its
limit by a cumulative constraint over the same lifetimes, in bytes as they are; another one over the sizes as rounded
says that what is live at once fits into the arena, which the plane alone does not propagate.

What the status means: the program ranges over all orders *of the tasks*. Fusion keeps the least peak, but not the
least arena: an order that a fused task excludes could fragment less. So "optimal" is a proof for the graph only
with one task per op, or where the arena equals a bound of the peak, which holds for every order and every packing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.contraction import Tasks
from memsched.graph.dag import ancestor_bitsets, descendant_bitsets, members, topological_order
from memsched.search import cpsat
from memsched.search.limits import Limits
from memsched.search.run import Run

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["JointResult", "JointStatus", "solve"]

JointStatus = Literal["optimal", "feasible", "infeasible", "unknown", "refused"]


class JointResult(FrozenValue, frozen=True):
    """What the program's solution says.

    Attributes:
        order: The order of ops; None where nothing was found.
        merged: Pairs (created, read) of buffers of the storage that share an address in place.
        arena: Bytes that the solution's own addresses need; 0 without one.
        lower_bound: No order of the tasks whose peak keeps to the limit has a smaller arena, bytes.
        status: "optimal": arena == lower_bound; "infeasible": nothing is below ``upper_bound``, which then is the
            lower bound; "unknown": out of time; "refused": the graph has part views, or is too large.
    """

    order: tuple[int, ...] | None
    merged: tuple[tuple[int, int], ...]
    arena: int
    lower_bound: int
    status: JointStatus
    seconds: float


def solve(
    tasks: Tasks,
    *,
    alignment: int,
    peak_limit: int,
    lower_bound: int,
    upper_bound: int,
    hint: Sequence[int] = (),
    effort: float = math.inf,
    max_buffers: int = 150,
    run: Run | None = None,
) -> JointResult:
    """Return an order of ``tasks`` with the least arena that is below ``upper_bound``.

    One worker searches, so that the result depends on the seed alone unless it is interrupted.

    Args:
        tasks: The whole graph, not a part of one.
        alignment: What sizes and offsets are rounded up to, bytes.
        peak_limit: The largest footprint that an order may have, bytes, not rounded.
        lower_bound: Bytes that every arena needs; one that needs no more ends the search.
        upper_bound: Only smaller arenas are of interest, bytes.
        hint: An order of ops to start from.
        max_buffers: Refuse a graph with more than that.
        effort: Deterministic seconds of CP-SAT.
        run: Of which this is a part, as for `fit`.

    Raises:
        InternalError: CP-SAT does not accept the program.
    """
    started = time.monotonic()

    def result(status: JointStatus, bound: int, found: _ArenaSolution | None = None) -> JointResult:
        order, merged, arena = (None, (), 0) if found is None else (found.order, found.merged, found.arena)
        return JointResult(order, merged, arena, bound, status, time.monotonic() - started)

    if upper_bound <= lower_bound:
        return result("infeasible", upper_bound)
    storage = tasks.storage
    parts = any(len(buffers) > 1 for buffers in storage.buffers_of)
    if parts or sum(map(bool, storage.sizes)) > max_buffers:
        return result("refused", lower_bound)
    program = _ArenaModel(tasks, alignment, peak_limit, lower_bound, upper_bound, hint)
    found, bound, exhausted = program.search(effort, run or Run(Limits(None)))
    if found is not None:
        complete = exhausted or found.arena <= bound
        return result("optimal" if complete else "feasible", found.arena if complete else bound, found)
    return result("infeasible", upper_bound) if exhausted else result("unknown", bound)


class _ArenaSolution(FrozenValue, frozen=True):
    order: tuple[int, ...]
    merged: tuple[tuple[int, int], ...]
    arena: int


class _ArenaModel:
    """The program as a CP-SAT model; offsets in ``unit`` bytes, which divides all sizes as rounded."""

    def __init__(
        self,
        tasks: Tasks,
        alignment: int,
        peak_limit: int,
        lower_bound: int,
        upper_bound: int,
        hint: Sequence[int],
    ) -> None:
        from ortools.sat.python import cp_model

        self._tasks = tasks
        self._storage = storage = tasks.storage
        self._model = cp_model.CpModel()
        rounded = [-(-size // alignment) * alignment for size in storage.sizes]
        scratch = [-(-size // alignment) * alignment for size in storage.workspace]
        self._unit = math.gcd(*rounded, *scratch) or alignment
        self._sizes = [size // self._unit for size in rounded]
        self._scratch = [size // self._unit for size in scratch]
        # What always lives is below everything else: a block that no lifetime ends can be moved there.
        self._base = -(-storage.variables // alignment) * alignment
        self._lowest = max(0, -(-(lower_bound - self._base) // self._unit))
        self._highest = (upper_bound - 1 - self._base) // self._unit
        self._arena = self._model.new_int_var(self._lowest, max(self._highest, self._lowest), "")
        if self._highest < self._lowest:
            self._model.add_bool_or([])
        self._starts: list[cp_model.IntVar] = []
        self._of_op: dict[int, tuple[int, int]] = {}
        self._merged: dict[tuple[int, int], cp_model.IntVar] = {}
        self._offsets: dict[int, cp_model.IntVar] = {}
        self._add_tasks(hint)
        self._add_merges()
        self._add_buffers(peak_limit)
        self._model.minimize(self._arena)

    def _at(self, op: int) -> cp_model.LinearExprT:
        """Return the step of an op."""
        task, inner = self._of_op[op]
        return self._starts[task] + inner

    def _add_tasks(self, hint: Sequence[int]) -> None:
        tasks, model = self._tasks, self._model
        lengths = [len(ops) for ops in tasks.members]
        ranked = _ranked(tasks, hint) if hint else list(range(len(tasks)))
        known, end = [0] * len(tasks), 0
        for task in ranked:
            known[task] = end
            end += lengths[task]
        ancestors, descendants = ancestor_bitsets(tasks.preds), descendant_bitsets(tasks.succs)
        starts: list[cp_model.IntVar] = []
        intervals = []
        for task in range(len(tasks)):
            before = sum(lengths[other] for other in members(ancestors[task]))
            after = sum(lengths[other] for other in members(descendants[task]))
            start = model.new_int_var(before, end - after - lengths[task], "")
            starts.append(start)
            intervals.append(model.new_fixed_size_interval_var(start, lengths[task], ""))
            if hint:
                model.add_hint(start, known[task])
        if intervals:
            model.add_no_overlap(intervals)
        for task, befores in enumerate(tasks.preds):
            for before in befores:
                model.add(starts[before] + lengths[before] <= starts[task])
        self._starts = starts
        for task, ops in enumerate(tasks.members):
            self._of_op.update((op, (task, inner)) for inner, op in enumerate(ops))

    def _add_merges(self) -> None:
        storage, model = self._storage, self._model
        takers: dict[int, list[cp_model.IntVar]] = {}
        for pairs in storage.takes:
            for created, read in pairs:
                if storage.sizes[created] and not storage.kept[read]:
                    literal = self._merged[created, read] = model.new_bool_var("")
                    takers.setdefault(created, []).append(literal)
                    takers.setdefault(~read, []).append(literal)
        for literals in takers.values():
            if len(literals) > 1:
                model.add_at_most_one(literals)

    def _add_buffers(self, peak_limit: int) -> None:
        storage, model = self._storage, self._model
        times: list[cp_model.IntervalVar] = []
        places: list[cp_model.IntervalVar] = []
        heights: list[int] = []
        sizes: list[int] = []
        for buffer, size in enumerate(self._sizes):
            if not size or (storage.creator[buffer] < 0 and not storage.users[buffer] and not storage.kept[buffer]):
                continue
            times.append(self._lifetime(buffer))
            self._offsets[buffer] = offset = self._offset(size)
            places.append(model.new_fixed_size_interval_var(offset, size, ""))
            heights.append(size)
            sizes.append(storage.sizes[buffer])
        for op, size in enumerate(self._scratch):
            if size:
                times.append(model.new_fixed_size_interval_var(self._at(op), 1, ""))
                places.append(model.new_fixed_size_interval_var(self._offset(size), size, ""))
                heights.append(size)
                sizes.append(storage.workspace[op])
        model.add_no_overlap_2d(times, places)
        model.add_cumulative(times, heights, self._arena)
        model.add_cumulative(times, sizes, peak_limit - storage.variables)
        for (created, read), literal in self._merged.items():
            if read in self._offsets:
                model.add(self._offsets[created] == self._offsets[read]).only_enforce_if(literal)

    def _offset(self, size: int) -> cp_model.IntVar:
        offset = self._model.new_int_var(0, max(0, self._highest - size), "")
        self._model.add(offset + size <= self._arena)
        return offset

    def _lifetime(self, buffer: int) -> cp_model.IntervalVar:
        """Return the interval of steps in which a buffer needs its own bytes."""
        storage, model, steps = self._storage, self._model, len(self._of_op)
        creator, users = storage.creator[buffer], storage.users[buffer]
        # Inputs live from before step 0, so that one which step 0 overwrites has a lifetime, too.
        begin = self._at(creator) if creator >= 0 else -1
        if storage.kept[buffer]:
            return model.new_interval_var(begin, model.new_int_var(1, steps + 1, ""), steps, "")
        if not users:
            return model.new_fixed_size_interval_var(begin, 1, "")
        shortened: dict[int, list[cp_model.IntVar]] = {}
        for user in users:
            for created, read in storage.takes[user]:
                if read == buffer and (created, read) in self._merged:
                    shortened.setdefault(user, []).append(self._merged[created, read])
        if len(users) == 1 and not shortened:
            end = self._at(users[0]) + 1
        else:
            end = model.new_int_var(0, steps, "")
            model.add_max_equality(end, [self._at(user) + 1 - sum(shortened.get(user, ())) for user in users])
            # The plane implies this, too, but only once both offsets are known.
            for user, literals in shortened.items():
                for literal in literals:
                    model.add(end <= self._at(user)).only_enforce_if(literal)
        return model.new_interval_var(begin, model.new_int_var(1, steps + 1, ""), end, "")

    def search(self, effort: float, run: Run) -> tuple[_ArenaSolution | None, int, bool]:
        """Return the best solution, a lower bound in bytes, and whether the search ended by itself."""
        from ortools.sat.python import cp_model

        solver = cpsat.new_solver(run.limits.seed, seconds=run.remaining(), effort=effort)
        status = cpsat.run(solver, self._model, run.over)
        found = None
        if status in {cp_model.OPTIMAL, cp_model.FEASIBLE}:
            ranked = sorted(range(len(self._starts)), key=lambda task: solver.value(self._starts[task]))
            merged = tuple(pair for pair, literal in self._merged.items() if solver.boolean_value(literal))
            arena = self._base + self._unit * solver.value(self._arena)
            found = _ArenaSolution(self._tasks.expand(ranked), merged, arena)
        bound = self._base + self._unit * max(self._lowest, math.ceil(solver.best_objective_bound - 1e-6))
        exhausted = status in {cp_model.OPTIMAL, cp_model.INFEASIBLE}
        return found, bound if status != cp_model.INFEASIBLE else self._base + self._unit * self._lowest, exhausted


def _ranked(tasks: Tasks, order: Sequence[int]) -> list[int]:
    """Return the tasks by where their first ops are in an order of ops."""
    step = {op: index for index, op in enumerate(order)}
    first = [min(step[op] for op in members) for members in tasks.members]
    return topological_order(tasks.preds, first)
