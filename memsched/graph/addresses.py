"""Where tensors lie that have no buffer of their own: views, slices and concatenations whose pieces lie inside them."""

from __future__ import annotations

from memsched.base.errors import GraphError
from memsched.graph.model import Allocation, Graph, Op

__all__ = ["addresses", "own_range", "view_distances"]


def view_distances(graph: Graph, op: Op) -> tuple[tuple[int, int, int], ...]:
    """Return per view of ``op`` (output, input, distance): the output's address minus the input's, bytes.

    The distance of a slice is positive or 0, that of a concatenation to its pieces negative or 0.

    Raises:
        GraphError: The op's ``view_offsets`` do not fit its views.
    """
    if op.view_offsets and len(op.view_offsets) != len(op.views):
        raise GraphError(
            f"op '{op.name}' has {len(op.views)} views, but {len(op.view_offsets)} offsets of views",
            code="view-offset-count",
        )
    result = []
    end: dict[int, int] = {}
    for index, (output, read) in enumerate(op.views):
        if (output, read) in op.views[:index]:
            continue
        whole = _consists(graph, op, output)
        begin = op.view_offsets[index] if op.view_offsets else end.get(output, 0) if whole else 0
        inner, outer = (read, output) if whole else (output, read)
        if not 0 <= begin <= graph.tensors[outer].size - graph.tensors[inner].size:
            names = f"'{graph.tensors[inner].name}' does not lie inside '{graph.tensors[outer].name}'"
            raise GraphError(f"{names} at byte {begin}", code="view-past-end", location=f"op '{op.name}'")
        end[output] = begin + graph.tensors[read].size
        result.append((output, read, -begin if whole else begin))
    return tuple(result)


def own_range(graph: Graph, op: Op, output: int) -> tuple[int, int]:
    """Return the bytes [low, high) of a concatenation that none of its pieces covers.

    Raises:
        GraphError: They are more than one range, or two pieces overlap: no buffer can be that.
    """
    begins = [(-distance, read) for shown, read, distance in view_distances(graph, op) if shown == output]
    pieces = sorted((begin, begin + graph.tensors[read].size) for begin, read in begins)
    free, end = [], 0
    for low, high in [*pieces, (graph.tensors[output].size, graph.tensors[output].size)]:
        if low < end:
            raise GraphError(
                f"two pieces of '{graph.tensors[output].name}' overlap at byte {low}",
                location=f"op '{op.name}'",
                code="views-overlap",
            )
        if low > end:
            free.append((end, low))
        end = high
    if len(free) > 1:
        raise GraphError(
            f"what '{graph.tensors[output].name}' has beside its pieces is not one range",
            location=f"op '{op.name}'",
            code="views-scattered",
        )
    return free[0] if free else (end, end)


def addresses(graph: Graph, allocation: Allocation) -> tuple[int | None, ...]:
    """Return per tensor the address of its first byte; None for what needs no address (the caller's, unread inputs).

    A view has its source's address, a slice lies inside its source, and a concatenation of pieces begins where its
    first byte lies.
    """
    result: list[int | None] = [None] * len(graph.tensors)
    variables = set(graph.variables)
    for placement in allocation.placements:
        for tensor in placement.tensors:
            result[tensor] = placement.offset
    for op in graph.ops:
        own = {tensor: result[tensor] for tensor in op.outputs} if op.views else {}
        for output, read, distance in view_distances(graph, op) if op.views else ():
            source, rest = result[read], own[output]
            if output in variables:
                continue
            if source is not None:
                result[output] = source + distance
            elif rest is not None:
                # No piece needs an address, only the bytes beside the pieces do.
                result[output] = rest - own_range(graph, op, output)[0]
    return tuple(result)


def _consists(graph: Graph, op: Op, output: int) -> bool:
    """Whether ``output`` is a concatenation: of several inputs, or of one and bytes of its own."""
    read = dict.fromkeys([source for shown, source in op.views if shown == output])
    return len(read) > 1 or graph.tensors[output].size > sum([graph.tensors[source].size for source in read])
