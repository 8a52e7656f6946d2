"""Inputs and outputs in the form that the layers have: what the model did at its border its caller does from now on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memsched.commands.optimize.rewrite import Candidate, Proposals, Refusals, RewriteBase, Ways
from memsched.commands.optimize.rewrites import Rewrites
from memsched.formats.capabilities import BorderRewrites
from memsched.formats.known import capability
from memsched.graph.border import Border, Borders
from memsched.graph.model import Graph
from memsched.report.border import border_section
from memsched.search.run import Run

__all__ = ["BorderRewrite", "BorderWays"]


@dataclass(frozen=True, slots=True)
class BorderRewrite:
    """All that can be changed at the border at once: each change needs less by itself."""

    name = "io"
    once = True
    described = "another form of inputs and outputs (io)"

    def is_quick(self, base: RewriteBase) -> bool:
        """Whether what it finds is written however little time there is; see `Rewrite`."""
        del base
        return True

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose all changes, and once more those that can be written."""
        del run
        ways = BorderWays(base)
        yield Candidate(ways)
        while ways.left.found:
            refused = dict((yield Candidate(ways, ways.left.found, base.peak)) or {})
            refused |= (yield None) or {}
            if not refused:
                return
            ways.drop(refused)


def _idle(borders: Borders, left: Sequence[Border]) -> Borders:
    """Return ``borders`` where none of ``left``, which could be changed, saves anything."""
    idle = ((border.given.name, "in another form it would save nothing") for border in left)
    return replace(borders, refusals=(*borders.refusals, *idle))


class BorderWays(Ways):
    """Inputs and outputs in another form; a part of a way is one of them. It does no work; it saves some.

    Attributes:
        left: What can be changed.
    """

    stands = True

    def __init__(self, base: RewriteBase) -> None:
        super().__init__(base.executed)
        self.left = capability(base.module, BorderRewrites).borders(base.module)

    def drop(self, refused: Refusals) -> None:
        """Leave inputs and outputs as they are that cannot be written otherwise."""
        gone = {border: reason for way, reason in refused.items() for border in way}
        refusals = ((border.given.name, f"it cannot be written otherwise: {why}") for border, why in gone.items())
        left = tuple(border for border in self.left.found if border not in gone)
        self.left = replace(self.left, found=left, refusals=(*self.left.refusals, *refusals))

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

    def describe(self, before: Rewrites, used: Candidate | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the section on inputs and outputs; what is required follows later."""
        del extra_macs
        if used is not None:
            return replace(before, io=border_section(self.left, used.way, 0, 0))
        return replace(before, io=border_section(_idle(self.left, self.left.found), (), 0, 0))
