"""Room in ONNX Runtime's arena for what a session requests at once from the second run of a size on.

A session without options notes in the first run of a size what the nodes outside of loops request, and requests all of
it as one block in every later run: the memory pattern. In the first run they got bytes wherever the arena had some, so
that no place is large enough for the block, and the arena grows by it. A value that is made before all others, and of
which nothing but its size is read, gives the arena a region for the block: in the first run that holds what the block
will hold, and the second finds it empty. Where there are loops, another value makes a smaller region for all that they
and kernels request beside the block. The arena's regions are powers of two, and of those that are large enough it takes
the smallest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from memsched.formats.blocks import BlockPoint
from memsched.formats.onnx.blocks.lengths import Lengths
from memsched.formats.onnx.blocks.pattern import open_inputs, pattern_bytes, pattern_sizes
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.free_names import FreeNames
from memsched.formats.onnx.standard import ElementType
from memsched.formats.onnx.structure import graphs_of
from memsched.formats.onnx.types import element_bits
from memsched.formats.onnx.worth import LARGE_BLOCK

__all__ = ["reserve", "reserve_points", "reserved"]

_SPARE: Final = Fraction(11, 10)
"""What is not foreseen: temporary values, and what the session does not compute in place."""

_LEAST_CLASS, _CLASSES = 20, 22
"""The logarithm, to base 2, of the bytes of the smallest region; and how many sizes of regions there are."""

_FLOAT: Final = element_bits(ElementType.FLOAT) // 8

WITH_ROOM: Final = "as given, with room in the arena"


def reserve_points(model: ModelProto, values: OpenValues) -> list[BlockPoint]:
    """Return the model as it is, but for room for its block, where that is worth it."""
    if not _is_worth(model.graph, values):
        return []

    return [BlockPoint(WITH_ROOM, (), partial(_alone, model, values))]


def _alone(model: ModelProto, values: OpenValues) -> bytes:
    written = ModelProto()
    written.CopyFrom(model)
    reserve(written, values, alone=True)
    data: bytes = written.SerializeToString(deterministic=True)
    return data


def reserved(build: Callable[[], bytes], values: OpenValues) -> bytes:
    """Return the file that ``build`` makes, with room for its block."""
    model = ModelProto.FromString(build())
    reserve(model, values)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def reserve(model: ModelProto, values: OpenValues, *, alone: bool = False) -> bool:
    """Put into ``model`` what makes room for its block; return whether that is worth it.

    Args:
        values: Of the model as given, whose values have the same names in ``model``.
        alone: There are no loops, which refuse lengths out of the ranges that were stated: so does what makes room.
    """
    if not _is_worth(model.graph, values):
        return False
    _insert(model.graph, values, alone=alone)
    return True


def _is_worth(graph: GraphProto, values: OpenValues) -> bool:
    return pattern_bytes(graph, values, values.typical) >= LARGE_BLOCK and bool(open_inputs(graph, values))


def _insert(graph: GraphProto, values: OpenValues, *, alone: bool) -> None:
    """Put the values before all nodes, which read inputs through what waits for them."""
    nodes, initializers, again = _nodes(graph, values, alone=alone)
    for node in graph.node:
        for place, read in enumerate(node.input):
            node.input[place] = again.get(read, read)
    later = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *later])
    graph.initializer.extend(initializers)
    # What follows from an input's shape, such as layouts of channels, is to follow from it still.
    for value in [one for one in graph.input if one.name in again]:
        graph.value_info.add().CopyFrom(value)
        graph.value_info[-1].name = again[value.name]


def _with_spare(size: Polynomial) -> Polynomial:
    return Polynomial(tuple((one, _SPARE * factor) for one, factor in size.terms))


def _nodes(
    graph: GraphProto, values: OpenValues, *, alone: bool
) -> tuple[list[NodeProto], list[TensorProto], dict[str, str]]:
    every = chain.from_iterable(scope.graph.node for scope in graphs_of(graph))
    names = FreeNames(chain.from_iterable((node.name, *node.input, *node.output) for node in every))
    nodes: list[NodeProto] = []
    initializers: list[TensorProto] = []

    def free(base: str) -> str:
        return names.new(f"reserve_{base}")

    def constant(numbers: Sequence[int] | int, base: str) -> str:
        initializers.append(numpy_helper.from_array(np.array(numbers, dtype=np.int64), free(base)))
        return str(initializers[-1].name)

    def make(kind: str, read: Sequence[str], base: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, list(read), [free(base)], name=free(f"{base}_node"), **attributes))
        return str(nodes[-1].output[0])

    def room(elements: str, base: str) -> str:
        """Return 0, once there was a value of so many elements."""
        size = make("Size", [make("Expand", [zero, elements], base)], f"{base}_size")
        return make("Min", [size, none], f"{base}_done")

    def after_smaller(block: str, exact: str) -> str:
        """Return the elements of the room for ``block``, once there was a smaller one."""
        classes = [1 << power for power in range(_LEAST_CLASS, _LEAST_CLASS + _CLASSES)]
        below = make("Less", [constant(classes[:-1], "classes"), block], "below")
        number = make("ReduceSum", [make("Cast", [below], "below_as_numbers", to=7)], "class", keepdims=1)
        # Half a region of half the block's size and a little more, in elements.
        less = make("Gather", [constant([one // 4 // _FLOAT + 64 for one in classes], "smaller"), number], "less")
        # A block that nearly fills its region leaves no room beside it in the next one: it gets one twice as large.
        whole = make("Gather", [constant([one // _FLOAT + 64 for one in classes], "larger"), number], "larger_size")
        most = make("Gather", [constant([one * 3 // 4 for one in classes], "most"), number], "most_beside")
        size = make("Where", [make("Less", [most, block], "is_full"), whole, exact], "size")
        return make("Add", [size, room(less, "smaller_room")], "then")

    none = constant(0, "none")
    # Its copies are quicker than what `ConstantOfShape` writes.
    initializers.append(numpy_helper.from_array(np.zeros(1, np.float32), free("zero")))
    zero = str(initializers[-1].name)
    lengths = Lengths(values, names.taken)
    size, *others = (lengths.one(_with_spare(one)) for one in pattern_sizes(graph, values))
    block = lengths.node("Max", [size, *others], "block_bytes") if others else size
    if alone:
        block = lengths.node("Mul", [block, lengths.guard()], "guarded_bytes")
    nodes.extend(lengths.nodes)
    initializers.extend(lengths.initializers)
    exact = make("Div", [block, constant([_FLOAT], "width")], "exact_size")
    done = room(exact if alone else after_smaller(block, exact), "room")
    again = {}
    for one in open_inputs(graph, values):
        shape = make("Add", [make("Shape", [one], "shape"), done], "shape_again")
        again[one] = make("Reshape", [one, shape], f"before_{one}")
    return nodes, initializers, again
