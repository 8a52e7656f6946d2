"""Functions, model-local ones and ONNX's own: they are inlined, so that their inner nodes are scheduled too.

Runtimes inline them as well, so the inlined model runs the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from onnx import GraphProto, ModelProto, NodeProto, helper, inliner

from memsched.base.errors import ModelError
from memsched.formats.onnx.free_names import FreeNames
from memsched.formats.onnx.graph_effects import nodes_of
from memsched.formats.onnx.structure import domain_of, graphs_of, initializers, values_of

__all__ = ["FUNCTIONS", "calls_functions", "inline", "takes_apart"]

_Identifier = tuple[str, str, str]
_MOST_NODES: Final = 2_000_000

FUNCTIONS: Final[Mapping[str, tuple[tuple[str, dict[str, Any]], ...]]] = {
    "HardSwish": (("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),),
    "Mish": (("Softplus", {}), ("Tanh", {})),
}
"""Functions of ONNX's own that ONNX Runtime has no kernel for: the steps that make what their input is multiplied by.

It takes them apart when it opens a file, and numbers the steps behind all nodes of the file.
"""


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
            raise ModelError(f"two model-local functions are called '{function.name}'", code="function-twice")
        nodes = list(nodes_of(function.node))
        functions[key] = [_identifier(node) for node in nodes]
        sizes[key] = len(nodes)
    if not functions:
        return False
    totals = _inlined_sizes(functions, sizes)
    calls = [_identifier(node) for node in nodes_of(model.graph.node)]
    nodes_after = sum(totals.get(call, 1) for call in calls)
    if nodes_after > _MOST_NODES:
        raise ModelError(
            f"inlining the model-local functions would give more than {_MOST_NODES:,} nodes", code="too-many-ops"
        )
    return any(call in functions for call in calls)


def takes_apart(data: bytes, model: ModelProto) -> bool:
    """Return whether a graph or a function of ``model``, read from ``data``, holds a function of ONNX's own."""
    if not any(name.encode() in data for name in FUNCTIONS):
        return False
    holders = (model.graph.node, *(function.node for function in model.functions))
    return any(_is_own(node) for nodes in holders for node in nodes_of(nodes))


def inline(model: ModelProto) -> ModelProto:
    """Return ``model`` with its functions inlined; `calls_functions` must have accepted it. It may be changed itself.

    Calls of functions that import another version of an operator set than the model stay calls.

    Raises:
        ModelError: The functions do not fit their calls.
    """
    try:
        inlined = inliner.inline_local_functions(model) if model.functions else model
    except Exception as error:  # the native inliner has no error type of its own
        raise ModelError(f"the model-local functions cannot be inlined: {error}", code="not-inlinable") from error
    graphs = [scope.graph for scope in graphs_of(inlined.graph)]
    if any(_is_own(node) for graph in graphs for node in graph.node):
        names = FreeNames(name for graph in graphs for name in _names(graph))
        for graph in reversed(graphs):  # bodies before the nodes that hold them, which are copied
            _take_apart(graph, names)
    return inlined


def _is_own(node: NodeProto) -> bool:
    return node.op_type in FUNCTIONS and not domain_of(node) and len(node.input) == len(node.output) == 1


def _names(graph: GraphProto) -> Iterator[str]:
    yield from (value.name for value in values_of(graph))
    yield from initializers(graph)
    for node in graph.node:
        yield node.name
        yield from node.output


def _take_apart(graph: GraphProto, names: FreeNames) -> None:
    """Put in place the steps of each function of ONNX's own for it; the last one keeps its name."""
    nodes: list[NodeProto] = []
    for node in graph.node:
        if not _is_own(node):
            nodes.append(node)
            continue
        read = node.input[0]
        for kind, attributes in FUNCTIONS[node.op_type]:
            made = names.new(f"{node.output[0]}.{kind}")
            nodes.append(helper.make_node(kind, [read], [made], made, **attributes))
            read = made
        nodes.append(helper.make_node("Mul", [node.input[0], read], node.output, node.name))
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _identifier(node: NodeProto) -> _Identifier:
    return domain_of(node), str(node.op_type), str(node.overload)


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
                        raise ModelError(f"the model-local function '{call[1]}' calls itself", code="calls-itself")
                stack.extend(waiting)
    return totals
