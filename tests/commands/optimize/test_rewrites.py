"""One way from any rewrite to its best model: a third kind of it, made here, is taken through all of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import pytest

import memsched
from memsched.commands.optimize.candidates import Lookout
from memsched.commands.optimize.place import Request, place, prepare
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import RewriteBase, RewritePoint
from memsched.commands.optimize.rewritten import RewriteResult, RewriteRun, attempt, rank
from memsched.errors import ModelError
from memsched.formats.module import LoadOptions
from memsched.graph.border import Border
from memsched.graph.model import Graph
from memsched.remat.cost import judge, work_of
from memsched.remat.rewrite import rematerialise
from memsched.runtimes.runtime import Requirement
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.commands.optimize.test_choose import UNIT, skip_connection

Way = tuple[str, ...]


@dataclasses.dataclass
class FirstAgain:
    """Computes the first op again before each of the ops that a way names; ``bad`` ones cannot be written."""

    base: RewriteBase
    bad: Way = ()
    rounds: int = 1
    share: float = 0.5
    small: bool = True
    told_as_stored: bool = False
    proven: bool = False
    looks: None = None
    finished: bool = True
    searches: int = 0
    dropped: dict[Way, str] = dataclasses.field(default_factory=dict)
    used: RewritePoint[str] | None = None
    extra_macs: int = -1

    @property
    def graph(self) -> Graph:
        return self.base.executed

    @property
    def total(self) -> int:
        return work_of(self.graph).total

    def sequence(self, way: Way) -> list[int]:
        """Return the executions, as ops of the graph."""
        return [one for number, op in enumerate(self.graph.ops) for one in ((0,) if op.name in way else ()) + (number,)]

    def search_out(self) -> Sequence[RewritePoint[str]]:
        found = []
        for way in (("m",), ("y",), ("n", "y"), ("w", "n", "y")):
            if not any(set(one) <= set(way) for one in self.dropped):
                point = judge(self.graph, self.sequence(way), self.base.prepared.target, self.base.dialect)
                # As if each repetition saved a byte more: ways of many parts are tried first.
                found.append(RewritePoint(point.peak - len(way), point.cost, point.extra_macs, way))
        return found

    def resume(self, request: Request) -> None:
        pass

    def search(
        self, meets: Callable[[RewritePoint[str]], bool], lookout: Lookout[RewritePoint[str]] | None
    ) -> Sequence[RewritePoint[str]]:
        self.searches += 1
        return self.search_out()

    def goes_on(self, seconds: float) -> bool:
        self.rounds -= 1
        return self.rounds > 0

    def drop(self, reasons: Mapping[Way, str], *, last: bool) -> None:
        assert not last
        self.dropped.update(reasons)

    def parts(self, way: Way) -> Sequence[Way]:
        return [(one,) for one in way]

    def coarser(self, part: Way) -> Sequence[Way]:
        del part
        return ()

    def build(self, way: Way) -> Graph:
        if set(way) & set(self.bad):
            raise ModelError(f"no file holds it before {', '.join(sorted(set(way) & set(self.bad)))}")
        return rematerialise(self.graph, self.sequence(way), self.base.dialect).graph

    def borders(self, way: Way) -> tuple[Border, ...]:
        del way
        return ()

    def cost(self, point: RewritePoint[str]) -> int:
        return point.work

    def describe(
        self,
        before: Rewrites,
        used: RewritePoint[str] | None,
        extra_macs: int,
    ) -> Rewrites:
        self.used, self.extra_macs = used, extra_macs
        return before


@pytest.fixture(scope="module")
def base() -> RewriteBase:
    module = memsched.load(skip_connection())
    prepared = prepare(module, load_target("ideal"), in_place=False)
    return RewriteBase(module, prepared, place(module, prepared, request()), LoadOptions())


def request() -> Request:
    return Request(Run(Limits(None)))


def applied(rewrite: FirstAgain, base: RewriteBase, budget: int | None) -> RewriteResult:
    run = RewriteRun(lambda *_: rewrite, base, request(), percent=100.0, budget=budget)
    run.go_on(request(), until_met=False)
    return run.result(Rewrites())


def test_any_rewrite_is_written_read_back_and_placed(base: RewriteBase) -> None:
    rewrite = FirstAgain(base)
    result = applied(rewrite, base, None)
    assert result.model is not None
    assert result.model.placed.required < base.placed.required
    assert base.placed.required > 3 * UNIT >= result.model.placed.required
    assert {op.origin for op in result.model.module.graph.ops} == {None, "a"}
    assert rewrite.used is not None
    assert result.extra_work == Fraction(rewrite.used.work, rewrite.total)
    assert rewrite.extra_macs == result.model.extra_macs == rewrite.used.extra_macs


def test_what_cannot_be_written_is_dropped_and_the_rest_is_tried(base: RewriteBase) -> None:
    rewrite = FirstAgain(base, bad=("n", "w"))
    result = applied(rewrite, base, 1)
    # Of the first way, three parts: each that is at fault is found by itself, and with it go all ways that have it.
    assert rewrite.dropped == {("w",): "no file holds it before w", ("n",): "no file holds it before n"}
    assert rewrite.searches == 2
    assert result.model is not None
    assert rewrite.used is not None
    assert rewrite.used.way == ("y",)


def test_where_nothing_can_be_written_there_is_no_model(base: RewriteBase) -> None:
    rewrite = FirstAgain(base, bad=("m", "w", "n", "y"))
    result = applied(rewrite, base, None)
    assert result == dataclasses.replace(result, model=None, extra_work=Fraction(0))
    assert rewrite.used is None
    assert rewrite.extra_macs == 0
    assert attempt(lambda *_: FirstAgain(base, bad=("m", "w", "n", "y")), base, request(), request(), percent=9) is None


def test_a_search_goes_on_as_often_as_it_asks_for(base: RewriteBase) -> None:
    budget = base.placed.required - 1
    rewrite = FirstAgain(base, rounds=3)
    applied(rewrite, base, budget)
    assert rewrite.searches == 3


def test_a_trial_takes_the_least_peak_of_one_search(base: RewriteBase) -> None:
    rewrite = FirstAgain(base)
    model = attempt(lambda *_: rewrite, base, request(), request(), percent=100.0)
    last = rewrite.search_out()[-1]
    assert model is not None
    assert last.way == ("w", "n", "y")
    assert model.extra_macs == last.extra_macs
    assert rewrite.searches == 0


def test_exact_figures_rank(base: RewriteBase) -> None:
    """Work that is none once it is rounded is work, and of models that require the same the one with less is better."""
    placed, over = base.placed, base.placed.required - 1
    some, more = Fraction(1, 10**9), Fraction(1, 10**9 - 1)
    within = base.placed.required
    for budget in (None, over, within):
        assert rank(placed, Fraction(0), budget) < rank(placed, some, budget) < rank(placed, more, budget)
    less = dataclasses.replace(placed, requirement=Requirement(placed.required - 1))
    assert rank(less, more, None) < rank(placed, Fraction(0), None)
    assert rank(placed, Fraction(0), within) < rank(less, some, within)
    assert rank(less, more, over) < rank(placed, Fraction(0), over)


def test_a_search_that_is_to_end_once_the_budget_is_met_goes_on_where_it_was_left(base: RewriteBase) -> None:
    rewrite = FirstAgain(base, rounds=4)
    run = RewriteRun(lambda *_: rewrite, base, request(), percent=100.0, budget=base.placed.required - 1)
    run.go_on(request(), until_met=True)
    assert rewrite.searches == 1
    met = run.result(Rewrites()).model
    assert met is not None
    assert not run.settled(request())
    run.go_on(request(), until_met=False)
    assert rewrite.searches == 4
    again = run.result(Rewrites()).model
    assert again is not None
    assert again.placed.required <= base.placed.required - 1
