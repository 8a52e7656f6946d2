"""What the page says in words: whether it fits, how good it is, what is counted once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from memsched.report.page_data import page_data
from memsched.report.page_words import page_words
from tests.report.plain import typed
from tests.report.test_page_data import random_report
from tests.report.test_tiling import a_report, a_section


def words(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(page_words(typed(report), page_data(typed(report))))
    return found


def budgeted(met: bool) -> dict[str, Any]:
    report = random_report(3)
    required = report["result"]["arena_bytes"]
    available = required + 7 if met else required - 7
    exceeded = 0 if met else 7
    given = {"budget_bytes": available, "required_bytes": required}
    report["budget"] = {**given, "exceeded_bytes": exceeded, "met": met}
    return report


def test_a_budget_that_is_met() -> None:
    found = words(budgeted(True))
    assert found["verdict"].startswith("It fits: ")
    assert found["mood"] == "good"
    assert "Budget" in [card["label"] for card in found["cards"]]


def test_a_budget_that_is_missed() -> None:
    found = words(budgeted(False))
    assert found["verdict"].startswith("It does not fit: ")
    assert found["verdict"].endswith("7 too few")
    assert found["mood"] == "bad"


@pytest.mark.parametrize(
    ("command", "before", "verdict"),
    [
        ("analyze", 2, "bytes as it stands"),
        ("optimize", 2, "the peak is 50.0 % lower"),
        ("optimize", 1, "no lower peak than the file's own was found"),
    ],
)
def test_without_a_budget(command: str, before: int, verdict: str) -> None:
    report = random_report(3) | {"command": command}
    report["baselines"]["file_order"] = {"peak_bytes": before * report["result"]["peak_bytes"], "arena_bytes": 1}
    report["result"]["reduction_percent"] = 50.0
    assert verdict in words(report)["verdict"]


def test_optimal_and_feasible_are_explained() -> None:
    report = random_report(3)
    peak = report["result"]["peak_bytes"]
    report["result"] |= {"status": "optimal", "lower_bound_bytes": peak, "proof": "by counting"}
    found = words(report)["proof"]
    assert found.startswith("Optimal: it is proven that no order of these ops has a peak below")
    assert "How it is known: by counting." in found
    assert "about orders alone" in found
    report["result"] |= {"status": "feasible", "lower_bound_bytes": peak - peak // 4}
    found = words(report)["proof"]
    assert found.startswith("Feasible: ")
    assert f"between {peak - peak // 4:,} and {peak:,} bytes" in found
    assert "for the model with these rewrites" in words(a_report(a_section()))["proof"]


def test_the_arena_and_its_gap() -> None:
    report = random_report(3)
    peak = report["result"]["peak_bytes"]
    report["result"]["arena_bytes"] = peak + 10
    report["allocation"] |= {"status": "feasible", "lower_bound_bytes": peak}
    found = words(report)["arena_proof"]
    assert "10 bytes more than the peak, for alignment and gaps" in found
    assert "as little as" in found
    report["result"]["arena_bytes"] = peak
    report["allocation"]["status"] = "optimal"
    assert "as much as the peak. Optimal" in words(report)["arena_proof"]


@pytest.mark.parametrize("seed", range(30))
def test_shares_of_the_peak_add_up(seed: int) -> None:
    report = random_report(seed)
    found = words(report)
    sizes = [int(row["size"].replace(",", "")) for row in found["peak"]["faults"]]
    peak = report["result"]["peak_bytes"]
    once = sum(sizes) - peak
    assert once >= 0
    assert ("counted once" in found["peak"]["text"]) == (once > 0)
    for row in found["peak"]["faults"]:
        if row["place"] is not None:
            assert page_data(typed(report)).values.buffers.name[row["place"]] == row["name"]
    assert "more" in found["peak"]


def test_many_tensors_at_the_peak_are_cut_short() -> None:
    report = random_report(3)
    fault = report["at_fault"][0]
    report["at_fault"] = [fault] * 150
    found = words(report)
    assert found["peak"]["more"].startswith("and 50 smaller tensors with")
    assert found["peak"]["bar"][-1]["label"] in {"all others", "workspace"}


def test_what_helps_is_shown_with_its_command() -> None:
    report = a_report(a_section())
    assert words(report)["suggestions"] == []
    one = {
        "command": "memsched optimize '<i>.onnx' --allow reorder,inplace,tile",
        "what": "layers in pieces",
        "requirement_bytes": 750,
        "saving_bytes": 250,
        "extra_macs_percent": 15.0,
        "slowdown_percent": None,
    }
    report = {**report, "suggestions": [one]}
    (shown,) = words(report)["suggestions"]
    assert shown["command"] == one["command"]
    assert shown["text"] == "layers in pieces, 1,000 -> 750 B (25.0 % less) for at most 15 % more work"
    del report["suggestions"]
    assert words(report)["suggestions"] == []
