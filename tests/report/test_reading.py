"""Reports from files: cut off, written by hand, of other kinds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from memsched.errors import ReportError
from memsched.report.build import build_report
from memsched.report.dump import dump_report
from memsched.report.reading import parse_report
from tests.report.plain import plain
from tests.report.test_build import a_graph, facts_of


def text() -> str:
    return dump_report(build_report(facts_of(*a_graph(), budget_bytes=5)))


def refused(data: str | bytes) -> str:
    with pytest.raises(ReportError) as caught:
        parse_report(data.encode() if isinstance(data, str) else data, "'r.json'")
    message = str(caught.value)
    assert message.startswith("'r.json' ")
    assert "\n" not in message
    assert len(message) < 300
    return message


def test_what_was_written_is_read() -> None:
    assert plain(parse_report(text().encode(), "x")) == json.loads(text())
    assert plain(parse_report(b"\xef\xbb\xbf" + text().encode(), "x")) == json.loads(text())


def test_a_report_that_was_cut_off() -> None:
    whole = text()
    rng = random.Random(1)
    for end in (0, 1, 2, *(rng.randrange(len(whole) - 2) for _ in range(60))):
        assert "is no JSON, or was cut off" in refused(whole[:end])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("[]", "has no 'schema_version'"),
        ("{}", "has no 'schema_version'"),
        ("3", "has no 'schema_version'"),
        (b"\xff\xfe", "not text in UTF-8"),
        ("[" * 200_000, "nested too deeply"),
        ('{"schema_version": 2}', "has schema_version 2; this memsched reads 1"),
        ('{"schema_version": true}', "has schema_version true"),
        ('{"schema_version": 1, "command": "allocate"}', "no report of 'memsched optimize' or 'memsched analyze'"),
        ('{"schema_version": 1, "command": ["x"]}', "no report of 'memsched optimize' or 'memsched analyze'"),
        ('{"schema_version": 1, "command": "analyze"}', "it has no 'memsched_version'"),
        ('{"schema_version": NaN}', "NaN is no number"),
        ('{"schema_version": -Infinity}', "-Infinity is no number"),
        ('{"schema_version": 1e999}', "1e999 is too large a number"),
        ('{"schema_version": ' + "9" * 5000 + "}", "is too large a number"),
        ('{"schema_version": 9223372036854775807}', "is too large a number"),
    ],
)
def test_what_is_no_report(data: str | bytes, message: str) -> None:
    assert message in refused(data)


def later(report: dict[str, Any]) -> None:
    report["steps"][3]["index"] = 5


def read_too_early(report: dict[str, Any]) -> None:
    report["steps"][3]["reads_from"] = [3]


def higher(report: dict[str, Any]) -> None:
    report["steps"][3]["footprint_bytes"] = 10**9


def longer(report: dict[str, Any]) -> None:
    report["buffers"][0]["last_step"] = 99


def backwards(report: dict[str, Any]) -> None:
    report["at_fault"][0]["first_step"] = report["at_fault"][0]["last_step"] + 1


def read_after_the_end(report: dict[str, Any]) -> None:
    report["buffers"][0]["read_in"] = [99]


def workspace_after_the_end(report: dict[str, Any]) -> None:
    report["workspaces"] = [{"op": "x", "offset_bytes": 0, "size_bytes": 1, "step": 99}]


def one_footprint_too_many(report: dict[str, Any]) -> None:
    report["baselines"]["file_order"] |= {"ops": ["a"], "footprints_bytes": [1, 2]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (later, "steps[3].index is 5, not 3"),
        (read_too_early, "steps[3] reads from a step that is not before it"),
        (higher, "result.peak_bytes is not the largest"),
        (longer, "buffers[0] is in use from step"),
        (backwards, "at_fault[0] is in use from step"),
        (read_after_the_end, "buffers[0] is made or read in a step that is not there"),
        (workspace_after_the_end, "workspaces[0] is of step 99"),
        (one_footprint_too_many, "has not one footprint for each of its ops"),
    ],
)
def test_contradictions(change: Callable[[dict[str, Any]], None], message: str) -> None:
    report = json.loads(text())
    change(report)
    assert message in refused(json.dumps(report))
