"""The session options that a file was measured with, stated in its metadata."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Final

import msgspec

from memsched.commands.results import OptimizeResult, Report
from memsched.formats.capabilities import FileMetadata
from memsched.formats.known import capability, format_in
from memsched.runtimes.session_code import SESSION, opening_lines, session_text
from memsched.runtimes.sessions import EXECUTED, LISTED, PATTERNLESS

__all__ = ["with_session_stated"]

_POINTS: Final = {opening_lines(point): point for point in (PATTERNLESS, LISTED, EXECUTED)}


def with_session_stated(result: OptimizeResult) -> OptimizeResult:
    """Return the result with the session options in the file, if it is a new file that needs some."""
    values = result.report.values
    output, guarantee = values.output, values.guarantee
    point = None if guarantee is None else _POINTS.get(tuple(guarantee.session_options))
    if output is None or output.unchanged or point is None:
        return result
    entries = {SESSION: session_text(point)}
    model = capability(format_in(result.model), FileMetadata).with_metadata(result.model, entries)
    stated = msgspec.structs.replace(output, sha256=hashlib.sha256(model).hexdigest())
    return dataclasses.replace(result, model=model, report=Report(msgspec.structs.replace(values, output=stated)))
