"""The sections ``remat`` and ``frontier``: what the schema demands, and what people read and see of them."""

from __future__ import annotations

import builtins
import io
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from memsched.graph.model import Graph, Op, Tensor
from memsched.report.console import print_details, print_frontier
from memsched.report.frontier import _LABELS, draw, frontier_rows
from memsched.report.remat import remat_lines
from memsched.report.schema import json_schema
from memsched.report.text import shortened
from memsched.report.values.optimize import OptimizeReport
from memsched.report.values.rewrites import RematSection
from tests.failures import fails
from tests.outcomes import check_lines, line_with
from tests.report.plain import plain, report_with, section, typed

SCHEMA = jsonschema.Draft202012Validator(json_schema("report"))

LONG = "/".join(f"block_{number}" for number in range(30))


def a_copy(**more: Any) -> dict[str, Any]:
    return {"op": "a", "type": "Exp", "times": 1, "extra_macs": 0, "extra_bytes_moved": 4096, **more}


def a_section(**more: Any) -> dict[str, Any]:
    values = {
        "applied": True,
        "max_extra_work_percent": 15.0,
        "extra_macs": 0,
        "extra_macs_percent": 0.0,
        "extra_bytes_moved": 4096,
        "extra_work_percent": 9.512,
        "status": "feasible",
        "extra_work_bound_percent": 0.0,
        "proof": "",
        "lower_bound_bytes": 20,
        "without": {"peak_bytes": 60, "arena_bytes": 64},
        "copies": [a_copy()],
        "frontier": [{"peak_bytes": 60, "extra_macs_percent": 0.0, "extra_work_percent": 0.0}],
        "judged": 7,
        "finished": True,
        "refusals": [],
        "settled": False,
    }
    return {**values, **more}


def steps(*peaks: int) -> list[dict[str, Any]]:
    ways = ["order", "tile", "remat"]
    return [
        {
            "peak_bytes": peak,
            "extra_macs_percent": float(at),
            "extra_work_percent": 1.5 * at,
            "how": ways[min(at, 2)],
        }
        for at, peak in enumerate(peaks)
    ]


def a_report(**more: Any) -> dict[str, Any]:
    graph = Graph(
        "g",
        (Tensor("x", 8), Tensor("y", 8), Tensor("z", 8)),
        (Op("a", "Exp", (0,), (1,)), Op("a#again1", "Exp", (0,), (2,), origin="a")),
        (0,),
        (1, 2),
    )
    report = plain(report_with(graph, (0, 1), **more))
    SCHEMA.validate(report)
    return report


@pytest.mark.parametrize("name", ["recompute", "frontier"])
def test_the_schema_is_strict(name: str) -> None:
    report = a_report(recompute=a_section(), frontier=steps(60, 50, 40))
    wrong: list[Any] = []
    if name == "recompute":
        section = report["sections"]["recompute"]
        wrong += [{key: value for key, value in section.items() if key != left} for left in section]
        wrong += [{**section, "surprise": 1}, {**section, "copies": [{"op": "a", "times": 1}]}]
        wrong.append({**section, "copies": [a_copy(times=0)]})
    else:
        first = report["sections"]["frontier"][0]
        wrong += [[{key: value for key, value in first.items() if key != left}] for left in first]
        wrong += [[{**first, "how": "magic"}], [{**first, "surprise": 1}], {}]
    for section in wrong:
        with pytest.raises(jsonschema.ValidationError):
            SCHEMA.validate({**report, "sections": {**report["sections"], name: section}})
    assert a_report()["sections"][name] is None


def texts(remat: dict[str, Any] | None, columns: int = 80, *, verbose: bool = False) -> list[str]:
    return [text for text, _ in remat_lines(section(remat, RematSection), columns, verbose=verbose)]


def test_lines_of_values_that_are_computed_again() -> None:
    assert texts(None) == []
    conv = a_copy(op=LONG, type="Conv", times=2, extra_macs=12_345, extra_bytes_moved=20_480)
    check_lines(
        texts(a_section(copies=[a_copy(), conv], max_extra_work_percent=13.456), 70),
        (" 2 operators, ", " 3 times ", " 0.0 % ", " 9.5 % ", "(13.5 % "),
        ("  2 x Conv, ", " 12,345 ", " 20.0 KB "),
        (f"    {shortened(LONG, 66)}",),
        ("  1 x Exp, ", " 4,096 B ", ": a"),
        (" 20 B",),
    )
    many = a_section(
        copies=[a_copy(op=str(at), extra_macs=at) for at in range(7)], status="optimal", proof="all orders"
    )
    lines = texts(many)
    assert [line.rpartition(" ")[2] for line in lines[1:6]] == list("65432")
    check_lines(lines[6:8], (" 2 operators ",), ("proven", "all orders"))
    assert "others" not in lines[7]
    assert len(texts(many, verbose=True)) == 10
    lines = texts(a_section(status="least_for_groups", proof="these groups"))
    check_lines(lines[2:3], ("proven", "these groups", "others"))


def test_lines_where_nothing_is_computed_again() -> None:
    section = a_section(applied=False, copies=[], finished=False, max_extra_work_percent=0.0)
    check_lines(texts(section), ("nothing", "tried", "(0 % "), (" 20 B",), ("--time-limit", "--effort"))
    assert "proven" not in texts(section)[0]


def test_lines_where_it_is_proven_that_nothing_helps() -> None:
    least = a_section(applied=False, copies=[], settled=True)
    check_lines(texts(least)[:1], ("nothing", "proven", "(15 % "))
    lower = [{"peak_bytes": 50, "extra_macs_percent": 0.0, "extra_work_percent": 3.0}]
    # The peak is lower, what the file takes is not.
    assert "tried" in texts({**least, "frontier": [*least["frontier"], *lower]})[0]


def printed(show: Any, report: OptimizeReport, **more: Any) -> str:
    stream = io.StringIO()
    show(Console(file=stream, width=60, markup=False, highlight=False), report, **more)
    return stream.getvalue()


def test_the_summary_shows_what_there_was_without() -> None:
    report = a_report(recompute=a_section(), command="optimize", budget_bytes=5)
    shown = printed(print_details, typed(report))
    assert line_with(shown, "no remat").split()[-2:] == ["60", "64"]
    assert line_with(shown, " 1 operator, ", " 1 time ", " 9.5 % ")
    assert line_with(shown, "rewritten", f" {report['proof']['bound_bytes']:,} B")
    assert "--allow" not in shown


def test_the_table_of_the_frontier() -> None:
    report = a_report(frontier=steps(1000, 800, 795, 700, 699))
    assert frontier_rows(typed(report).sections.frontier or (), verbose=False) == [
        ("1,000", "100.0", "0.00", "0.00", "order"),
        ("800", "80.0", "1.00", "1.50", "pieces"),
        ("700", "70.0", "3.00", "4.50", "repetition"),
        ("699", "69.9", "4.00", "6.00", "repetition"),
    ]
    assert len(frontier_rows(typed(report).sections.frontier or (), verbose=True)) == 5
    assert frontier_rows(typed(a_report(frontier=steps(0))).sections.frontier or (), verbose=False) == [
        ("0", "100.0", "0.00", "0.00", "order")
    ]
    shown = printed(print_frontier, typed(report))
    assert line_with(shown, "1 step ", "-v")
    assert "…" not in shown
    assert max(map(len, shown.splitlines()[1:])) <= 60
    assert "between them" not in printed(print_frontier, typed(report), verbose=True)


@pytest.mark.parametrize(("extension", "begin"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_a_picture(extension: str, begin: bytes) -> None:
    pytest.importorskip("matplotlib")
    report = a_report(frontier=steps(1000, 800, 700))
    report["model"]["path"] = "a$x_{$ name.onnx"
    picture = draw(typed(report), extension)
    assert picture.startswith(begin)
    assert draw(typed(report), extension) == picture
    if extension == ".svg":
        assert all(_LABELS[how].encode() in picture for how in ("order", "tile", "remat"))
    assert draw(typed(a_report(frontier=steps(1000))), extension).startswith(begin)


def test_pictures_need_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    known = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return known(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    with fails("not-installed", "pip install matplotlib"):
        draw(typed(a_report(frontier=steps(1000))), ".svg")
