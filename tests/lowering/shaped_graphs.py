"""Random graphs of operators with shapes, and a machine that executes them in an allocated arena byte by byte."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence

from memsched.graph.addresses import addresses, view_distances
from memsched.graph.model import Allocation, AttributeValue, Graph, Op, Schedule, Tensor

__all__ = ["Machine", "random_shaped_graph"]

_SHAPES: tuple[tuple[int, ...], ...] = ((4,), (2, 2), (1, 4), (4, 1), (1,), (2, 1), (1, 2), (8,), (2, 4), (4, 2))
_WIDTHS = {"int8": 1, "int16": 2, "int32": 4}
ELEMENTWISE = {"Relu", "Add", "Sum", "Cast", "Equal", "Where"}


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    result: list[int] = []
    for sizes in itertools.zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        largest = max(sizes)
        if any(size not in {1, largest} for size in sizes):
            return None
        result.append(largest)
    return tuple(reversed(result))


def random_shaped_graph(rng: random.Random, ops: int, *, parts: bool = False) -> Graph:
    """Return a graph of elementwise ops that broadcast, reshapes, casts, and ops that read all before they write.

    Args:
        parts: Slices, splits and concatenations as well.
    """
    tensors: list[Tensor] = []
    nodes: list[Op] = []

    def add(shape: tuple[int, ...], dtype: str) -> int:
        tensors.append(Tensor(f"t{len(tensors)}", math.prod(shape) * _WIDTHS[dtype], shape, dtype))
        return len(tensors) - 1

    inputs = [add(rng.choice(_SHAPES), rng.choice(list(_WIDTHS))) for _ in range(rng.randint(1, 2))]
    variables = [add(rng.choice(_SHAPES), "int8")] if rng.random() < 0.3 else []
    for index in range(ops):
        if parts and rng.random() < 0.5:
            nodes.append(_random_part(rng, tensors, add, index))
            continue
        kind = rng.choice(
            ["Relu", "Relu", "Add", "Add", "Sum", "Cast", "Equal", "Reshape", "Reshape", "Softmax", "Conv"]
        )
        recent = range(max(0, len(tensors) - rng.choice([1, 3, 9])), len(tensors))
        source = rng.choice(recent)
        read = [source]
        shape, dtype = tensors[source].shape or (), tensors[source].dtype
        if kind in {"Add", "Sum", "Equal", "Softmax", "Conv"}:
            for _ in range(2 if kind == "Sum" else 1):
                other = rng.randrange(len(tensors))
                merged = broadcast([shape, tensors[other].shape or ()])
                if merged is not None and (kind != "Softmax" or merged == shape):
                    read.append(other)
                    shape = merged
        if kind == "Reshape":
            count = math.prod(shape)
            shape = rng.choice([(count,), *(other for other in _SHAPES if math.prod(other) == count)])
        if kind == "Cast":
            dtype = rng.choice(list(_WIDTHS))
        if kind == "Equal":
            dtype = "int8"
        if kind == "Conv":
            shape, dtype = rng.choice(_SHAPES), rng.choice(list(_WIDTHS))
        if kind in {"Add", "Sum"}:
            rng.shuffle(read)
        nodes.append(Op(f"{kind}{index}", kind, tuple(read), (add(shape, dtype),), workspace=rng.choice([0, 0, 0, 3])))
    used = {tensor for node in nodes for tensor in node.inputs}
    made = [tensor for node in nodes for tensor in node.outputs]
    outputs = [t for t in made if rng.random() < (0.15 if t in used else 0.9)]
    return Graph("shaped", tuple(tensors), tuple(nodes), tuple(inputs), tuple(outputs), tuple(variables))


def _random_part(
    rng: random.Random, tensors: list[Tensor], add: Callable[[tuple[int, ...], str], int], index: int
) -> Op:
    """Return a slice, a split or a concatenation of recent tensors along a random axis."""
    source = rng.randrange(max(0, len(tensors) - 4), len(tensors))
    shape, dtype = tensors[source].shape or (), tensors[source].dtype
    axis = rng.randrange(len(shape))
    before, after = shape[:axis], shape[axis + 1 :]
    kind = rng.choice(["Slice", "Split", "Concat", "Concat"])
    if kind == "Concat":
        fitting = [
            t
            for t, other in enumerate(tensors)
            if other.shape is not None and other.dtype == dtype and len(other.shape) == len(shape)
            if (other.shape[:axis], other.shape[axis + 1 :]) == (before, after)
        ]
        read = rng.sample(fitting, min(len(fitting), rng.randint(1, 3)))
        rows = sum((tensors[tensor].shape or ())[axis] for tensor in read)
        return Op(f"c{index}", kind, tuple(read), (add((*before, rows, *after), dtype),), attributes={"axis": axis})
    cut = rng.randint(0, shape[axis])
    if kind == "Split":
        outputs = tuple([add((*before, rows, *after), dtype) for rows in (cut, shape[axis] - cut)])
        return Op(f"s{index}", kind, (source,), outputs, attributes={"axis": axis})
    output = add((*before, shape[axis] - cut, *after), dtype)
    attributes: dict[str, AttributeValue] = {"axis": axis, "starts": (cut,), "axes": (axis,), "steps": (1,)}
    return Op(f"s{index}", kind, (source,), (output,), attributes=attributes)


Byte = tuple[object, int]


class Machine:
    """Memory of bytes that remember which value they belong to; reading a byte of another value is found at once."""

    def __init__(self, graph: Graph, schedule: Schedule, allocation: Allocation, *, forwards: bool) -> None:
        self.graph = graph
        self.schedule = schedule
        self.forwards = forwards
        self.memory: list[Byte | None] = [None] * allocation.arena
        self.offset = {t: address for t, address in enumerate(addresses(graph, allocation)) if address is not None}
        self.scratch = [place for place in allocation.placements if not place.tensors]
        for tensor in (*graph.inputs, *graph.variables):
            if graph.tensors[tensor].external:
                self.offset[tensor] = len(self.memory)
                self.memory += [None] * graph.tensors[tensor].size
        for op in graph.ops:
            for output, source, distance in view_distances(graph, op):
                # A view of what the caller owns has no place of its own.
                if output not in self.offset and source in self.offset:
                    self.offset[output] = self.offset[source] + distance
        self.values: dict[int, list[object]] = {}

    def width(self, tensor: int) -> int:
        return _WIDTHS[self.graph.tensors[tensor].dtype]

    def write(self, tensor: int, element: int, value: object) -> None:
        start = self.offset[tensor] + element * self.width(tensor)
        for k in range(self.width(tensor)):
            self.memory[start + k] = (value, k)

    def read(self, tensor: int, element: int) -> object:
        start = self.offset[tensor] + element * self.width(tensor)
        value = self.values[tensor][element]
        for k in range(self.width(tensor)):
            assert self.memory[start + k] == (value, k), f"byte {k} of element {element} of tensor {tensor} is spoilt"
        return value

    def read_all(self, tensor: int) -> None:
        for element in range(len(self.values[tensor])):
            self.read(tensor, element)

    def run(self) -> None:
        """Execute all steps; every op's inputs, and at the end all outputs and states, must be intact."""
        graph = self.graph
        needed = {t for op in graph.ops for t in op.inputs} | set(graph.outputs) | set(graph.variables)
        given = [t for t in dict.fromkeys((*graph.inputs, *graph.variables)) if t in needed]
        for tensor in given:
            self.values[tensor] = [(tensor, e) for e in range(math.prod(graph.tensors[tensor].shape or ()))]
            for element, value in enumerate(self.values[tensor]):
                self.write(tensor, element, value)
        for step, index in enumerate(self.schedule.order):
            self.spoil_scratch(step)
            self.execute(graph.ops[index])
        for tensor in (*graph.outputs, *graph.variables, *(t for t in given if graph.tensors[t].external)):
            self.read_all(tensor)

    def spoil_scratch(self, step: int) -> None:
        for place in self.scratch:
            if place.first_step <= step <= place.last_step:
                self.memory[place.offset : place.offset + place.size] = [None] * place.size

    def execute(self, op: Op) -> None:
        for index, output in enumerate(op.outputs):
            if op.type in {"Slice", "Split", "Concat"} and any(shown == output for shown, _ in op.views):
                self.part(op, index)
            else:
                self.compute(op, output)

    def part(self, op: Op, index: int) -> None:
        """Nothing is copied: the values must be there already, at the places that the attributes say."""
        output = op.outputs[index]
        for tensor in op.inputs:
            self.read_all(tensor)
        if op.type == "Concat":
            self.values[output] = [value for tensor in op.inputs for value in self.values[tensor]]
        else:
            (source,) = op.inputs
            shapes = [self.graph.tensors[tensor].shape or () for tensor in op.outputs]
            axis, start = op.attributes.get("axis", 0), op.attributes.get("starts", (0,))
            assert isinstance(axis, int)
            assert isinstance(start, tuple)
            row = int(start[0]) if op.type == "Slice" else sum(shape[axis] for shape in shapes[:index])
            whole = self.graph.tensors[source].shape or ()
            first = row * math.prod(whole[:axis] + whole[axis + 1 :])
            self.values[output] = self.values[source][first : first + math.prod(shapes[index])]
        self.read_all(output)

    def compute(self, op: Op, output: int) -> None:
        shape = self.graph.tensors[output].shape or ()
        count = math.prod(shape)
        if op.type == "Reshape":
            self.reshape(op, output)
            return
        self.values[output] = [(op.name, e) for e in range(count)]
        if op.type == "Softmax":
            # Reads its first input whole, then writes, and only then reads the others.
            self.read_all(op.inputs[0])
        elif op.type == "Conv":
            # Writes everything before it has read anything: an in-place write would be seen.
            pass
        if op.type in ELEMENTWISE:
            for element in range(count) if self.forwards else reversed(range(count)):
                for tensor in op.inputs:
                    self.read(tensor, self.element_of(tensor, shape, element))
                self.write(output, element, self.values[output][element])
            return
        for element in range(count):
            self.write(output, element, self.values[output][element])
        for tensor in op.inputs[1:] if op.type == "Softmax" else op.inputs:
            self.read_all(tensor)

    def reshape(self, op: Op, output: int) -> None:
        (source,) = op.inputs
        self.read_all(source)
        self.values[output] = self.values[source]
        if not op.views:
            for element, value in enumerate(self.values[output]):
                self.write(output, element, value)
            self.read_all(source)

    def element_of(self, tensor: int, shape: tuple[int, ...], element: int) -> int:
        """Return which element of a broadcast input belongs to ``element`` of the output."""
        own = self.graph.tensors[tensor].shape or ()
        own = (1,) * (len(shape) - len(own)) + own
        result, stride, own_stride = 0, 1, 1
        for size, own_size in zip(reversed(shape), reversed(own), strict=True):
            position = element // stride % size
            result += (position if own_size > 1 else 0) * own_stride
            stride, own_stride = stride * size, own_stride * own_size
        return result
