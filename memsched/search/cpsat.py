"""Running CP-SAT so that interrupts are heard: in another thread, as native code lets no signal handler run."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from memsched.base.errors import InternalError
from memsched.search.limits import POLL_SECONDS

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["new_solver", "run"]


def new_solver(seed: int, *, seconds: float = math.inf, effort: float | None = None) -> cp_model.CpSolver:
    """Return a solver with one worker, so that the result is always the same, which leaves Ctrl-C to `run`.

    Args:
        effort: CP-SAT's deterministic time; None for no limit.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.catch_sigint_signal = False
    if seconds < math.inf:
        solver.parameters.max_time_in_seconds = seconds
    if effort is not None and effort < math.inf:
        solver.parameters.max_deterministic_time = effort
    return solver


def run(
    solver: cp_model.CpSolver, model: cp_model.CpModel, stop: Callable[[], bool], callback: Any = None
) -> cp_model.CpSolverStatus:
    """Solve ``model`` and return the status; end with the best solution so far when ``stop`` says so.

    Args:
        callback: A `CpSolverSolutionCallback` that receives solutions.

    Raises:
        InternalError: CP-SAT does not accept the model.
    """
    from ortools.sat.python import cp_model

    arguments = () if callback is None else (callback,)
    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(solver.solve, model, *arguments)
        try:
            while not wait([running], timeout=POLL_SECONDS).done:
                if stop():
                    solver.stop_search()
        except BaseException:
            while not wait([running], timeout=POLL_SECONDS).done:
                solver.stop_search()
            raise
    status = running.result()
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE, cp_model.UNKNOWN}:
        raise InternalError(f"CP-SAT does not accept the model: {model.validate()}", code="solver-refuses")
    return status
