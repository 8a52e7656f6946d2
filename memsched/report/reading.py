"""Reports read back from their files, and checked: whoever wrote them, what is used of them holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, NoReturn

from memsched.base.errors import ReportError
from memsched.base.shown import LABEL_COLUMNS
from memsched.base.typed import Fault, UnfitError, converted, dotted
from memsched.base.units import LARGEST
from memsched.report.text import one_line, shortened
from memsched.report.values.base import SCHEMA_VERSION
from memsched.report.values.graphs import BufferRow, FaultRow, StepRow
from memsched.report.values.optimize import OptimizeReport

__all__ = ["MAKE_ANEW", "parse_report", "worded"]

MAKE_ANEW: Final = "run the command that wrote it once more with this memsched"
"""What helps if a report is of another version."""

_WORDS = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "objects": "a list of objects",
    "string": "a text",
}


def parse_report(data: bytes, name: str) -> OptimizeReport:
    """Return the report of ``memsched optimize`` or ``memsched analyze`` in ``data``.

    Args:
        name: How messages name the file, such as "'report.json'".

    Raises:
        ReportError: It is no JSON, no report, of another version, incomplete, or contradicts itself.
    """
    try:
        report = json.loads(data.decode("utf-8-sig"), parse_constant=_no_number, parse_int=_integer, parse_float=_float)
    except json.JSONDecodeError as error:
        what = error.msg[:1].lower() + error.msg[1:].removesuffix(" starting at")
        where = f"line {error.lineno}, column {error.colno}"
        raise ReportError(
            f"{name} is not JSON, or was cut off: {what} in {where}", code="not-json", action="write the report again"
        ) from None
    except UnicodeDecodeError:
        raise ReportError(f"{name} is not a report: it is not text in UTF-8", code="report-not-text") from None
    except ValueError as error:
        raise ReportError(f"{name} is not a report: {error}", code="bad-number") from None
    except RecursionError:
        raise ReportError(f"{name} is not a report: it is nested too deeply", code="too-deep") from None
    if not isinstance(report, dict) or "schema_version" not in report:
        raise ReportError(f"{name} is not a report of memsched: it has no 'schema_version'", code="not-a-report")
    version, command = report["schema_version"], report.get("command")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise ReportError(
            f"{name} has schema_version {json.dumps(version)[:20]}; this memsched reads {SCHEMA_VERSION}",
            code="report-version",
            action=MAKE_ANEW,
        )
    if command not in ("optimize", "analyze"):
        raise ReportError(f"{name} is not a report of 'memsched optimize' or 'memsched analyze'", code="other-report")
    try:
        values = converted(report, OptimizeReport)
    except UnfitError as error:
        raise ReportError(f"{name} is not a valid report: {worded(error.fault)}", code="report-field") from None
    problem = _contradiction(values)
    if problem is not None:
        raise ReportError(f"{name} is not a valid report: {problem}", code="report-contradiction")
    return values


def worded(fault: Fault) -> str:
    """Return in a line where a report does not fit, and why."""
    where = dotted([step if isinstance(step, int) else shortened(step, LABEL_COLUMNS) for step in fault.path])
    if fault.reason == "missing":
        return f"{where or 'it'} has no '{fault.key}'"
    if fault.reason == "unknown":
        return f"'{f'{where}.{shortened(fault.key, LABEL_COLUMNS)}'.lstrip('.')}' is nothing that this version knows"
    value = fault.value
    if fault.reason == "length" and isinstance(value, list | dict):
        return f"{where} has {len(value):,} entries"
    reasons = {
        "type": f"not {' or '.join(_WORDS[kind] for kind in fault.kinds)}",
        "choice": f"not {'one of ' if len(fault.choices) > 1 else ''}{', '.join(map(str, fault.choices))}",
        "bounds": _bounds(fault),
    }
    return f"{where or 'the whole'} is {_shown(value)}, {reasons.get(fault.reason, 'which is not of its form')}"


def _bounds(fault: Fault) -> str:
    below = fault.least is not None and isinstance(fault.value, int | float) and fault.value < fault.least
    return f"less than {fault.least:g}" if below else "too large" if fault.most is None else f"more than {fault.most:g}"


def _shown(value: object) -> str:
    """Return a value as a message quotes it; of lists and objects only what they are."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, str):
        return f"'{shortened(one_line(value), LABEL_COLUMNS)}'"
    return json.dumps(value)[:LABEL_COLUMNS]


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _integer(text: str) -> int:
    # Python refuses to convert thousands of digits, and browsers cannot hold them.
    if len(text) > len(str(LARGEST)) or abs(number := int(text)) > LARGEST:
        raise ValueError(f"{text[:20]}... is too large a number")
    return number


def _float(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _wrong_step(place: int, step: StepRow) -> str | None:
    if step.index != place:
        return f"written.steps[{place}].index is {step.index}, not {place}"
    if any(before >= place for before in step.reads_from):
        return f"written.steps[{place}] reads from a step that is not before it"
    return None


def _contradiction(report: OptimizeReport) -> str | None:
    """Return what cannot be true of the lists of steps and buffers; None where nothing is."""
    steps = report.written.steps
    count = len(steps)
    wrong = next(filter(None, map(_wrong_step, range(count), steps)), None)
    if wrong is not None:
        return wrong
    if steps and max(step.footprint_bytes for step in steps) != report.written.schedule.peak_bytes:
        return "written.schedule.peak_bytes is not the largest of written.steps[].footprint_bytes"
    rows: tuple[tuple[str, Sequence[BufferRow | FaultRow]], ...] = (
        ("written.buffers", report.written.buffers),
        ("written.at_fault", report.written.at_fault),
    )
    for key, entries in rows:
        for place, entry in enumerate(entries):
            if not entry.first_step <= entry.last_step <= max(0, count - 1):
                return f"{key}[{place}] is in use from step {entry.first_step} to {entry.last_step} of {count}"
    for place, buffer in enumerate(report.written.buffers):
        made = () if buffer.produced_in is None else (buffer.produced_in,)
        if any(step >= count for step in (*buffer.read_in, *made)):
            return f"written.buffers[{place}] is made or read in a step that is not there"
    for place, workspace in enumerate(report.written.workspaces):
        if workspace.step >= count:
            return f"written.workspaces[{place}] is of step {workspace.step}, and there are {count}"
    pools = report.sections.pools
    if pools is not None and pools.weighted_traffic is not None:
        for place, pool in enumerate(pools.pools):
            if pool.used_bytes is None:
                return f"sections.pools.pools[{place}].used_bytes is null, but the traffic is known"
    return None
