"""Large values in a branch of an If in which ONNX Runtime keeps no memory pattern.

A session without options notes in the first run of a size what the nodes of a graph request, and requests all of it as
one block in every later run: the memory pattern. What the first run took stays in the arena beside it. Of a graph that
reads a sequence nothing is noted: nodes in a branch that does are computed in later runs in the bytes of the first.
Its weights are computed there from the graph's, which the runtime does once, when a session is opened: kernels find
them to be constants of the same graph, and no copy stays. Stored in the branch they would be held twice. For a while
they are there twice even so, so that only those nodes are put into a branch for which that is worth it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from memsched.base.frozen import FrozenValue
from memsched.formats.module import Module
from memsched.formats.onnx.effects import is_pure_type
from memsched.formats.onnx.free_names import FreeNames
from memsched.formats.onnx.standard import IrVersion, Opset
from memsched.formats.onnx.structure import graphs_of, op_type
from memsched.formats.onnx.types import element_type
from memsched.formats.onnx.worth import SMALL_BLOCK
from memsched.graph.model import Tensor
from memsched.ops.table import families

__all__ = ["best_nodes", "branched", "in_branches"]

_GAIN: Final = 0.95
"""Share of what the file takes as it is that it may take at most with a branch, as estimated."""

_BOUNDARIES: Final = 64
"""Most nodes at which a branch may begin or end: every pair of them is judged."""


_FILLED: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13})
"""Element types that `ConstantOfShape` knows."""

_LARGE: Final = 1 << 10
"""Bytes from which a branch does not store a constant."""

_VIEWS: Final = families("view")


def in_branches(module: Module, written: bytes) -> tuple[bytes, ...]:
    """Return a file with its large values in a branch: the nodes that are worth it, all, and all without weights.

    Args:
        module: The same model, whose sizes count.

    Returns:
        Nothing where no block is large, or the file cannot say it.
    """
    model = ModelProto.FromString(written)
    versions = {one.domain: one.version for one in model.opset_import}
    if model.ir_version < IrVersion.FREE_INITIALIZERS or versions.get("", 0) < Opset.SEQUENCES:
        return ()
    tensors = {one.name: one for one in module.graphs[0].tensors}
    if _ValueFlow.of(model.graph, tensors).block < SMALL_BLOCK:
        return ()
    whole = (0, len(model.graph.node))
    spans = [span for span in dict.fromkeys((best_nodes(model.graph, tensors), whole)) if span is not None]
    made = [branched(written, tensors, span, constants=True) for span in spans]
    made.append(branched(written, tensors, whole, constants=False))
    return tuple(data for data in made if data is not None)


def best_nodes(graph: GraphProto, tensors: Mapping[str, Tensor]) -> tuple[int, int] | None:
    """Return the first node, and the one after the last, that a branch takes so that a session needs least.

    Args:
        tensors: The values of the graph, by their names.

    Returns:
        None where no branch is worth it.
    """
    return _ValueFlow.of(graph, tensors).best()


class _ValueFlow(FrozenValue, frozen=True):
    """The values of a graph, node by node.

    Attributes:
        tensors: Per name of a value that has a size.
        made: Per node the values that it makes and others hold no bytes of.
        last: Per value the last node that reads it.
        weights: Per node the constants that it reads.
        constants: Bytes of each.
        live: Per node the bytes that are live while it is computed.
        bounds: Per node those that wait before it, and at the end.
    """

    tensors: Mapping[str, Tensor]
    made: Sequence[Sequence[str]]
    last: Mapping[str, int]
    weights: Sequence[frozenset[str]]
    constants: Mapping[str, int]
    live: Sequence[int]
    bounds: Sequence[int]

    @classmethod
    def of(cls, graph: GraphProto, tensors: Mapping[str, Tensor]) -> _ValueFlow:
        """Return the flow of a graph whose values are ``tensors``; what its callers own counts nothing."""
        outside = {value.name for value in (*graph.input, *graph.output)}
        constants = {one.name: _bytes_of(one) for one in graph.initializer}
        constants |= {node.output[0]: node.ByteSize() for node in graph.node if op_type(node) == "Constant"}
        roots: dict[str, str] = {}
        made: list[list[str]] = []
        last: dict[str, int] = {}
        weights: list[frozenset[str]] = []
        for place, node in enumerate(graph.node):
            read = list(_read(node))
            weights.append(frozenset(name for name in read if name in constants))
            for name in read:
                last[roots.get(name, name)] = place
            if op_type(node) in _VIEWS and node.input[0] not in outside:
                roots[node.output[0]] = roots.get(node.input[0], node.input[0])
                made.append([])
                continue
            made.append([name for name in node.output if name in tensors and name not in outside])
        flow = cls(tensors, made, last, weights, constants, (), ())
        live, bounds = flow.profile(0)
        return cls(tensors, made, last, weights, constants, live, bounds)

    @property
    def block(self) -> int:
        """Return the bytes that are live at most: about those of the memory pattern."""
        return max(self.live, default=0)

    def profile(self, start: int) -> tuple[list[int], list[int]]:
        """Return `live` and `bounds` of what the nodes from ``start`` on make, as if there were no others."""
        dying: dict[int, int] = {}
        live, bounds, size = [], [0], 0
        for place in range(start, len(self.made)):
            total = 0
            for name in self.made[place]:
                total += self.tensors[name].size
                end = self.last.get(name, place)
                dying[end] = dying.get(end, 0) + self.tensors[name].size
            size += total
            live.append(size)
            size -= dying.pop(place, 0)
            bounds.append(size)
        return live, bounds

    def best(self) -> tuple[int, int] | None:
        """Return the nodes, from the first up to the last, of the branch that leaves least; None where none does."""
        marks = self._marks()
        before, after = _running(self.live), _running(self.live[::-1])[::-1]
        least, found = int(_GAIN * 2 * self.block), None
        for number, start in enumerate(marks):
            live, bounds = self.profile(start)
            held: set[str] = set()
            inside = weighs = 0
            for begin, end in zip(marks[number:], marks[number + 1 :], strict=False):
                inside = max(inside, *live[begin - start : end - start])
                new = frozenset().union(*self.weights[begin:end]) - held
                held |= new
                weighs += sum(self.constants[name] for name in new)
                first = before[start]
                beyond = after[end] if end < len(after) else 0
                block = max(first, beyond, self.bounds[start] + bounds[end - start])
                total = max(first, beyond, self.bounds[start] + inside) + block + weighs
                if total < least:
                    least, found = total, (start, end)
        return found

    def _marks(self) -> list[int]:
        """Return the boundaries at which least waits, each within its part of the graph, and both ends."""
        count = len(self.made)
        width = max(1, -(-count // _BOUNDARIES))
        inner = [
            min(range(begin, min(begin + width, count)), key=lambda place: (self.bounds[place], place))
            for begin in range(1, count, width)
        ]
        return sorted({0, *inner, count})


def _running(sizes: Sequence[int]) -> list[int]:
    """Return per place the largest size before it."""
    found, most = [], 0
    for size in sizes:
        found.append(most)
        most = max(most, size)
    return [*found, most]


def _bytes_of(one: TensorProto) -> int:
    elements = 1
    for length in one.dims:
        elements *= length
    return max(int(one.ByteSize()), elements)


def _read(node: NodeProto) -> Iterator[str]:
    """Yield what a node reads, also in its bodies, whose outputs may be values from outside."""
    yield from (name for name in node.input if name)
    for body in _bodies(node):
        yield from (value.name for value in body.output)
        for inner in body.node:
            yield from _read(inner)


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        yield from ([attribute.g] if attribute.HasField("g") else [])
        yield from attribute.graphs


def branched(written: bytes, tensors: Mapping[str, Tensor], span: tuple[int, int], *, constants: bool) -> bytes | None:
    """Return a file with some nodes in a branch; None where a value that leaves it is of no common type.

    Args:
        tensors: The values of its main graph, by their names.
        span: The first node, and the one after the last.
        constants: Let it have the constants that they read, too: outside, kernels may find them to be none.
    """
    model = ModelProto.FromString(written)
    graph = model.graph
    start, end = span[0] + _hoist(graph, span), span[1]
    inner, rest = list(graph.node[start:end]), [*graph.node[:start], *graph.node[end:]]
    here = {name for node in inner for name in node.output if name}
    needed = {name for node in rest for name in _read(node)} | {value.name for value in graph.output}
    known = {value.name: value for value in (*graph.value_info, *graph.output)}
    leaving = [_value(name, tensors.get(name), known.get(name)) for name in sorted(here & needed)]
    if any(one is None for one in leaving):
        return None
    _move(model, (start, end), [one for one in leaving if one is not None], constants=constants)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _hoist(graph: GraphProto, span: tuple[int, int]) -> int:
    """Put nodes of a span that make constants for others before the rest of it; return how many there are."""
    start, end = span
    constants = {one.name for one in graph.initializer} - {value.name for value in graph.input}
    fixed = []
    for node in graph.node[:end]:
        pure = is_pure_type(op_type(node)) and not any(_bodies(node))
        fixed.append(pure and constants.issuperset(_read(node)))
        constants.update(node.output if fixed[-1] else ())
    needed = {name for node in graph.node[end:] for name in _read(node)} | {value.name for value in graph.output}
    places: list[int] = []
    for place in range(end - 1, start - 1, -1):
        node = graph.node[place]
        if fixed[place] and needed.intersection(node.output):
            needed.update(_read(node))
            places.insert(0, place)
    hoisted, others = set(places), [place for place in range(start, end) if place not in set(places)]
    nodes = [graph.node[place] for place in (*range(start), *sorted(hoisted), *others, *range(end, len(graph.node)))]
    del graph.node[:]
    graph.node.extend(nodes)
    return len(places)


def _value(name: str, tensor: Tensor | None, known: ValueInfoProto | None) -> ValueInfoProto | None:
    """Return the type of a value that leaves the branch, with the shape that the file guarantees."""
    kind = 0 if tensor is None else element_type(tensor.dtype)
    if tensor is not None and tensor.shape is not None and kind in _FILLED:
        shape = tensor.shape_in_file()
        if shape is not None or known is None:
            return helper.make_tensor_value_info(name, kind, [None] * len(tensor.shape) if shape is None else shape)
    if known is None or known.type.tensor_type.elem_type not in _FILLED or not known.type.tensor_type.HasField("shape"):
        return None
    found = helper.make_empty_tensor_value_info(name)
    found.type.CopyFrom(known.type)
    return found


def _move(model: ModelProto, span: tuple[int, int], leaving: Sequence[ValueInfoProto], *, constants: bool) -> None:
    """Put nodes into a branch that the values ``leaving`` leave."""
    graph, (start, end) = model.graph, span
    free = FreeNames(_names(graph)).new
    inner, before, after = list(graph.node[start:end]), list(graph.node[:start]), list(graph.node[end:])
    branch = GraphProto(name=free("branch"))
    inside = {value.name: free(f"{value.name}_in_branch") for value in leaving}
    own = _own(graph, branch, inner, free) if constants else {}
    for node in inner:
        _rename(branch.node.add(), node, inside | own)
    made = {name for node in inner for name in node.output}
    read_outside = {name for node in (*before, *after) for name in _read(node)} | {one.name for one in graph.output}
    read_inside = {name for node in inner for name in _read(node)}
    alone = read_inside - read_outside - set(own) if constants else set()
    _share(graph, branch, alone, made - set(inside))
    empty, length, wanted = free("branch_sequence"), free("branch_length"), free("branch_wanted")
    filled = GraphProto(name=free("branch_not_taken"))
    for value in leaving:
        branch.output.add().CopyFrom(value)
        branch.output[-1].name = inside[value.name]
        _fill(filled, value, free)
    # Read in the branch: for its sake there is no memory pattern.
    for body in (branch, filled):
        count = free("branch_count")
        body.node.append(helper.make_node("SequenceLength", [empty], [count], name=free("branch_count_node")))
        body.output.append(helper.make_tensor_value_info(count, 7, []))
    outputs = [*(value.name for value in leaving), free("branch_count")]
    nodes = [
        helper.make_node("SequenceEmpty", [], [empty], name=free("branch_sequence_node"), dtype=1),
        helper.make_node("SequenceLength", [empty], [length], name=free("branch_length_node")),
        helper.make_node("Cast", [length], [free("branch_is_long")], name=free("branch_is_long_node"), to=9),
    ]
    nodes.append(helper.make_node("Not", [nodes[-1].output[0]], [wanted], name=free("branch_wanted_node")))
    bodies = {"then_branch": branch, "else_branch": filled}
    nodes.append(helper.make_node("If", [wanted], outputs, name=free("branch_node"), **bodies))
    del graph.node[:]
    graph.node.extend([*before, *nodes, *after])
    # Both branches together say less of a shape than the one that is taken.
    told = {value.name: value for value in leaving}
    for one in (*graph.value_info, *graph.output):
        if one.name in told:
            one.type.CopyFrom(told.pop(one.name).type)
    graph.value_info.extend(told.values())


def _own(
    graph: GraphProto, branch: GraphProto, nodes: Sequence[NodeProto], free: Callable[[str], str]
) -> dict[str, str]:
    """Let a branch compute its own of the large constants that its nodes read; return the names of these there."""
    read = {name for node in nodes for name in _read(node)} - {value.name for value in graph.input}
    found = {}
    for one in graph.initializer:
        if one.name in read and _bytes_of(one) >= _LARGE:
            found[one.name], shape = free(f"{one.name}_in_branch"), free(f"{one.name}_shape")
            branch.initializer.append(helper.make_tensor(shape, 7, [len(one.dims)], one.dims))
            own = helper.make_node("Reshape", [one.name, shape], [found[one.name]], name=free(f"{one.name}_own"))
            branch.node.append(own)
    return found


def _names(graph: GraphProto) -> Iterator[str]:
    """Yield every name in a graph and in the bodies below it."""
    for scope in graphs_of(graph):
        one = scope.graph
        yield one.name
        yield from (value.name for value in (*one.input, *one.output, *one.value_info, *one.initializer))
        yield from (sparse.values.name for sparse in one.sparse_initializer)
        for node in one.node:
            yield from (node.name, *node.input, *node.output)


def _share(graph: GraphProto, branch: GraphProto, alone: set[str], made: set[str]) -> None:
    """Move constants that only the branch reads, and what is said of the values that it makes."""
    constants, values = list(graph.initializer), list(graph.value_info)
    given = {value.name for value in graph.input}
    del graph.initializer[:], graph.value_info[:]
    for one in constants:
        (branch if one.name in alone and one.name not in given else graph).initializer.append(one)
    for value in values:
        (branch if value.name in made else graph).value_info.append(value)


def _fill(body: GraphProto, value: ValueInfoProto, free: Callable[[str], str]) -> None:
    """Add a small value of a type to a branch that is never taken."""
    declared, shape = value.type.tensor_type, free(f"{value.name}_shape")
    rank = len(declared.shape.dim)
    small = helper.make_tensor(shape, 7, [rank], [1] * rank)
    zero = helper.make_tensor(free(f"{value.name}_zero"), declared.elem_type, [1], [0])
    made = free(f"{value.name}_not_taken")
    body.node.append(helper.make_node("Constant", [], [shape], name=free(f"{shape}_node"), value=small))
    body.node.append(helper.make_node("ConstantOfShape", [shape], [made], name=free(f"{made}_node"), value=zero))
    body.output.append(helper.make_tensor_value_info(made, declared.elem_type, [1] * rank))


def _rename(copy: NodeProto, node: NodeProto, names: Mapping[str, str]) -> None:
    """Copy a node with other names for values, also in its bodies."""
    copy.CopyFrom(node)
    for places in (copy.input, copy.output):
        for place, name in enumerate(places):
            places[place] = names.get(name, name)
    for body in _bodies(copy):
        inner = list(body.node)
        del body.node[:]
        for one in inner:
            _rename(body.node.add(), one, names)
        for value in body.output:
            value.name = names.get(value.name, value.name)
