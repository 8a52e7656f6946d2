"""What the page says in words: whether it fits, how good it is, what is counted once."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

import memsched
from memsched.base.units import format_size
from memsched.report.page_data import page_data
from memsched.report.page_words import page_words
from tests.formats.tflite_builder import MODELS
from tests.report.plain import typed, with_section
from tests.report.test_page_data import random_report
from tests.report.test_tiling import a_report, a_section
from tests.small_models import branches


def words(report: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(page_words(typed(report), page_data(typed(report))))
    return found


def budgeted(met: bool) -> dict[str, Any]:
    report = random_report(3)
    required = report["written"]["schedule"]["arena_bytes"]
    available = required + 7 if met else required - 7
    exceeded = 0 if met else 7
    given = {"budget_bytes": available, "required_bytes": required}
    report["budget"] = {**given, "exceeded_bytes": exceeded, "met": met}
    return report


def figures(text: str) -> list[int]:
    """Return the whole numbers of a text."""
    return [int(number.replace(",", "")) for number in re.findall(r"(?<![\d.,])\d[\d,]*(?!\d|\.\d)", text)]


def test_a_budget_that_is_met() -> None:
    report = budgeted(True)
    found = words(report)
    assert figures(found["lead"])[:2] == [report["budget"][name] for name in ("required_bytes", "budget_bytes")]
    assert found["mood"] == "good"
    assert "Budget" in [card["label"] for card in found["cards"]]


def test_a_budget_that_is_missed() -> None:
    report = budgeted(False)
    found = words(report)
    names = ("required_bytes", "budget_bytes", "exceeded_bytes")
    assert figures(found["lead"])[:3] == [report["budget"][name] for name in names]
    assert found["mood"] == "bad"


@pytest.mark.parametrize(
    ("command", "before", "verdict", "mood"),
    [
        ("analyze", 2, "{after} B, predicted", ""),
        ("optimize", 2, "{before} -> {after} B (-50%)", ""),
        ("optimize", 1, "{after} B, as before", ""),
    ],
)
def test_without_a_budget(command: str, before: int, verdict: str, mood: str) -> None:
    report = random_report(3) | {"command": command}
    peak, arena = (before * report["written"]["schedule"][name] for name in ("peak_bytes", "arena_bytes"))
    after = report["written"]["schedule"]["arena_bytes"]
    report["original"]["schedule"] = {"peak_bytes": peak, "arena_bytes": arena}
    report["written"]["schedule"]["reduction_percent"] = 50.0
    report["sections"]["requirement"]["given_bytes"] = report["verdict"]["original_bytes"] = arena
    report["verdict"]["bytes"] = after
    found = words(report)
    assert verdict.format(before=f"{arena:,}", after=f"{after:,}") in found["verdict"]
    assert found["mood"] == mood


def test_the_headline_is_what_the_runtime_allocates_in_named_parts() -> None:
    """The planned part alone says little of an arena: most of it may lie beside."""
    report = json.loads(memsched.analyze(MODELS / "person_detect.tflite", target="tflm").report.to_json())
    found = words(report)
    assert "arena" in found["verdict"]
    assert 82_300 in figures(found["verdict"])
    assert found["cards"][0] == {
        "label": "Arena",
        "value": "82,300 B",
        "more": "55,296 B activations, 27,004 B persistent",
    }
    assert (found["arena_column"], found["frontier_column"]) == ("planned", "arena")
    alone = memsched.analyze(MODELS / "person_detect.tflite", target="tflm", budget_for="activations").report
    found = words(json.loads(alone.to_json()))
    assert "planned part" in found["verdict"]
    assert 55_296 in figures(found["verdict"])
    assert (found["arena_column"], found["frontier_column"]) == ("arena", "peak")
    session = memsched.analyze(branches()).report
    needed = session.data["sections"]["requirement"]["bytes"]
    verdict = words(json.loads(session.to_json()))["verdict"]
    assert "session" in verdict
    assert needed in figures(verdict)


def test_optimal_and_feasible_are_explained() -> None:
    report = random_report(3)
    peak = report["written"]["schedule"]["peak_bytes"]
    report["proof"] |= {"status": "optimal", "bound_bytes": peak, "witness": "by counting"}
    found = words(report)["proof"]
    assert found.startswith("Optimal: ")
    assert figures(found) == [peak, peak]
    assert "by counting" in found
    assert "orders alone" in found
    report["proof"] |= {"status": "feasible", "bound_bytes": peak - peak // 4}
    found = words(report)["proof"]
    assert found.startswith("Feasible: ")
    assert figures(found)[:2] == [peak - peak // 4, peak]
    assert "these rewrites" in words(a_report(a_section()))["proof"]


def test_the_arena_and_its_gap() -> None:
    report = random_report(3)
    peak = report["written"]["schedule"]["peak_bytes"]
    report["written"]["schedule"]["arena_bytes"] = peak + 10
    report["written"]["allocation"] |= {"status": "feasible", "lower_bound_bytes": peak}
    found = words(report)["arena_proof"]
    assert figures(found) == [peak + 10, 10, peak]
    assert "Feasible: " in found
    report["written"]["schedule"]["arena_bytes"] = peak
    report["written"]["allocation"]["status"] = "optimal"
    found = words(report)["arena_proof"]
    assert figures(found) == [peak]
    assert "Optimal: " in found


@pytest.mark.parametrize("seed", range(30))
def test_shares_of_the_peak_add_up(seed: int) -> None:
    report = random_report(seed)
    found = words(report)
    sizes = [int(row["size"].replace(",", "")) for row in found["peak"]["faults"]]
    peak = report["written"]["schedule"]["peak_bytes"]
    once = sum(sizes) - peak
    assert once >= 0
    assert ("counted once" in found["peak"]["text"]) == (once > 0)
    for row in found["peak"]["faults"]:
        if row["place"] is not None:
            assert page_data(typed(report)).values.buffers.name[row["place"]] == row["name"]
    assert "more" in found["peak"]


def test_many_tensors_at_the_peak_are_cut_short() -> None:
    report = random_report(3)
    fault = report["written"]["at_fault"][0]
    report["written"]["at_fault"] = [fault] * 150
    found = words(report)
    assert figures(found["peak"]["more"])[:2] == [50, 50 * fault["size_bytes"]]
    assert found["peak"]["bar"][-1]["label"] in {"all others", "workspace"}


def test_what_helps_is_shown_with_its_command() -> None:
    report = a_report(a_section())
    assert words(report)["suggestions"] == []
    one = {
        "command": "memsched optimize '<i>.onnx' --allow reorder,inplace,tile",
        "what": "layers in pieces",
        "bytes": 750,
        "saving_bytes": 250,
        "extra_macs_percent": 15.0,
        "time_ratio": None,
        "changes": [],
    }
    report = {**report, "alternatives": [one]}
    (shown,) = words(report)["suggestions"]
    assert shown["command"] == one["command"]
    assert shown["text"].startswith(f"{one['what']}, ")
    assert [part for part in (" 1,000 -> 750 B ", "(-25%)", " 15% ") if part not in shown["text"]] == []


def test_the_default_interpreter_has_a_card() -> None:
    report = random_report(3)
    assert not [card for card in words(report)["cards"] if "interpreter" in card["label"]]
    memory = {"private_bytes": 28 << 20, "peak_bytes": 37 << 20, "processes": 3}
    less = {"private_bytes": 21 << 20, "peak_bytes": 33 << 20, "processes": 3}
    more = {"private_bytes": 92 << 20, "peak_bytes": 99 << 20, "processes": 3}
    refused = {"required_bytes": 17, "extra_macs_percent": 2.5, "memory": more, "time_ratio": None}
    section = {"required_bytes": 1000, "given": memory, "written": less, "time_ratio": 1.04, "refused": [refused]}
    (card,) = [
        one for one in words(with_section(report, interpreter=section))["cards"] if "interpreter" in one["label"]
    ]
    assert card["value"] == format_size(21 << 20)
    assert {format_size(28 << 20), format_size(33 << 20)} <= {*re.findall(r"[\d.,]+ [KM]?B", card["more"])}
    assert "1.04" in card["more"]
    assert "1 file" in card["more"]
    kept = words(with_section(report, interpreter={**section, "written": None, "time_ratio": None}))
    (card,) = [one for one in kept["cards"] if "interpreter" in one["label"]]
    assert card["value"] == format_size(28 << 20)
    assert "original" in card["more"]
