"""What sessions that a user names would need, where the file found is not written as none was named."""

from __future__ import annotations

import dataclasses
import math
from typing import Final

from memsched.commands.levels import BY_NAME
from memsched.commands.optimize.choose import Permissions
from memsched.commands.optimize.place import Request, required_as_given
from memsched.commands.optimize.session_candidates import SessionSource, candidates
from memsched.commands.optimize.trials import TrialRequest
from memsched.errors import MemschedError
from memsched.report.values.optimize import SuggestionRow
from memsched.report.values.sessions import HeldBackSection
from memsched.runtimes.known import session_maker_of
from memsched.runtimes.runtime import Opening
from memsched.search.limits import Limits

__all__ = ["named_sessions"]

_EFFORT: Final = 0.25
"""Work of the search for an order, as `Limits.effort` counts it."""


def named_sessions(
    held: HeldBackSection, given: int, asked: TrialRequest, request: Request, source: SessionSource
) -> tuple[SuggestionRow, ...]:
    """Return the commands that name a session which gains by a file of its own, the one that needs least first.

    Args:
        given: Bytes that a session with the options of ``--order-guarantee session`` requires for the file as given.
        source: The model, and the session that is tried.
    """
    with_options = SuggestionRow(
        command=asked.command(options=("--order-guarantee", "session")),
        what="a file for sessions that are opened with the options it lists",
        requirement_bytes=held.requirement_bytes,
        saving_bytes=given - held.requirement_bytes,
        extra_macs_percent=held.extra_macs_percent,
        slowdown_percent=None,
    )
    rows = [row for row in (with_options, _executed(asked, request, source)) if row is not None]
    return tuple(sorted((row for row in rows if row.saving_bytes > 0), key=lambda row: row.requirement_bytes))


def _executed(asked: TrialRequest, request: Request, source: SessionSource) -> SuggestionRow | None:
    """Order the graph that the session executes, with little work; None where that gains nothing or cannot be done."""
    if request.stopped():
        return None
    run = request.run.again(Limits(0.0, source.seed, effort=_EFFORT)).quiet()
    quick = dataclasses.replace(request, run=run, end=math.inf, free_ops=0, opening=Opening("session"))
    alone = dataclasses.replace(source, permitted=Permissions(), budget=None)
    try:
        plain, _ = candidates(alone, quick, session_maker_of(source.format))
    except MemschedError:
        return None
    needed = plain.final.placed.required
    asked = dataclasses.replace(asked, allow=tuple(name for name in asked.allow if name not in BY_NAME))
    return SuggestionRow(
        command=asked.command(options=("--session", source.session)),
        what="the graph that sessions without options execute, ordered, for processors such as this one",
        requirement_bytes=needed,
        saving_bytes=max(0, required_as_given(plain.module, plain.prepared, Opening("none")).total - needed),
        extra_macs_percent=0.0,
        slowdown_percent=None,
    )
