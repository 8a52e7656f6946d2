"""The graph on the page: every op below what it reads, none over another, every line there."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsched.report import page_graph
from memsched.report.page_data import page_data
from memsched.report.page_layout import UNITS, lay_out
from tests.report.plain import typed
from tests.report.test_page_data import chain_report, random_report


@st.composite
def graphs(draw: st.DrawFn) -> list[list[int]]:
    """Return per op which earlier ones it reads."""
    count = draw(st.integers(0, 40))
    return [sorted(draw(st.sets(st.integers(0, op - 1), max_size=4))) if op else [] for op in range(count)]


@given(graphs())
def test_layers_and_distances(reads: list[list[int]]) -> None:
    found = lay_out(reads)
    assert len(found.layer) == len(found.across) == len(reads)
    rows: dict[int, list[int]] = {}
    for op, before in enumerate(reads):
        assert all(found.layer[other] < found.layer[op] for other in before)
        rows.setdefault(found.layer[op], []).append(found.across[op])
    assert sorted(rows) == list(range(len(rows)))
    for places in rows.values():
        places.sort()
        assert all(after - before >= UNITS - 1 for before, after in pairwise(places))
    spans: dict[int, int] = {}
    for op, before in enumerate(reads):
        for other in before:
            spans[other] = max(spans.get(other, 0), found.layer[op] - found.layer[other] - 1)
    assert {op: len(places) for op, places in found.bends.items()} == {op: span for op, span in spans.items() if span}
    assert min([*found.across, *(place for places in found.bends.values() for place in places)], default=0) == 0
    assert lay_out(reads) == found


def test_a_chain_is_straight_and_a_branch_is_symmetrical() -> None:
    assert lay_out([[], [0], [1], [2]]).across == [0, 0, 0, 0]
    found = lay_out([[], [0], [0], [1, 2]])
    assert sorted(found.across[1:3]) == [0, UNITS]
    assert found.across[0] == found.across[3] == UNITS // 2


def test_lines_do_not_cross_without_need() -> None:
    # Two towers, the ops of which take turns.
    reads: list[list[int]] = [[], []] + [[op - 2] for op in range(2, 40)]
    across = lay_out(reads).across
    assert {across[op] < across[op + 1] for op in range(0, 40, 2)} == {True}


def test_an_op_that_reads_nothing_lies_above_its_reader() -> None:
    assert lay_out([[], [0], [1], [], [2, 3]]).layer == [0, 1, 2, 2, 3]


def test_long_lines_are_few() -> None:
    rng = random.Random(0)
    count = 20_000
    reads = [sorted({op - 1, rng.randrange(op)}) if op else [] for op in range(count)]
    assert sum(map(len, lay_out(reads).bends.values())) <= count


def edges(values: dict[str, Any]) -> set[tuple[int, int]]:
    """Return the pairs of steps, the earlier one first, that the script draws lines between."""
    graph, found, place = values["graph"], set(), 0
    for op, many in enumerate(graph["count"]):
        found |= {(graph["first"] + op - back, graph["first"] + op) for back in graph["reads"][place : place + many]}
        place += many
    assert place == len(graph["reads"])
    return found


def plain(report: dict[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = msgspec.to_builtins(page_data(typed(report)).values)
    return values


@pytest.mark.parametrize("seed", range(20))
def test_every_tensor_between_two_steps_is_a_line(seed: int) -> None:
    report = random_report(seed, 12)
    values = plain(report)
    expected = {(before, step["index"]) for step in report["written"]["steps"] for before in step["reads_from"]}
    assert edges(values) == expected
    # Tensors with addresses are among them.
    assert expected >= {
        (row["produced_in"], step)
        for row in report["written"]["buffers"]
        if row["produced_in"] is not None
        for step in row["read_in"]
    }
    graph, steps = values["graph"], report["written"]["steps"]
    assert [graph["types"][place] for place in graph["type"]] == [step["type"] for step in steps]
    peak = report["written"]["schedule"]["peak_bytes"]
    assert [place for place, shade in enumerate(graph["shade"]) if shade == "9"] == [
        step["index"] for step in steps if step["footprint_bytes"] == peak
    ]


def test_of_a_larger_graph_what_is_near_the_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_graph, "_MOST", 20)
    report = chain_report(100)
    report["written"]["steps"][60]["footprint_bytes"] = report["written"]["schedule"]["peak_bytes"] = 10**6
    values = plain(report)
    assert values["graph"]["first"] == 50
    assert edges(values) == {(step, step + 1) for step in range(50, 69)}


def test_a_report_that_contradicts_itself_draws_what_it_can() -> None:
    report = chain_report(5)
    report["written"]["steps"][1]["reads_from"] = [0, 1, 4]
    assert all(before < after for before, after in edges(plain(report)))


def test_shapes_and_types() -> None:
    report = chain_report(5)
    report["written"]["buffers"][0] |= {"shape": [1, 8, 3], "dtype": "int8"}
    report["written"]["buffers"][1] |= {"shape": [], "dtype": "float32"}
    report["written"]["buffers"][2] |= {"shape": None, "dtype": "int4"}
    buffers = plain(report)["buffers"]
    assert [buffers["forms"][place] for place in buffers["form"][:3]] == [
        "1\N{MULTIPLICATION SIGN}8\N{MULTIPLICATION SIGN}3 int8",
        *("scalar float32", "int4"),
    ]
