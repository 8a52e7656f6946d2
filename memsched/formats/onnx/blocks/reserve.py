"""Room in ONNX Runtime's arena for what a session requests at once from the second run of a size on.

A session without options notes in the first run of a size what the nodes outside of loops request, and requests all of
it as one block in every later run: the memory pattern. In the first run they got bytes wherever the arena had some, so
that no place is large enough for the block, and the arena grows by it. Two values that are made before all others, and
of which nothing but their size is read, give the arena a region for the block and a smaller one for everything else:
the first holds what the block will hold, and the second run finds both empty. The arena's regions are powers of two,
and of those that are large enough it takes the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from memsched.formats.blocks import BlockPoint
from memsched.formats.onnx.blocks.lengths import Lengths
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.regions import names_read
from memsched.formats.onnx.structure import op_type
from memsched.formats.onnx.types import element_bits

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto

__all__ = ["pattern_bytes", "reserve", "reserve_points", "reserved"]

_ALIASES: Final = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
_IN_PLACE: Final = frozenset({"Add", "Sub", "Mul", "Div", "Relu", "Sigmoid", "Tanh", "Erf", "Sqrt", "Neg", "Pow"})
_WORTH: Final = 16 << 20
"""Bytes of a block from which room is made for it."""

_SPARE: Final = 1.1
"""What is not foreseen: temporary values, and what the session does not compute in place."""

_PARTS: Final = (1.0, 0.5, 0.25)
"""Shares of the typical lengths at which the block is compared with an input."""

_LONG: Final = 16
_LEAST_CLASS, _CLASSES = 20, 22
"""The logarithm, to base 2, of the bytes of the smallest region; and how many sizes of regions there are."""

_FLOAT: Final = 4


def reserve_points(model: ModelProto, values: OpenValues) -> list[BlockPoint]:
    """Return the model as it is, but for room for its block, where that is worth it."""
    if not _is_worth(model.graph, values):
        return []

    return [BlockPoint("as given, with room in the arena", (), partial(_alone, model, values))]


def _alone(model: ModelProto, values: OpenValues) -> bytes:
    from onnx import ModelProto

    written = ModelProto()
    written.CopyFrom(model)
    reserve(written, values, guarded=True)
    data: bytes = written.SerializeToString(deterministic=True)
    return data


def reserved(build: Callable[[], bytes], values: OpenValues) -> bytes:
    """Return the file that ``build`` makes, with room for its block."""
    from onnx import ModelProto

    model = ModelProto.FromString(build())
    reserve(model, values)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def reserve(model: ModelProto, values: OpenValues, *, guarded: bool = False) -> bool:
    """Put into ``model`` what makes room for its block; return whether that is worth it.

    Args:
        values: Of the model as given, whose values have the same names in ``model``.
        guarded: Refuse lengths out of the ranges that were stated, too, as loops do.
    """
    if not _is_worth(model.graph, values):
        return False
    inputs = _open_inputs(model.graph, values)
    # The input with which the block grows: that of texts, not of their past.
    _, rate, name = min(_rate(model.graph, values, one) for one in inputs)
    _insert(model.graph, values if guarded else None, name, rate, inputs)
    return True


def _is_worth(graph: GraphProto, values: OpenValues) -> bool:
    return pattern_bytes(graph, values, values.typical) >= _WORTH and bool(_open_inputs(graph, values))


def pattern_bytes(graph: GraphProto, values: OpenValues, sizes: Mapping[str, int]) -> int:
    """Return about how many bytes the nodes of a graph request at once, without those in loops and without outputs.

    Args:
        sizes: Of every symbol in ``values``.
    """
    outside = {value.name for value in (*graph.output, *graph.input)}
    root: dict[str, str] = {}
    held: dict[str, int] = {}
    last: dict[str, int] = {}
    for place, node in enumerate(graph.node):
        for name in names_read(node):
            last[root.get(name, name)] = place
        if op_type(node) in _ALIASES:
            root[node.output[0]] = root.get(node.input[0], node.input[0])
            continue
        for name in node.output:
            width = element_bits(values.elements.get(name, 0)) // 8 if name in values.elements else 0
            held[name] = 0 if name in outside or not width else values.bytes_of(name, sizes, width) or 0
    return _peak(graph.node, held, last, root)


def _peak(nodes: Sequence[NodeProto], held: Mapping[str, int], last: Mapping[str, int], root: Mapping[str, str]) -> int:
    live, most = 0, 0
    for place, node in enumerate(nodes):
        read = {root.get(name, name) for name in names_read(node)}
        dying = [held.get(name, 0) for name in read if last.get(name) == place]
        made = sum(held.get(name, 0) for name in node.output)
        reused = made if op_type(node) in _IN_PLACE and made in dying else 0
        most = max(most, live + made - reused)
        live += made - sum(dying) - sum(held.get(name, 0) for name in node.output if name not in last)
    return most


def _open_inputs(graph: GraphProto, values: OpenValues) -> list[str]:
    held = {one.name for one in graph.initializer}
    shapes = {value.name: values.shapes.get(value.name, ()) for value in graph.input if value.name not in held}
    return [name for name, shape in shapes.items() if any(one is None or one.symbols() for one in shape)]


def _rate(graph: GraphProto, values: OpenValues, name: str) -> tuple[float, int, str]:
    """Return how far from a multiple of an input's elements the block is, its bytes for each of these, and the name."""
    rates = []
    for part in _PARTS:
        sizes = {
            symbol: max(1, round(part * size)) if size > _LONG else size for symbol, size in values.typical.items()
        }
        elements = max(1, values.bytes_of(name, sizes, 1) or 1)
        rates.append(pattern_bytes(graph, values, sizes) / elements)
    return max(rates) / max(min(rates), 1e-9), max(1, round(_SPARE * min(rates))), name


def _insert(graph: GraphProto, guards: OpenValues | None, name: str, rate: int, inputs: Sequence[str]) -> None:
    """Put the two values before all nodes, which read ``inputs`` through what waits for them.

    Args:
        guards: With the ranges out of which lengths are refused; None: none are.
        name: The input of which the block has ``rate`` bytes for each element.
    """
    nodes, initializers, again = _nodes(graph, guards, name, rate, inputs)
    for node in graph.node:
        for place, read in enumerate(node.input):
            node.input[place] = again.get(read, read)
    later = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *later])
    graph.initializer.extend(initializers)


def _nodes(
    graph: GraphProto, guards: OpenValues | None, name: str, rate: int, inputs: Sequence[str]
) -> tuple[list[NodeProto], list[TensorProto], dict[str, str]]:
    import numpy as np
    from onnx import helper, numpy_helper

    taken = set(chain.from_iterable((*node.input, *node.output) for node in graph.node))
    nodes: list[NodeProto] = []
    initializers: list[TensorProto] = []

    def free(base: str) -> str:
        found, count = f"reserve_{base}", 1
        while found in taken:
            count += 1
            found = f"reserve_{base}_{count}"
        taken.add(found)
        return found

    def constant(numbers: Sequence[int] | int, base: str) -> str:
        initializers.append(numpy_helper.from_array(np.array(numbers, dtype=np.int64), free(base)))
        return str(initializers[-1].name)

    def make(kind: str, read: Sequence[str], base: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(read), [free(base)], name=free(f"{base}_node"), **attributes))
        return str(nodes[-1].output[0])

    def room(elements: str, base: str) -> str:
        """Return 0, once there was a value of so many elements."""
        size = make("Size", [make("ConstantOfShape", [elements], base)], f"{base}_size")
        return make("Min", [size, none], f"{base}_done")

    none = constant(0, "none")
    shape = make("Shape", [name], "shape")
    factor = constant([rate], "rate")
    if guards is not None:
        lengths = Lengths(guards, taken)
        factor = make("Mul", [factor, lengths.guard()], "guarded_rate")
        nodes[:0] = lengths.nodes
        initializers.extend(lengths.initializers)
    block = make("Mul", [make("ReduceProd", [shape], "elements", keepdims=1), factor], "bytes")
    classes = [1 << power for power in range(_LEAST_CLASS, _LEAST_CLASS + _CLASSES)]
    below = make("Cast", [make("Less", [constant(classes[:-1], "classes"), block], "below")], "below_as_numbers", to=7)
    number = make("ReduceSum", [below], "class", keepdims=1)
    # Half a region of half the block's size and a little more, in elements.
    less = make("Gather", [constant([one // 4 // _FLOAT + 64 for one in classes], "smaller"), number], "smaller_size")
    # A block that nearly fills its region leaves no room beside it in the next one: it gets one twice as large.
    whole = make("Gather", [constant([one // _FLOAT + 64 for one in classes], "larger"), number], "larger_size")
    most = make("Gather", [constant([one * 3 // 4 for one in classes], "most"), number], "most_beside")
    full = make("Less", [most, block], "is_full")
    exact = make("Div", [block, constant([_FLOAT], "width")], "exact_size")
    more = make("Where", [full, whole, exact], "size")
    first = room(less, "smaller_room")
    second = room(make("Add", [more, first], "then"), "room")
    again = {}
    for one in inputs:
        shape = make("Add", [make("Shape", [one], "shape"), second], "shape_again")
        again[one] = make("Reshape", [one, shape], f"before_{one}")
    return nodes, initializers, again
