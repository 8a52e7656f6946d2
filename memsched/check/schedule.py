"""The independent checker: recomputes every claim about a result from the definitions, sharing no code with solvers.

It imports nothing but the model's values. Footprints are found tensor by tensor as intervals of steps, not by
executing the order as liveness does, so that one mistake cannot hide in both.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from memsched.base.errors import InternalError
from memsched.base.frozen import FrozenValue
from memsched.graph.model import Allocation, Graph, InPlace, Op, Placement, Schedule, Tensor

__all__ = ["CheckedSchedule", "check_allocation", "check_reordering", "check_schedule"]


class CheckedSchedule(FrozenValue, frozen=True):
    """What the checker computed for an order: the figures that reports show.

    Attributes:
        footprints: Bytes per step.
        peak: The largest footprint, bytes.
        first_step: Per tensor the first step in which its own bytes are occupied; -1 for views and unused inputs.
        last_step: Per tensor the last such step.
        bytes_of: Per tensor its own bytes; 0 for views and for what the caller owns.
    """

    footprints: tuple[int, ...]
    peak: int
    first_step: tuple[int, ...]
    last_step: tuple[int, ...]
    bytes_of: tuple[int, ...]


def check_schedule(graph: Graph, schedule: Schedule) -> CheckedSchedule:
    """Check order, in-place choices, peak, bound and status of ``schedule`` and return the recomputed figures.

    Raises:
        InternalError: Anything in ``schedule`` does not hold.
    """
    steps = _check_order(graph, schedule.order)
    sources = _storage_tensors(graph)
    first, last, own = _intervals(graph, schedule.order, sources)
    footprints = _footprints(graph, schedule, steps, first, last, own, sources)
    peak = max(footprints) if footprints else sum(own[t] for t in set(graph.inputs) | set(graph.variables))
    if peak != schedule.peak:
        raise InternalError(
            f"the {schedule.method} schedule claims a peak of {schedule.peak} bytes, but has {peak}", code="peak-claim"
        )
    if schedule.lower_bound > peak:
        raise InternalError(f"the claimed lower bound {schedule.lower_bound} lies above the peak {peak}", code="bound")
    if schedule.status == "optimal" and schedule.lower_bound != peak:
        raise InternalError(
            f"the schedule is called optimal, but its bound is {schedule.lower_bound}, its peak {peak}", code="bound"
        )
    return CheckedSchedule(tuple(footprints), peak, tuple(first), tuple(last), tuple(own))


def _check_order(graph: Graph, order: tuple[int, ...]) -> list[int]:
    """Return the step of each op, after checking that ``order`` executes every op once and after its inputs."""
    steps = [-1] * len(graph.ops)
    if len(order) != len(graph.ops):
        raise InternalError(f"the order has {len(order)} steps for {len(graph.ops)} ops", code="op-count")
    for step, op in enumerate(order):
        if not 0 <= op < len(graph.ops) or steps[op] >= 0:
            raise InternalError(f"the order names op {op} twice or it does not exist", code="op-number")
        steps[op] = step
    produced_at = [-1] * len(graph.tensors)
    for step, maker in zip(steps, graph.ops, strict=True):
        for tensor in maker.outputs:
            produced_at[tensor] = step
    for step, reader in zip(steps, graph.ops, strict=True):
        for tensor in reader.inputs:
            if produced_at[tensor] >= step:
                name = graph.tensors[tensor].name
                raise InternalError(
                    f"op '{reader.name}' is ordered before its input '{name}' is produced", code="order"
                )
    for before, after in graph.dependencies:
        if steps[before] >= steps[after]:
            raise InternalError(
                f"op '{graph.ops[before].name}' must come before '{graph.ops[after].name}'", code="dependency"
            )
    return steps


def _storage_tensors(graph: Graph) -> list[tuple[int, ...]]:
    """Return per tensor the tensors in whose bytes it lies: itself, or those that it is a view of."""
    sources: list[tuple[int, ...]] = [(t,) for t in range(len(graph.tensors))]
    variables = set(graph.variables)
    for op in graph.ops:
        for output in op.outputs if op.views else ():
            shown = {read for out, read in op.views if out == output}
            if not shown or output in variables:
                continue
            inner = {s for read in shown for s in sources[read] if read not in variables}
            rest = graph.tensors[output].size - sum(graph.tensors[read].size for read in shown)
            sources[output] = tuple(sorted(inner | ({output} if rest > 0 or not inner else set())))
    return sources


def _intervals(
    graph: Graph, order: tuple[int, ...], sources: list[tuple[int, ...]]
) -> tuple[list[int], list[int], list[int]]:
    count, end = len(graph.tensors), max(len(graph.ops) - 1, 0)
    first, last = [-1] * count, [-1] * count
    variables = set(graph.variables)
    for tensor in (*graph.inputs, *graph.variables):
        first[tensor] = 0
    for step, number in enumerate(order):
        op = graph.ops[number]
        for tensor in op.outputs:
            if tensor not in variables:
                first[tensor] = last[tensor] = step
        for tensor in op.inputs:
            last[tensor] = step
    for tensor, inside in enumerate(sources):
        for source in inside if inside != (tensor,) else ():
            # What a view is read for is read in the bytes that it shows.
            last[source] = max(last[source], last[tensor])
    for tensor in graph.outputs:
        for source in sources[tensor]:
            last[source] = end
    for tensor in graph.variables:
        last[tensor] = end
    for tensor in range(count):
        if tensor not in sources[tensor] or last[tensor] < 0:
            first[tensor] = last[tensor] = -1
    return first, last, _own_bytes(graph, last)


def _own_bytes(graph: Graph, last: list[int]) -> list[int]:
    """Return per tensor its own bytes, those of the caller and of other tensors left out; 0 where it is never live."""
    own = [0 if tensor.external else tensor.size for tensor in graph.tensors]
    variables = set(graph.variables)
    for op in graph.ops:
        for output, read in dict.fromkeys(op.views) if op.views else ():
            if output not in variables:
                own[output] -= graph.tensors[read].size
    return [max(0, size) if last[tensor] >= 0 else 0 for tensor, size in enumerate(own)]


def _footprints(
    graph: Graph,
    schedule: Schedule,
    steps: list[int],
    first: list[int],
    last: list[int],
    own: list[int],
    sources: list[tuple[int, ...]],
) -> list[int]:
    change = [0] * (len(graph.ops) + 2)
    for tensor, size in enumerate(own):
        if size:
            change[first[tensor]] += size
            change[last[tensor] + 1] -= size
    footprints = []
    live = 0
    for step, op in enumerate(schedule.order):
        live += change[step]
        footprints.append(live + graph.ops[op].workspace)
    written: set[int] = set()
    overwritten: set[int] = set()
    kept = {source for tensor in graph.outputs for source in sources[tensor]} | set(graph.variables)
    for choice in schedule.in_place:
        op_value = graph.ops[choice.op]
        step = steps[choice.op]
        taken = _single(sources[choice.input])
        allowed = (choice.output, choice.input) in op_value.in_place or any(
            output == choice.output and _single(sources[read]) == taken for output, read in op_value.in_place
        )
        if not allowed or _single(sources[choice.output]) != choice.output or taken is None:
            raise InternalError(
                f"op '{op_value.name}' may not write {_names(graph, choice)}", code="in-place-forbidden"
            )
        if taken in kept or last[taken] != step or own[taken] != own[choice.output]:
            reason = "whose bytes are still needed or of another size"
            raise InternalError(f"op '{op_value.name}' writes {_names(graph, choice)}, {reason}", code="in-place-live")
        if choice.output in written or taken in overwritten:
            reason = "which another in-place choice already uses"
            raise InternalError(f"op '{op_value.name}' writes {_names(graph, choice)}, {reason}", code="in-place-twice")
        written.add(choice.output)
        overwritten.add(taken)
        footprints[step] -= own[taken]
    return footprints


def _names(graph: Graph, choice: InPlace) -> str:
    return f"'{graph.tensors[choice.output].name}' in place of '{graph.tensors[choice.input].name}'"


def _single(sources: tuple[int, ...]) -> int | None:
    return sources[0] if len(sources) == 1 else None


def check_allocation(
    graph: Graph, schedule: Schedule, allocation: Allocation, checked: CheckedSchedule | None = None
) -> None:
    """Check that every counted byte of ``schedule`` has an address while it is live and shares it with nothing.

    Args:
        checked: What `check_schedule` returned for this very schedule, where the caller has it already.

    Raises:
        InternalError: Overlap, misalignment, a missing tensor or workspace, a lifetime that is too short, a wrong
            arena size or bound.
    """
    checked = checked or check_schedule(graph, schedule)
    if allocation.alignment < 1:
        raise InternalError(f"the alignment is claimed to be {allocation.alignment} bytes", code="alignment")
    viewed = any(op.views for op in graph.ops)
    sources = _storage_tensors(graph) if schedule.in_place or viewed else []
    pieces = {source for inside in sources if len(inside) > 1 for source in inside}
    step_of = {op: step for step, op in enumerate(schedule.order)}
    merged = {choice.output: (step_of[choice.op], sources[choice.input]) for choice in schedule.in_place}
    placed: set[int] = set()
    for placement in allocation.placements:
        tensors = placement.tensors
        tied = bool(pieces) and not pieces.isdisjoint(tensors)
        _check_placement(graph, checked, placement, 1 if tied else allocation.alignment)
        if not placed.isdisjoint(tensors):
            twice = next(tensor for tensor in tensors if tensor in placed)
            raise InternalError(f"tensor '{graph.tensors[twice].name}' has two addresses", code="two-addresses")
        placed.update(tensors)
        if len(tensors) > 1:
            _check_sharing(graph, merged, checked, tensors)
    for tensor, size in enumerate(checked.bytes_of):
        if size and tensor not in placed:
            raise InternalError(f"tensor '{graph.tensors[tensor].name}' has no address", code="no-address")
    if viewed:
        _check_views(graph, sources, checked, allocation)
    _check_workspaces(graph, schedule, allocation)
    _check_overlap(allocation)
    arena = max((p.offset + p.size for p in allocation.placements), default=0)
    if arena != allocation.arena:
        raise InternalError(f"the arena is claimed to be {allocation.arena} bytes, but is {arena}", code="arena-claim")
    if allocation.lower_bound > arena or (allocation.status == "optimal" and allocation.lower_bound != arena):
        raise InternalError(
            f"the arena of {arena} bytes does not fit its bound of {allocation.lower_bound} bytes", code="bound"
        )


def _check_placement(graph: Graph, checked: CheckedSchedule, placement: Placement, alignment: int) -> None:
    """Check that a buffer is aligned and holds each of its tensors for as long as it is live."""
    if placement.offset < 0 or placement.offset % alignment:
        raise InternalError(f"offset {placement.offset} is no multiple of {alignment}", code="misaligned")
    if placement.size < 0 or placement.first_step > placement.last_step:
        raise InternalError(
            f"the buffer at offset {placement.offset} has a negative size or lifetime", code="negative-buffer"
        )
    begin, last, size = placement.first_step, placement.last_step, placement.size
    for tensor in placement.tensors:
        if not 0 <= tensor < len(graph.tensors):
            raise InternalError(
                f"the buffer at offset {placement.offset} holds tensor {tensor}, which does not exist",
                code="tensor-outside-graph",
            )
        held = checked.bytes_of[tensor]
        if not held:
            continue
        if checked.first_step[tensor] < begin or checked.last_step[tensor] > last or held > size:
            raise InternalError(f"tensor '{graph.tensors[tensor].name}' outgrows its buffer", code="outgrown-buffer")


def _check_views(
    graph: Graph, sources: list[tuple[int, ...]], checked: CheckedSchedule, allocation: Allocation
) -> None:
    """Check that slices lie inside their sources and pieces at their places inside their concatenations.

    Buffers that a concatenation ties together need not be aligned each, but the outermost concatenation must be.
    """
    address: dict[int, int] = {
        tensor: placement.offset
        for placement in allocation.placements
        for tensor in placement.tensors
        if checked.bytes_of[tensor]
    }
    whole: dict[int, int] = {}
    for op in graph.ops:
        for output in op.outputs if op.views else ():
            inside = {read: _view_offset(graph, op, read, output) for out, read in op.views if out == output}
            if not inside or output in graph.variables:
                continue
            name, size, own = graph.tensors[output].name, graph.tensors[output].size, address.pop(output, None)
            read, begin = next(iter(inside.items()))
            if len(inside) > 1 or size > graph.tensors[read].size:
                start = _start_of_whole(graph, output, inside, own, address)
                if start is not None:
                    address[output] = whole[output] = start
            elif begin < 0 or begin + size > graph.tensors[read].size:
                raise InternalError(f"'{name}' does not lie inside '{graph.tensors[read].name}'", code="view-outside")
            elif read in address:
                address[output] = address[read] + begin
    most: dict[int, int] = {}
    for tensor in whole:
        most.update({source: max(most.get(source, 0), len(sources[tensor])) for source in sources[tensor]})
    for tensor, start in whole.items():
        nested = most[sources[tensor][0]] > len(sources[tensor])
        if start < 0 or (start % allocation.alignment and not nested):
            name = graph.tensors[tensor].name
            raise InternalError(
                f"'{name}' begins at {start}, which is no multiple of {allocation.alignment}", code="misaligned"
            )


def _view_offset(graph: Graph, op: Op, read: int, output: int) -> int:
    """Return where the op states that a view begins; 0 for a slice, and the end of the piece before for a piece."""
    if op.view_offsets:
        if len(op.view_offsets) != len(op.views):
            raise InternalError(
                f"op '{op.name}' has {len(op.views)} views, but {len(op.view_offsets)} offsets", code="view-count"
            )
        return op.view_offsets[op.views.index((output, read))]
    of_output = [source for out, source in dict.fromkeys(op.views) if out == output]
    return sum(graph.tensors[source].size for source in of_output[: of_output.index(read)])


def _start_of_whole(
    graph: Graph, output: int, inside: dict[int, int], own: int | None, address: dict[int, int]
) -> int | None:
    """Return where a concatenation begins, after checking that its pieces lie where they must and cover it."""
    name = graph.tensors[output].name
    starts = {address[read] - begin for read, begin in inside.items() if read in address}
    end = 0
    gaps = []
    for begin, size in sorted((begin, graph.tensors[read].size) for read, begin in inside.items()):
        if begin < end:
            raise InternalError(f"two pieces of '{name}' overlap in it", code="pieces-overlap")
        if begin > end:
            gaps.append(end)
        end = begin + size
    if end > graph.tensors[output].size:
        raise InternalError(f"the pieces of '{name}' reach beyond its end", code="pieces-outside")
    if end < graph.tensors[output].size:
        gaps.append(end)
    if len(gaps) > 1:
        raise InternalError(f"the bytes of '{name}' beside its pieces are not one range", code="pieces-scattered")
    if own is not None:
        starts.add(own - gaps[0])
    if len(starts) > 1:
        raise InternalError(f"the pieces of '{name}' do not lie where they must inside it", code="pieces-misplaced")
    return starts.pop() if starts else None


def _check_sharing(
    graph: Graph, merged: dict[int, tuple[int, tuple[int, ...]]], checked: CheckedSchedule, tensors: tuple[int, ...]
) -> None:
    """Check that tensors of one buffer follow each other; only a write in place lets two meet, in its step."""
    # Of two that are live in step 0 only, the graph input comes first.
    first, last, held = checked.first_step, checked.last_step, checked.bytes_of
    owners = sorted([(first[t], last[t], t in merged, t) for t in tensors if held[t]])
    for (_, end, _, before), (start, _, _, after) in itertools.pairwise(owners):
        if start > end or merged.get(after) == (start, (before,)):
            continue
        names = f"'{graph.tensors[before].name}' and '{graph.tensors[after].name}'"
        raise InternalError(f"tensors {names} share a buffer while both are live", code="buffer-shared")


def _check_workspaces(graph: Graph, schedule: Schedule, allocation: Allocation) -> None:
    """Check that every op's workspace is a buffer without tensors that exists in its step alone."""
    free: dict[int, int] = {}
    for placement in allocation.placements:
        if not placement.tensors and placement.first_step == placement.last_step:
            free[placement.first_step] = max(free.get(placement.first_step, 0), placement.size)
    wanted = {number: op for number, op in enumerate(graph.ops) if op.workspace}
    for step, number in enumerate(schedule.order) if wanted else ():
        if number in wanted and free.get(step, 0) < wanted[number].workspace:
            raise InternalError(f"the workspace of op '{wanted[number].name}' has no address", code="no-address")


def _check_overlap(allocation: Allocation) -> None:
    """Follow the steps, keeping of each place between two neighbouring addresses whether it is taken."""
    placed = [one for one in allocation.placements if one.size > 0]
    lows, highs = [one.offset for one in placed], [one.offset + one.size for one in placed]
    places = {address: place for place, address in enumerate(sorted({*lows, *highs}))}
    begins, ends = [places[low] for low in lows], [places[high] for high in highs]
    firsts, lasts = [one.first_step for one in placed], [one.last_step for one in placed]
    by_step = sorted(range(len(placed)), key=firsts.__getitem__)
    ending = iter(sorted(range(len(placed)), key=lasts.__getitem__))
    gone = next(ending, 0)
    taken = bytearray(len(places))
    for number in by_step:
        begin, end = begins[number], ends[number]
        while lasts[gone] < firsts[number]:
            taken[begins[gone] : ends[gone]] = bytes(ends[gone] - begins[gone])
            gone = next(ending)
        if taken.find(1, begin, end) >= 0:
            one = placed[number]
            where = f"at offset {one.offset} in step {one.first_step}"
            raise InternalError(f"two buffers overlap {where}", code="overlap")
        taken[begin:end] = b"\1" * (end - begin)


def check_reordering(before: Graph, after: Graph) -> None:
    """Check that ``after`` computes what ``before`` does: the same ops on the same tensors, in another order.

    Ops and tensors are compared by name; in-place and view permissions may differ, and so may what an op was made
    from, which no file says.

    Raises:
        InternalError: An op is missing, added or reads or writes something else.
    """

    def described(graph: Graph) -> dict[str, object]:
        names = [tensor.name for tensor in graph.tensors]
        return {
            op.name: (op.type, tuple(names[t] for t in op.inputs), tuple(names[t] for t in op.outputs))
            for op in graph.ops
        }

    def interface(graph: Graph) -> tuple[tuple[str, ...], tuple[str, ...]]:
        tensors = graph.tensors
        return tuple(tensors[t].name for t in graph.inputs), tuple(tensors[t].name for t in graph.outputs)

    if described(before) != described(after) or interface(before) != interface(after):
        raise InternalError(
            "the reordered graph does not hold the same ops on the same tensors", code="reordering-differs"
        )

    def bare(tensor: Tensor) -> Tensor:
        return replace(tensor, external=False, stated=None)

    sizes = {tensor.name: bare(tensor) for tensor in before.tensors}
    if any(sizes.get(tensor.name) != bare(tensor) for tensor in after.tensors):
        raise InternalError("the reordered graph's tensors differ in size, shape or type", code="tensor-differs")
