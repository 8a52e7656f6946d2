"""CP-SAT is stopped when the caller says so or is interrupted, and a model that it refuses is an error."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from ortools.sat.python import cp_model

from memsched.search import cpsat
from tests.failures import fails


class Slow:
    """Stands for a solver that searches until it has been told to stop often enough."""

    def __init__(self, status: object = cp_model.FEASIBLE, orders: int = 1) -> None:
        self.status = status
        self.orders = orders
        self.given: tuple[object, ...] = ()
        self.stopped = 0
        self.ended = threading.Event()

    def solve(self, *given: object) -> object:
        self.given = given
        assert self.ended.wait(10), "nobody stops the search"
        return self.status

    def stop_search(self) -> None:
        self.stopped += 1
        if self.stopped >= self.orders:
            self.ended.set()


def run(solver: object, model: object, stop: Any, callback: object = None) -> object:
    return cpsat.run(cast("cp_model.CpSolver", solver), cast("cp_model.CpModel", model), stop, callback)


def test_the_status_is_the_solver_s() -> None:
    model = cp_model.CpModel()
    number = model.new_int_var(0, 9, "number")
    model.maximize(number)
    solver = cp_model.CpSolver()
    assert run(solver, model, lambda: False) == cp_model.OPTIMAL
    assert solver.value(number) == 9
    model.add(number >= 10)
    assert run(cp_model.CpSolver(), model, lambda: False) == cp_model.INFEASIBLE


@pytest.mark.parametrize("status", [cp_model.FEASIBLE, cp_model.UNKNOWN])
def test_a_search_ends_when_it_is_stopped(status: object) -> None:
    solver = Slow(status)
    asked = []

    def stop() -> bool:
        asked.append(solver.stopped)
        return len(asked) == 3

    assert run(solver, "model", stop) == status
    assert solver.stopped == 1
    assert solver.given == ("model",)
    assert asked[:3] == [0, 0, 0]


def test_solutions_are_told_to_the_callback() -> None:
    solver = Slow()
    run(solver, "model", lambda: True, "callback")
    assert solver.given == ("model", "callback")


def test_an_interrupt_ends_the_search_and_goes_on() -> None:
    solver = Slow(orders=3)

    def stop() -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(solver, "model", stop)
    assert solver.stopped >= 3
    assert solver.ended.is_set()


def test_a_refused_model_is_an_error_that_says_why() -> None:
    model = cp_model.CpModel()
    model.new_int_var(0, 2**62, "number")
    with fails("solver-refuses", "domain"):
        run(cp_model.CpSolver(), model, lambda: False)
