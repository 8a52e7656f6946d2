"""The paper's way to form groups: a group grows layer by layer as long as some tile of its last layer's output fits.

Source: "Deep Fusion", section 3.3, Figure 6. Beyond the flowchart: where no piece of the plane
fits because of the weights, the channels are cut as well. The flowchart lets each layer join that fits; unless that is
asked for, a layer only joins if that moves no more bytes than leaving it to the next group.
"""

from __future__ import annotations

from collections.abc import Iterator

from memsched.codegen.onchip.groups import GroupCandidate, GroupSpan
from memsched.codegen.onchip.model import Cost, OnChipBuffer, OnChipGroup, Policy, Tile
from memsched.codegen.onchip.network import OnChipNetwork
from memsched.codegen.onchip.sweep import AxisSweep
from memsched.codegen.onchip.traffic import Machine, alone

__all__ = ["candidate", "finished", "fitted", "greedy", "singles"]


def greedy(
    network: OnChipNetwork, machine: Machine, policy: Policy, first: int = 0, *, all_that_fit: bool = False
) -> list[OnChipGroup]:
    """Return the groups of Figure 6 from op ``first`` on, in order.

    Args:
        all_that_fit: Whether layers join even if more bytes are moved then, as in the flowchart.
    """
    groups: list[OnChipGroup] = []
    count = len(network.layers)
    by_itself: dict[int, OnChipGroup] = {}

    def single(op: int) -> OnChipGroup:
        if op not in by_itself:
            by_itself[op] = finished(network, machine, op, op, policy)
        return by_itself[op]

    while first < count:
        group = single(first)
        last = first + 1
        while group.refusal is None and last < count:
            found = fitted(network, machine, first, last, policy)
            if found is None:
                break
            if not all_that_fit and found[0].cost().traffic > group.cost.traffic + single(last).cost.traffic:
                break
            group = _group(machine, *found)
            last += 1
        groups.append(group)
        first = last
    return groups


def singles(network: OnChipNetwork, machine: Machine, policy: Policy) -> list[OnChipGroup]:
    """Return one group per layer."""
    return [finished(network, machine, op, op, policy) for op in range(len(network.layers))]


def finished(network: OnChipNetwork, machine: Machine, first: int, last: int, policy: Policy) -> OnChipGroup:
    """Return ops [first, last] as a group; one that is unknown or never fits moves everything once."""
    found = fitted(network, machine, first, last, policy)
    if found is not None:
        return _group(machine, *found)
    cost = Cost()
    for op in range(first, last + 1):
        cost = cost + alone(network, op)
    layer = network.layers[first]
    reason = layer.refusal or f"op '{layer.name}' does not fit on chip in any pieces"
    return OnChipGroup(tuple(range(first, last + 1)), Tile(), (), cost, machine.seconds(cost), reason)


def _group(machine: Machine, chosen: GroupCandidate, buffers: tuple[OnChipBuffer, ...]) -> OnChipGroup:
    cost = chosen.cost()
    return OnChipGroup(tuple(chosen.span.ops), chosen.tile, buffers, cost, machine.seconds(cost))


def candidate(span: GroupSpan, tile: Tile) -> GroupCandidate | None:
    """Return the group cut by ``tile``; None where an op cannot be computed in such pieces."""
    sweeps = []
    for axis, count in enumerate((tile.rows, tile.columns)):
        sweep = AxisSweep(span.network, span.last, axis, count)
        for op in reversed(span.ops):
            if not sweep.extend(op):
                return None
        sweeps.append(sweep)
    return GroupCandidate(span, tile, *sweeps)


def fitted(
    network: OnChipNetwork, machine: Machine, first: int, last: int, policy: Policy
) -> tuple[GroupCandidate, tuple[OnChipBuffer, ...]] | None:
    """Return ops [first, last] in the largest pieces that fit; None where none do."""
    span = GroupSpan(network, first, last)
    sequence = list(_shrinking(span))
    if span.weights <= machine.capacity:
        found = _first_fit(span, machine, policy, [Tile(*counts) for counts in sequence])
        if found is not None:
            return found
    if not span.channels_can_be_cut:
        return _first_fit(span, machine, policy, [Tile(weights="step")]) if first == last else None
    best: tuple[GroupCandidate, tuple[OnChipBuffer, ...]] | None = None
    pieces = 2
    while pieces <= span.most_channels():
        for weights in ("step", "resident"):
            tiles = [Tile(rows, columns, pieces, weights) for rows, columns in sequence]
            found = _first_fit(span, machine, policy, tiles)
            if found is not None and (best is None or found[0].cost().traffic < best[0].cost().traffic):
                best = found
        pieces *= 2
    return best


def _first_fit(
    span: GroupSpan, machine: Machine, policy: Policy, tiles: list[Tile]
) -> tuple[GroupCandidate, tuple[OnChipBuffer, ...]] | None:
    for tile in tiles:
        chosen = candidate(span, tile)
        if chosen is None:
            return None
        buffers = chosen.placed(machine.capacity, machine.alignment, policy)
        if buffers is not None:
            return chosen, buffers
    return None


def _shrinking(span: GroupSpan) -> Iterator[tuple[int, int]]:
    """Yield the pieces of rows and columns of the last output, from one on, the longer side halved each time."""
    made = span.network.maps[span.layers[-1].writes[0]] if span.layers[-1].writes else None
    rows = columns = 1
    yield rows, columns
    if made is None or not made.axes:
        return
    while rows < made.rows or columns < made.columns:
        if made.rows * columns >= made.columns * rows and rows < made.rows:
            rows = min(made.rows, 2 * rows)
        elif columns < made.columns:
            columns = min(made.columns, 2 * columns)
        else:
            rows = min(made.rows, 2 * rows)
        yield rows, columns
