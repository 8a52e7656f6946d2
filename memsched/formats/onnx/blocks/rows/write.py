"""Write plans for rows as loops over blocks of rows.

What a loop makes for other loops stays a sequence of blocks: joined, it would lie in memory twice for a while.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from memsched.formats.onnx.blocks.body import names_of, regenerated
from memsched.formats.onnx.blocks.lengths import Lengths
from memsched.formats.onnx.blocks.nodes import replace_nodes
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.rows.body import Outer
from memsched.formats.onnx.blocks.rows.field import RowField
from memsched.formats.onnx.blocks.rows.loops import RowLoop, spans_of
from memsched.formats.onnx.blocks.rows.plan import BLOCK_PART, LIVE, RowPlan
from memsched.formats.onnx.blocks.rows.run import Phase, RunWriter
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.standard import Axes
from memsched.formats.onnx.types import element_bits

__all__ = ["write_rows"]

_LEAST_ROWS: Final = 4


def write_rows(model: ModelProto, field: RowField, plan: RowPlan, block_bytes: int) -> ModelProto:
    """Return a copy of ``model`` whose images are computed in the loops of ``plan``.

    Args:
        field: Of its main graph.
        block_bytes: What the large images of a block may take together, at least.
    """
    written = ModelProto()
    written.CopyFrom(model)
    if not plan.loops:
        return written
    lengths = Lengths(field.graph.values, names_of(model.graph))
    opset = next((one.version for one in model.opset_import if one.domain in {"", "ai.onnx"}), 1)
    heights = _heights(field, plan, lengths, block_bytes)
    makers = {name: number for number, loop in enumerate(plan.loops) for name in loop.made}
    labels = [lengths.name(f"rows_{number}") for number in range(len(plan.loops))]
    sequences = {
        name: (f"{labels[number]}_made_of_{name}", heights[_rows(field, name)]) for name, number in makers.items()
    }
    sequences = {name: one for name, one in sequences.items() if name not in plan.whole}
    weights = {one.name: one for one in model.graph.initializer}
    tiny = _tiny(field, plan, lengths)
    names = {one.data_type: one.name for one in tiny}
    outer = Outer(field, lengths, opset, sequences, weights, plan.whole, names, tiny)
    gone, lost = _replaced(field, plan)
    gone |= regenerated(field.graph, lost, lengths)
    nodes = [node for place, node in enumerate(field.graph.nodes) if place not in gone]
    for run in plan.runs:
        own = [(plan.loops[number], labels[number]) for number in run]
        phases = [Phase(loop, label, heights[_rows(field, loop.targets[0])]) for loop, label in own]
        others = [loop for number, loop in enumerate(plan.loops) if number not in run]
        nodes.extend(RunWriter(outer, phases, others).nodes())
    written.graph.initializer.extend((*lengths.initializers, *outer.initializers))
    replace_nodes(written.graph, [*lengths.nodes, *nodes])
    return written


def _tiny(field: RowField, plan: RowPlan, lengths: Lengths) -> list[TensorProto]:
    """Return a small block of every type that images have."""
    elements = {field.graph.values.elements[name] for loop in plan.loops for name in (*loop.made, *loop.read)}
    found = []
    for element in sorted({TensorProto.FLOAT, *elements}):
        numbers = np.zeros((1, 1, 1, 1), helper.tensor_dtype_to_np_dtype(element))
        found.append(numpy_helper.from_array(numbers, lengths.name("rows_tiny")))
    return found


def _replaced(field: RowField, plan: RowPlan) -> tuple[set[int], set[str]]:
    """Return the nodes that stand in loops alone, and the values that are no longer there."""
    gone: set[int] = set()
    for loop in plan.loops:
        for number in loop.ops:
            gone.update(field.ops[number].nodes)
        for op in field.ops:
            if op.is_summary and op.statistic in loop.statistics:
                gone.update(op.nodes)
    made = {name for loop in plan.loops for name in loop.made}
    lost = {name for place in gone for name in field.graph.nodes[place].output}
    means_made = {name for op in field.ops if op.is_summary for name in op.outputs}
    return gone, lost - (made & plan.whole) - means_made


def _rows(field: RowField, name: str) -> Polynomial:
    found = field.graph.values.shapes[name][Axes.ROWS]
    return Polynomial(()) if found is None else found


def _heights(field: RowField, plan: RowPlan, lengths: Lengths, block_bytes: int) -> dict[Polynomial, tuple[str, str]]:
    """Return for every number of rows how many a block has, a vector, and how many blocks there are, a scalar.

    Loops over as many rows have blocks of the same height, so that each finds the blocks of others where its own lie.
    """
    groups: dict[Polynomial, list[RowLoop]] = {}
    for loop in plan.loops:
        groups.setdefault(_rows(field, loop.targets[0]), []).append(loop)
    largest = max(
        (name for loop in plan.loops for name in (*loop.made, *loop.read)), key=field.graph.bytes_of, default=""
    )
    whole = _product(field.graph.values, largest, lengths, range(len(field.graph.values.shapes[largest])))
    part = lengths.node("Div", [whole, lengths.constant([BLOCK_PART])], "bytes_of_a_part")
    most = lengths.at_least(part, block_bytes)
    found = {}
    for rows, loops in groups.items():
        widest = max((_widest(field, loop) for loop in loops), key=lambda one: sum(size for _, size in one))
        step = math.lcm(*(spans_of(field, loop)[1] for loop in loops))
        bytes_of_row = _row_bytes(field, loops, [name for name, _ in widest], lengths)
        fitting = lengths.node("Div", [most, lengths.at_least(bytes_of_row, 1)], "rows_that_fit")
        fitting = lengths.at_least(fitting, max(_LEAST_ROWS, step))
        length = lengths.one(rows)
        count = lengths.at_least(lengths.ratio(length, fitting), 1)
        height = lengths.ratio(lengths.ratio(length, count), lengths.constant([step]))
        height = lengths.node("Mul", [height, lengths.constant([step])], "rows_of_a_block")
        count = lengths.node("Mul", [lengths.ratio(length, height), lengths.guard()], "number_of_blocks")
        found[rows] = height, lengths.node("Squeeze", [count], "blocks")
    return found


def _widest(field: RowField, loop: RowLoop) -> list[tuple[str, float]]:
    """Return the images of a loop of which rows take most."""
    spans, _ = spans_of(field, loop)
    sizes = [(name, field.row_bytes[name] * float(span.rate)) for name, span in spans.items()]
    return sorted(sizes, key=lambda one: (-one[1], one[0]))[:LIVE]


def _row_bytes(field: RowField, loops: Sequence[RowLoop], names: Sequence[str], lengths: Lengths) -> str:
    """Return the bytes of some images per row of a loop's targets."""
    rates = {name: span.rate for loop in loops for name, span in spans_of(field, loop)[0].items()}
    total = ""
    for name in names:
        axes = [axis for axis in range(len(field.graph.values.shapes[name])) if axis != Axes.ROWS]
        product = _product(field.graph.values, name, lengths, axes, max(1, round(rates[name])))
        total = lengths.node("Add", [total, product], "bytes_of_a_row") if total else product
    return total


def _product(values: OpenValues, name: str, lengths: Lengths, axes: Sequence[int], factor: int = 1) -> str:
    """Return the bytes of an image along some axes."""
    product = lengths.constant([factor * element_bits(values.elements[name]) // 8])
    for axis in axes:
        length = values.shapes[name][axis]
        if length is not None and length.constant() != 1:
            product = lengths.node("Mul", [product, lengths.one(length)], "bytes_of_a_row")
    return product
