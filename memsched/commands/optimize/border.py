"""Inputs and outputs in the form that the layers have: what the model did at its border its caller does from now on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from memsched.commands.optimize.candidates import Lookout
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import RewriteBase, RewritePoint
from memsched.graph.border import Border, Borders
from memsched.graph.model import Graph
from memsched.report.border import border_section

__all__ = ["BorderRewrite", "unused"]


def unused(borders: Borders, left: Sequence[Border]) -> Borders:
    """Return ``borders`` where none of ``left``, which could be changed, saves anything."""
    idle = ((border.given.name, "in another form it would save nothing") for border in left)
    return replace(borders, refusals=(*borders.refusals, *idle))


class BorderRewrite:
    """All that can be changed at the border at once: each change needs less by itself. See `Rewrite`.

    A part of a way is an input or output. It does no work; it saves some.

    Args:
        borders: What can be changed in the model as given.
    """

    share = 0.5
    small = True
    told_as_stored = False
    proven = False
    looks = None
    finished = True

    def __init__(
        self, borders: Borders, base: RewriteBase, request: Request, percent: float, budget: int | None
    ) -> None:
        del request, percent, budget
        self._base, self._borders = base, borders
        self._left = borders.found
        self.graph = base.executed
        self.total = sum(op.macs for op in self.graph.ops)

    def resume(self, request: Request) -> None:
        """Do nothing: there is no search."""

    def search(
        self, meets: Callable[[RewritePoint[Border]], bool], lookout: Lookout[RewritePoint[Border]] | None
    ) -> Sequence[RewritePoint[Border]]:
        """Return the one point that there is."""
        del meets, lookout
        return self.search_out()

    def search_out(self) -> Sequence[RewritePoint[Border]]:
        """Return the one point that there is; its peak is no higher than that of the model as it is."""
        return [RewritePoint(self._base.peak, 0, 0, self._left)] if self._left else []

    def goes_on(self, seconds: float) -> bool:
        """Return False: there is no search."""
        del seconds
        return False

    def drop(self, reasons: Mapping[tuple[Border, ...], str], *, last: bool) -> None:
        """Leave inputs and outputs as they are that cannot be written otherwise."""
        del last
        gone = {border: reason for way, reason in reasons.items() for border in way}
        self._left = tuple(border for border in self._left if border not in gone)
        refusals = ((border.given.name, f"it cannot be written otherwise: {why}") for border, why in gone.items())
        self._borders = replace(self._borders, refusals=(*self._borders.refusals, *refusals))

    def parts(self, way: tuple[Border, ...]) -> Sequence[tuple[Border, ...]]:
        """Return each input and output by itself."""
        return [(border,) for border in way]

    def coarser(self, part: tuple[Border, ...]) -> Sequence[tuple[Border, ...]]:
        """Return nothing: a part is done or left."""
        del part
        return ()

    def borders(self, way: tuple[Border, ...]) -> tuple[Border, ...]:
        """Return what the caller has to do instead of the model."""
        return way

    def build(self, way: tuple[Border, ...]) -> Graph:
        """Return the graph without the operators that the caller replaces."""
        graph = self.graph
        gone = {step.op for border in way for step in border.steps}
        ends = {("input", tensor): tensor for tensor in graph.inputs}
        ends |= {("output", tensor): tensor for tensor in graph.outputs}
        number = {tensor.name: place for place, tensor in enumerate(graph.tensors)}
        for border in way:
            ends[border.side, number[border.given.name]] = number[border.written.name]
        kept_ops = [place for place, op in enumerate(graph.ops) if op.name not in gone]
        outside = {tensor for op in graph.ops if op.name in gone for tensor in (*op.inputs, *op.outputs)}
        outside -= set(ends.values())
        kept = [place for place in range(len(graph.tensors)) if place not in outside]
        tensor_at = {old: new for new, old in enumerate(kept)}
        op_at = {old: new for new, old in enumerate(kept_ops)}
        return replace(
            graph,
            tensors=tuple(graph.tensors[old] for old in kept),
            ops=tuple(
                replace(
                    op,
                    inputs=tuple(tensor_at[tensor] for tensor in op.inputs),
                    outputs=tuple(tensor_at[tensor] for tensor in op.outputs),
                )
                for op in (graph.ops[old] for old in kept_ops)
            ),
            inputs=tuple(tensor_at[ends["input", tensor]] for tensor in graph.inputs),
            outputs=tuple(tensor_at[ends["output", tensor]] for tensor in graph.outputs),
            variables=tuple(tensor_at[tensor] for tensor in graph.variables),
            dependencies=tuple((op_at[before], op_at[after]) for before, after in graph.dependencies),
        )

    def cost(self, point: RewritePoint[Border]) -> int:
        """Return 0: no work is added."""
        del point
        return 0

    def describe(self, before: Rewrites, used: RewritePoint[Border] | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the section on inputs and outputs; what is required follows later."""
        del extra_macs
        if used is not None:
            return replace(before, io=border_section(self._borders, used.way, 0, 0))
        return replace(before, io=border_section(unused(self._borders, self._left), (), 0, 0))
