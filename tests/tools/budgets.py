"""Hold that no model ends with a larger arena than it had, and that a larger budget is met wherever a smaller one is.

    python -m tests.tools.budgets models/*.tflite --effort 1 --targets tflm-reference tflm

Each model goes through `memsched.optimize` with all that may be allowed, without a budget and with twelve. They lie
between a little less than what was reached and what the file as given requires. Prints a row per model, target and
permission; exit code 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import memsched
from memsched.base.errors import MemschedError
from tests.permissions import allowed

__all__ = ["PERMISSIONS", "Figures", "judge", "main"]

PERMISSIONS: Mapping[str, tuple[bool, bool]] = {
    "order": (False, False),
    "tile": (True, False),
    "remat": (False, True),
    "tile and remat": (True, True),
}
"""By name: whether layers may be computed in pieces, and values again."""

_LOWEST = 0.95
"""Of what was reached, the smallest budget."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What a model requires, bytes, and what is wrong in words.

    Attributes:
        reached: Without a budget.
        met: The budgets that were met.
    """

    given: int
    reached: int
    met: tuple[int, ...]
    wrong: list[str] = field(default_factory=list)


def judge(
    data: bytes,
    target: str,
    permission: str,
    *,
    effort: float,
    steps: int = 12,
    budget_for: Literal["arena", "activations"] = "arena",
    max_extra_macs: float = 30.0,
) -> Figures:
    """Return what became of a model without a budget and with ``steps`` of them; each with ``effort``."""
    tile, remat = PERMISSIONS[permission]

    def optimized(budget: int | None) -> memsched.OptimizeResult:
        return memsched.optimize(
            *(data,),
            target=target,
            budget=budget,
            budget_for=budget_for,
            allow=allowed(tile=tile, remat=remat),
            max_extra_macs=max_extra_macs,
            effort=effort,
            verify=False,
        )

    needed = optimized(None).report["sections"]["requirement"]
    given, reached = needed["given_bytes"], needed["bytes"]
    budgets = _spread(min(given, reached), given, steps)
    wrong = [f"{reached:,} B after {given:,} B"] if reached > given else []
    met: list[int] = []
    for budget in budgets:
        found = optimized(budget)
        required = found.report["sections"]["requirement"]["bytes"]
        if found.budget_met != (required <= budget):
            wrong.append(f"budget {budget:,} B: met is {found.budget_met} at {required:,} B")
        if not found.budget_met and (met or budget >= reached):
            wrong.append(f"budget {budget:,} B: {required:,} B, but {min([reached, *met]):,} B can be had")
        if required > max(given, reached):
            wrong.append(f"budget {budget:,} B: {required:,} B after {given:,} B")
        if found.budget_met:
            met.append(budget)
    return Figures(given, reached, tuple(met), wrong)


def _spread(reached: int, given: int, steps: int) -> Sequence[int]:
    """Return rising budgets: one below what was reached, that, and so on to what is given."""
    low = int(reached * _LOWEST)
    rest = [reached + (given - reached) * step // max(1, steps - 2) for step in range(steps - 1)]
    return [low, *rest]


def _rows(options: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    effort, steps = options.effort, options.steps
    rows = itertools.product(options.models, options.targets, options.permissions, options.budget_for)
    for model, target, permission, kind in rows:
        row = f"{model.name}, {target}, {permission}, {kind}"
        try:
            found = judge(model.read_bytes(), target, permission, effort=effort, steps=steps, budget_for=kind)
        except MemschedError as error:
            yield f"{row}: {error}", []
            continue
        figures = f"{found.given:,} B, {found.reached:,} B, {len(found.met)} of {steps} budgets met"
        yield f"{row}: {figures}", found.wrong


def main() -> int:
    """Judge the models that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--targets", nargs="+", default=["tflm-reference", "tflm"])
    parser.add_argument("--permissions", nargs="+", default=list(PERMISSIONS), choices=PERMISSIONS)
    parser.add_argument("--budget-for", nargs="+", default=["arena", "activations"])
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=12)
    given = parser.parse_args()
    failed = False
    for row, wrong in _rows(given):
        print(row, flush=True)
        for one in wrong:
            failed = True
            print(f"  WRONG: {one}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
