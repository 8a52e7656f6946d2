"""Reports as the plain values of their files, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from memsched.base.typed import converted
from memsched.report.build import Facts, build_report
from memsched.report.dump import dump_report
from memsched.report.values.base import Section
from memsched.report.values.optimize import OptimizeReport

_Kind = TypeVar("_Kind", bound=Section)


def plain(values: Section) -> dict[str, Any]:
    """Return a report as its file holds it."""
    data: dict[str, Any] = json.loads(dump_report(values))
    return data


def plain_report(facts: Facts) -> dict[str, Any]:
    """Return the report that is built from ``facts``, as its file holds it."""
    return plain(build_report(facts))


def typed(data: Mapping[str, Any]) -> OptimizeReport:
    """Return the report of ``memsched optimize`` or ``analyze`` that a file holds."""
    return converted(data, OptimizeReport)


def section(data: Mapping[str, Any] | None, kind: type[_Kind]) -> _Kind | None:
    """Return a part of a report that a file holds; None for null."""
    return None if data is None else converted(data, kind)
