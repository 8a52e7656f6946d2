"""The report's sections on pieces and repetitions where a model was rewritten by turns."""

from __future__ import annotations

import dataclasses

import msgspec

from memsched.base.units import percent_of
from memsched.commands.optimize.rewrites import Rewrites
from memsched.graph.model import Graph
from memsched.report.values.rewrites import RematSection, TilingSection

__all__ = ["with_earlier"]


def with_earlier(before: Rewrites, after: Rewrites, graph: Graph, macs: int) -> Rewrites:
    """Return ``after`` with what ``before`` had already done to the model, which was then rewritten further.

    Args:
        graph: What it was then, its ops with what they were made from.
        macs: Multiply-accumulates of the model as given.
    """
    tiling, remat = after.tiling, after.remat
    if tiling is not None and tiling is not before.tiling:
        tiling = _named_as_given(tiling, graph)
        if before.tiling is not None and before.tiling.applied:
            tiling = _pieces(before.tiling, tiling, macs)
        elif tiling.applied:
            # It may have been made of a model with repetitions.
            tiling = msgspec.structs.replace(tiling, extra_macs_percent=percent_of(tiling.extra_macs, macs))
    if remat is not None and remat is not before.remat:
        if before.remat is not None and before.remat.applied:
            remat = _repetitions(before.remat, remat, macs)
        elif remat.applied:
            # It may have been made of a model in pieces.
            remat = msgspec.structs.replace(remat, extra_macs_percent=percent_of(remat.extra_macs, macs))
    return dataclasses.replace(after, tiling=tiling, remat=remat)


def _named_as_given(section: TilingSection, graph: Graph) -> TilingSection:
    """Return the section with the names of what its groups were made from in the first place."""
    origins = {op.name: op.origin or op.name for op in graph.ops}
    groups = [
        msgspec.structs.replace(group, ops=tuple(dict.fromkeys(origins.get(name, name) for name in group.ops)))
        for group in section.groups
    ]
    return msgspec.structs.replace(section, groups=tuple(groups))


def _pieces(first: TilingSection, second: TilingSection, macs: int) -> TilingSection:
    more = second if second.applied else msgspec.structs.replace(second, groups=(), extra_macs=0)
    extra = first.extra_macs + more.extra_macs
    return msgspec.structs.replace(
        first,
        extra_macs=extra,
        extra_macs_percent=percent_of(extra, macs),
        groups=(*first.groups, *more.groups),
        lower_bound_bytes=None if second.applied else first.lower_bound_bytes,
        judged=first.judged + second.judged,
        exhausted=first.exhausted and second.exhausted,
    )


def _repetitions(first: RematSection, second: RematSection, macs: int) -> RematSection:
    judged = first.judged + second.judged
    if not second.applied:
        return msgspec.structs.replace(first, judged=judged)
    extra = first.extra_macs + second.extra_macs
    # What was proven of one search is not proven of both.
    return msgspec.structs.replace(
        first,
        extra_macs=extra,
        extra_macs_percent=percent_of(extra, macs),
        extra_bytes_moved=first.extra_bytes_moved + second.extra_bytes_moved,
        extra_work_percent=round(first.extra_work_percent + second.extra_work_percent, 3),
        status="feasible",
        extra_work_bound_percent=0.0,
        proof="",
        lower_bound_bytes=min(first.lower_bound_bytes, second.lower_bound_bytes),
        copies=(*first.copies, *second.copies),
        judged=judged,
        finished=second.finished,
        settled=False,
    )
