"""Activations that were exported as chains of operators, in one operator each, where a model then requires less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from memsched.commands.optimize.rewrite import Candidate, Proposals, RewriteBase, Ways
from memsched.commands.optimize.rewrites import Rewrites
from memsched.formats.capabilities import ActivationChains
from memsched.formats.known import capability
from memsched.graph.chain import Chain
from memsched.graph.model import Graph, Op
from memsched.report.chains import chain_section
from memsched.search.run import Run

__all__ = ["ChainRewrite"]


@dataclass(frozen=True, slots=True)
class ChainRewrite:
    """All chains at once: one operator never needs more than those that it stands for."""

    name = "fuse"
    once = True
    described = "one operator for a chain (fuse)"

    def is_quick(self, base: RewriteBase) -> bool:
        """Whether what it finds is written however little time there is; see `Rewrite`."""
        del base
        return True

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose all chains, and once more those that can be written."""
        del run
        ways = _ChainWays(base.executed)
        left = capability(base.module, ActivationChains).chains(base.module)
        yield Candidate(ways)
        while left:
            refused = dict((yield Candidate(ways, left, base.peak)) or {})
            refused |= (yield None) or {}
            gone = {chain for way in refused for chain in way}
            if not gone:
                return
            left = tuple(chain for chain in left if chain not in gone)


class _ChainWays(Ways):
    """Chains in one operator each; a part of a way is a chain. It does no work; it saves some."""

    stands = True

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

    def describe(self, before: Rewrites, used: Candidate | None, extra_macs: int) -> Rewrites:
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
