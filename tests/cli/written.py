"""What commands left behind: names of files, and reports that their schema takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema

from memsched.report.schema import json_schema

_SCHEMA = jsonschema.Draft202012Validator(json_schema("report"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def report_of(path: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(path.read_text())
    _SCHEMA.validate(report)
    return report
