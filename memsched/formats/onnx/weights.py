"""The constants that the nodes of an ONNX model read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memsched.formats.module import Module
from memsched.formats.onnx import light
from memsched.formats.onnx.native import OnnxNative
from memsched.formats.onnx.structure import Scope, analyse

__all__ = ["read_constants"]


def read_constants(module: Module) -> tuple[list[list[str]], dict[str, int]]:
    """Return per op of the main graph the constants of `memsched.formats.weights.weights`, and the bytes of each.

    Raises:
        ModelError: A constant's shape is negative or absurd.
    """
    native: OnnxNative = module.native
    if not native.constants:
        return [[] for _ in native.nodes[0]], {}
    scopes = analyse(native.scheduled().graph, folded=native.folded)
    folded = dict(native.computed_bytes)
    stored = [light.constant_sizes(scope.graph) for scope in scopes]
    main = scopes[0].graph
    computed = {name: node for node in native.constant_nodes[0] for name in main.node[node].output if name}
    sizes = {**folded, **stored[0]}
    known: dict[str, list[str]] = {}
    per_op = []
    for op, node in zip(module.graphs[0].ops, native.nodes[0], strict=True):
        read = {}
        for name in _reads(scopes, node):
            if name in scopes[0].constants:
                read.update(dict.fromkeys(_sources(scopes, computed, sizes, name, known)))
        for body in _bodies_below(scopes, node):
            for name, size in stored[body].items():
                own = f"{module.graphs[body].name}/{name}"
                if own in sizes:
                    own = f"{op.name}/{own}#{body}"
                sizes[own] = size
                read[own] = None
        per_op.append(list(read))
    return per_op, sizes


def _reads(scopes: Sequence[Scope], node: int) -> Iterable[str]:
    yield from filter(None, scopes[0].reads[node])
    for body in scopes[0].bodies.get(node, ()):
        yield from scopes[body].free


def _bodies_below(scopes: Sequence[Scope], node: int) -> list[int]:
    """Return the bodies that ``node`` of the main graph executes, bodies in bodies included."""
    found = list(scopes[0].bodies.get(node, ()))
    for body in found:
        found.extend(inner for inners in scopes[body].bodies.values() for inner in inners)
    return found


def _sources(
    scopes: Sequence[Scope], computed: dict[str, int], sizes: dict[str, int], name: str, known: dict[str, list[str]]
) -> list[str]:
    """Return the constants of known size that constant ``name`` of the main graph is or is computed from."""
    if name not in known:
        found: dict[str, None] = {}
        seen = {name}
        waiting = [name]
        while waiting:
            one = waiting.pop()
            if one in sizes:
                found[one] = None
                continue
            fresh = [read for read in _reads(scopes, computed[one]) if read not in seen] if one in computed else []
            seen.update(fresh)
            waiting.extend(reversed(fresh))
        known[name] = list(found)
    return known[name]
