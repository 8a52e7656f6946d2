"""What a report says of layers in pieces in either form: ops for each piece, or a loop."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.graph.model import Graph, Op
from memsched.report.values.rewrites import GroupRow, RefusalRow, TilingForm

__all__ = ["group_row", "refusal_row"]


def group_row(
    graph: Graph,
    ops: Sequence[int],
    axes: Sequence[int],
    names: Sequence[str],
    pieces: Sequence[int],
    macs: int,
    *,
    form: TilingForm,
    kept: Sequence[int] = (),
    padded: Sequence[int] = (),
) -> GroupRow:
    """Return what a report says of a group; the peak of its steps is known when the whole model is placed.

    Args:
        names: What the format calls the axes of an image; empty where no op of the model looks at images.
        macs: Multiply-accumulates of all pieces.
        kept: Tensors whose halos are kept.
        padded: Ops whose pieces have a pad before them.
    """
    shape = graph.tensors[graph.ops[ops[-1]].outputs[0]].shape or ()
    return GroupRow(
        ops=tuple(graph.ops[op].name for op in ops),
        axes=tuple(axes),
        axis_names=tuple(names[axis] if len(shape) == len(names) else f"axis {axis}" for axis in axes),
        pieces=tuple(pieces),
        kept_halos=tuple(graph.tensors[tensor].name for tensor in kept),
        padded_ops=tuple(graph.ops[op].name for op in padded),
        extra_macs=macs - sum(graph.ops[op].macs for op in ops),
        peak_bytes=0,
        form=form,
    )


def refusal_row(op: Op, reason: str, form: TilingForm) -> RefusalRow:
    """Return what a report says of an op at which groups end; the reason need not name it again."""
    return RefusalRow(op=op.name, type=op.type, reason=reason.removeprefix(f"op '{op.name}' ({op.type}): "), form=form)
