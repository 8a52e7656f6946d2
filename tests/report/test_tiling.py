"""The section ``tiling``: its groups' peaks, the coordinates of pieces, and the lines that people read of it."""

from __future__ import annotations

import io
from typing import Any

import jsonschema
import pytest
from msgspec.structs import fields
from rich.console import Console

from memsched.graph.model import Graph, Op, Region, Tensor
from memsched.report.budget import budget_verdict
from memsched.report.schema import json_schema
from memsched.report.summary import print_summary
from memsched.report.text import shortened
from memsched.report.tiling import tiling_lines
from memsched.report.values.rewrites import TilingSection
from tests.outcomes import check_lines, line_with
from tests.report.plain import plain, report_with, section, typed

SCHEMA = jsonschema.Draft202012Validator(json_schema("report"))

LONG = "/".join(f"block_{number}" for number in range(30))


def a_group(**more: Any) -> dict[str, Any]:
    values = {
        "ops": ["big", "small"],
        "axes": [1],
        "axis_names": ["rows"],
        "pieces": [2],
        "kept_halos": [],
        "padded_ops": [],
        "extra_macs": 3,
        "peak_bytes": 0,
    }
    return {**values, **more}


def a_section(**more: Any) -> dict[str, Any]:
    values = {
        "applied": True,
        "max_extra_macs_percent": 15.0,
        "extra_macs": 3,
        "extra_macs_percent": 1.5,
        "untiled": {"peak_bytes": 60, "arena_bytes": 60},
        "groups": [a_group()],
        "frontier": [{"peak_bytes": 40, "extra_macs_percent": 1.5}],
        "refusals": [],
        "judged": 7,
        "exhausted": True,
    }
    return {**values, **more}


def a_report(section: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
    """x -> two pieces of "big" that "small" joins -> a reader with a larger output than both."""
    graph = Graph(
        "g",
        (Tensor("x", 8), Tensor("a", 10), Tensor("b", 10), Tensor("s", 4), Tensor("y", 40)),
        (
            Op("big#0", "Conv", (0,), (1,), origin="big", region=Region(((0, 1), (0, 5)))),
            Op("big#1", "Conv", (0,), (2,), origin="big", region=Region(((0, 1), (5, 10)))),
            Op("small", "Add", (1, 2), (3,)),
            Op("last", "Conv", (3,), (4,)),
        ),
        (0,),
        (4,),
    )
    report = plain(report_with(graph, (0, 1, 2, 3), command="optimize", tile=section, **more))
    SCHEMA.validate(report)
    return report


def test_groups_have_the_peak_of_their_own_steps() -> None:
    report = a_report(a_section())
    assert [step["footprint_bytes"] for step in report["written"]["steps"]] == [18, 28, 24, 44]
    assert report["sections"]["tile"]["groups"][0]["peak_bytes"] == 28
    assert report["written"]["schedule"]["peak_bytes"] == 44


def test_steps_say_which_part_of_which_layer_they_compute() -> None:
    steps = a_report(a_section())["written"]["steps"]
    assert [(step["origin"], step["region"]) for step in steps] == [
        ("big", [[0, 1], [0, 5]]),
        ("big", [[0, 1], [5, 10]]),
        (None, None),
        (None, None),
    ]


def test_the_schema_is_strict_about_the_section() -> None:
    report = a_report(a_section(refusals=[{"op": "s", "type": "Softmax", "reason": "all of it is needed"}]))
    required = [field.encode_name for field in fields(TilingSection) if field.required]
    assert set(report["sections"]["tile"]) - set(required) == {"lower_bound_bytes", "short"}, (
        "reports written before it lack it"
    )
    for key in required:
        wrong = {name: value for name, value in report["sections"]["tile"].items() if name != key}
        with pytest.raises(jsonschema.ValidationError):
            SCHEMA.validate({**report, "sections": {**report["sections"], "tile": wrong}})
    more = {**report["sections"]["tile"], "surprise": 1}
    with pytest.raises(jsonschema.ValidationError):
        SCHEMA.validate({**report, "sections": {**report["sections"], "tile": more}})
    SCHEMA.validate(a_report(None))


def texts(tiling: dict[str, Any] | None, columns: int = 80, *, verbose: bool = False) -> list[str]:
    return [text for text, _ in tiling_lines(section(tiling, TilingSection), columns, verbose=verbose)]


def test_lines_of_groups() -> None:
    assert texts(None) == []
    wide = a_group(ops=[LONG, "b"], axes=[1, 2], axis_names=["rows", "columns"], pieces=[8, 7], peak_bytes=35_592)
    kept = a_group(ops=["one"], kept_halos=["t"], peak_bytes=12)
    check_lines(
        texts(a_section(groups=[wide, kept])),
        (" 2 groups ", " 1.5 % ", "(15 % "),
        ("  2 layers ", " 8 x 7 pieces ", " rows x columns, ", " 35,592 B, "),
        (f"    {shortened(LONG, 76)}",),
        ("  1 layer ", " 2 pieces ", " rows, ", " 1 halo ", " 12 B, ", " one"),
    )
    assert texts(a_section(groups=[wide, kept]), 10**6)[1].endswith(f"from {LONG}")
    shared = a_group(
        ops=["one"], axes=[1, 2], axis_names=["rows", "columns"], pieces=[3, 2], form="shared", peak_bytes=9
    )
    parts = ("  1 layer ", "one body", " 3 x 2 tiles ", " rows x columns, ", " 9 B, ", " one")
    check_lines(texts(a_section(groups=[shared]))[1:], parts)
    many = a_section(groups=[kept] * 9)
    assert " 4 more" in texts(many)[-1]
    assert len(texts(many, verbose=True)) == 10


def test_lines_of_what_is_not_cut() -> None:
    refusals = [{"op": f"s{at}", "type": "Softmax", "reason": "all of it is needed"} for at in range(4)]
    refusals += [{"op": LONG, "type": f"T{at}", "reason": "there is no rule"} for at in range(6)]
    section = a_section(applied=False, groups=[], refusals=refusals, exhausted=False)
    rows = texts(section)
    check_lines(
        rows,
        ("nothing", "(15 % "),
        ("--time-limit", "--effort"),
        ("10 operators ",),
        (f"  4 x Softmax: {refusals[0]['reason']}, ", " s0"),
        (f"  T0: {refusals[-1]['reason']}, ", shortened(LONG, 80 - 30)),
        (f"  T1: {refusals[-1]['reason']}, ", shortened(LONG, 80 - 30)),
        (f"  T2: {refusals[-1]['reason']}, ", shortened(LONG, 80 - 30)),
        (f"  T3: {refusals[-1]['reason']}, ", shortened(LONG, 80 - 30)),
        (" 2 other",),
    )
    assert [len(row) for row in rows[4:8]] == [80] * 4
    assert len(texts(section, verbose=True)) == 10


@pytest.mark.parametrize("columns", [1, 16, 40, 79, 400])
def test_shortened_names(columns: int) -> None:
    short = shortened(LONG, columns)
    assert len(short) <= max(columns, 16)
    assert short.startswith(LONG[:4])
    assert short.endswith(LONG[-8:])
    assert shortened("a\x1bb", columns) == "a\\x1bb"


def summary(report: dict[str, Any], columns: int, *, verbose: bool = False) -> list[str]:
    stream = io.StringIO()
    console = Console(file=stream, width=columns, markup=False, highlight=False)
    print_summary(console, typed(report), report_path=None, verbose=verbose)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize("columns", [60, 120])
def test_names_fit_into_the_terminal(columns: int) -> None:
    graph = Graph("g", (Tensor(LONG, 8), Tensor(f"{LONG}/y", 8)), (Op(LONG, "Relu", (0,), (1,)),), (0,), (1,))
    report = plain(report_with(graph, (0,), tflm=None)) | {"command": "analyze"}
    faults = [line for line in summary(report, columns) if "block_" in line]
    assert len(faults) == 3
    assert [len(line) for line in faults] == [columns, columns, columns]
    assert " step 0, Relu 'block_" in faults[0]


def test_bounds_of_rewritten_models_are_theirs_alone() -> None:
    report = a_report(a_section(), budget_bytes=5)
    text = "\n".join(summary(report, 100))
    assert line_with(text, "quality", "rewritten model")
    assert "proven" not in text
    values = typed(report)
    assert values.budget is not None
    assert "rewrite" in budget_verdict(values, values.budget)
    assert "--allow reorder,inplace,tile" not in text


def a_verification(error: float | None, *, equal: bool) -> dict[str, Any]:
    return {
        "runtime": "r 1",
        "outputs_equal": equal,
        "max_abs_error": error,
        "relative_error": error,
        "measured_peak_before_bytes": None,
        "measured_peak_after_bytes": None,
        "predicted_peak_before_bytes": None,
        "predicted_peak_after_bytes": None,
        "executed_order_matches": None,
        "runs": 3,
        "reason": None if equal else "they differ",
        "notes": [],
    }


@pytest.mark.parametrize(
    ("section", "error", "equal", "expected"),
    [
        (a_section(), 0.0, True, ("verified in r 1: ", " bit-equal ", " 3 ")),
        (a_section(), 3e-7, False, ("verified in r 1: ", " 1e-05 ", " 3.0e-07)", " 3 ")),
        (a_section(), 3e-5, False, ("differ in r 1: they differ",)),
        (a_section(), None, False, ("differ in r 1: they differ",)),
        (None, 3e-7, False, ("differ in r 1: they differ",)),
    ],
)
def test_verdicts(section: Any, error: float | None, *, equal: bool, expected: tuple[str, ...]) -> None:
    report = a_report(section, verification=a_verification(error, equal=equal))
    assert line_with("\n".join(summary(report, 100, verbose=True)), *expected)


def test_what_ends_loops_has_lines_of_its_own() -> None:
    refusals = [{"op": "s", "type": "SOFTMAX", "reason": "all of it is needed"}]
    refusals += [{"op": at, "type": "MEAN", "reason": "no image", "form": "loop"} for at in "ab"]
    check_lines(
        texts(a_section(refusals=refusals))[-4:],
        ("1 operator ", "cut"),
        (f"  SOFTMAX: {refusals[0]['reason']}, ", " s"),
        ("2 operators ", "loop"),
        (f"  2 x MEAN: {refusals[1]['reason']}, ", " a"),
    )
