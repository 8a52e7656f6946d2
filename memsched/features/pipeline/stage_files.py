"""The files of a pipeline's stages: the best ones that can be written and have the model's outputs in a row."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from memsched.base.errors import VerificationError
from memsched.base.frozen import FrozenValue
from memsched.commands.failures import Failures
from memsched.commands.optimize.choose import Permissions, find
from memsched.commands.optimize.place import Request, place, prepare
from memsched.formats.capabilities import Cutter, SizeGuards, Stages
from memsched.formats.files import load_module
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.segment import Segment
from memsched.graph.stages import Network, StageFigures
from memsched.plan.write import write_model
from memsched.report.outputs import TOLERANCE
from memsched.runtimes.graph_plan import GraphPlan
from memsched.runtimes.values import Verification
from memsched.targets.model import Target

__all__ = ["CutStages", "SegmentFile", "StageFiles", "first_that_holds", "run_in_order", "stage_file"]


class SegmentFile(FrozenValue, frozen=True):
    """One stage as a model of its own, its operators in their best order.

    Attributes:
        model: The file's bytes.
        segment: What it holds of the whole model.
        plan: The order of its main graph.
        arena: Bytes, with addresses.
    """

    model: bytes
    segment: Segment
    plan: GraphPlan
    arena: int

    @property
    def sha256(self) -> str:
        """The SHA-256 of the file's bytes."""
        return hashlib.sha256(self.model).hexdigest()


class StageFiles(FrozenValue, frozen=True):
    """The stages' files, and what became of them in a row."""

    segments: tuple[SegmentFile, ...]
    verification: Verification | None
    notes: tuple[str, ...]


def first_that_holds(
    files: Callable[[Permissions, Request], StageFiles], permitted: Permissions, request: Request
) -> tuple[StageFiles, tuple[str, ...]]:
    """Return the best files that can be written and have the model's outputs, and notes on those that have not.

    Without rewritten layers they may be in another order, then in the model's own.
    """
    failures = Failures()
    whole = Permissions(False, False)
    if permitted.tile or permitted.remat:
        with failures.left_out("stages with rewritten layers"):
            return files(permitted, request), ()
    if request.solver != "file":
        with failures.left_out("stages in another order"):
            return files(whole, request), tuple(one.told() for one in failures.found)
    return files(whole, replace(request, solver="file")), tuple(one.told() for one in failures.found)


class CutStages(FrozenValue, frozen=True):
    """A model with its stages.

    Attributes:
        parts: The stages.
        target: The accelerator.
        in_place: Whether outputs may take dying inputs' bytes.
    """

    module: Module
    cutter: Cutter
    network: Network
    parts: tuple[StageFigures, ...]
    target: Target
    in_place: bool


def stage_file(cut: CutStages, index: int, request: Request, permitted: Permissions) -> SegmentFile:
    """Return one stage's model, ordered for the least memory within its share of the time or the work."""
    module, target, network = cut.module, cut.target, cut.network
    part, count = cut.parts[index], len(cut.parts)
    segment = Segment(
        ops=part.layers,
        inputs=tuple(network.values[value].name for value in part.received_values),
        outputs=tuple(network.values[value].name for value in part.sent_values),
    )
    metadata = {"memsched.pipeline_stage": f"{index + 1}/{count}"}
    data = cut.cutter.cut(segment, metadata)
    options = capability(module, Stages).segment_options(module, segment)
    read = load_module(data, module.path, options)
    prepared = prepare(read, target, in_place=cut.in_place)
    # A share of the time that is left, or of all the work.
    share = 1 / (count if request.run.limits.time_limit is None else count - index)
    final = find(read, data, prepared, options, request.within(share), None, permitted).file
    written = write_model(
        final.module,
        final.data,
        final.placed.plans,
        options,
        guarantee=request.opening.guarantee,
        control_dependencies=False,
        target=target.name,
    )
    model, placed = written.model, final.placed
    if final.rewritten:
        model = capability(module, SizeGuards).with_guards(read, final.module, model)
    if model != written.model:
        # What refuses other sizes keeps the inputs to the end.
        guarded = load_module(model, module.path, options)
        placed = place(guarded, prepare(guarded, target, in_place=cut.in_place), replace(request, solver="file"))
    return SegmentFile(model, segment, placed.plans[0], placed.allocation.arena)


def run_in_order(
    data: bytes, module: Module, segments: Sequence[SegmentFile], seed: int, *, exact: bool
) -> tuple[Verification, tuple[str, ...]]:
    """Run the segments in a row against the whole model."""
    from memsched.runtimes.segments import run_in_a_row

    allowed = 0.0 if exact else TOLERANCE
    found = run_in_a_row(module, data, [segment.model for segment in segments], seed=seed, tolerance=allowed)
    error_ = found.relative_error
    if found.outputs_equal is False and (error_ is None or error_ > allowed):
        raise VerificationError(
            f"the segments' outputs differ from the model's in {found.runtime} {found.apart}: "
            f"no segment is written; please report it. {'' if found.special_wrong else found.reason or ''}".rstrip()
        )
    return found, found.notes
