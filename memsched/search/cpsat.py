"""Running CP-SAT so that interrupts are heard: in another thread, as native code lets no signal handler run."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

from memsched.errors import InternalError

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["run"]

_POLL_SECONDS = 0.05


def run(
    solver: cp_model.CpSolver, model: cp_model.CpModel, stop: Callable[[], bool], callback: Any = None
) -> cp_model.CpSolverStatus:
    """Solve ``model`` and return the status; end with the best solution so far when ``stop`` says so.

    Args:
        callback: A `CpSolverSolutionCallback` that is told of solutions.

    Raises:
        InternalError: CP-SAT does not accept the model.
    """
    from ortools.sat.python import cp_model

    arguments = () if callback is None else (callback,)
    with ThreadPoolExecutor(max_workers=1) as pool:
        running = pool.submit(solver.solve, model, *arguments)
        try:
            while not wait([running], timeout=_POLL_SECONDS).done:
                if stop():
                    solver.stop_search()
        except BaseException:
            while not wait([running], timeout=_POLL_SECONDS).done:
                solver.stop_search()
            raise
    status = running.result()
    if status not in {cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.INFEASIBLE, cp_model.UNKNOWN}:
        raise InternalError(f"CP-SAT does not accept the model: {model.validate()}")
    return status
