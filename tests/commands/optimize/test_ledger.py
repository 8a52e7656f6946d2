"""The ledger: every rewrite and solver that ran, what it found, and why that is not in the file."""

from __future__ import annotations

import pytest

import memsched
from memsched.commands.optimize.ledger import ORIGINAL, ledger_rows
from memsched.commands.optimize.rewrites import Rewrites
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.verdict import LedgerRow
from memsched.search.progress import PassRecord
from tests import small_models

PASS = PassRecord("windows", 0.5, 9, 9, 100, 80, "said so")


def a_row(name: str = "tile", *, on: str = ORIGINAL, applied: bool = True) -> LedgerRow:
    return LedgerRow(
        pass_=name,
        on=on,
        tried=3,
        found_bytes=60,
        applied=applied,
        reason="" if applied else "beaten",
        work_percent=50.0,
        seconds=0.1,
        proof="",
        before_bytes=80,
        ops_before=9,
        ops_after=12,
        extra_macs_percent=1.0,
    )


@pytest.fixture(scope="module")
def report() -> OptimizeReport:
    return memsched.optimize(small_models.branches(), level=3, effort=1.0, verify=False).report.values


def test_every_rewrite_and_solver_that_ran_has_a_row(report: OptimizeReport) -> None:
    rewrites = [row for row in report.ledger if row.work_percent is not None]
    solvers = [row for row in report.ledger if row.work_percent is None]
    assert {"tile", "remat"} <= {row.pass_ for row in rewrites}
    assert {"cheap orders", "fusion", "bounds", "CP-SAT"} <= {row.pass_ for row in solvers}
    assert sum(row.work_percent or 0 for row in rewrites) == pytest.approx(100, abs=0.1 * len(rewrites))
    assert all(row.applied or row.reason for row in report.ledger)
    assert all(row.found_bytes is not None for row in report.ledger if row.applied)


def test_equal_effort_gives_equal_rows(report: OptimizeReport) -> None:
    again = memsched.optimize(small_models.branches(), level=3, effort=1.0, verify=False).report.values

    def without_times(found: OptimizeReport) -> list[tuple[object, ...]]:
        names = [name for name in LedgerRow.__struct_fields__ if name != "seconds"]
        return [tuple(getattr(row, name) for name in names) for row in found.ledger]

    assert without_times(again) == without_times(report)


def test_what_is_held_back_stays_in_the_ledger() -> None:
    tried = [a_row(), a_row("remat", on="tile")]
    (tile, again) = ledger_rows(tried, (), (), None)
    assert not tile.applied
    assert not again.applied
    assert tile.found_bytes == 60
    assert "not written" in tile.reason


def test_a_part_of_the_path_may_be_written() -> None:
    tried = [a_row(), a_row("remat", on="tile"), a_row("algebra", applied=False)]
    found = list(ledger_rows(tried, (), ("tile",), Rewrites()))
    assert [row.applied for row in found] == [True, False, False]
    assert found[2].reason == tried[2].reason != ""


def test_passes_of_the_order_written_are_applied_and_told_once() -> None:
    (first,) = ledger_rows((), (PASS,), (), None)
    assert (first.pass_, first.on, first.applied, first.reason) == ("windows", ORIGINAL, True, "said so")
    (same,) = ledger_rows((first,), (), ("tile",), Rewrites())
    assert same.reason
    searched = memsched.optimize(small_models.branches(), effort=1.0, verify=False).report.values.ledger
    names = [row.pass_ for row in searched if row.work_percent is None and row.on == ORIGINAL]
    assert len(names) == len(set(names))
