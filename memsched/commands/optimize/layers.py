"""What each layer takes, before and after: the rows of a report's section ``layers``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.formats.module import Module
from memsched.formats.weights import Weights, weights
from memsched.graph.model import Graph
from memsched.report.values.layers import LayerFigures, LayerRow
from memsched.report.values.rewrites import GroupRow

__all__ = ["LayeredModel", "layer_rows"]


class LayeredModel(FrozenValue, frozen=True):
    """A model in an order of execution.

    Attributes:
        graph: Its main graph with the target's rules: the ops of ``module``'s.
        footprints: Bytes per step of ``order``.
        kept: Per op of ``module``'s main graph the bytes that the runtime keeps for it; None where it keeps none.
    """

    module: Module
    graph: Graph
    order: Sequence[int]
    footprints: Sequence[int]
    kept: Sequence[int] | None = None


def layer_rows(given: LayeredModel, written: LayeredModel, groups: Sequence[GroupRow] = ()) -> tuple[LayerRow, ...]:
    """Return the layers of the model as given in its order, and what rewrites added in the order of execution.

    Args:
        groups: Layers that are computed in pieces.
    """
    before = _by_layer(given, frozenset())
    read_before = _weights(given)
    figures_before = _figures(given, before, read_before)
    after, figures_after = before, figures_before
    if not _same(given, written):
        after = _by_layer(written, {op.name for op in given.graph.ops})
        read_after = read_before if written.module is given.module else _weights(written)
        figures_after = _figures(written, after, read_after)
    bodies = _bodies(written, groups)
    ops = given.graph.ops if written.graph is given.graph else (*written.graph.ops, *given.graph.ops)
    types = {op.name: op.type for op in ops}
    return tuple(
        LayerRow(
            op=name,
            type=types[name],
            before=figures_before.get(name),
            after=figures_after.get(name),
            computed_in=bodies.get(name),
        )
        for name in dict.fromkeys((*before, *after))
    )


def _same(given: LayeredModel, written: LayeredModel) -> bool:
    """Return whether both are one model in one order, every op of which is a layer."""
    alike = given.module is written.module and given.graph is written.graph and given.kept == written.kept
    alike = alike and tuple(given.order) == tuple(written.order)
    alike = alike and tuple(given.footprints) == tuple(written.footprints)
    return alike and all(op.origin is None for op in given.graph.ops)


def _by_layer(model: LayeredModel, layers: frozenset[str] | set[str]) -> dict[str, list[int]]:
    """Return the steps of each layer; what comes from none of ``layers`` is one of its own."""
    found: dict[str, list[int]] = {}
    for step, op in enumerate(model.order):
        name, origin = model.graph.ops[op].name, model.graph.ops[op].origin
        found.setdefault(origin if origin in layers and origin is not None else name, []).append(step)
    return found


def _bodies(model: LayeredModel, groups: Sequence[GroupRow]) -> dict[str, str]:
    """Return for each op that a body computes the op that executes the body, the first of several."""
    found = {}
    for group in groups:
        # What a loop adds is named after what it makes; of that only its body has work.
        added = [op for op in model.graph.ops if group.form != "pieces" and op.name.startswith(f"{group.ops[-1]}#")]
        loop = max(added, key=lambda op: op.macs, default=None)
        if loop is not None:
            found.update(dict.fromkeys(group.ops, loop.name))
    return found


def _figures(model: LayeredModel, layers: Mapping[str, Sequence[int]], read: Weights | None) -> dict[str, LayerFigures]:
    found = {}
    for name, steps in layers.items():
        if len(steps) == 1:
            found[name] = _figure(model, steps[0], read)
            continue
        ops = [model.order[step] for step in steps]
        constants = None if read is None else {constant for op in ops for constant in read.per_op[op]}
        found[name] = LayerFigures(
            steps=len(steps),
            footprint_bytes=max(model.footprints[step] for step in steps),
            macs=sum(model.graph.ops[op].macs for op in ops),
            weights_bytes=None
            if read is None or constants is None
            else sum(read.sizes[constant] for constant in constants),
            persistent_bytes=None if model.kept is None else sum(model.kept[op] for op in ops),
        )
    return found


def _figure(model: LayeredModel, step: int, read: Weights | None) -> LayerFigures:
    """Return what a layer takes that one step computes, as nearly all are."""
    op = model.order[step]
    return LayerFigures(
        steps=1,
        footprint_bytes=model.footprints[step],
        macs=model.graph.ops[op].macs,
        weights_bytes=None if read is None else sum([read.sizes[constant] for constant in read.per_op[op]]),
        persistent_bytes=None if model.kept is None else model.kept[op],
    )


def _weights(model: LayeredModel) -> Weights | None:
    """Return what each op of ``model`` reads; None where a file does not say it for these very ops."""
    try:
        found = weights(model.module)
    except ModelError:
        return None
    return found if len(found.per_op) == len(model.graph.ops) else None
