"""Activations that were exported as chains of operators, in one operator each, where a model then requires less."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from memsched.commands.optimize.candidates import Lookout
from memsched.commands.optimize.place import Request
from memsched.commands.optimize.report import Rewrites
from memsched.commands.optimize.rewrite import RewriteBase, RewritePoint
from memsched.graph.border import Border
from memsched.graph.chain import Chain
from memsched.graph.model import Graph, Op
from memsched.report.chains import chain_section

__all__ = ["ChainRewrite"]


class ChainRewrite:
    """All chains at once: one operator never needs more than those that it stands for. See `Rewrite`.

    A part of a way is a chain. It does no work; it saves some.

    Args:
        chains: Those of the model as given.
    """

    share = 0.5
    small = True
    told_as_stored = False
    proven = False
    looks = None
    finished = True

    def __init__(
        self, chains: Sequence[Chain], base: RewriteBase, request: Request, percent: float, budget: int | None
    ) -> None:
        del request, percent, budget
        self._base, self._left = base, tuple(chains)
        self.graph = base.executed
        self.total = sum(op.macs for op in self.graph.ops)

    def resume(self, request: Request) -> None:
        """Do nothing: there is no search."""

    def search(
        self, meets: Callable[[RewritePoint[Chain]], bool], lookout: Lookout[RewritePoint[Chain]] | None
    ) -> Sequence[RewritePoint[Chain]]:
        """Return the one point that there is."""
        del meets, lookout
        return self.search_out()

    def search_out(self) -> Sequence[RewritePoint[Chain]]:
        """Return the one point that there is; its peak is no higher than that of the model as it is."""
        return [RewritePoint(self._base.peak, 0, 0, self._left)] if self._left else []

    def goes_on(self, seconds: float) -> bool:
        """Return False: there is no search."""
        del seconds
        return False

    def drop(self, reasons: Mapping[tuple[Chain, ...], str], *, last: bool) -> None:
        """Leave chains as they are that cannot be written otherwise."""
        del last
        gone = {chain for way in reasons for chain in way}
        self._left = tuple(chain for chain in self._left if chain not in gone)

    def parts(self, way: tuple[Chain, ...]) -> Sequence[tuple[Chain, ...]]:
        """Return each chain by itself."""
        return [(chain,) for chain in way]

    def coarser(self, part: tuple[Chain, ...]) -> Sequence[tuple[Chain, ...]]:
        """Return nothing: a part is done or left."""
        del part
        return ()

    def borders(self, way: tuple[Chain, ...]) -> tuple[Border, ...]:
        """Return nothing: inputs and outputs stay."""
        del way
        return ()

    def build(self, way: tuple[Chain, ...]) -> Graph:
        """Return the graph with one operator in the place of the last of each chain."""
        graph = self.graph
        number = {tensor.name: place for place, tensor in enumerate(graph.tensors)}
        taken = {op.name for op in graph.ops}
        last = {chain.made: chain for chain in way}
        gone = {name for chain in way for name in chain.ops}
        ops: list[Op] = []
        for op in graph.ops:
            if op.name not in gone:
                ops.append(op)
                continue
            chain = last.get(graph.tensors[op.outputs[0]].name)
            if chain is not None:
                ops.append(_op_of(chain, number, taken))
        inner = {tensor for op in graph.ops if op.name in gone for tensor in op.outputs}
        inner -= {number[chain.made] for chain in way}
        kept = [place for place in range(len(graph.tensors)) if place not in inner]
        at = {old: new for new, old in enumerate(kept)}
        places = {op.name: place for place, op in enumerate(ops)}
        return replace(
            graph,
            tensors=tuple(graph.tensors[old] for old in kept),
            ops=tuple(
                replace(
                    op,
                    inputs=tuple(at[tensor] for tensor in op.inputs),
                    outputs=tuple(at[tensor] for tensor in op.outputs),
                )
                for op in ops
            ),
            inputs=tuple(at[tensor] for tensor in graph.inputs),
            outputs=tuple(at[tensor] for tensor in graph.outputs),
            variables=tuple(at[tensor] for tensor in graph.variables),
            dependencies=tuple(
                (places[graph.ops[before].name], places[graph.ops[after].name]) for before, after in graph.dependencies
            ),
        )

    def cost(self, point: RewritePoint[Chain]) -> int:
        """Return 0: no work is added."""
        del point
        return 0

    def describe(self, before: Rewrites, used: RewritePoint[Chain] | None, extra_macs: int) -> Rewrites:
        """Return ``before`` with the section on chains; what is required follows later."""
        del extra_macs
        return replace(before, chains=chain_section(() if used is None else used.way))


def _op_of(chain: Chain, number: Mapping[str, int], taken: set[str]) -> Op:
    name = f"{chain.ops[-1]}_whole"
    while name in taken:
        name += "_"
    taken.add(name)
    return Op(
        name,
        chain.type,
        (number[chain.read],),
        (number[chain.made],),
        attributes=dict(chain.attributes),
        positions=(0,),
        chain=chain.ops,
    )
