"""Reports from files: cut off, written by hand, of other kinds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from memsched.base.errors import ReportError
from memsched.report.dump import dump_report
from memsched.report.reading import parse_report
from tests.failures import fails
from tests.report.plain import plain, report_with
from tests.report.test_build import a_graph


def text() -> str:
    return dump_report(report_with(*a_graph(), budget_bytes=5))


def refused(data: str | bytes, code: str, *about: str) -> None:
    with fails(code, "'r.json'", *about) as caught:
        parse_report(data.encode() if isinstance(data, str) else data, "'r.json'")
    assert isinstance(caught.value, ReportError)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_what_was_written_is_read() -> None:
    assert plain(parse_report(text().encode(), "x")) == json.loads(text())
    assert plain(parse_report(b"\xef\xbb\xbf" + text().encode(), "x")) == json.loads(text())


def test_a_report_that_was_cut_off() -> None:
    whole = text()
    rng = random.Random(1)
    for end in (0, 1, 2, *(rng.randrange(len(whole) - 2) for _ in range(60))):
        refused(whole[:end], "not-json")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ("[]", ("not-a-report", "'schema_version'")),
        ("{}", ("not-a-report", "'schema_version'")),
        ("3", ("not-a-report", "'schema_version'")),
        (b"\xff\xfe", ("report-not-text",)),
        ("[" * 200_000, ("too-deep",)),
        ('{"schema_version": 1}', ("report-version", "1", "2")),
        ('{"schema_version": true}', ("report-version", "true")),
        ('{"schema_version": 2, "command": "allocate"}', ("other-report", "'memsched optimize'", "'memsched analyze'")),
        ('{"schema_version": 2, "command": ["x"]}', ("other-report", "'memsched optimize'", "'memsched analyze'")),
        ('{"schema_version": 2, "command": "analyze"}', ("report-field", "'memsched_version'")),
        ('{"schema_version": NaN}', ("bad-number", "NaN")),
        ('{"schema_version": -Infinity}', ("bad-number", "-Infinity")),
        ('{"schema_version": 1e999}', ("bad-number", "1e999")),
        ('{"schema_version": ' + "9" * 5000 + "}", ("bad-number", "99999999999999999999")),
        ('{"schema_version": 9223372036854775807}', ("bad-number", "9223372036854775807")),
    ],
)
def test_what_is_no_report(data: str | bytes, told: tuple[str, ...]) -> None:
    refused(data, *told)


def later(report: dict[str, Any]) -> None:
    report["written"]["steps"][3]["index"] = 5


def read_too_early(report: dict[str, Any]) -> None:
    report["written"]["steps"][3]["reads_from"] = [3]


def higher(report: dict[str, Any]) -> None:
    report["written"]["steps"][3]["footprint_bytes"] = 10**9


def longer(report: dict[str, Any]) -> None:
    report["written"]["buffers"][0]["last_step"] = 99


def backwards(report: dict[str, Any]) -> None:
    report["written"]["at_fault"][0]["first_step"] = report["written"]["at_fault"][0]["last_step"] + 1


def read_after_the_end(report: dict[str, Any]) -> None:
    report["written"]["buffers"][0]["read_in"] = [99]


def workspace_after_the_end(report: dict[str, Any]) -> None:
    report["written"]["workspaces"] = [{"op": "x", "offset_bytes": 0, "size_bytes": 1, "step": 99}]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (later, ("report-contradiction", "steps[3].index", "5", "3")),
        (read_too_early, ("report-contradiction", "steps[3]")),
        (higher, ("report-contradiction", "written.schedule.peak_bytes")),
        (longer, ("report-contradiction", "buffers[0]")),
        (backwards, ("report-contradiction", "at_fault[0]")),
        (read_after_the_end, ("report-contradiction", "buffers[0]")),
        (workspace_after_the_end, ("report-contradiction", "workspaces[0]", "99")),
    ],
)
def test_contradictions(change: Callable[[dict[str, Any]], None], told: tuple[str, ...]) -> None:
    report = json.loads(text())
    change(report)
    refused(json.dumps(report), *told)
