"""What is left of a network's layers: those that an output needs, with what they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memsched.codegen.streaming.layers import INPUT, StreamLayer, StreamNetwork

__all__ = ["without_unread"]


def without_unread(network: StreamNetwork) -> StreamNetwork:
    """Return the network without layers that no output needs, and with what waits for a sibling saying so."""
    needed = set(network.outputs)
    for number in reversed(range(len(network.layers))):
        if number + 1 in needed:
            needed.update(network.layers[number].sources)
    kept = [number for number in range(len(network.layers)) if number + 1 in needed]
    place = {INPUT: INPUT, **{number + 1: new + 1 for new, number in enumerate(kept)}}
    layers = [
        replace(network.layers[number], sources=tuple(place[one] for one in network.layers[number].sources))
        for number in kept
    ]
    maps = (network.maps[INPUT], *(network.maps[number + 1] for number in kept))
    return StreamNetwork(
        network.name,
        maps,
        tuple(replace(one, after=_sibling(layers, number)) for number, one in enumerate(layers)),
        tuple(place[one] for one in network.outputs),
        {place[one]: scale for one, scale in network.scales.items() if one in place},
    )


def _sibling(layers: Sequence[StreamLayer], number: int) -> int | None:
    """Return the layer of the same map and the same steps whose window reaches furthest, if it reaches further."""
    one = layers[number]
    alike = [
        place
        for place, other in enumerate(layers)
        if other.sources == one.sources and other.steps == one.steps and not (other.adds_up or one.adds_up)
    ]
    furthest = max(alike, key=lambda place: _reach(layers[place]), default=number)
    return furthest if _reach(layers[furthest]) > _reach(one) else None


def _reach(layer: StreamLayer) -> tuple[int, int]:
    rows, columns = layer.window
    return rows.last(0), columns.last(0)
