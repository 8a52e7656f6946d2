"""What people read of the section ``tiling``: which layers are cut, into what pieces, and which cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from memsched.base.shown import ROWS_SHOWN
from memsched.base.units import counted
from memsched.report.text import ending_in_name, shortened
from memsched.report.values.rewrites import GroupRow, RefusalRow, TilingForm, TilingSection

__all__ = ["tiling_lines"]

_WORTH_TELLING = 0.25
"""Share of the arena without pieces: a lower bound that is less says little."""


_ENDS: Mapping[TilingForm, str] = {
    "pieces": "cannot be cut; groups end there",
    "loop": "cannot be in a loop; loops end there",
    "shared": "cannot be in a shared body; groups end there",
}

_FORMS: Mapping[TilingForm, str] = {
    "pieces": "{} pieces",
    "loop": "a loop over {} tiles",
    "shared": "one body for {} tiles",
}


def tiling_lines(section: TilingSection | None, columns: int, *, verbose: bool) -> list[tuple[str, str | None]]:
    """Return the lines of a summary, each with its style; names are shortened to fit into ``columns``.

    Args:
        verbose: All groups and refusals instead of the first few.
    """
    if section is None:
        return []
    limit = f"{section.max_extra_macs_percent:g} % permitted"
    lines: list[tuple[str, str | None]] = []
    if section.applied:
        groups = section.groups
        extra = f"{section.extra_macs_percent:.1f} % more multiply-accumulates ({limit})"
        lines.append((f"computed in pieces: {counted(len(groups), 'group')} of layers, {extra}", None))
        shown = groups if verbose else groups[:ROWS_SHOWN]
        lines += [(line, None) for group in shown for line in _group_lines(group, columns)]
        if len(groups) > len(shown):
            lines.append((f"  and {counted(len(groups) - len(shown), 'more group')}", None))
    else:
        lines.append((f"nothing is cut: no pieces that were tried need less ({limit})", None))
    if not section.exhausted:
        longer = "short: -O2" if section.short else "ended early: a longer --time-limit, or --effort,"
        lines.append((f"the search for pieces was {longer} may find better ones", "dim"))
    bound = section.lower_bound_bytes
    if bound is not None and bound >= _WORTH_TELLING * section.untiled.arena_bytes:
        lines.append((f"no pieces of these layers need less than {bound:,} B in all", "dim"))
    for form, end in _ENDS.items():
        ends = [one for one in section.refusals if one.form == form and not one.found]
        lines += _refusal_lines(ends, end, columns, verbose=verbose)
    unwritten = [one for one in section.refusals if one.found]
    lines += _refusal_lines(unwritten, "where what was found could not be written", columns, verbose=verbose)
    return lines


def _group_lines(group: GroupRow, columns: int) -> Iterator[str]:
    counts, layers = group.pieces, group.ops
    pieces = " x ".join(f"{count:,}" for count in counts)
    text = (
        f"  {counted(len(layers), 'layer')} in {_FORMS[group.form].format(pieces)} along {' x '.join(group.axis_names)}"
    )
    if group.kept_halos:
        text += f", {counted(len(group.kept_halos), 'halo')} kept"
    if group.peak_bytes:  # not known of groups that the runtime optimised in pieces
        text += f", {group.peak_bytes:,} B"
    return ending_in_name(f"{text}, from", layers[0], columns)


def _refusal_lines(
    refusals: Sequence[RefusalRow], end: str, columns: int, *, verbose: bool
) -> Iterator[tuple[str, str | None]]:
    """Yield the reasons, most frequent first, each with the first operator that it holds for."""
    if not refusals:
        return
    found: dict[tuple[str, str], list[str]] = {}
    for refusal in refusals:
        found.setdefault((refusal.type, refusal.reason), []).append(refusal.op)
    yield f"{counted(len(refusals), 'operator')} {end}:", "dim"
    kinds = sorted(found.items(), key=lambda item: -len(item[1]))
    for (kind, reason), names in kinds if verbose else kinds[:ROWS_SHOWN]:
        times = f"{len(names):,} x " if len(names) > 1 else ""
        known = f"  {times}{kind}: {reason}, as in "
        yield known + shortened(names[0], columns - len(known)), "dim"
    if not verbose and len(kinds) > ROWS_SHOWN:
        yield f"  and for {counted(len(kinds) - ROWS_SHOWN, 'other reason')}", "dim"
