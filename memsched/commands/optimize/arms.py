"""What the driver resumes: rewrites of models, each with its search, and the forms that models have."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from memsched.base.frozen import FrozenValue
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.rewrite import Candidate, Proposals, Rewrite, RewriteBase, Ways
from memsched.runtimes.runtime import Opening
from memsched.search.run import Run

__all__ = ["FIRST_SLICE", "Arm", "Form", "may_follow"]

FIRST_SLICE: Final = 0.01
"""Work of an arm's first slice, as `Limits.effort` counts it."""

_MOST_TURNS: Final = 2
"""How often one rewrite may be done to a model, with others in between."""

_MOST_SEARCHED: Final = 4
"""Rewrites that search, done to one model."""


@dataclass(slots=True, eq=False)
class Arm:
    """One rewrite of one model.

    Attributes:
        base: The model; ``start`` is what the rewrite knows of it.
        maker: The arm that made the base; None for the model as given.
        proposals: The search, which is resumed and never begun again; None until its first slice.
        ways: What proposes.
        found: What was proposed.
        waiting: What promises most of that of which no model was made yet.
        since: Work since models were made.
        refused: What could not be written, and was not yet told to the search.
        unwritable: The first reason why something could not be written; empty if everything could.
        least: The model that requires least of those that were made.
        seconds: That its slices took.
        slice: Work of the next slice.
        work: Done so far.
        longest: The most that it took to resume it once, which cannot be divided.
        placing: Work for the models of one slice, at the most.
        gains: Of each slice: its work, and the fraction by which the best model then required or cost less.
        last: The number of the last slice.
        ended: Nothing is left to look for.
    """

    rewrite: Rewrite
    base: FinalModel
    start: RewriteBase
    maker: Arm | None
    proposals: Proposals | None = None
    ways: list[Ways] = field(default_factory=list)
    found: list[Candidate] = field(default_factory=list)
    waiting: list[Candidate] = field(default_factory=list)
    since: float = 0.0
    refused: dict[tuple[Any, ...], str] = field(default_factory=dict)
    unwritable: str = ""
    least: FinalModel | None = None
    seconds: float = 0.0
    slice: float = FIRST_SLICE
    work: float = 0.0
    longest: float = 0.0
    placing: float = 0.0
    gains: list[tuple[float, float]] = field(default_factory=list)
    last: int = 0
    ended: bool = False

    def begun(self, run: Run) -> Ways | None:
        """Return what proposes, of a search that had no slice, too; None where there is nothing to propose."""
        if self.proposals is None:
            one = next(self.rewrite.candidates(self.start, run), None)
            return None if one is None else one.ways
        return self.ways[0] if self.ways else None

    @property
    def settled(self) -> bool:
        """Whether its last slice gained nothing, so that what it made is worth going on from."""
        return self.ended or (bool(self.gains) and not self.gains[-1][1])

    @property
    def rate(self) -> float:
        """What was gained for each unit of work over the last two slices."""
        work = sum(done for done, _ in self.gains[-2:])
        return sum(gain for _, gain in self.gains[-2:]) / max(work, FIRST_SLICE)

    def promises(self, least: int) -> bool:
        """Whether it has proposed what needs less than so many bytes, of which no model was made yet."""
        return bool(self.waiting) and self.waiting[0].promise < least


class Form(FrozenValue, frozen=True):
    """Another form of the model as given that rewrites go on from, such as what a session executes of it.

    Attributes:
        start: The model as given in this form.
        turn: What gives a model this form.
        ahead: Names of the rewrites after which it may: their work is still there then.
        part: Of the permitted slowdown, with which those are searched as well, apart from other searches: none
            foresees what the form makes of few or of many pieces.
        opening: How a file of this form is opened.
        only: The result has this form; models without it are only ways to it.
    """

    start: FinalModel
    turn: Rewrite
    ahead: frozenset[str]
    part: float
    opening: Opening
    only: bool = False


def may_follow(rewrite: Rewrite, model: FinalModel) -> bool:
    """Whether a rewrite may be done to what others made."""
    searched = [step for step in model.steps if not step.once]
    if rewrite.once:
        return not searched and all(type(step) is not type(rewrite) for step in model.steps)
    if model.steps and type(model.steps[-1]) is type(rewrite):
        return False
    alike = sum(type(step) is type(rewrite) for step in searched)
    return alike < _MOST_TURNS and len(searched) < _MOST_SEARCHED
