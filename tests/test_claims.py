"""`python -m tests.tools.claims`: a claim that the runtime contradicts is a wrong row."""

from __future__ import annotations

from tests.tools.claims.__main__ import Row, _judged


def test_claims_may_be_two_percent_off() -> None:
    row = Row("model", "litert", "optimize", 0)
    assert not _judged(row, 1000, 1020, "").wrong
    assert not _judged(row, 1020, 1000, "").wrong
    assert _judged(row, 1021, 1000, "").wrong == "contradicted"
    assert _judged(row, 979, 1000, "").wrong == "contradicted"
    assert _judged(row, None, 1000, "").wrong == ""


def test_a_row_shows_what_is_wrong() -> None:
    wrong = _judged(Row("m", "t", "c", 0), 1021, 1000, "why").line()
    assert "| 1,021 | 1,000 | 2.10 % | **contradicted**: why |" in wrong
    assert (
        Row("m", "t", "c", 1, said="memsched: error: no").line() == "| m | t | c | 1 |  |  |  | memsched: error: no |"
    )
