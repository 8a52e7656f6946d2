"""Reports read back from their files: whoever wrote them, what is used of them holds."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from memsched.errors import ReportError
from memsched.report.build import SCHEMA_VERSION, load_schema
from memsched.report.schema_check import first_violation

__all__ = ["parse_report"]

_LARGEST = 2**62
"""Of a number in a report: more than any memory, and still a number to whoever reads it."""


def parse_report(data: bytes, name: str) -> dict[str, Any]:
    """Return the report of ``memsched optimize`` or ``memsched analyze`` in ``data``.

    Args:
        name: How messages name the file, such as "'report.json'".

    Raises:
        ReportError: It is no JSON, no report, of another version, incomplete, or contradicts itself.
    """
    try:
        report = json.loads(data.decode("utf-8-sig"), parse_constant=_no_number, parse_int=_integer, parse_float=_float)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ReportError(f"{name} is no JSON, or was cut off: {error.msg} in {where}") from None
    except UnicodeDecodeError:
        raise ReportError(f"{name} is no report: it is not text in UTF-8") from None
    except ValueError as error:
        raise ReportError(f"{name} is no report: {error}") from None
    except RecursionError:
        raise ReportError(f"{name} is no report: it is nested too deeply") from None
    if not isinstance(report, dict) or "schema_version" not in report:
        raise ReportError(f"{name} is no report of memsched: it has no 'schema_version'")
    version, command = report["schema_version"], report.get("command")
    if version != SCHEMA_VERSION or isinstance(version, bool):
        raise ReportError(f"{name} has schema_version {json.dumps(version)[:20]}; this memsched reads {SCHEMA_VERSION}")
    if command not in ("optimize", "analyze"):
        raise ReportError(f"{name} is no report of 'memsched optimize' or 'memsched analyze'")
    problem = first_violation(report, load_schema()) or _contradiction(report)
    if problem is not None:
        raise ReportError(f"{name} is no valid report: {problem}")
    return report


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")


def _integer(text: str) -> int:
    # Python refuses to convert thousands of digits, and browsers cannot hold them.
    if len(text) > len(str(_LARGEST)) or abs(number := int(text)) > _LARGEST:
        raise ValueError(f"{text[:20]}... is too large a number")
    return number


def _float(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"{text[:20]} is too large a number")
    return number


def _contradiction(report: dict[str, Any]) -> str | None:
    """Return what cannot be true of the lists of steps and buffers; None where nothing is."""
    steps, given = report["steps"], report["baselines"]["file_order"]
    count = len(steps)
    for place, step in enumerate(steps):
        if step["index"] != place:
            return f"steps[{place}].index is {step['index']}, not {place}"
    if steps and max(step["footprint_bytes"] for step in steps) != report["result"]["peak_bytes"]:
        return "result.peak_bytes is not the largest of steps[].footprint_bytes"
    for key in ("buffers", "at_fault"):
        for place, buffer in enumerate(report[key]):
            if not buffer["first_step"] <= buffer["last_step"] <= max(0, count - 1):
                return f"{key}[{place}] is in use from step {buffer['first_step']} to {buffer['last_step']} of {count}"
    for place, buffer in enumerate(report["buffers"]):
        made = buffer.get("produced_in")
        if any(step >= count for step in (*buffer.get("read_in", ()), *(() if made is None else (made,)))):
            return f"buffers[{place}] is made or read in a step that is not there"
    for place, workspace in enumerate(report["workspaces"]):
        if workspace["step"] >= count:
            return f"workspaces[{place}] is of step {workspace['step']}, and there are {count}"
    pools = report["pools"]
    if pools is not None and pools["weighted_traffic"] is not None:
        for place, pool in enumerate(pools["pools"]):
            if pool["used_bytes"] is None:
                return f"pools.pools[{place}].used_bytes is null, but the traffic is known"
    if len(given.get("ops", ())) != len(given.get("footprints_bytes", ())):
        return "baselines.file_order has not one footprint for each of its ops"
    return None
