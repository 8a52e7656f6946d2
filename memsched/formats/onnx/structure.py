"""The structure of an ONNX model: its graphs, what they capture, and which of their nodes compute constants.

Names are resolved as the specification says (docs/IR.md, "Names Within a Graph"): a body sees the names of the graphs
around it. Everything is done with explicit stacks, in linear time.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from memsched.base.errors import GraphError
from memsched.formats.onnx.effects import false_names, node_effects

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto

__all__ = [
    "BRANCHES",
    "DEFAULT_DOMAINS",
    "FalseNames",
    "Scope",
    "analyse",
    "attributed",
    "domain_of",
    "graphs_like",
    "graphs_of",
    "initializers",
    "op_type",
    "owner",
    "sparse_name",
    "unique_names",
    "values_of",
]

BRANCHES: Final = frozenset({"then_branch", "else_branch"})
"""The attributes of an If that hold its bodies."""

# What ONNX calls FLOAT, INT, STRING, TENSOR, FLOATS, INTS, STRINGS: most attributes, which hold no graph.
_PLAIN: Final = frozenset({1, 2, 3, 4, 6, 7, 8})
DEFAULT_DOMAINS: Final = frozenset({"", "ai.onnx"})
_CONSTANT_WITHOUT_INPUTS: Final = frozenset({"Constant", "SequenceEmpty", "Optional"})
# Of other domains only these are folded: exporters put them on weights.
_FOLDED_CONTRIB: Final = frozenset({"com.microsoft.DequantizeLinear", "com.microsoft.QuantizeLinear"})


@dataclass(slots=True)
class Scope:
    """One GraphProto seen with its surroundings.

    Attributes:
        graph: The proto.
        parent: Index of the scope whose node executes it; -1 for the main graph.
        node: Index of that node in the parent.
        attribute: Name of the attribute that holds it.
        bodies: Per node index the scopes that it executes.
        defined: The names that this graph defines: inputs, initializers, outputs of nodes.
        free: The names that it takes from the graphs around it, in an order that does not depend on that of its nodes.
        constants: The names of its own that are constants.
        constant_node: Per node whether it computes constants from constants alone.
        reads: Per node its input names, as `analyse` found them: asking a node makes its names anew each time.
        writes: Per node its output names.
        kinds: Per node its `op_type`.
        given: Per node its own name, as the file has it.
        attributed: The nodes that have attributes.
        operators: The operators of its nodes without their domains, as the file has them.
        domains: Those of its nodes, as the file has them.
        types: Those that values are declared with, as the file has them: large models have few.
    """

    graph: GraphProto
    parent: int
    node: int
    attribute: str
    bodies: dict[int, list[int]] = field(default_factory=dict)
    defined: set[str] = field(default_factory=set)
    free: dict[str, None] = field(default_factory=dict)
    constants: set[str] = field(default_factory=set)
    constant_node: bytearray = field(default_factory=bytearray)
    reads: list[tuple[str, ...]] = field(default_factory=list)
    writes: list[tuple[str, ...]] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    given: list[str] = field(default_factory=list)
    attributed: set[int] = field(default_factory=set)
    operators: set[str] = field(default_factory=set)
    domains: set[str] = field(default_factory=set)
    types: set[bytes] = field(default_factory=set)


def graphs_of(main: GraphProto, known: Sequence[int] | None = None) -> list[Scope]:
    """Return the main graph and all bodies below it, parents before children, in the file's order.

    Args:
        known: What `attributed` gives for the main graph, where the caller has it already.
    """
    scopes = [Scope(main, -1, -1, "")]
    for index, scope in enumerate(scopes):
        nodes = scope.graph.node
        places = known if known is not None and not index else attributed(scope.graph)
        scope.attributed.update(places)
        for position in places:
            for attribute in nodes[position].attribute[:]:
                if attribute.type in _PLAIN:
                    continue
                if attribute.HasField("g"):
                    scope.bodies.setdefault(position, []).append(len(scopes))
                    scopes.append(Scope(attribute.g, index, position, attribute.name))
                for graph in attribute.graphs:
                    scope.bodies.setdefault(position, []).append(len(scopes))
                    scopes.append(Scope(graph, index, position, attribute.name))
    return scopes


def attributed(graph: GraphProto) -> list[int]:
    """Return the nodes that have attributes."""
    # Slices of protobuf's lists are made faster than iterators.
    return [position for position, node in enumerate(graph.node) if node.attribute[:]]


def graphs_like(main: GraphProto, scopes: Sequence[Scope]) -> list[Scope]:
    """Return `graphs_of` for a model with the same bodies as ``scopes``; where there are none, none are sought."""
    return [Scope(main, -1, -1, "")] if len(scopes) == 1 else graphs_of(main)


def analyse(main: GraphProto, *, folded: bool = True, known: Sequence[int] | None = None) -> list[Scope]:
    """Return the scopes of `graphs_of` with their names resolved and their constants found.

    Args:
        folded: Nodes that read constants alone compute constants; else only those that read nothing do.
        known: As of `graphs_of`.

    Raises:
        GraphError: A name has two producers, or a node reads a name that nothing or only a later node defines.
    """
    scopes = graphs_of(main, known)
    texts: dict[str, str] = {}
    share = texts.setdefault
    for scope in scopes:
        reads, writes, kinds, given = scope.reads, scope.writes, scope.kinds, scope.given
        for node in scope.graph.node:
            read, written, domain, operator = node.input[:], node.output[:], node.domain, node.op_type
            kind = _kind(domain, operator) if domain else operator
            reads.append(tuple(map(share, read, read)))
            # Most nodes have one output.
            writes.append(
                (share(written[0], written[0]),) if len(written) == 1 else tuple(map(share, written, written))
            )
            kinds.append(share(kind, kind))
            given.append(node.name)
            scope.operators.add(operator)
            scope.domains.add(domain)
        scope.types.update([value.type.SerializeToString() for value in values_of(scope.graph)])
        _define(scope)
    sound = len(scopes) == 1 and _is_sound(scopes[0])
    for index in range(len(scopes) - 1, -1, -1) if not sound else ():
        _find_free(scopes, index)
    if scopes[0].free:
        _refuse_undefined(scopes)
    for index in range(len(scopes)):
        if not sound:
            _refuse_unordered(scopes, index)
        _find_constants(scopes, index, folded)
    return scopes


def _is_sound(scope: Scope) -> bool:
    """Return whether all is defined before it is read, in a graph without others around it or inside."""
    known = {"", *scope.constants, *(value.name for value in scope.graph.input)}
    for read, written in zip(scope.reads, scope.writes, strict=True):
        if not known.issuperset(read):
            return False
        known.update(written)
    return all(value.name in known for value in scope.graph.output)


def owner(scopes: Sequence[Scope], index: int, name: str) -> int:
    """Return the innermost scope around and including ``index`` that defines ``name``; -1 where none does."""
    while index >= 0 and name not in scopes[index].defined:
        index = scopes[index].parent
    return index


def sparse_name(sparse: object) -> str:
    """Return the name of a sparse initializer, which is that of its values."""
    return str(sparse.values.name)  # type: ignore[attr-defined]


def domain_of(node: NodeProto) -> str:
    """Return the domain of a node; "" for the default one."""
    domain = node.domain
    return "" if domain in DEFAULT_DOMAINS else str(domain)


def op_type(node: NodeProto) -> str:
    """Return "Conv" for the default domain and "domain.Type" for any other."""
    return _kind(node.domain, node.op_type)


def _kind(domain: str, operator: str) -> str:
    # The protobuf library hands out text that is not UTF-8 as bytes; `checks.check_nodes` refuses it later.
    return str(operator) if domain in DEFAULT_DOMAINS else f"{domain}.{operator}"


def values_of(graph: GraphProto) -> Iterator[ValueInfoProto]:
    """Return every declaration in ``graph``: computed values, outputs and inputs."""
    return itertools.chain(graph.value_info[:], graph.output[:], graph.input[:])


def initializers(graph: GraphProto) -> Iterator[str]:
    """Return the names of the graph's initializers, sparse ones last."""
    tensor: TensorProto
    for tensor in graph.initializer:
        yield tensor.name
    for sparse in graph.sparse_initializer:
        yield sparse_name(sparse)


def _define(scope: Scope) -> None:
    graph, defined = scope.graph, scope.defined
    for value in graph.input:
        if value.name in defined:
            raise GraphError(f"two inputs of graph '{graph.name}' are called '{value.name}'", code="name-twice")
        defined.add(value.name)
    for name in initializers(graph):
        if name in scope.constants:
            raise GraphError(f"two initializers of graph '{graph.name}' are called '{name}'", code="name-twice")
        scope.constants.add(name)
    defined |= scope.constants
    for position, names in enumerate(scope.writes):
        for name in names:
            if not name:
                continue
            if name in defined:
                op = _shown(graph.node[position])
                raise GraphError(
                    f"tensor '{name}' has more than one producer; the second is op '{op}'", code="two-producers"
                )
            defined.add(name)


def _shown(node: NodeProto) -> str:
    return str(node.name) or next((name for name in node.output if name), str(node.op_type))


def _find_free(scopes: list[Scope], index: int) -> None:
    scope = scopes[index]
    free, defined = scope.free, scope.defined
    for name in itertools.chain.from_iterable(scope.reads):
        if name not in defined and name:
            free[name] = None
    for body in itertools.chain.from_iterable(scope.bodies.values()):
        for name in scopes[body].free:
            if name not in defined:
                free[name] = None
    for value in scope.graph.output:
        if value.name not in defined:
            free[value.name] = None
    scope.free = dict.fromkeys(sorted(free, key=repr))  # damaged names are bytes


def _refuse_unordered(scopes: list[Scope], index: int) -> None:
    """Refuse a read of what a later node produces, before shapes are looked at: they cannot be known there."""
    scope = scopes[index]
    waiting = {name for names in scope.writes for name in names if name}
    for position, names in enumerate(scope.reads):
        captured = [scopes[body].free for body in scope.bodies.get(position, ())]
        for name in itertools.chain(names, *captured) if captured else names:
            if name in waiting:
                raise GraphError(
                    f"op '{_shown(scope.graph.node[position])}' reads tensor '{name}' before any op has produced it: "
                    "the graph has a cycle or is not stored in execution order",
                    code="read-too-early",
                )
        waiting.difference_update(scope.writes[position])


def _refuse_undefined(scopes: list[Scope]) -> None:
    """Name the node, or the graph output, through which the first undefined name came up."""
    missing = next(iter(scopes[0].free))
    for scope in scopes:
        for node in scope.graph.node:
            if missing in node.input:
                raise GraphError(
                    f"op '{_shown(node)}' reads tensor '{missing}', which no op produces and which is no graph input",
                    code="no-producer",
                )
    raise GraphError(f"graph output '{missing}' is produced by no op", code="no-producer")


def _find_constants(scopes: list[Scope], index: int, folded: bool) -> None:
    scope = scopes[index]
    constants = scope.constants
    if scope.parent >= 0:
        outer = scopes[scope.parent].constants
        constants.update(name for name in scope.free if name in outer)
    scope.constant_node = bytearray(len(scope.reads))
    if not constants and all(map(any, scope.reads)):
        return
    is_false = FalseNames(scopes).within(index)
    nodes = scope.graph.node
    for position, names in enumerate(scope.reads):
        for name in names:
            if name not in constants and name:
                break
        else:
            given = any(names)
            if position not in scope.bodies and (folded or not given) and _is_folded(nodes[position], given, is_false):
                scope.constant_node[position] = 1
                constants.update(name for name in scope.writes[position] if name)


def _is_folded(node: NodeProto, has_inputs: bool, is_false: Callable[[str], bool]) -> bool:
    domain, kind = domain_of(node), op_type(node)
    if not any(node.output) or not node_effects(node, kind, is_false).pure:
        return False
    if domain not in {"", "ai.onnx.ml"}:
        return has_inputs and kind in _FOLDED_CONTRIB
    return has_inputs or kind in _CONSTANT_WITHOUT_INPUTS


class FalseNames:
    """The constants of graphs that are False in every inference; each graph is looked through once, if at all."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        self._scopes = scopes
        self._found: dict[int, frozenset[str]] = {}

    def within(self, index: int) -> Callable[[str], bool]:
        """Return the test of names as the graph of a scope sees them."""
        return lambda name: self._is_false(index, name)

    def _is_false(self, index: int, name: str) -> bool:
        at = owner(self._scopes, index, name)
        if at < 0:
            return False
        if at not in self._found:
            graph = self._scopes[at].graph
            self._found[at] = false_names(graph.node, graph.initializer, graph.input)
        return name in self._found[at]


def unique_names(scopes: list[Scope]) -> list[list[str]]:
    """Return per scope and node a name that is unique in its graph and the same wherever the node is stored.

    A node keeps its own name unless it has none or another node of its graph has the same; then it takes the name of
    its first output, with a number if a node of the graph has that name.
    """
    result = []
    for scope in scopes:
        own = scope.given
        if len(set(own)) == len(own) and "" not in own:
            result.append(own)
            continue
        count = Counter(own)
        bases = [None if name and count[name] == 1 else _described(scope, node) for node, name in enumerate(own)]
        taken, seen = {*own, *bases}, set(own)
        names = []
        for name, base in zip(own, bases, strict=True):
            found = name if base is None else _free_name(base, seen, taken)
            seen.add(found)
            names.append(found)
        result.append(names)
    return result


def _free_name(base: str, seen: Collection[str], taken: Collection[str | None]) -> str:
    """Return ``base``, or the first numbered one of it that no other node can have."""
    found, number = base, 1
    while found in seen:
        found = f"{base}#{number}"
        if found in taken:
            found = base
        number += 1
    return found


def _described(scope: Scope, node: int) -> str:
    """Return what tells a node apart from most others of its graph: its first output, or what it reads."""
    made = next((name for name in scope.writes[node] if name), None)
    return made if made is not None else f"{scope.kinds[node]}({', '.join(scope.reads[node])})"
