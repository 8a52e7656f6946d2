"""Accelerators in the report: what groups of layers that stay on chip save."""

from __future__ import annotations

import json

import jsonschema

import memsched
from memsched.report.schema import json_schema
from tests.commands.optimize.test_choose import convolutions


def test_the_report_says_what_stays_on_chip() -> None:
    report = memsched.analyze(convolutions(), target="diannao").report
    data = json.loads(report.to_json())
    jsonschema.validate(data, json_schema("report"))
    on_chip = data["sections"]["on_chip"]
    assert on_chip["on_chip_bytes"] == 768 * 1024
    # Both layers fit on chip at once, so what lies between them is never moved.
    assert len(on_chip["groups"]) == 1
    assert on_chip["traffic"]["after_bytes"] < on_chip["traffic"]["before_bytes"]
    assert on_chip["time_seconds"]["after"] <= on_chip["time_seconds"]["before"]
    assert memsched.analyze(convolutions()).report["sections"]["on_chip"] is None
