"""The end of an optimisation: the file of what was found, and a run of both models, which may reject it."""

from __future__ import annotations

import dataclasses

from memsched.commands.optimize.choose import FinalModel
from memsched.commands.verify import verify_written
from memsched.formats.known import format_of
from memsched.formats.module import LoadOptions, Module
from memsched.planning.write import write_model
from memsched.report.outputs import TOLERANCE
from memsched.runtimes.known import runtime_of
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runtime import Opening
from memsched.runtimes.tflm.arena import TflmFacts
from memsched.runtimes.values import Verification
from memsched.search.run import Run

__all__ = ["refuted", "run_both", "told_apart", "write"]


def write(
    module: Module,
    final: FinalModel,
    opening: Opening,
    *,
    control_dependencies: bool,
    promised: bool,
) -> tuple[ModelBytes, TflmFacts | None]:
    """Return the file of what was found, as its runtime wants it, and what TensorFlow Lite Micro makes of it.

    Args:
        promised: The session's figure was compared with a budget.
    """
    plans, chosen = final.placed.plans, final.placed.chosen
    written = write_model(
        *(final.module, final.data, plans, final.options),
        guarantee=opening.guarantee,
        control_dependencies=control_dependencies,
        target=final.prepared.target.name,
        keep=chosen is not None and chosen.keep,
        promised=promised,
    )
    if chosen:
        written = dataclasses.replace(written, guarantee=chosen.describe(written.guarantee))
    if final.rewritten:
        written = dataclasses.replace(_with_fixed_dimensions(module, written), borders=final.borders)
    given = module if final.rewritten else None
    runtime = runtime_of(final.module, final.prepared.target, opening)
    return runtime.finish(*(final.module, written, plans, final.options), plan=opening.memory_plan, given=given)


def run_both(
    final: FinalModel,
    data: bytes,
    written: ModelBytes,
    options: LoadOptions,
    run: Run,
    *,
    seed: int,
    predicted: tuple[int, int] | None,
    may_end: bool,
) -> tuple[Verification | None, tuple[str, ...], bool]:
    """Run the model as given, ``data``, and the one written; return the verdict, notes, and whether it was ended.

    Where it may not be ended before it is through, KeyboardInterrupt is passed on.
    """
    tolerance = TOLERANCE if final.rewrites.inexact else 0.0
    try:
        schedule = final.placed.plans[0].schedule
        run.tell("verification", schedule.peak, None if final.rewritten else schedule.lower_bound)
        verification, notes = verify_written(
            *(final.module, data, written, options, final.prepared.target),
            seed=seed,
            tolerance=tolerance,
            predicted=predicted,
        )
    except KeyboardInterrupt:
        if not may_end:
            raise
        return None, ("the verification was interrupted",), True
    return verification, notes, False


def _with_fixed_dimensions(module: Module, written: ModelBytes) -> ModelBytes:
    """Return a rewritten model with the dimensions that ``module``, as given, leaves open and it does not."""
    fixed = format_of(module).fixed_dimensions(module, written.model)
    return dataclasses.replace(written, unchanged=False, fixed=fixed)


def refuted(verification: Verification, *, inexact: bool) -> bool:
    """Whether the outputs differ, here or at other sizes; those of layers in pieces may differ in their last bits."""
    if any(one.outcome == "wrong" for one in verification.other_sizes):
        return True
    if verification.outputs_equal is not False:
        return False
    error = verification.relative_error
    return not inexact or error is None or error > TOLERANCE


def told_apart(verification: Verification, final: FinalModel) -> str:
    """Return why the model is rejected for outputs that differ, in a sentence for the user."""
    wrong = next((one for one in verification.other_sizes if one.outcome == "wrong"), None)
    if wrong is not None:
        return (
            f"the optimised model is wrong in {verification.runtime} at {wrong.dimension} = {wrong.size}, a size that "
            f"the model as given leaves open ({wrong.reason}): no model is written; please report it"
        )
    if final.rewritten:
        error = verification.relative_error
        told = error is not None and final.rewrites.inexact
        far = f" by {error:.1e} of their largest magnitude, {TOLERANCE:g} is permitted" if told else ""
        return (
            f"with {final.rewrites.described()}, the model's outputs differ in {verification.runtime}{far}: no model "
            f"is written; leave that out of --allow, and please report it. {verification.reason or ''}"
        ).rstrip()
    return (
        f"the reordered model's outputs differ in {verification.runtime} (by up to {verification.max_abs_error}): "
        f"no model is written; please report it. {verification.reason or ''}".rstrip()
    )
