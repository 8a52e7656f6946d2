"""What sessions without options request may be chance: then both ends are stated, and the largest counts."""

from __future__ import annotations

from typing import Any

from memsched.runtimes.onnxruntime import sessions
from memsched.runtimes.onnxruntime.verdicts import by_chance


def _row(least: int | None, lasting: int | None) -> dict[str, Any]:
    return {"least_bytes": least, "lasting_bytes": lasting}


def test_both_ends_are_stated_where_they_differ() -> None:
    assert by_chance(_row(5, 5), _row(None, None)) == []
    (said,) = by_chance(_row(5_350_816, 5_651_872), _row(7, 7))
    assert "5,350,816 to 5,651,872 B" in said
    assert "as given" in said


def test_the_least_and_the_largest_of_several_sessions_are_kept() -> None:
    seen = iter([6, 3, 4])

    class Attempt(sessions._SessionAttempt):
        def __init__(self) -> None:
            pass

        def _by_chance(self, wanted: Any) -> bool:
            return True

        def _larger(self, wanted: Any, profile: dict[str, Any]) -> dict[str, Any]:
            size = next(seen)
            return sessions._with_larger(profile, {"peak_bytes": size, "lasting_bytes": size, "least_bytes": size})

    first = {"peak_bytes": 5, "lasting_bytes": 5, "least_bytes": 5, "order": []}
    found = Attempt()._largest({}, first)
    assert (found["least_bytes"], found["lasting_bytes"]) == (3, 6)
