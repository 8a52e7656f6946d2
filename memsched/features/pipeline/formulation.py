"""Stage schedules as an integer program on CP-SAT, for networks with more places to cut than can be listed.

A Boolean per group and boundary says whether the group lies before it. Precedence orders these Booleans; a stage's load
is the difference of two weighted sums of them. A flow is received by a stage that holds a reader and not the producer;
where values are handed through, by every stage behind a boundary with the producer before it and a reader after it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.features.pipeline.condense import Condensation, Flow, Loads
from memsched.search import cpsat

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["Solution", "least_communication", "least_peak"]


class Solution(FrozenValue, frozen=True):
    """What CP-SAT found.

    Attributes:
        stages: Per group its stage; None when nothing was found.
        bound: The least that any schedule can have of what was minimised.
    """

    stages: list[int] | None
    bound: int


def least_peak(
    condensed: Condensation,
    loads: Loads,
    hint: Sequence[int],
    low: int,
    high: int,
    *,
    seed: int,
    deadline: float,
    effort: float | None = None,
) -> Solution:
    """Return the least cost of the largest stage, which is between ``low`` and ``high``, and the groups' stages.

    Args:
        effort: Limit in CP-SAT's own measure, about seconds of an idle machine.
    """
    model = _StageModel(condensed, hint)
    unit = math.gcd(*loads.weights, *[size for size, _ in loads.shared]) or 1
    peak = model.model.new_int_var(-(-low // unit), high // unit, "peak")
    model.limit(loads, unit, peak)
    model.model.minimize(peak)
    return model.search(unit, seed, deadline, effort)


def least_communication(
    condensed: Condensation,
    loads: Loads,
    hint: Sequence[int],
    limit: int,
    *,
    seed: int,
    deadline: float,
    effort: float | None = None,
) -> Solution:
    """Return the least communication where no stage costs more than ``limit``, and the groups' stages.

    Args:
        effort: As for `least_peak`.
    """
    model = _StageModel(condensed, hint)
    unit = math.gcd(*loads.weights, *[size for size, _ in loads.shared]) or 1
    model.limit(loads, unit, limit // unit)
    size = model.minimise_communication()
    return model.search(size, seed, deadline, effort)


class _StageModel:
    def __init__(self, condensed: Condensation, hint: Sequence[int]) -> None:
        from ortools.sat.python import cp_model

        self.model = cp_model.CpModel()
        self._condensed = condensed
        self._hint = hint
        self._count = max(hint) + 1
        last = self._count - 1
        self._before = [[self.model.new_bool_var("") for _ in range(last)] for _ in condensed.groups]
        for group, row in enumerate(self._before):
            for boundary, literal in enumerate(row):
                self.model.add_hint(literal, hint[group] <= boundary)
                if boundary:
                    self.model.add_implication(row[boundary - 1], literal)
        cuts = set(condensed.strict)
        for group, befores in enumerate(condensed.preds):
            for other in befores:
                apart = int((other, group) in cuts)
                for boundary, literal in enumerate(self._before[group]):
                    if boundary >= apart:
                        self.model.add_implication(literal, self._before[other][boundary - apart])
                    else:
                        self.model.add(literal == 0)
                if apart and last:
                    self.model.add(self._before[other][last - 1] == 1)
        for stage in range(self._count):
            self.model.add(sum(self._in(group, stage) for group in range(len(condensed.groups))) >= 1)

    def limit(self, loads: Loads, unit: int, most: cp_model.LinearExprT) -> None:
        """Require that no stage costs more than ``most`` units."""
        for stage in range(self._count):
            terms = [self._in(group, stage) * (weight // unit) for group, weight in enumerate(loads.weights) if weight]
            for size, groups in loads.shared:
                held = self.model.new_bool_var("")
                self.model.add_hint(held, any(self._hint[group] == stage for group in groups))
                for group in groups:
                    self.model.add(held >= self._in(group, stage))
                terms.append(held * (size // unit))
            self.model.add(sum(terms) <= most)

    def minimise_communication(self) -> int:
        """Minimise what stages receive; return the unit of the objective, bytes."""
        flows = self._condensed.flows
        unit = math.gcd(*[flow.size for flow in flows]) or 1
        crosses = self._handed if self._condensed.through else self._received
        terms = [crosses(flow, stage) * (flow.size // unit) for flow in flows for stage in range(1, self._count)]
        self.model.minimize(sum(terms))
        return unit

    def _received(self, flow: Flow, stage: int) -> cp_model.LinearExprT:
        """Return whether ``stage`` holds a reader of ``flow`` and not its producer, or more than that."""
        receives = self.model.new_bool_var("")
        reading = any(self._hint[reader] == stage for reader in flow.readers)
        self.model.add_hint(receives, reading and self._hint[flow.producer] != stage)
        for reader in flow.readers:
            self.model.add(receives >= self._in(reader, stage) - self._in(flow.producer, stage))
        return receives

    def _handed(self, flow: Flow, stage: int) -> cp_model.LinearExprT:
        """Return whether ``flow`` is made before ``stage`` and needed in it or behind it, or more than that."""
        boundary = stage - 1
        made = self._before[flow.producer][boundary]
        if flow.to_end:
            return made
        crosses = self.model.new_bool_var("")
        later = any(self._hint[reader] >= stage for reader in flow.readers)
        self.model.add_hint(crosses, later and self._hint[flow.producer] < stage)
        for reader in flow.readers:
            self.model.add(crosses >= made - self._before[reader][boundary])
        return crosses

    def search(self, unit: int, seed: int, deadline: float, effort: float | None) -> Solution:
        """Run CP-SAT in another thread, so that Ctrl-C is heard; one worker, so that the result is always the same."""
        from ortools.sat.python import cp_model

        solver = cpsat.new_solver(seed, seconds=max(0.0, deadline - time.monotonic()), effort=effort)
        # Without a linear relaxation it proves these models two to four times sooner.
        solver.parameters.linearization_level = 0
        status = cpsat.run(solver, self.model, lambda: False)
        if status == cp_model.INFEASIBLE:
            raise InternalError(f"CP-SAT finds no stage schedule where one is known: {self.model.validate()}")
        bound = unit * max(0, math.ceil(solver.best_objective_bound - 1e-6))
        if status == cp_model.UNKNOWN:
            return Solution(None, bound)
        stages = [sum(not solver.boolean_value(literal) for literal in row) for row in self._before]
        return Solution(stages, bound)

    def _in(self, group: int, stage: int) -> cp_model.LinearExpr:
        """Whether ``group`` is in ``stage`` of two or more, 0 or 1."""
        row = self._before[group]
        if not stage:
            return row[0]
        return row[stage] - row[stage - 1] if stage < len(row) else 1 - row[stage - 1]
