"""Images of open height in loops over rows: the ways to rewrite a model, each for more work than the one before."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from onnx import ModelProto

from memsched.formats.blocks import BlockPoint, BlockRow
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.regions import OpenGraph
from memsched.formats.onnx.blocks.rows.field import RowField
from memsched.formats.onnx.blocks.rows.plan import BLOCK_PART, RowPlan, choose
from memsched.formats.onnx.blocks.rows.write import write_rows
from memsched.formats.onnx.blocks.stacked_weights import weights_in_stacks
from memsched.formats.onnx.blocks.tokens import token_points
from memsched.formats.onnx.standard import Axes, Opset
from memsched.formats.onnx.worth import LARGE_BLOCK, SMALL_BLOCK

__all__ = ["row_field", "row_points"]

_MOST_WORK: Final = (1.1, 1.35, 1.7)
"""The work of plans, as multiples of that of the model as given."""


def row_field(model: ModelProto, values: OpenValues) -> RowField:
    """Return what of a model can be computed by rows; nothing where its operator set has no such loops."""
    opset = next((one.version for one in model.opset_import if one.domain in {"", "ai.onnx"}), 1)
    return RowField(OpenGraph(model.graph, values, values.typical), known=opset >= Opset.LOOPS_OVER_SEQUENCES)


def row_points(model: ModelProto, values: OpenValues) -> Sequence[BlockPoint]:
    """Return ways to compute the images of a model in loops over rows, and what else is large over blocks of tokens.

    Args:
        model: With its weights; it is not changed.
    """
    field = row_field(model, values)
    block = min(max(field.largest // BLOCK_PART, SMALL_BLOCK), LARGE_BLOCK)
    found = []
    for plan in choose(field, _MOST_WORK, block):
        tokens = token_points(write_rows(model, field, plan, block), values)
        rows = (*_told(field, plan), *(tokens[-1].rows if tokens else ()))
        work = plan.work / field.work
        build = partial(_built, model, values, field, plan, block)
        found.append(BlockPoint(f"by rows, for {work:.2f} x the work", rows, build, work))
    return found


def _built(model: ModelProto, values: OpenValues, field: RowField, plan: RowPlan, block: int) -> bytes:
    written = write_rows(model, field, plan, block)
    tokens = token_points(written, values)
    return weights_in_stacks(tokens[-1].build() if tokens else written.SerializeToString(deterministic=True))


def _told(field: RowField, plan: RowPlan) -> tuple[BlockRow, ...]:
    """Return what is reported of loops over rows."""
    found = []
    for number, loop in enumerate(plan.loops):
        nodes = [field.graph.nodes[field.ops[op].nodes[-1]] for op in loop.ops]
        rows = field.graph.values.shapes[loop.targets[0]][Axes.ROWS]
        symbols = ", ".join(sorted(rows.symbols())) if rows is not None else ""
        found.append(BlockRow("loop", f"rows_{number}", symbols, tuple(one.name or one.output[0] for one in nodes)))
    return tuple(found)
