"""What reports and the console say of activations that became one operator each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from memsched.base.units import counted
from memsched.graph.chain import Chain
from memsched.report.values.rewrites import ChainRow, ChainSection

__all__ = ["chain_lines", "chain_section"]


def chain_section(chains: Sequence[Chain]) -> ChainSection:
    """Return the section on the chains that were replaced; what is required is not known yet."""
    rows = tuple(ChainRow(ops=chain.ops, type=chain.type, output=chain.made) for chain in chains)
    return ChainSection(applied=bool(rows), given_bytes=0, bytes=0, chains=rows)


def chain_lines(section: ChainSection | None) -> list[tuple[str, str | None]]:
    """Return the lines on chains, each with its style."""
    if section is None:
        return []
    if not section.applied:
        return [("no chain of operators is written as one activation: none was found where that needs less", None)]
    kinds = Counter(row.type for row in section.chains)
    what = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    saved = f"{section.given_bytes:,} -> {section.bytes:,} B"
    if section.bytes == section.given_bytes:
        saved = f"{section.bytes:,} B by themselves, as before"
    return [(f"{counted(len(section.chains), 'chain')} of operators written as one each ({what}): {saved}", None)]
