"""A file for TensorFlow Lite Micro: what its arena takes, a memory plan of our own, and tensors that serve nothing."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from memsched.base.errors import InternalError, ModelError
from memsched.formats.module import Module
from memsched.formats.read_back import check_written
from memsched.formats.staging import describe
from memsched.formats.tflite import metadata as tflite_metadata
from memsched.formats.tflite import writer
from memsched.formats.tflite.model import FileModel, parse
from memsched.formats.tflite.reader import TfliteNative
from memsched.lowering.apply import with_workspaces
from memsched.lowering.prices import Kept, Prices
from memsched.runtimes.arena_facts import ArenaFacts, DeadTensor, round_up
from memsched.runtimes.graph_plan import GraphPlan, LoweredGraph
from memsched.runtimes.output import ModelBytes
from memsched.runtimes.runtime import OrderedFile, Requirement
from memsched.runtimes.tflm.dead_tensors import drop_dead_tensors
from memsched.runtimes.tflm.kernel_sets import REFERENCE, kernel_set
from memsched.runtimes.tflm.layout import best_offsets, offsets_below
from memsched.runtimes.tflm.limits import new_refusals, refusals
from memsched.runtimes.tflm.loop_memory import without_copies
from memsched.runtimes.tflm.own_memory import shared_bytes
from memsched.runtimes.tflm.persistent import estimates, kept_by, kept_by_kind, least_by_kind, unknown_kernels
from memsched.runtimes.tflm.plan import (
    Scratch,
    encode_plan,
    executed_subgraphs,
    given_plan,
    kernel_scratch,
    predict,
    wanted_buffers,
)
from memsched.runtimes.tflm.plan_check import check_plan, plan_fault
from memsched.runtimes.tflm.requirement import requirement, room_to_plan
from memsched.search.run import Run
from memsched.targets.load import Target

__all__ = [
    "analyzed",
    "analyzed_plan",
    "check_kernels",
    "finish",
    "lowered_for",
    "prices",
    "required",
    "required_as_given",
    "with_scratch",
]

Key = tuple[int, int]
"""A tensor of a file: (subgraph, index)."""


def lowered_for(module: Module, lowered: Sequence[LoweredGraph], target: Target) -> tuple[LoweredGraph, ...]:
    """Return the lowered graphs as TFLM executes them with a memory plan: loops copy nothing, kernels have scratch."""
    return with_scratch(module, without_copies(_native(module), lowered, target), target.kernels)


def with_scratch(module: Module, lowered: Sequence[LoweredGraph], kernels: str = "") -> tuple[LoweredGraph, ...]:
    """Return the lowered graphs with the scratch buffers of the kernels that a target names as workspaces.

    An operator's own tensors count once where the file's memory plan lays them over each other, or over what it reads
    and makes.
    """
    native = _native(module)
    scratch, shared = kernel_scratch(native.model, kernels), shared_bytes(native.model)
    result = []
    for index, (one, mapping) in enumerate(zip(lowered, native.mappings, strict=True)):
        found = {
            op: sum(map(round_up, scratch.get((index, number), ()))) - shared.get((index, number), 0)
            for op, number in enumerate(mapping.operators)
            if (index, number) in scratch or (index, number) in shared
        }
        result.append(LoweredGraph.of(with_workspaces(one.graph, found)) if found else one)
    return tuple(result)


def analyzed(module: Module, kernels: str) -> ArenaFacts:
    """Return what TFLM with the kernels that a target names makes of the file as given."""
    model = _native(module).model
    try:
        head: int | None = predict(model, kernel_scratch(model, kernels)).head
    except ModelError:
        head = None
    return ArenaFacts(head, refusals=refusals(model))


def analyzed_plan(module: Module, target: Target) -> ArenaFacts:
    """Return what TFLM makes of the file as given, and what is wrong with the memory plan that it brings."""
    model = _native(module).model
    fault = plan_fault(model, target, kernel_scratch(model, target.kernels))
    return replace(analyzed(module, target.kernels), plan_fault=fault)


def check_kernels(given: Module, written: Module) -> None:
    """Check that TFLM refuses no operator of ``written`` unless it refuses such a one of ``given``.

    Raises:
        ModelError: It does; the message names the first.
    """
    found = new_refusals(_native(given).model, _native(written).model)
    if found:
        problem = f"TensorFlow Lite Micro would refuse {found[0].type} '{found[0].name}': {found[0].reason}"
        raise ModelError(problem, code="operator-refused")


def required(
    module: Module, plans: Sequence[GraphPlan], target: Target, run: Run, *, plan: bool | None
) -> Requirement | None:
    """Return what TFLM's arena must hold for ``module`` written in the plans' orders, as `finish` writes it.

    Args:
        run: What the work counts in; it limits nothing.
        plan: With a memory plan of our own; None: where that requires less.

    Returns:
        None where TFLM could not load that file, or it cannot be written.
    """
    orders = {index: one.stored_order for index, one in enumerate(plans)}
    try:
        data, _ = drop_dead_tensors(writer.serialize(module, orders))
        model = parse(data)
        scratch = kernel_scratch(model, target.kernels)
        offsets = _offsets(model, scratch, target, run, plan)
        return requirement(model, scratch, predict(model, scratch, plan=offsets).head, target)
    except ModelError:
        return None


def required_as_given(module: Module, target: Target, *, otherwise: int) -> Requirement:
    """Return what TFLM's arena must hold for the file as given.

    Args:
        otherwise: Bytes of its planned part where TFLM refuses the memory plan that it brings.
    """
    model = _native(module).model
    head = analyzed(module, target.kernels).file_head
    try:
        return requirement(model, kernel_scratch(model, target.kernels), otherwise if head is None else head, target)
    except ModelError:
        return Requirement(otherwise)


def prices(module: Module, target: Target) -> Prices:
    """Return what TFLM keeps for the file as it is, and for each further op."""
    bits, graph = target.pointer_bits, module.graphs[0]
    needs = estimates(_native(module).model, target.kernels)[bits]
    of_op = functools.partial(kept_by, bits=bits)
    # Variables lie in the tail, and count among the activations of a graph.
    states = sum(graph.tensors[tensor].size for tensor in graph.variables)
    kept = Kept(needs.persistent - states, needs.planning + states)
    least = functools.partial(least_by_kind, bits=bits)
    return Prices(kept, of_op, kept_by_kind("SLICE", 1, bits), least=least)


def _offsets(model: FileModel, scratch: Scratch, target: Target, run: Run, plan: bool | None) -> dict[Key, int] | None:
    """Return the memory plan to write; None for none."""
    if plan is not None:
        return best_offsets(model, target, scratch, run) if plan else None
    if unknown_kernels(model, target.kernels):
        return None
    own = _own_head(model, scratch)
    room = room_to_plan(model, target)
    if own is None:
        return best_offsets(model, target, scratch, run)
    offsets = offsets_below(model, target, scratch, run, own) if own > room else None
    if offsets is None:
        return None
    head = max(predict(model, scratch, plan=offsets).head, room)
    return offsets if head < own else None


def finish(file: OrderedFile, target: Target) -> tuple[ModelBytes, ArenaFacts]:
    """Return a written file without dead tensors, and with offsets of our own where it is to have them; both checked.

    Raises:
        ModelError: The file is laid out so that a plan cannot be added, or TFLM could not execute it.
        InternalError: The written file does not read back as planned, or TFLM refuses what the rewrite added.
    """
    try:
        written, facts = _finish(file, target)
        if file.given is None:
            return written, facts
        added = new_refusals(_native(file.given).model, parse(written.model))
        if added:
            problem = f"TensorFlow Lite Micro refuses {added[0].type} '{added[0].name}' that was written"
            raise InternalError(problem, code="new-operator-refused")
        first = analyzed_plan(file.given, target)
        kept = replace(facts, file_head=first.file_head, refusals=first.refusals, plan_fault=first.plan_fault)
        return written, kept
    except ModelError as error:
        raise error.at(f"{describe(file.module.path)} cannot be written") from None


def _finish(file: OrderedFile, target: Target) -> tuple[ModelBytes, ArenaFacts]:
    data, dropped = drop_dead_tensors(file.written.model)
    model = parse(data)
    scratch = kernel_scratch(model, target.kernels)
    facts = analyzed_plan(file.module, target)
    notes = [*file.written.notes, *_notes(model, dropped)]
    if kernel_set(target.kernels) is not REFERENCE:
        words = kernel_set(target.kernels).words
        notes.append(f"the arena's size is computed for {words}; what is run and measured here has reference kernels")
    if facts.file_head is None:
        notes.append("TensorFlow Lite Micro cannot load the file as given: its memory plan is of another model")
    offsets = _offsets(model, scratch, target, file.run, file.plan)
    if offsets is None:
        facts = replace(facts, order_head=_own_head(model, scratch), dropped=dropped)
        return _checked(file, data, notes), facts
    own = predict(model, scratch, own=True).head
    data = _with_plan(data, model, encode_plan(model, offsets))
    planned = predict(parse(data), scratch)
    if check_plan(data, target, scratch, _native(file.given or file.module).model) != planned.head:
        raise InternalError("the written memory plan needs another arena than was planned", code="arena-differs")
    notes = [note for note in notes if not note.startswith(f"metadata '{tflite_metadata.OFFLINE_PLAN}'")]
    notes.append(f"metadata '{tflite_metadata.OFFLINE_PLAN}' lays {len(offsets)} tensors for TensorFlow Lite Micro")
    if file.plan is None:
        notes += _without_plan(model, scratch, own, planned.head)
    facts = replace(
        facts,
        order_head=own,
        plan_head=planned.head,
        dropped=dropped,
        offsets=offsets,
        names={key: model.subgraphs[key[0]].tensors[key[1]].name for key in offsets},
    )
    return _checked(file, data, notes), facts


def _native(module: Module) -> TfliteNative:
    if not isinstance(module.native, TfliteNative):
        raise InternalError(
            "a model that was not read from TFLite has no memory plan for TensorFlow Lite Micro", code="needs-tflite"
        )
    return module.native


def _own_head(model: FileModel, scratch: Scratch) -> int | None:
    try:
        return predict(model, scratch).head
    except ModelError:
        return None


def _checked(file: OrderedFile, data: bytes, notes: Iterable[str]) -> ModelBytes:
    written = file.written
    if data == written.model:
        return replace(written, notes=tuple(notes))
    orders = {index: plan.stored_order for index, plan in enumerate(file.plans)}
    check_written(file.module, data, orders, file.options)
    return replace(written, model=data, unchanged=False, notes=tuple(notes))


def _notes(model: FileModel, dropped: tuple[DeadTensor, ...]) -> list[str]:
    notes = []
    if dropped:
        size = sum(one.size for one in dropped)
        notes.append(
            f"dropped {len(dropped)} tensors that no operator refers to, such as '{dropped[0].name}': "
            f"TensorFlow Lite Micro would have given them {size} B"
        )
    never = [index for index, reached in enumerate(executed_subgraphs(model)) if not reached]
    if never:
        size = sum(one.size for one in wanted_buffers(model, {}) if one.subgraph in never)
        notes.append(
            f"TensorFlow Lite Micro never executes subgraphs {', '.join(map(str, never))}, "
            f"but gives their tensors memory: {size} B, unless a memory plan lays them over each other"
        )
    return notes


def _without_plan(model: FileModel, scratch: Scratch, own: int, head: int) -> list[str]:
    """Say what the head would be with --no-tflm-plan, which leaves a plan that the file brings."""
    if all(name != tflite_metadata.OFFLINE_PLAN for name, _ in model.metadata):
        return [f"its own planner would lay them in {own:,} B, not in {head:,} B: --no-tflm-plan has it do so"]
    brought = _own_head(model, scratch)
    if brought is None:
        return []
    told = "--no-tflm-plan leaves the memory plan that the file brings"
    return [f"{told}, which lays them in {brought:,} B, not in {head:,} B"]


def _with_plan(data: bytes, model: FileModel, payload: bytes) -> bytes:
    """Return the file with the plan, written over the one that it has where that is of the same length."""
    buffers = [index for name, index in model.metadata if name == tflite_metadata.OFFLINE_PLAN]
    tensors = {tensor.buffer for subgraph in model.subgraphs for tensor in subgraph.tensors}
    others = {index for name, index in model.metadata if name != tflite_metadata.OFFLINE_PLAN}
    if len(buffers) == 1 and buffers[0] not in tensors | others:
        place = model.buffers[buffers[0]]
        if place.size == len(payload) and not place.outside and place.start % 4 == 0:
            changed = data[: place.start] + payload + data[place.start + place.size :]
            if given_plan(parse(changed)) is not None:
                return changed
    return tflite_metadata.with_metadata(data, model, tflite_metadata.OFFLINE_PLAN, payload)[0]
