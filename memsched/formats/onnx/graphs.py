"""From scopes and shapes to graphs: one op per node that is no constant, one tensor per value that is none."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from memsched.base.errors import ModelError
from memsched.formats.module import Body
from memsched.formats.onnx.attributes import (
    CONSTANT_INPUTS,
    ConstantValues,
    Values,
    attributes_of,
    constant_shapes,
    with_one_axis,
)
from memsched.formats.onnx.open_dimensions import OpenValue, open_sizes
from memsched.formats.onnx.shapes import Shapes
from memsched.formats.onnx.structure import BRANCHES, Scope, unique_names
from memsched.formats.onnx.types import ValueType, element_name, tensor_bytes
from memsched.graph.effects import PURE, Effects
from memsched.graph.model import AttributeValue, Graph, Op, Tensor
from memsched.ops.macs import COUNTED, macs_of
from memsched.ops.table import families

__all__ = ["ParsedGraphs", "build"]

CAPTURED: Final = -1
"""`Op.positions` of a tensor that a body of the op captures."""

_NO_ATTRIBUTES: Final[Mapping[str, AttributeValue]] = {}


@dataclass(slots=True)
class ParsedGraphs:
    """Graphs, and what was seen while building them.

    Attributes:
        nodes: Per graph and op the index of its node.
        unsized: Values whose size no option can state, with what they are.
        unread: Values of unknown size that no op reads.
        constant_outputs: Graph outputs that are constants.
        idle: Graphs that are never executed, the outermost ones: values in them count nothing.
        open: Values that count and whose dimensions nothing states.
    """

    graphs: list[Graph] = field(default_factory=list)
    bodies: list[Body] = field(default_factory=list)
    nodes: list[tuple[int, ...]] = field(default_factory=list)
    unsized: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    constant_outputs: list[str] = field(default_factory=list)
    idle: list[str] = field(default_factory=list)
    open: list[OpenValue] = field(default_factory=list)


def build(
    scopes: Sequence[Scope], shapes: Shapes, effects: Sequence[Mapping[int, Effects]], version: int
) -> ParsedGraphs:
    """Return the graphs of all scopes, in their order.

    Args:
        effects: Per scope those of its nodes that are not pure.
        version: Of the operator set.

    Raises:
        UnknownShapeError: A value that counts has dimensions that nothing states.
        ModelError: A shape is absurd.
    """
    built = ParsedGraphs()
    names = unique_names(list(scopes))
    constants = [ConstantValues(scope.graph) for scope in scopes]
    op_of_node: list[dict[int, int]] = []
    for index, scope in enumerate(scopes):
        builder = _GraphBuilder(scopes, shapes, constants, index, built, names[index], effects[index], version)
        built.graphs.append(builder.graph())
        built.nodes.append(tuple(builder.nodes))
        op_of_node.append({node: op for op, node in enumerate(builder.nodes)})
        if index in shapes.idle and scope.parent not in shapes.idle:
            built.idle.append(f"'{built.graphs[index].name}'")
        if scope.parent >= 0:
            handed = sum(built.graphs[index].tensors[tensor].size for tensor in builder.handed())
            built.bodies.append(Body(index, scope.parent, op_of_node[scope.parent][scope.node], handed))
    if built.open:
        raise open_sizes(built.open, scopes, shapes)
    return built


class _GraphBuilder:
    def __init__(
        self,
        scopes: Sequence[Scope],
        shapes: Shapes,
        constants: Sequence[ConstantValues],
        index: int,
        built: ParsedGraphs,
        names: Sequence[str],
        effects: Mapping[int, Effects],
        version: int,
    ) -> None:
        self.scopes, self.shapes, self.constants, self.index, self.built = scopes, shapes, constants, index, built
        self.scope, self.names, self.effects, self.version = scopes[index], names, effects, version
        self.nodes = [node for node, constant in enumerate(self.scope.constant_node) if not constant]
        self.tensors: list[Tensor] = []
        self.index_of: dict[str, int] = {}
        # Dimensions, bytes and element name of the types met so far, by identity: large models have few.
        self.sizes: dict[int, tuple[tuple[int, ...], int, str, ValueType]] = {}
        # Positions of inputs: nearly all ops have those of one before.
        self.places: dict[tuple[int, ...], tuple[int, ...]] = {}
        # Those of ops that read all inputs, by their number.
        self.firsts: dict[int, tuple[int, ...]] = {}
        # Operators of which nothing is to be known but what they read and write, unless they have attributes.
        self.bare = set(self.scope.kinds) - CONSTANT_INPUTS.keys() - COUNTED.keys() - families("softmax")

    def graph(self) -> Graph:
        scope = self.scope
        inputs = [value.name for value in scope.graph.input if value.name not in scope.constants]
        captures = [name for name in scope.free if name not in scope.constants]
        for name in inputs:
            self._add(name)
        for name in captures:
            self._add(name, external=True)
        ops = []
        for position in self.nodes:
            first = len(self.tensors)
            for name in scope.writes[position]:
                if name:
                    self._add(name, position)
            ops.append(self._op(position, tuple(range(first, len(self.tensors)))))
        for tensor in self.handed():
            one = self.tensors[tensor]
            if one.shape == one.shape_in_file():  # the runtime knows it beforehand and makes room in the If's output
                self.tensors[tensor] = replace(one, size=0, external=True)
        outputs = dict.fromkeys(value.name for value in scope.graph.output)
        self.built.constant_outputs.extend(name for name in outputs if name in scope.constants)
        return Graph(
            name=self._name(),
            tensors=tuple(self.tensors),
            ops=tuple(ops),
            inputs=tuple(range(len(inputs) + len(captures))),
            outputs=tuple(self.index_of[name] for name in outputs if name not in scope.constants),
            dependencies=self._dependencies(ops),
        )

    def handed(self) -> list[int]:
        """Return the tensors of a branch that become outputs of its If where it makes them."""
        if self.scope.attribute not in BRANCHES:
            return []
        made = {name for node in self.nodes for name in self.scope.writes[node]}
        outputs = {value.name for value in self.scope.graph.output} & made
        return sorted(self.index_of[name] for name in outputs)

    def _name(self) -> str:
        if self.scope.parent < 0:
            return str(self.scope.graph.name) or "main"
        node = self.scopes[self.scope.parent].graph.node[self.scope.node]
        owner = node.name or next((name for name in node.output if name), node.op_type)
        return f"{owner}.{self.scope.attribute}"

    @cached_property
    def _read(self) -> set[str]:
        """The names that a step, or the graph's result, needs."""
        bodies = self.scope.bodies
        read = {name for node in self.nodes for name in self.scope.reads[node]}
        read.update(name for node in bodies for body in bodies[node] for name in self.scopes[body].free)
        read.update(value.name for value in self.scope.graph.output)
        return read

    def _add(self, name: str, producer: int | None = None, *, external: bool = False) -> None:
        shapes, tensors, index = self.shapes, self.tensors, self.index
        self.index_of[name] = len(tensors)
        own = None if external else shapes.types[index].get(name)  # captures are of graphs around
        found = own or shapes.of(self.scopes, index, name)
        if shapes.idle and index in shapes.idle:
            tensors.append(Tensor(name, 0, None, "", False, external))
            return
        known = self.sizes.get(id(found))
        if known is not None:
            dims, size, element, _ = known
            stated = shapes.unstated(index, name, len(dims)) if shapes.stated and not external else None
            tensors.append(Tensor(name, size, dims, element, True, external, stated))
            return
        lengths = found.lengths()
        size, sized = 0, True
        if found.kind != "tensor":
            sized = False
            if not external:
                self.built.unsized.append(f"'{name}' ({found.kind})")
        elif lengths is not None and found.element:
            try:
                size = tensor_bytes(found.element, lengths)
            except ModelError as error:
                raise error.at(f"tensor '{name}'") from error
            self.sizes[id(found)] = lengths, size, element_name(found.element), found
        elif name not in self._read:
            sized = False
            self.built.unread.append(f"'{name}'")
        else:
            sized = False
            if not external:  # captures are open where they are made
                made = None if producer is None else (self.scope.graph.node[producer], self.names[producer])
                self.built.open.append(OpenValue(self.index, name, found, made))
        stated = None if external or lengths is None else shapes.unstated(index, name, len(lengths))
        tensors.append(Tensor(name, size, lengths, element_name(found.element), sized, external, stated))

    def _op(self, position: int, outputs: tuple[int, ...]) -> Op:
        """Return the op of a node, the short way where only its inputs and outputs matter."""
        scope = self.scope
        reads, kind = scope.reads[position], scope.kinds[position]
        told = position in scope.attributed or kind not in self.bare
        if told or "" in reads or not scope.constants.isdisjoint(reads):
            return self._particular_op(position, outputs)
        inputs, count = tuple(map(self.index_of.__getitem__, reads)), len(reads)
        positions = self.firsts.get(count) or self.firsts.setdefault(count, tuple(range(count)))
        effects = self.effects.get(position, PURE)
        return Op(
            self.names[position],
            kind,
            inputs,
            outputs,
            attributes=_NO_ATTRIBUTES,
            positions=positions,
            effects=effects,
        )

    def _particular_op(self, position: int, outputs: tuple[int, ...]) -> Op:
        scope, index_of, constants = self.scope, self.index_of, self.scope.constants
        reads, kind = scope.reads[position], scope.kinds[position]
        places = [place for place, read in enumerate(reads) if read and read not in constants]
        inputs = [index_of[reads[place]] for place in places]
        reads_constants = len(places) < len(reads)
        for body in scope.bodies.get(position, ()):
            captured = [self.index_of[read] for read in self.scopes[body].free if read not in constants]
            explicit = set(inputs)
            inputs.extend(tensor for tensor in captured if tensor not in explicit)
            places = [*places, *[CAPTURED] * (len(inputs) - len(places))]
        attributes = _NO_ATTRIBUTES
        if kind in CONSTANT_INPUTS or position in scope.attributed:
            attributes = attributes_of(scope.graph.node[position], self._value)
        attributes = with_one_axis(kind, attributes, self.version)
        if reads_constants:
            node = scope.graph.node[position]
            attributes = {**attributes, **constant_shapes(node, self._constant_shape, attributes)}
        macs = 0
        if kind in COUNTED:
            shapes, scopes, index = self.shapes, self.scopes, self.index
            given = [shapes.of(scopes, index, read).lengths() if read else None for read in reads]
            made = [shapes.of(scopes, index, output).lengths() if output else None for output in scope.writes[position]]
            macs = macs_of(kind, attributes, given, made)
        positions = tuple(places)
        return Op(
            self.names[position],
            kind,
            tuple(inputs),
            outputs,
            attributes=attributes,
            positions=self.places.setdefault(positions, positions),
            macs=macs,
            effects=self.effects.get(position, PURE),
        )

    def _constant_shape(self, name: str) -> tuple[int, ...] | None:
        if name not in self.scope.constants:
            return None
        return self.shapes.of(self.scopes, self.index, name).lengths()

    def _value(self, name: str) -> Values | None:
        index = self.index
        while index >= 0:
            if name in self.scopes[index].defined:
                return self.constants[index].get(name)
            index = self.scopes[index].parent
        return None

    def _dependencies(self, ops: Sequence[Op]) -> tuple[tuple[int, int], ...]:
        """Keep ops in order that use a state, that share a generator, or that exist for an undeclared effect.

        Other random generators need no such order: each node has one of its own.
        """
        states = [op for op, value in enumerate(ops) if value.effects.stateful or _for_effect(value)]
        drawn = [op for op, value in enumerate(ops) if value.effects.shared]
        return tuple(sorted({*itertools.pairwise(states), *itertools.pairwise(drawn)}))


def _for_effect(op: Op) -> bool:
    return op.effects.unknown and not op.outputs
