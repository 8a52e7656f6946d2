"""A stored graph in one form: what ONNX Runtime numbers and stores differently in every process is stored alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

__all__ = ["BLOCKED", "NUMBERED", "in_one_form"]

BLOCKED: Final = "com.microsoft.nchwc"
"""The domain of what works on tensors in blocks of channels."""

NUMBERED: Final = re.compile(r"(.*)_token_\d+", re.DOTALL)
"""A name that the runtime made up: the number counts in an order of addresses, and the first has none."""


def in_one_form(proto: Any) -> None:
    """Store a model's nodes by their way from its outputs, and number the names that the runtime made up likewise."""
    graph = proto.graph
    nodes = _by_way(graph)
    listed = dict.fromkeys(name for node in nodes for name in (node.name, *_read(node), *node.output) if name)
    bases = {name: found[1] for name in listed if (found := NUMBERED.fullmatch(name))}
    made_up = {**bases, **{base: base for base in bases.values() if base in listed and base not in bases}}
    kept = {value.name for value in (*graph.input, *graph.output)}
    numbered = [name for name in listed if name in made_up and name not in kept]
    names = {name: f"{made_up[name]}_token_{at}" for at, name in enumerate(numbered)}
    stored = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(stored)
    _rename(graph, names)
    place = {name: at for at, name in enumerate(dict.fromkeys(name for node in graph.node for name in _read(node)))}
    for field in (graph.initializer, graph.value_info):
        ordered = sorted(field, key=lambda one: (place.get(one.name, len(place)), one.name))
        copies = [type(one).FromString(one.SerializeToString()) for one in ordered]
        del field[:]
        field.extend(copies)


def _by_way(graph: Any) -> list[Any]:
    """Return the nodes so that each comes after what it reads, as a search from the outputs meets them."""
    makers = {name: at for at, node in enumerate(graph.node) for name in node.output if name}
    found: dict[int, None] = {}
    seen: set[int] = set()
    stack = [~at for at in range(len(graph.node) - 1, -1, -1)]
    stack += [~makers[value.name] for value in reversed(graph.output) if value.name in makers]
    while stack:
        at = stack.pop()
        if at >= 0:
            found[at] = None
        elif ~at not in seen:
            seen.add(~at)
            stack.append(~at)
            stack += [~makers[name] for name in reversed(_read(graph.node[~at])) if name in makers]
    return [graph.node[at] for at in found]


def _read(node: Any) -> Sequence[str]:
    return [*node.input, *_captured(node)]


def _bodies(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _captured(node: Any) -> list[str]:
    """Return all that a node's bodies read, their own values too."""
    return [name for body in _bodies(node) for inner in body.node for name in (*inner.input, *_captured(inner))]


def _rename(graph: Any, names: dict[str, str]) -> None:
    for node in graph.node:
        node.name = names.get(node.name, node.name)
        for field in (node.input, node.output):
            renamed = [names.get(name, name) for name in field]
            del field[:]
            field.extend(renamed)
        for body in _bodies(node):
            _rename(body, names)
    for field in (graph.initializer, graph.value_info, graph.input, graph.output):
        for one in field:
            one.name = names.get(one.name, one.name)
