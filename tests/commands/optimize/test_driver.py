"""The driver: any rewrite is combined with the others, and a limit only ends the search."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.base.errors import InternalError, ModelError
from memsched.commands.optimize.arms import Form
from memsched.commands.optimize.choose import pricing_of, rewrites_of
from memsched.commands.optimize.driver import Driver
from memsched.commands.optimize.executed import executed_of
from memsched.commands.optimize.final_model import FinalModel, rank
from memsched.commands.optimize.permissions import Permissions
from memsched.commands.optimize.place import Request, place, prepare
from memsched.commands.optimize.rewrite import Candidate, Pricing, Proposals, Rewrite, RewriteBase, Turned, Ways
from memsched.commands.optimize.tile import TileRewrite
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.graph.model import Graph
from memsched.rewrites.recompute.cost import judge, work_of
from memsched.rewrites.recompute.rewrite import rematerialise
from memsched.runtimes.runtime import AS_TOLD, Requirement
from memsched.runtimes.sessions import ExecutedModel
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.commands.optimize.test_choose import UNIT, both, skip_connection
from tests.rewrites.tile.random_nets import onnx_net, tflite_net

Way = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class FirstAgain:
    """Computes the first op again before each of the ops that a way names; ``bad`` ones cannot be written."""

    bad: Way = ()
    name = "again"
    described = "the first operator again"
    once = False

    def is_quick(self, base: RewriteBase) -> bool:
        return len(base.given.ops) < 2

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        ways = _Repeated(base, self.bad)
        refused = dict((yield Candidate(ways)) or {})
        left = ways.proposals()
        while left:
            for one in left:
                run.spend(0.01)
                refused |= (yield one) or {}
            refused |= (yield None) or {}
            gone, left = {name for way in refused for name in way}, []
            if gone and not ways.gone:
                ways.gone = gone
                left = ways.proposals()


class _Repeated(Ways):
    def __init__(self, base: RewriteBase, bad: Way) -> None:
        super().__init__(base.executed)
        self.base, self.bad, self.gone = base, bad, set[str]()

    def proposals(self) -> list[Candidate]:
        found = []
        for way in (("m",), ("y",), ("n", "y"), ("w", "n", "y")):
            if self.gone.isdisjoint(way):
                point = judge(self.graph, self.sequence(way), self.base.prepared.target, self.base.dialect)
                work = Fraction(point.cost, work_of(self.graph).total)
                # As if each repetition saved a byte more: ways of many parts are tried first.
                found.append(Candidate(self, way, point.peak - len(way), work, point.extra_macs))
        return found

    def sequence(self, way: Way) -> list[int]:
        return [one for number, op in enumerate(self.graph.ops) for one in ((0,) if op.name in way else ()) + (number,)]

    def build(self, way: Way) -> Graph:
        if set(way) & set(self.bad):
            raise ModelError(f"no file holds it before {', '.join(sorted(set(way) & set(self.bad)))}")
        return rematerialise(self.graph, self.sequence(way), self.base.dialect).graph


class Failing:
    """Proposes nothing but an error."""

    name = described = "fails"
    once = False

    def is_quick(self, base: RewriteBase) -> bool:
        del base
        return False

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        del run
        yield Candidate(Ways(base.given))
        raise InternalError("on purpose")


def start(data: bytes, target: str = "ideal", path: str = "net.onnx") -> FinalModel:
    module = load_module(data, path, LoadOptions())
    prepared = prepare(module, load_target(target), in_place=False)
    return FinalModel(module, data, prepared, place(module, prepared, request()))


def request(effort: float | None = None) -> Request:
    return Request(Run(Limits(None, effort=effort)))


def driven(
    given: FinalModel, *rewrites: Rewrite, effort: float | None = None, budget: int | None = None
) -> tuple[Driver, FinalModel]:
    driver = Driver(given, rewrites, request(effort), Pricing(100.0), budget)
    return driver, driver.run()


@pytest.fixture(scope="module")
def skip() -> FinalModel:
    return start(skip_connection())


def test_any_rewrite_is_written_read_back_and_placed(skip: FinalModel) -> None:
    driver, best = driven(skip, FirstAgain())
    assert skip.placed.required > 3 * UNIT >= best.placed.required
    assert {op.origin for op in best.module.graph.ops} == {None, "a"}
    assert best.made is not None
    assert best.names == ("again",)
    assert best.extra_work == best.made.work
    assert best.extra_macs == best.made.extra_macs
    assert driver.ended


def test_what_cannot_be_written_is_told_and_the_rest_is_tried(skip: FinalModel) -> None:
    driver, best = driven(skip, FirstAgain(bad=("n", "w")), budget=1)
    assert best.made is not None
    assert best.made.way == ("y",)
    (arm,) = [arm for arm in driver.arms if arm.base is skip]
    # Of the first way, three parts: each that is at fault is found by itself, and with it go all ways that have it.
    (ways,) = arm.ways
    assert isinstance(ways, _Repeated)
    assert ways.gone >= {"n", "w"}


def test_where_nothing_can_be_written_the_model_stays(skip: FinalModel) -> None:
    _, best = driven(skip, FirstAgain(bad=("m", "w", "n", "y")))
    assert best is skip


def test_an_arm_that_fails_is_left_out_and_the_run_goes_on(skip: FinalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMSCHED_DEFECTS", raising=False)
    driver, best = driven(skip, Failing(), FirstAgain())
    assert best.names == ("again",)
    (failure,) = driver.request.failures.found
    assert failure.what == "fails"
    assert "on purpose" in failure.reason


def test_a_rewrite_from_outside_is_combined_with_the_others() -> None:
    given = start(both())
    driver, _ = driven(given, TileRewrite(), FirstAgain(), effort=2.0)
    assert any(base and rewrite == FirstAgain() for rewrite, base, _ in driver.sequence)


def test_exact_figures_rank(skip: FinalModel) -> None:
    """Work that is none once it is rounded is work, and of models that require the same the one with less is better."""
    required = skip.placed.required
    some, more = (dataclasses.replace(skip, extra_work=Fraction(1, 10**9 - one)) for one in (0, 1))
    for budget in (None, required - 1, required):
        assert rank(skip, budget) < rank(some, budget) < rank(more, budget)
    placed = dataclasses.replace(skip.placed, requirement=Requirement(required - 1))
    less = dataclasses.replace(more, placed=placed)
    assert rank(less, None) < rank(skip, None)
    assert rank(skip, required) < rank(less, required)
    assert rank(less, required - 1) < rank(skip, required - 1)


NETS = {"onnx": (onnx_net, "onnxruntime", "net.onnx"), "tflite": (tflite_net, "tflm", "net.tflite")}


def with_everything(given: FinalModel, effort: float, budget: int | None = None) -> tuple[Driver, FinalModel]:
    permitted, limits = Permissions(tile=True, remat=True, algebra=True, extra_percent=60.0), request(effort)
    driver = Driver(given, rewrites_of(permitted), limits, pricing_of(permitted, limits, budget), budget)
    return driver, driver.run()


@pytest.mark.parametrize("kind", NETS)
@settings(max_examples=4)
@given(seed=st.integers(0, 500), efforts=st.lists(st.sampled_from([0.1, 0.3, 0.6, 1.2]), min_size=2, max_size=2))
def test_more_effort_is_a_longer_run_of_the_same_kind(kind: str, seed: int, efforts: Sequence[float]) -> None:
    make, target, path = NETS[kind]
    given = start(make(seed), target, path)
    (short, less), (long, more) = (with_everything(given, effort) for effort in sorted(efforts))
    assert long.sequence[: len(short.sequence)] == short.sequence
    assert rank(more, None) <= rank(less, None)


@settings(max_examples=4)
@given(seed=st.integers(0, 500), shares=st.lists(st.integers(30, 95), min_size=2, max_size=2))
def test_a_larger_budget_is_met_at_no_higher_cost(seed: int, shares: Sequence[int]) -> None:
    given = start(onnx_net(seed), "ideal")
    tight, wide = (given.placed.required * share // 100 for share in sorted(shares))
    (_, less), (_, more) = (with_everything(given, 0.4, budget) for budget in (tight, wide))
    if less.placed.required <= tight:
        assert more.placed.required <= wide
        assert more.extra_work <= less.extra_work


def test_a_model_that_meets_the_budget_for_nothing_ends_the_search(skip: FinalModel) -> None:
    driver, best = driven(skip, FirstAgain(), budget=skip.placed.required)
    assert best is skip
    assert not driver.sequence


@dataclasses.dataclass(frozen=True)
class Turning:
    """Gives a model another form, in which it is what it was."""

    start: FinalModel
    name = "turned"
    described = "another form"
    once = False

    def is_quick(self, base: RewriteBase) -> bool:
        del base
        return False

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        run.spend(0.01)
        ways = _Turning(base, self.start)
        yield Candidate(ways)
        yield Candidate(ways, (self.name,))


class _Turning(Ways):
    def __init__(self, base: RewriteBase, start: FinalModel) -> None:
        super().__init__(base.given)
        self.start = start

    def write(self, base: RewriteBase, way: Way, go_on: Callable[[], None]) -> tuple[Module, bytes]:
        del way
        go_on()
        self.turned = Turned(executed_of(self.start), self.start.module, self.start.prepared, 0.0)
        return base.module, base.data


def in_another_form(given: FinalModel, *, only: bool) -> Form:
    executed = ExecutedModel(given.data, LoadOptions(), "all", None, "", {})
    turned = dataclasses.replace(given, executed=executed)
    return Form(turned, Turning(turned), frozenset({"again"}), 0.5, AS_TOLD, only)


def test_rewrites_before_and_after_another_form_are_tried(skip: FinalModel) -> None:
    form = in_another_form(skip, only=True)
    driver = Driver(skip, (FirstAgain(),), request(), Pricing(100.0), form=form)
    best = driver.run()
    assert best.executed is not None
    assert best.placed.required < skip.placed.required
    (turned,) = [arm for arm in driver.arms if arm.rewrite.name == "turned"]
    assert turned.base.names == ("again",)
    assert turned.least is not None
    assert turned.least.placed.required == best.placed.required


def test_the_best_of_both_forms_is_known(skip: FinalModel) -> None:
    alone = Driver(skip, (FirstAgain(),), request(), Pricing(100.0)).run()
    driver = Driver(skip, (FirstAgain(),), request(), Pricing(100.0), form=in_another_form(skip, only=False))
    driver.run()
    turned = driver.best_of_form()
    assert driver.best_of_given().placed.required == alone.placed.required
    assert driver.best_of_given().executed is None
    assert turned is not None
    assert turned.executed is not None
    assert turned.placed.required == alone.placed.required
