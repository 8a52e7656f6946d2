"""The page's tables of what was rewritten: whole activations, layers in pieces, and values computed again."""

from __future__ import annotations

from memsched.base.shown import NAME_COLUMNS, TABLE_ROWS
from memsched.base.units import counted
from memsched.report.algebra import WORDS
from memsched.report.page_parts import RewriteTable
from memsched.report.remat import proof_of
from memsched.report.text import shortened
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.rewrites import AlgebraSection, ChainSection, RematSection, TilingSection

__all__ = ["rewrite_tables"]


def rewrite_tables(report: OptimizeReport) -> list[RewriteTable]:
    """Return a table per rewrite that was applied."""
    found = []
    chains, tiling, remat = report.sections.chains, report.sections.tile, report.sections.recompute
    if chains is not None and chains.applied:
        found.append(_activations(chains))
    if report.sections.algebra is not None and report.sections.algebra.applied:
        found.append(_identities(report.sections.algebra))
    if tiling is not None and tiling.applied:
        found.append(_pieces(tiling))
    if remat is not None and remat.applied:
        found.append(_repetitions(remat))
    return found


def _activations(chains: ChainSection) -> RewriteTable:
    rows = [
        (
            shortened(row.ops[0], NAME_COLUMNS),
            shortened(row.ops[-1], NAME_COLUMNS),
            shortened(row.type, NAME_COLUMNS),
            f"{len(row.ops):,}",
        )
        for row in chains.chains[:TABLE_ROWS]
    ]
    return RewriteTable(
        title="Activations in one operator each",
        text=(
            f"{counted(len(chains.chains), 'chain')} of operators. By order and in-place writes alone "
            + _required(chains)
            + _left_out(len(chains.chains))
        ),
        headings=["from op", "to op", "operator", "ops"],
        rows=rows,
        columns=3,
    )


def _identities(algebra: AlgebraSection) -> RewriteTable:
    rows = [
        (WORDS[row.kind], shortened(row.op, NAME_COLUMNS), shortened(row.over, NAME_COLUMNS))
        for row in algebra.identities[:TABLE_ROWS]
    ]
    return RewriteTable(
        title="Ops rewritten with equal results",
        text=(
            f"{counted(len(algebra.identities), 'op')} rewritten with equal results. "
            + _required(algebra)
            + _left_out(len(algebra.identities))
        ),
        headings=["how", "op", "over"],
        rows=rows,
        columns=3,
    )


def _required(section: ChainSection | AlgebraSection) -> str:
    return f"{section.given_bytes:,} bytes were required before, {section.bytes:,} with them."


def _pieces(tiling: TilingSection) -> RewriteTable:
    rows = [
        (
            shortened(group.ops[0], NAME_COLUMNS),
            shortened(group.ops[-1], NAME_COLUMNS),
            " x ".join(group.axis_names),
            f"{len(group.ops):,}",
            " x ".join(f"{count:,}" for count in group.pieces),
            f"{len(group.kept_halos):,}",
            f"{group.extra_macs:,}",
            f"{group.peak_bytes:,}",
        )
        for group in tiling.groups[:TABLE_ROWS]
    ]
    return RewriteTable(
        title="Layers computed in pieces",
        text=(
            f"{counted(len(tiling.groups), 'group')} of layers, {tiling.extra_macs_percent:.1f} % more "
            f"multiply-accumulates. Before them the least peak was {tiling.untiled.peak_bytes:,} bytes."
            + _left_out(len(tiling.groups))
        ),
        headings=[
            *("from layer", "to layer", "along", "layers", "pieces", "halos kept"),
            *("extra multiply-accumulates", "peak, bytes"),
        ],
        rows=rows,
        columns=3,
    )


def _repetitions(remat: RematSection) -> RewriteTable:
    proven = proof_of(remat)
    rows = [
        (
            shortened(copy.op, NAME_COLUMNS),
            shortened(copy.type, NAME_COLUMNS),
            f"{copy.times:,}",
            f"{copy.extra_macs:,}",
            f"{copy.extra_bytes_moved:,}",
        )
        for copy in remat.copies[:TABLE_ROWS]
    ]
    return RewriteTable(
        title="Values computed again",
        text=(
            f"{counted(len(remat.copies), 'op')} executed more than once, {remat.extra_work_percent:.1f} % more "
            f"work. Without them the least peak was {remat.without.peak_bytes:,} bytes."
            + (f" {proven[0].upper()}{proven[1:]}." if proven else "")
            + _left_out(len(remat.copies))
        ),
        headings=["op", "type", "times more", "extra multiply-accumulates", "extra bytes moved"],
        rows=rows,
        columns=2,
    )


def _left_out(count: int) -> str:
    return f" The first {TABLE_ROWS} are listed." if count > TABLE_ROWS else ""
