"""Model-local functions: they are inlined, so that their inner nodes are scheduled too.

Runtimes inline them as well, so the inlined model runs the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from memsched.errors import ModelError
from memsched.formats.onnx.structure import domain_of, graphs_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

__all__ = ["calls_functions", "inline"]

_Identifier = tuple[str, str, str]
_MOST_NODES: Final = 2_000_000


def calls_functions(model: ModelProto) -> bool:
    """Return whether the main graph or a body calls a function of the model.

    Raises:
        ModelError: Two functions have one name, a function calls itself, or inlining would give too many nodes.
    """
    functions: dict[_Identifier, list[_Identifier]] = {}
    sizes: dict[_Identifier, int] = {}
    for function in model.functions:
        domain = "" if function.domain == "ai.onnx" else function.domain
        key = (domain, function.name, function.overload)
        if key in functions:
            raise ModelError(f"two model-local functions are called '{function.name}'")
        nodes = list(_all_nodes(function.node))
        functions[key] = [_identifier(node) for node in nodes]
        sizes[key] = len(nodes)
    if not functions:
        return False
    totals = _inlined_sizes(functions, sizes)
    calls = [_identifier(node) for node in _all_nodes(model.graph.node)]
    nodes_after = sum(totals.get(call, 1) for call in calls)
    if nodes_after > _MOST_NODES:
        raise ModelError(f"inlining the model-local functions would give more than {_MOST_NODES:,} nodes")
    return any(call in functions for call in calls)


def inline(model: ModelProto) -> ModelProto:
    """Return ``model`` with its functions inlined; `calls_functions` must have accepted it.

    Calls of functions that import another version of an operator set than the model stay calls.

    Raises:
        ModelError: The functions do not fit their calls.
    """
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # the native inliner has no error type of its own
        raise ModelError(f"the model-local functions cannot be inlined: {error}") from error


def _identifier(node: NodeProto) -> _Identifier:
    return domain_of(node), str(node.op_type), str(node.overload)


def _all_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                for scope in graphs_of(graph):
                    yield from scope.graph.node


def _inlined_sizes(
    functions: dict[_Identifier, list[_Identifier]], sizes: dict[_Identifier, int]
) -> dict[_Identifier, int]:
    """Return per function the nodes that one call becomes, functions within functions included."""
    totals: dict[_Identifier, int] = {}
    entered: set[_Identifier] = set()
    for start in functions:
        stack = [start]
        while stack:
            key = stack[-1]
            if key in totals:
                stack.pop()
            elif key in entered:
                stack.pop()
                entered.discard(key)
                totals[key] = sizes[key] + sum(totals.get(call, 0) for call in functions[key])
            else:
                entered.add(key)
                waiting = dict.fromkeys(call for call in functions[key] if call in functions and call not in totals)
                for call in waiting:
                    if call in entered:
                        raise ModelError(f"the model-local function '{call[1]}' calls itself")
                stack.extend(waiting)
    return totals
