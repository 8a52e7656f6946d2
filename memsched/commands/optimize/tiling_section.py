"""What a report says of layers in pieces in either form: ops for each piece, or a loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memsched.commands.optimize.rewrite import RewriteBase
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph, Op
from memsched.lowering.prices import Kept
from memsched.ops.geometry import describe
from memsched.ops.rules import Geometry, Refusal
from memsched.report.values.rewrites import GroupRow, RefusalRow, TilingForm
from memsched.rewrites.tile.bound import least_in_pieces
from memsched.rewrites.tile.loop import LoopGroup, loop_of
from memsched.rewrites.tile.pieces import TilingGroup
from memsched.runtimes.known import runtime_of

__all__ = ["form_of", "group_row", "loop_row", "lower_bound", "refusal_row"]


def lower_bound(
    base: RewriteBase, graph: Graph, geometries: Mapping[int, Geometry | Refusal] | None = None
) -> int | None:
    """Return bytes that the model requires at least in whatever pieces; None where nothing is known.

    Args:
        graph: What is cut: the model with its ops in the order of execution, some paddings folded into others.
        geometries: Per op of it what `describe` gives, where the caller has it.
    """
    if base.opening.guarantee == "default":
        return None
    geometries = geometries or {op: describe(graph, op) for op in range(len(graph.ops))}
    target, prices = base.prepared.target, runtime_of(base.module, base.prepared.target).prices(base.module)
    if prices is None or prices.pace is not None:
        return least_in_pieces(graph, target, base.dialect, geometries)
    # A file that is written keeps nothing for tensors that nothing refers to, and for paddings that are folded.
    placed = dict(base.placed.requirement.parts).get("persistent", 0)
    placed -= sum(base.given.tensors[tensor].size for tensor in base.given.variables)
    persistent = min(prices.of_model.persistent, placed)
    persistent -= (prices.of_ops(base.given, base.given.ops) - prices.of_ops(graph, graph.ops)).persistent
    prices = replace(prices, of_model=Kept(max(0, persistent)))
    return least_in_pieces(graph, target, base.dialect, geometries, prices)


def group_row(
    graph: Graph,
    group: TilingGroup | LoopGroup,
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
    shape = graph.shape_made(group.ops[-1])
    return GroupRow(
        ops=tuple(graph.ops[op].name for op in group.ops),
        axes=tuple(group.axes),
        axis_names=tuple(names[axis] if len(shape) == len(names) else f"axis {axis}" for axis in group.axes),
        pieces=tuple(pieces),
        kept_halos=tuple(graph.tensors[tensor].name for tensor in kept),
        padded_ops=tuple(graph.ops[op].name for op in padded),
        extra_macs=macs - sum(graph.ops[op].macs for op in group.ops),
        peak_bytes=0,
        form=form,
    )


def form_of(dialect: Dialect) -> TilingForm:
    """Return which form of loops a format has."""
    return "shared" if dialect.loop is not None and dialect.loop.unrolled else "loop"


def loop_row(graph: Graph, group: LoopGroup, dialect: Dialect, axes: Sequence[str]) -> GroupRow:
    """Return what a report says of a loop; ``axes`` as `group_row` has names."""
    loop = loop_of(graph, group, dialect)
    tiles = [len(begins) for begins in loop.tiles]
    return group_row(graph, group, axes, tiles, loop.macs, form=form_of(dialect))


def refusal_row(op: Op, reason: str, form: TilingForm, *, found: bool = False) -> RefusalRow:
    """Return what a report says of an op at which groups end; the reason need not name it again.

    Args:
        found: A group from there was found, and could not be written.
    """
    said = reason.removeprefix(f"op '{op.name}' ({op.type}): ")
    return RefusalRow(op=op.name, type=op.type, reason=said, form=form, found=found)
