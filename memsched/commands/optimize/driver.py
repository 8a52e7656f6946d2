"""How rewrites are searched and combined: one loop that gives each rewrite of each model slices of work.

A rewrite of a base is an arm. Which arm goes on next, and for how long, depends on what the slices before gave, and on
nothing else: a limit only ends the loop, so that more work is a longer run of the same kind. What an arm proposes is
written, read back and placed; what is placed may be the base of other rewrites.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from memsched.commands.optimize.arms import FIRST_SLICE, Arm, Form, may_follow
from memsched.commands.optimize.final_model import FinalModel, base_of, met, rank
from memsched.commands.optimize.place import GivenUpError, Request
from memsched.commands.optimize.placing import StoredModel, UnwritableError, expected, placed, stored
from memsched.commands.optimize.rewrite import Candidate, Pricing, Rewrite
from memsched.runtimes.runtime import Opening

__all__ = ["Driver"]

_LARGEST_SLICE: Final = 4.0

_SLICE_SHARE: Final = 0.125
"""Most of the work done so far that a slice may add: what does not fit into a limit ends the loop."""

_TURN_OF_THE_LONGEST: Final = 8
"""Each slice of this number goes to the arm that has waited longest."""

_MOST_BASES: Final = 3
"""Models, the best ones, that rewrites go on from, beside the one given."""

_DEPTH: Final = 4
"""How many times as much work arms of a model that gain nothing have as those of what it led to."""

_MOST_STORED: Final = 2
"""Proposals of a slice, those that promise most, that are written to learn what they require."""

_PLACING: Final = 0.1
"""Work for the order and the addresses of one model, as a part of all that was done so far."""

_LEAST_PLACING: Final = 0.01
_MOST_PLACING: Final = 0.5

_PATIENCE: Final = 3.0
"""Work without a gain, as a multiple of all work up to the last gain, after which the search ends by itself."""

_PATIENCE_PER_OP: Final = 0.15
"""The least of that, for each op of the model as given."""

_QUICK_SECONDS: Final = 1.0
"""For the order and the addresses of what is quick at least: they end by themselves, nearly always long before."""

_MOST_SELECTED: Final = 8
"""Proposals that are written to meet a budget with less extra work."""


class Driver:
    """Searches what a model may become.

    Args:
        given: The model as given, in the best order found.
        rewrites: Cheaper ones first.
        request: How orders and addresses are found, and within which limits.
        pricing: What may be spent.
        budget: Bytes that a model may require: then the least work that meets it is the result. The search goes as
            without one, so that whatever is reached without one meets every budget as large.
        cheaper: Rewrites that are tried as well where it was met, for less work.
        form: Another form of the model that is searched, too.

    Attributes:
        models: All that were placed, with the one given.
        arms: All that there are.
        sequence: Of each slice: the rewrite, those that led to its base, and the work.
        ended: No limit ended the search: nothing was left to look for, or nothing was found for long.
    """

    def __init__(
        self,
        given: FinalModel,
        rewrites: Sequence[Rewrite],
        request: Request,
        pricing: Pricing,
        budget: int | None = None,
        cheaper: Sequence[Rewrite] = (),
        form: Form | None = None,
    ) -> None:
        self.given, self.rewrites, self.request = given, tuple(rewrites), request
        self._pricing, self._budget, self._cheaper, self._form = pricing, budget, tuple(cheaper), form
        # A search apart, with less time, is one of a model of its own.
        self._apart = None if form is None or pricing.slowdown is None else dataclasses.replace(given)
        starts = (given, self._apart, None if form is None else form.start)
        self._starts = tuple(one for one in starts if one is not None)
        self._start_of = {id(one): one for one in self._starts}
        self.models = list(self._starts)
        self.arms: list[Arm] = []
        self.sequence: list[tuple[Rewrite, tuple[Rewrite, ...], float]] = []
        self._made_by: dict[int, tuple[Arm, ...]] = {id(start): () for start in self._starts}
        self._begun = request.run.meter.done
        self._slices = 0
        self._gained, self._cheaply = 0.0, False
        self._patience = _PATIENCE_PER_OP * len(given.module.graphs[0].ops)
        self.ended = False
        for start in self._starts:
            self._open(start, None, self.rewrites)

    def run(self) -> FinalModel:
        """Search until a limit ends it or nothing is left; return the best model, and the cheapest within a budget."""
        self._search()
        if self._budget is not None and self._cheaper and met(self.best, self._budget):
            self._cheaply, self._gained = True, self._done
            self._open_all(self._cheaper)
            self._search()
        if self._budget is not None:
            self._select(self._budget)
        return self.best

    def _search(self) -> None:
        self.ended = False
        while not self._over():
            arm = self._next()
            if arm is None:
                self.ended = True
                break
            if not self._fits(arm):
                break
            self._resume(arm)
        if self.request.run.limits.effort is None or self.request.stopped():
            for arm in [arm for arm in self.arms if arm.waiting]:
                with self.request.failures.left_out(arm.rewrite.described):
                    self._take(arm)

    @property
    def best(self) -> FinalModel:
        """What meets the budget with the least extra work; of what does not, what requires least."""
        return self._best(self._budget)

    def _best(self, budget: int | None) -> FinalModel:
        starts = [] if self._form is not None and self._form.only else [self.given]
        starts += [] if self._form is None else [self._form.start]
        return min((self._best_from(start, budget) for start in starts), key=lambda one: rank(one, budget))

    def _best_from(self, start: FinalModel, budget: int | None) -> FinalModel:
        """Return the best of what was made of one start."""
        # Fewer operators alone are no reason for another file.
        most = start.placed.required
        alike = (one for one in self.models if self.start_of(one) is start)
        return min(
            (one for one in alike if one is start or one.placed.required < most), key=lambda one: rank(one, budget)
        )

    def best_within(self, start: FinalModel, most: Fraction) -> FinalModel:
        """Return what requires least of all that can be made of a start with no more than so much extra work."""
        arms = [arm for arm in self.arms if self.start_of(arm.base) is start and not self._turns(arm)]
        promised = [(arm, one) for arm in arms for one in arm.found if _total(arm, one) <= most]
        for arm, one in sorted(promised, key=lambda pair: pair[1].promise)[:_MOST_STORED]:
            made = self._as_stored(arm, one)
            if made is not None:
                self._placed(arm, made)
        alike = (one for one in self.models if self.start_of(one) is start and one.extra_work <= most)
        return min(alike, key=lambda one: rank(one, None))

    def best_of_form(self) -> FinalModel | None:
        """Return the best model in the other form; None if there is no such form."""
        return None if self._form is None else self._best_from(self._form.start, self._budget)

    def best_of_given(self) -> FinalModel:
        """Return the best model in the form of the one given."""
        return self._best_from(self.given, self._budget)

    def start_of(self, model: FinalModel) -> FinalModel:
        """Return the model as given that another one was made of, in its form."""
        return self._start_of[id(model)]

    @property
    def _aim(self) -> int | None:
        """The budget, if it is met and less work is sought; until then it decides nothing, so that all are alike."""
        return self._budget if self._cheaply else None

    def arms_of(self, model: FinalModel) -> Iterator[Arm]:
        """Yield the arms of a model."""
        return (arm for arm in self.arms if arm.base is model)

    def makers_of(self, model: FinalModel) -> tuple[Arm, ...]:
        """Return the arms that led to a model, the first one first; () for the one given."""
        return self._made_by[id(model)]

    # Which arm ---------------------------------------------------------------------------------------------------

    def _over(self) -> bool:
        if self.request.stopped() or self.request.run.effort() == 0:
            return True
        best = self.best
        return met(best, self._budget) and best.extra_work == 0

    @property
    def _scores(self) -> list[float]:
        """What falls while the search gains, of each form: bytes, and then, within the budget, the extra work."""
        best = [self._best_from(start, self._aim) for start in self._starts]
        return [float(one.extra_work) if self._cheaply else float(one.weight) for one in best]

    @property
    def _done(self) -> float:
        """The work since the search began."""
        return self.request.run.meter.done - self._begun

    def _idle(self) -> bool:
        """Whether so much was done without a gain that more is not worth the while."""
        return self._done - self._gained > max(self._patience, _PATIENCE * self._gained)

    def _fits(self, arm: Arm) -> bool:
        """Whether the limit of work permits the next slice of an arm, which is not divided."""
        left = self.request.run.effort()
        # A search that cannot be divided may take twice as much as before.
        return left is None or max(self._slice(arm), 2 * arm.longest) + arm.placing <= left

    def _slice(self, arm: Arm) -> float:
        return min(arm.slice, max(FIRST_SLICE, _SLICE_SHARE * self._done))

    def _next(self) -> Arm | None:
        """Return the arm that goes on: untried ones first, then what gained most for its work, but each in its turn.

        Once the time is up, or nothing was gained for long, only what is quick goes on.
        """
        bases = self._bases()
        arms = [arm for arm in self.arms if self._is_open(arm, bases)]
        if self.request.over() or self._idle():
            arms = [arm for arm in arms if arm.rewrite.is_quick(arm.start)]
        untried = [arm for arm in arms if not arm.gains]
        if untried:
            return min(untried, key=lambda arm: -1 if self._turns(arm) else self.rewrites.index(arm.rewrite))
        if not arms:
            return None
        if self._slices % _TURN_OF_THE_LONGEST == _TURN_OF_THE_LONGEST - 1:
            return min(arms, key=lambda arm: arm.last)
        least = {id(start): self._best_from(start, None).weight for start in self._starts}

        def rank_of(arm: Arm) -> tuple[bool, float, float]:
            aim = least[id(self._form_made(arm))]
            return arm.promises(aim), arm.rate, -arm.work * _DEPTH ** len(arm.base.steps)

        return max(arms, key=rank_of)

    def _turns(self, arm: Arm) -> bool:
        return self._form is not None and arm.rewrite is self._form.turn

    def _form_made(self, arm: Arm) -> FinalModel:
        """Return the model as given in the form of those that an arm makes."""
        return self._form.start if self._form is not None and self._turns(arm) else self.start_of(arm.base)

    def _bases(self) -> set[int]:
        """Return the models that rewrites go on from: the best of each form, by what they require."""
        ranked = sorted(self.models, key=lambda one: rank(one, self._aim))
        standing = [one for one in self.models if one.made is not None and one.made.ways.stands]
        best = [[one for one in ranked if self.start_of(one) is start][:_MOST_BASES] for start in self._starts]
        return {id(one) for one in (*self._starts, *standing, *itertools.chain(*best))}

    def _is_open(self, arm: Arm, bases: set[int]) -> bool:
        if arm.ended or id(arm.base) not in bases or (arm.maker is not None and not arm.maker.settled):
            return False
        return not any(self._better_base(model, arm) for model in self.models)

    def _better_base(self, model: FinalModel, arm: Arm) -> bool:
        """Whether an arm's rewrite is better done to another model, which costs no more."""
        base = arm.base
        if model is base or model.extra_work > base.extra_work or not self._may_follow(arm.rewrite, model):
            return False
        if self.start_of(model) is not self.start_of(base):
            return False
        if base.before is not None and base.weight > base.before.weight:
            # It is half of a rewrite, and nothing by itself.
            return False
        if arm in self._made_by[id(model)] or arm.rewrite.name in model.names[len(base.names) :]:
            return False
        stands = model.made is not None and model.made.ways.stands
        return model.weight < base.weight or (stands and model.weight == base.weight and model.before is base)

    # What it does ------------------------------------------------------------------------------------------------

    def _may_follow(self, rewrite: Rewrite, model: FinalModel) -> bool:
        """Whether a rewrite may be done to a model, for what may come of it."""
        form = self._form
        if form is not None and model.executed is None:
            if rewrite is form.turn:
                return bool(model.steps) and form.ahead.issuperset(model.names)
            if (form.only or self.start_of(model) is self._apart) and rewrite.name not in form.ahead:
                return False
        return (form is None or rewrite is not form.turn) and may_follow(rewrite, model)

    def _open(self, model: FinalModel, maker: Arm | None, rewrites: Sequence[Rewrite]) -> None:
        turn = () if self._form is None else (self._form.turn,)
        for rewrite in (*turn, *rewrites):
            if self._may_follow(rewrite, model):
                start = base_of(model, self._pricing_of(model), self._opening_of(self.start_of(model)))
                self.arms.append(Arm(rewrite, model, start, maker))

    def _opening_of(self, start: FinalModel) -> Opening:
        """Return how a file is opened that was made of a start."""
        form = self._form
        return self.request.opening if form is None or start is not form.start else form.opening

    def _pricing_of(self, model: FinalModel) -> Pricing:
        """Return what may be spent on the start that a model was made of."""
        form, slowdown = self._form, self._pricing.slowdown
        if form is None or slowdown is None or self.start_of(model) is not self._apart:
            return self._pricing
        return dataclasses.replace(self._pricing, slowdown=slowdown * form.part)

    def _open_all(self, rewrites: Sequence[Rewrite]) -> None:
        """Try further rewrites of the model as given, and of those that stand for it."""
        for model in list(self.models):
            if any(model is one for one in self._starts) or (
                model.made is not None and model.made.ways.stands and not model.extra_work
            ):
                self._open(model, None, rewrites)
        self.rewrites = (*self.rewrites, *rewrites)

    def _resume(self, arm: Arm) -> None:
        """Give an arm its next slice, and make models of what it proposes."""
        run, before, scores = self.request.run, self.request.run.meter.done, self._scores
        since = run.elapsed()
        work = self._slice(arm)
        failed = True
        with self.request.failures.left_out(arm.rewrite.described):
            fresh, asks = self._proposed(arm, work)
            begun = run.meter.done
            arm.since += begun - before
            arm.waiting = sorted((*arm.waiting, *fresh), key=lambda one: (one.promise, one.work))[:_MOST_STORED]
            # A model is made once the search for it took as long.
            asks = asks or arm.ended or self.request.stopped()
            if arm.waiting and (asks or arm.since >= expected(arm.waiting[0])):
                self._take(arm)
            arm.placing = max(arm.placing, run.meter.done - begun)
            failed = False
        arm.ended = arm.ended or failed
        done = run.meter.done - before
        gain = max((score - now) / max(score, 1e-9) for score, now in zip(scores, self._scores, strict=True))
        arm.work += done
        arm.seconds += run.elapsed() - since
        arm.gains.append((done, gain))
        self.sequence.append((arm.rewrite, arm.base.steps, work))
        self._slices += 1
        arm.last = self._slices
        # What could not be written makes way for something else.
        self._gained = self._done if gain or arm.refused else self._gained
        arm.slice = min(_LARGEST_SLICE, arm.slice if gain else 2 * arm.slice)

    def _proposed(self, arm: Arm, work: float) -> tuple[list[Candidate], bool]:
        """Resume an arm's search for so much work; return what it proposes, and whether it asks what became of it."""
        request = self.request
        meter, fresh = request.run.meter, list[Candidate]()
        until = meter.done + work
        quick = arm.rewrite.is_quick(arm.start)
        if arm.proposals is None:
            stop = request.stopped if quick else lambda: request.stopped() or request.late()
            quiet = dataclasses.replace(request.run, stop=stop)
            arm.proposals = arm.rewrite.candidates(arm.start, quiet)
            arm.ended = not self._step(arm, fresh, first=True)
        while not arm.ended and meter.done < until and not (request.stopped() or (request.late() and not quick)):
            before, known = meter.done, len(fresh)
            arm.ended = not self._step(arm, fresh)
            if (fresh or arm.waiting) and len(fresh) == known and meter.done == before:
                return fresh, True
        return fresh, False

    def _step(self, arm: Arm, fresh: list[Candidate], *, first: bool = False) -> bool:
        """Resume an arm's search until it yields; return whether it did."""
        if arm.proposals is None:
            return False
        before, refused = self.request.run.meter.done, arm.refused
        arm.refused = {}
        try:
            one = next(arm.proposals) if first else arm.proposals.send(refused or None)
        except StopIteration:
            return False
        finally:
            arm.longest = max(arm.longest, self.request.run.meter.done - before)
        if one is not None:
            if one.ways not in arm.ways:
                arm.ways.append(one.ways)
            if one.way:
                arm.found.append(one)
                fresh.append(one)
        return True

    def _take(self, arm: Arm) -> None:
        """Make models of the proposals that promise most."""
        first, *others = arm.waiting
        arm.waiting, arm.since = [], 0.0
        most, stands = self._best_from(self._form_made(arm), None).weight, first.ways.stands
        if self._form is not None and arm.least is None:
            # What other searches led to has an order of its own, which makes less of a model than is promised.
            most = max(most, arm.base.weight)
        tried = [first, *(one for one in others if one.promise < most)]
        known = [made for one in tried if (made := self._as_stored(arm, one)) is not None]
        least: int | None = None
        for made in sorted(known, key=lambda one: one.plan.requirement.rank):
            promise = made.candidate.promise
            worth = stands or min(promise, made.plan.requirement.weight) < most
            if worth and (least is None or promise < least):
                found = self._placed(arm, made)
                if found is not None:
                    least = found.weight if least is None else min(least, found.weight)

    def _as_stored(self, arm: Arm, candidate: Candidate) -> StoredModel | None:
        """Return the model of a proposal as its file is read; None where it cannot be written."""
        try:
            return stored(arm.start, candidate, self._asked(arm))
        except UnwritableError as error:
            arm.refused.update(error.reasons)
            arm.unwritable = arm.unwritable or str(error)
        except GivenUpError:
            pass
        return None

    def _asked(self, arm: Arm) -> Request:
        """Return a request for one model, which is done as well as time permits if it is the first, or quick."""
        request = dataclasses.replace(self.request, opening=self._opening_of(self._form_made(arm)))
        run, limit = request.run, request.run.limits.time_limit
        if not arm.rewrite.is_quick(arm.start):
            return request.as_optional(needed=len(self.models) == 1)
        if limit is not None:
            limits = dataclasses.replace(run.limits, time_limit=max(limit, run.elapsed() + _QUICK_SECONDS))
            run = dataclasses.replace(run, limits=limits)
        return dataclasses.replace(request, run=run, end=math.inf).as_optional(needed=True)

    def _placed(self, arm: Arm, made: StoredModel) -> FinalModel | None:
        work = max(_LEAST_PLACING, min(_PLACING * self._done, _MOST_PLACING))
        request = self._asked(arm)
        run = request.run
        limits = dataclasses.replace(run.limits, effort=work)
        request = dataclasses.replace(request, run=dataclasses.replace(run, limits=limits, done_before=run.meter.done))
        try:
            found = placed(arm.base, arm.start, made, request)
        except GivenUpError:
            return None
        found = dataclasses.replace(found, steps=(*arm.base.steps, arm.rewrite))
        if arm.least is None or found.weight < arm.least.weight:
            arm.least = found
        stands = made.candidate.ways.stands
        self._start_of[id(found)] = self._form_made(arm)
        alike = (one for one in self.models if self.start_of(one) is self.start_of(found))
        if stands or not any(_as_good(one, found) for one in alike):
            self._made_by[id(found)] = (*self._made_by[id(arm.base)], arm)
            self.models.append(found)
            self._open(found, None if stands else arm, self.rewrites)
        return found

    # With a budget -----------------------------------------------------------------------------------------------

    def _select(self, budget: int) -> None:
        """Make models of proposals that may meet the budget with less work than what is known to meet it."""
        arms = [arm for arm in self.arms if not self._turns(arm)]
        promised = [(arm, one) for arm in arms for one in arm.found if one.promise <= budget]
        ranked = sorted(promised, key=lambda pair: (_total(*pair), pair[1].promise))
        for arm, one in ranked[:_MOST_SELECTED]:
            best = self.best
            if self.request.late() or self.request.stopped():
                return
            if met(best, budget) and best.extra_work <= _total(arm, one):
                return
            made = self._as_stored(arm, one)
            if made is not None and made.plan.required <= budget:
                self._placed(arm, made)


def _as_good(model: FinalModel, other: FinalModel) -> bool:
    """Whether a model requires no more than another one, and costs no more."""
    return model.weight <= other.weight and model.extra_work <= other.extra_work


def _total(arm: Arm, candidate: Candidate) -> Fraction:
    """Return the extra work of a proposal, as a part of that of the model as given."""
    done = arm.base.extra_work
    return done + (1 + done) * candidate.work
