"""The effects of all nodes of a model, through bodies and through functions that stay calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from onnx import FunctionProto, NodeProto

from memsched.formats.onnx.effects import false_names, is_pure_type, node_effects
from memsched.formats.onnx.structure import FalseNames, Scope, graphs_of, op_type
from memsched.graph.effects import PURE, Effects, joined, spread

__all__ = ["effects_of"]


def effects_of(
    scopes: Sequence[Scope], functions: Iterable[FunctionProto] = (), version: int | None = None
) -> list[dict[int, Effects]]:
    """Return, per scope, the effects of its nodes; pure nodes are left out.

    Args:
        scopes: As `analyse` gives them.
        functions: Of the model.
        version: Of ONNX's operator set; None for a recent one.
    """
    called = _function_effects(list(functions))
    stated = {} if version is None else {"version": version}
    is_false = FalseNames(scopes)
    result: list[dict[int, Effects]] = [{} for _ in scopes]
    for index in range(len(scopes) - 1, -1, -1):
        scope, found = scopes[index], result[index]
        unusual = {kind for kind in set(scope.kinds) if kind in called or not is_pure_type(kind)}
        for position, kind in enumerate(scope.kinds) if unusual else ():
            if kind in unusual:
                node = scope.graph.node[position]
                effects = called.get(kind)
                found[position] = effects or node_effects(node, kind, is_false.within(index), **stated)
        for position, bodies in scope.bodies.items():
            own = found.get(position, PURE)
            inner = joined(chain.from_iterable(result[body].values() for body in bodies))
            captures = any(name not in scope.constants for body in bodies for name in scopes[body].free)
            found[position] = own | replace(inner, captures=captures)
        result[index] = {position: effects for position, effects in found.items() if effects != PURE}
    return result


def _function_effects(functions: Sequence[FunctionProto]) -> Mapping[str, Effects]:
    """Return the effects of a call of each function, by type; overloads of one name have those of all of them."""
    place = {function_type(function): number for number, function in enumerate(functions)}
    own = [PURE] * len(functions)
    calls: dict[int, list[int]] = {}
    for function in functions:
        number = place[function_type(function)]
        nodes = list(nodes_of(function.node))
        false = false_names(nodes)
        for node in nodes:
            kind = op_type(node)
            if kind in place:
                calls.setdefault(number, []).append(place[kind])
            else:
                own[number] = own[number] | node_effects(node, kind, false.__contains__)
    return dict(zip(place, (spread(own, calls)[number] for number in place.values()), strict=True))


def function_type(function: FunctionProto) -> str:
    """Return the type of the nodes that call a function."""
    domain = "" if function.domain == "ai.onnx" else function.domain
    return f"{domain}.{function.name}" if domain else str(function.name)


def nodes_of(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield nodes, and those of their bodies at any depth."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                for scope in graphs_of(graph):
                    yield from scope.graph.node
