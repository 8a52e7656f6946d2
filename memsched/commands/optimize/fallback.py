"""The best candidate that holds: a file that cannot be written, checked, loaded or verified makes way for the next."""

from __future__ import annotations

from collections.abc import Iterator

from memsched.base.errors import ModelError, VerificationError
from memsched.commands.failures import defects_end_the_run
from memsched.commands.optimize.branch import finished
from memsched.commands.optimize.final_model import FinalModel
from memsched.commands.optimize.finish import as_given, told_apart
from memsched.commands.optimize.finished import FinishedModel, FinishRequest
from memsched.commands.optimize.place import Request

__all__ = ["finish_best"]


def finish_best(final: FinalModel, request: Request, asked: FinishRequest) -> FinishedModel:
    """Return the file of the best candidate that can be written and was not refuted: at worst the file as given.

    Each candidate that fails is recorded in the failures of ``request``. If defects end the run, the first candidate is
    returned even if it was refuted.
    """
    for candidate in _from_best(final):
        what = candidate.rewrites.described() if candidate.rewritten else "another order of the operators"
        with request.failures.left_out(what or "another form of the model"):
            found = finished(candidate, request, asked)
            seen = found.verification
            if seen is None or not found.wrong:
                return found
            told = told_apart(seen, found.final, found.facts)
            if found.facts is not None and found.facts.plan_fault is not None:
                raise ModelError(told)
            if defects_end_the_run():
                return found
            raise VerificationError(told)
    return as_given(request, asked)


def _from_best(final: FinalModel) -> Iterator[FinalModel]:
    """Yield a model, then those that it was made from, the last one first."""
    candidate: FinalModel | None = final
    while candidate is not None:
        yield candidate
        candidate = candidate.before
