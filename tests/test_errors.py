"""The exit codes that the command line promises."""

from __future__ import annotations

import pytest

from memsched import errors

EXIT_CODES = {
    "BudgetError": 3,
    "GraphError": 1,
    "InternalError": 1,
    "MemschedError": 1,
    "ModelError": 1,
    "OutputError": 1,
    "ReportError": 1,
    "RuntimeUnavailableError": 1,
    "TargetError": 1,
    "UnknownShapeError": 1,
    "UsageError": 2,
    "VerificationError": 1,
}


def test_every_error_is_listed() -> None:
    assert set(errors.__all__) == set(EXIT_CODES)


@pytest.mark.parametrize("name", sorted(EXIT_CODES))
def test_exit_codes(name: str) -> None:
    kind = getattr(errors, name)
    assert issubclass(kind, errors.MemschedError)
    assert kind("x").exit_code == EXIT_CODES[name]
