"""Pins: data dependencies that make every ONNX Runtime session execute the file's order, without any option.

Between two neighbours a, b of the order without a data dependency, b is made to depend on a:

    size = Size(output of a)            # one int64; no data is read
    none = Range(size, size, 1)         # int64[0]: no axes
    b reads Unsqueeze(x, none)          # instead of its input x: the same bytes under another name

Where x is the result of a Reshape or the like, the size of x is added to that of a's output: see ``_PASSING``.

From opset 7 to 12, where Unsqueeze has no such input, and for integers, whose values ONNX Runtime follows through
Unsqueeze when it infers shapes: Reshape(x, dimensions of x + (size - size)).

All pinned and all given dependencies together form a chain through all steps, so that there is only one topological
order, and it holds under all session options and optimisations: they may merge or drop steps, but not exchange them.
ONNX Runtime gives the output of Unsqueeze and Reshape the memory of their input, so no step needs more; a pin itself
needs 8 bytes (with Reshape: 8 more, and 8 per dimension of x) between a and b.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TypeProto

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx import resolved
from memsched.formats.onnx.standard import ElementType, Opset
from memsched.formats.onnx.structure import Scope, analyse, domain_of

__all__ = ["PinnedModel", "pin", "shape_nodes", "unpin"]

_PREFIX: Final = "memsched_pin_"
_SMALL_ELEMENTS: Final = 16
_LARGE_CONSTANT_ELEMENTS: Final = 1024
# The element types for which ONNX Runtime's CPU kernels have Size and Unsqueeze: numbers of whole bytes, bool, string.
_PINNABLE: Final = frozenset(range(1, 14))
# Optimisation may drop these, or merge a Reshape with what follows it into one Reshape to a known shape. That swallows
# a pin behind a Reshape unless the Reshape is read elsewhere too, and always a pin that is itself the first Reshape.
_PASSING: Final = frozenset(
    {
        *("Cast", "CastLike", "Concat", "Dropout", "Expand", "Flatten", "Gather", "Identity", "Pad", "Reshape"),
        *("Slice", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
_INTEGERS: Final = frozenset({6, 7})
_SHAPE_READERS: Final = frozenset({"Shape", "Size"})


class PinnedModel(FrozenValue, frozen=True):
    """A model with pins.

    Attributes:
        model: The new model; the given one is unchanged.
        pins: How many were added.
        unpinnable: Pairs (earlier node, later node) whose order could not be forced.
        notes: What a report must say about nodes that pins do not reach.
    """

    model: ModelProto
    pins: int
    unpinnable: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def pin(model: ModelProto) -> PinnedModel:
    """Return a model that executes the nodes of its main graph in their order of the file, in any session.

    Not pinned are nodes that compute constants, nodes in bodies and functions, and the small arithmetic on shapes: a
    ``Shape`` or ``Size`` only runs before its input would die.

    Args:
        model: Its nodes are in the wanted order. Pins that it already has are replaced.

    Raises:
        GraphError: A name has two producers or none.
    """
    result = unpin(model)
    builder = _PinWriter(result, _types(result))
    builder.build()
    return PinnedModel(result, builder.pins, tuple(builder.unpinnable), tuple(builder.notes()))


def shape_nodes(model: ModelProto) -> tuple[int, ...]:
    """Return the file positions of the nodes that only handle shapes: ``pin`` leaves their order open."""
    scopes = analyse(model.graph)
    producer = {name: at for at, node in enumerate(model.graph.node) for name in node.output if name}
    free = _free_nodes(scopes[0], _types(model), producer, _reads(scopes))
    return tuple(at for at, is_free in enumerate(free) if is_free)


def unpin(model: ModelProto) -> ModelProto:
    """Return a copy of ``model`` without the pins that ``pin`` added."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    given: dict[str, str] = {}
    kept = []
    for node in graph.node:
        if _is_pin(node):
            if node.op_type in {"Unsqueeze", "Reshape"}:
                given[node.output[0]] = given.get(node.input[0], node.input[0])
            continue
        for at, name in enumerate(node.input):
            node.input[at] = given.get(name, name)
        kept.append(node)
    if len(kept) < len(graph.node):
        _replace(graph.node, kept)
        _replace(graph.value_info, [value for value in graph.value_info if not value.name.startswith(_PREFIX)])
    return result


def _is_pin(node: NodeProto) -> bool:
    return node.name.startswith(_PREFIX) and list(node.output) == [node.name]


def _replace(field_of_protos: Any, values: Iterable[Any]) -> None:
    copies = list(values)
    del field_of_protos[:]
    field_of_protos.extend(copies)


def _types(model: ModelProto) -> dict[str, TypeProto]:
    """Infer the types of the main graph's values, without touching large constants."""
    light = onnx.ModelProto()
    for name in ("ir_version", "opset_import", "functions"):
        onto = getattr(model, name)
        if name == "ir_version":
            light.ir_version = onto
        else:
            getattr(light, name).extend(onto)
    graph, source = light.graph, model.graph
    graph.name = source.name
    for values in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(graph, values).extend(getattr(source, values))
    declared = {value.name for value in source.input}
    for tensor in source.initializer:
        if onnx.external_data_helper.uses_external_data(tensor) or _elements(tensor.dims) > _LARGE_CONSTANT_ELEMENTS:
            if tensor.name not in declared:
                graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
        else:
            graph.initializer.append(tensor)
    try:
        inferred = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    except (onnx.shape_inference.InferenceError, ValueError):
        inferred = graph  # what the model itself declares is enough to go on
    types = {value.name: value.type for value in (*inferred.value_info, *inferred.input, *inferred.output)}
    if any(_dims(types.get(name)) is None for node in source.node for name in node.output if name):
        for name, (element, dims) in resolved.infer(light, source.node).items():
            # Integers may be shape arithmetic, which is pinned unless the file itself tells its size.
            if element not in _INTEGERS and _dims(types.get(name)) is None:
                types[name] = onnx.helper.make_tensor_type_proto(element, dims)
    return types


def _elements(dims: Sequence[int]) -> int:
    count = 1
    for dim in dims:
        count *= dim
    return count


@dataclass(slots=True)
class _PinWriter:
    """Adds pins to a model in place."""

    model: ModelProto
    types: Mapping[str, TypeProto]
    pins: int = 0
    unpinnable: list[tuple[str, str]] = field(default_factory=list)
    inner_nodes: bool = False
    float16: bool = False
    _nodes: list[NodeProto] = field(default_factory=list)
    _added: list[NodeProto] = field(default_factory=list)
    _prefix: str = _PREFIX
    _constants: set[str] = field(default_factory=set)
    _read: set[str] = field(default_factory=set)

    def build(self) -> None:
        """Walk the steps in order; ``frontier`` holds the nodes that the next step must be made to follow."""
        graph = self.model.graph
        scopes = analyse(graph)
        self._nodes = list(graph.node)
        own = {name for scope in scopes for name in (*scope.defined, *(node.name for node in scope.graph.node))}
        while any(name.startswith(self._prefix) for name in own):
            self._prefix += "_"
        self.inner_nodes = len(scopes) > 1 or bool(self.model.functions)
        producer = {name: at for at, node in enumerate(self._nodes) for name in node.output if name}
        reads = _reads(scopes)
        self._read = {name for names in reads for name in names} | {value.name for value in graph.output}
        free = _free_nodes(scopes[0], self.types, producer, reads)
        last_reader = _last_readers(self._nodes, reads, free, graph)
        frontier: list[int] = []
        due: list[int] = []
        due_after: dict[int, list[int]] = {}
        order: list[NodeProto] = []
        for at, node in enumerate(self._nodes):
            if free[at]:
                last = self._last_use(at, producer, last_reader)
                (due if last < at else due_after.setdefault(last, [])).append(at)
            elif not scopes[0].constant_node[at]:
                follows = {producer[name] for name in reads[at] if name in producer}
                wanted = [before for before in (*frontier, *due) if before not in follows]
                done = self._pin_to(node, wanted, scopes[0].constants, free, producer)
                order.extend(self._added)
                self._added.clear()
                lost = [before for before in wanted if before not in done]
                self.unpinnable.extend((_shown(self._nodes[before]), _shown(node)) for before in lost)
                frontier = [*self._carried(frontier, at, done, lost), at]
                due = due_after.pop(at, [])
            order.append(node)
        _replace(graph.node, order)

    def _carried(self, frontier: Sequence[int], at: int, done: set[int], lost: Sequence[int]) -> list[int]:
        """Return which nodes the step after ``at`` must be made to follow too, since following ``at`` may not do."""
        if not self._source(at):
            return list(frontier)
        swallowed = self._opset() < Opset.UNSQUEEZE_INPUTS and self._nodes[at].op_type in _PASSING
        return [node for node in frontier if self._source(node) and (node in lost or (swallowed and node in done))]

    def notes(self) -> Iterator[str]:
        """Say what the pins do not reach."""
        if self.inner_nodes:
            yield "nodes inside bodies of If, Loop and Scan and inside functions are not pinned"
        if self.float16:
            yield "pins on float16 values: a session that computes in float32 rounds there, so outputs may change"

    def _last_use(self, at: int, producer: Mapping[str, int], last_reader: Mapping[str, int]) -> int:
        """Return the last step that keeps a node's input alive; a Shape or Size must not run later than that."""
        name = self._nodes[at].input[0] if self._nodes[at].op_type in _SHAPE_READERS else ""
        return last_reader[name] if name in producer else len(self._nodes)

    def _source(self, at: int) -> tuple[str, str] | None:
        """Return an output of a node with the operator that makes an int64 scalar of it."""
        found = None
        for name in self._nodes[at].output:
            kind = self.types.get(name)
            ranked = kind is not None and (kind.HasField("sequence_type") or kind.tensor_type.HasField("shape"))
            # Read by a pin alone, a value of unknown rank would be one whose size has to be known.
            if not name or not (ranked or name in self._read):
                continue
            if kind is None or kind.WhichOneof("value") is None:
                found = found or (name, "Size")
            elif kind.HasField("tensor_type") and kind.tensor_type.elem_type in {ElementType.UNKNOWN, *_PINNABLE}:
                return name, "Size"
            elif kind.HasField("sequence_type") and self._opset() >= 11:
                found = found or (name, "SequenceLength")
        return found

    def _target(self, node: NodeProto, constants: set[str], free: bytearray, producer: Mapping[str, int]) -> str | None:
        """Return the input of a node that can be replaced: an activation before a shape before a constant."""
        best: tuple[int, str] | None = None
        for name in _read_by(node):
            rank = self._rank(name, constants, free, producer) if name else None
            if rank is not None and (best is None or rank < best[0]):
                best = rank, name
        return best[1] if best else None

    def _rank(self, name: str, constants: set[str], free: bytearray, producer: Mapping[str, int]) -> int | None:
        """Return how little an input is suited for a pin; None when it cannot have one."""
        kind = self.types.get(name)
        if kind is not None and not (kind.HasField("tensor_type") and kind.tensor_type.elem_type in _PINNABLE):
            return None
        if name in constants:
            return 5
        if kind is None:
            return 4
        if name in producer and free[producer[name]]:
            return 3
        if kind.tensor_type.elem_type == ElementType.FLOAT16:
            return 2
        return 0 if _dims(kind) is not None else 1

    def _pin_to(
        self, node: NodeProto, wanted: Sequence[int], constants: set[str], free: bytearray, producer: Mapping[str, int]
    ) -> set[int]:
        """Make ``node`` follow the nodes ``wanted`` as far as possible; return which ones it does."""
        target = self._target(node, constants, free, producer) if wanted else None
        if target is None or self._opset() < 7:
            return set()
        sources = {before: self._source(before) for before in wanted}
        sizes = [source for source in sources.values() if source is not None]
        if not sizes:
            return set()
        maker = producer.get(target)
        if maker is not None and self._nodes[maker].op_type in _PASSING:
            sizes.append((target, "Size"))
        pinned = self._add(sizes, target, self.types.get(target), node.op_type in _PASSING)
        for at, name in enumerate(node.input):
            if name == target:
                node.input[at] = pinned
        return {before for before, source in sources.items() if source is not None}

    def _add(self, sizes: Sequence[tuple[str, str]], value: str, kind: TypeProto | None, passing: bool) -> str:
        """Add a pin that depends on all ``sizes``, for a node that may be ``passing``; return what ``value`` is now."""
        self.pins += 1
        stem = f"{self._prefix}{self.pins}_"
        element = kind.tensor_type.elem_type if kind is not None else ElementType.UNKNOWN
        self.float16 = self.float16 or element == ElementType.FLOAT16
        if self._opset() >= Opset.UNSQUEEZE_INPUTS and (passing or element not in _INTEGERS):
            one = self._prefix + "one"
            self._constant(one, [], [1])
            size = self._sum(sizes, stem)
            self._node("Range", [size, size, one], stem + "none")
            self._node("Unsqueeze", [value, stem + "none"], stem + "value")
        else:
            # The default order explores inputs by falling index: a Shape before the size runs after it, just in time.
            dims = self._dims_of(value, kind, stem)
            size = self._sum(sizes, stem)
            self._node("Sub", [size, size], stem + "zero")
            self._node("Add", [dims, stem + "zero"], stem + "shape")
            self._node("Reshape", [value, stem + "shape"], stem + "value")
        if kind is not None:
            # Without its shape the planner would not let the node work in place.
            self.model.graph.value_info.add(name=stem + "value").type.CopyFrom(kind)
        return stem + "value"

    def _sum(self, sizes: Sequence[tuple[str, str]], stem: str) -> str:
        """Return the name of an int64 scalar that depends on all ``sizes``."""
        total = ""
        for number, (name, operator) in enumerate(sizes):
            size = stem + (f"size_{number}" if number else "size")
            self._node(operator, [name], size)
            if number:
                self._node("Add", [total, size], f"{stem}sum_{number}")
            total = f"{stem}sum_{number}" if number else size
        return total

    def _dims_of(self, value: str, kind: TypeProto | None, stem: str) -> str:
        """Return the name of the dimensions of ``value`` as a tensor."""
        known = _dims(kind)
        if known is None or self._opset() < 9:  # Constant has integers from opset 9 on
            self._node("Shape", [value], stem + "dims")
            return stem + "dims"
        name = "_".join([f"{self._prefix}dims", *map(str, known)])
        self._constant(name, [len(known)], known)
        return name

    def _constant(self, name: str, dims: Sequence[int], values: Sequence[int]) -> None:
        if name not in self._constants:
            self._constants.add(name)
            tensor = onnx.helper.make_tensor(name, onnx.TensorProto.INT64, dims, values)
            # Not an initializer: before IR version 4 that would have to be an input of the model.
            self._added.append(onnx.helper.make_node("Constant", [], [name], name=name, value=tensor))

    def _node(self, operator: str, inputs: Sequence[str], output: str) -> None:
        self._added.append(onnx.helper.make_node(operator, inputs, [output], name=output))

    def _opset(self) -> int:
        return max((entry.version for entry in self.model.opset_import if entry.domain in {"", "ai.onnx"}), default=0)


def _dims(kind: TypeProto | None) -> list[int] | None:
    """Return a tensor's dimensions when all of them are known."""
    if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    dims = kind.tensor_type.shape.dim
    return [dim.dim_value for dim in dims] if all(dim.HasField("dim_value") for dim in dims) else None


def _free_nodes(
    scope: Scope, types: Mapping[str, TypeProto], producer: Mapping[str, int], reads: Sequence[Sequence[str]]
) -> bytearray:
    """Mark the nodes that only handle shapes: small results, which optimisation may replace by constants."""
    free = bytearray(len(scope.graph.node))
    for at, node in enumerate(scope.graph.node):
        if scope.constant_node[at] or at in scope.bodies:
            continue
        if node.op_type in _SHAPE_READERS and not domain_of(node):
            free[at] = True
            continue
        varying = [name for name in reads[at] if name not in scope.constants]
        constant = not varying and _is_cast_like(node)
        shapes = constant or (
            bool(varying) and all(free[producer[name]] if name in producer else 0 for name in varying)
        )
        free[at] = shapes and all(_is_small(types.get(name)) for name in node.output if name)
    return free


def _is_small(kind: TypeProto | None) -> bool:
    dims = _dims(kind)
    return dims is not None and _elements(dims) <= _SMALL_ELEMENTS


def _reads(scopes: Sequence[Scope]) -> list[list[str]]:
    """Return, per node of the main graph, what it and its bodies read of that graph."""
    main = scopes[0]
    reads = []
    for at, node in enumerate(main.graph.node):
        names = [name for name in _read_by(node) if name]
        names.extend(name for body in main.bodies.get(at, ()) for name in scopes[body].free if name in main.defined)
        reads.append(names)
    return reads


def _read_by(node: NodeProto) -> Sequence[str]:
    """Return the inputs of a node whose values it needs; of the second input of CastLike it needs the type."""
    return list(node.input[:1] if _is_cast_like(node) else node.input)


def _is_cast_like(node: NodeProto) -> bool:
    return node.op_type == "CastLike" and not domain_of(node)


def _last_readers(
    nodes: Sequence[NodeProto], reads: Sequence[Sequence[str]], free: bytearray, graph: GraphProto
) -> dict[str, int]:
    """Return, per value of a node, the last step that reads it; the number of nodes when it is an output."""
    last = {name: at for at, node in enumerate(nodes) for name in node.output}
    for at, names in enumerate(reads):
        if not free[at]:
            last.update((name, at) for name in names)
    last.update((value.name, len(nodes)) for value in graph.output)
    return last


def _shown(node: NodeProto) -> str:
    return str(node.name) or next((name for name in node.output if name), str(node.op_type))
