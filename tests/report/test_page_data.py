"""What the page draws: the figures of the report, all of them for small graphs, the largest for others."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memsched.graph.model import Graph, Op, Tensor
from memsched.report import page_cells, page_data
from memsched.report.page_cells import Rectangle, merged_cells
from memsched.report.page_data import AGAIN, PIECE, as_script, extremes
from memsched.report.values.optimize import OptimizeReport
from tests.random_graphs import random_graph, random_order
from tests.report.plain import plain, report_with, typed
from tests.report.test_remat import a_section as a_repetition
from tests.report.test_tiling import a_report, a_section


def random_report(seed: int, ops: int = 12) -> dict[str, Any]:
    rng = random.Random(seed)
    graph = random_graph(rng, ops, layable=True)
    return plain(report_with(graph, tuple(random_order(rng, graph))))


def page_values(data: page_data.PageData) -> dict[str, Any]:
    """Return what the script gets."""
    values: dict[str, Any] = msgspec.to_builtins(data.values)
    return values


def columns(report: OptimizeReport) -> dict[str, Any]:
    return page_values(page_data.page_data(report))


def chain_report(ops: int, name: str = "op") -> dict[str, Any]:
    """Ops in a row, every tenth of which makes a large tensor that only the last one reads as well."""
    tensors = [Tensor("x", 10)] + [Tensor(f"t{i}{name}", 10 + i % 7 + 200 * (not i % 10)) for i in range(ops)]
    nodes = [Op(f"{name}{i}", "Op", (i,), (i + 1,)) for i in range(ops)]
    graph = Graph("chain", tuple(tensors), tuple(nodes), (0,), (ops,))
    return plain(report_with(graph, tuple(range(ops))))


@pytest.mark.parametrize("seed", range(40))
def test_figures_of_a_small_graph(seed: int) -> None:
    report = random_report(seed, 3 + seed % 12)
    data = page_data.page_data(typed(report))
    steps, buffers = page_values(data)["steps"], page_values(data)["buffers"]
    assert steps["index"] is None
    assert steps["footprint"] == [step["footprint_bytes"] for step in report["written"]["steps"]]
    assert [steps["types"][place] for place in steps["type"]] == [step["type"] for step in report["written"]["steps"]]
    figures = page_values(data)["figures"]
    assert steps["footprint"][figures["peakStep"]] == figures["peak"] == report["written"]["schedule"]["peak_bytes"]
    assert page_values(data)["merged"] == []
    assert [buffers["name"][place] for place in range(len(data.tensors))] == [
        b["tensor"] for b in report["written"]["buffers"]
    ]
    for place, row in enumerate(report["written"]["buffers"]):
        assert buffers["made"][place] == (-1 if row["produced_in"] is None else row["produced_in"])
        assert buffers["read"][place] == row["read_in"]
        assert buffers["offset"][place] == row["offset_bytes"]
        assert buffers["offset"][place] + buffers["size"][place] <= page_values(data)["maps"][0]["height"]
        for ours, theirs in (("inPlaceOf", "in_place_of"), ("viewOf", "view_of")):
            other = buffers[ours][place]
            assert (buffers["name"][other] if other >= 0 else None) == row[theirs]
    assert data.steps_drawn == data.steps
    assert data.buffers_drawn == data.buffers == sum(buffers["drawn"])


def test_rectangles_of_one_step_do_not_overlap() -> None:
    for seed in range(30):
        buffers = columns(typed(random_report(seed)))["buffers"]
        taken = {place for place in buffers["inPlaceOf"] if place >= 0}
        drawn = [place for place, yes in enumerate(buffers["drawn"]) if yes]
        for one in drawn:
            for other in drawn:
                same_bytes = {one, other} & taken or one == other
                first, last = max(buffers["first"][one], buffers["first"][other]), 0
                last = min(buffers["last"][one], buffers["last"][other])
                low = max(buffers["offset"][one], buffers["offset"][other])
                high = min(buffers["offset"][p] + buffers["size"][p] for p in (one, other))
                assert same_bytes or first > last or low >= high


def test_the_files_order_is_drawn_where_it_differs() -> None:
    report = random_report(5)
    ops, footprints = ([step[key] for step in report["written"]["steps"]] for key in ("op", "footprint_bytes"))

    def given(ops: list[str], footprints: list[int]) -> list[dict[str, Any]]:
        return [{"op": op, "footprint_bytes": size} for op, size in zip(ops, footprints, strict=True)]

    report["original"]["steps"] = given(ops, footprints)
    assert columns(typed(report))["given"] is None
    report["original"]["steps"] = given(ops[::-1], [2 * size for size in footprints[::-1]])
    found = columns(typed(report))["given"]
    assert found["peak"] == 2 * max(footprints)
    assert found["footprint"][found["peakStep"]] == found["peak"]
    assert found["total"] == len(ops)


def test_pieces_and_repetitions_are_marked() -> None:
    report = a_report(a_section())
    assert columns(typed(report))["steps"]["mark"][:2] == [PIECE, PIECE]
    copy = {"op": "big", "type": "Conv", "times": 1, "extra_macs": 1, "extra_bytes_moved": 1}
    report["sections"]["recompute"] = a_repetition(copies=[copy])
    assert columns(typed(report))["steps"]["mark"][:2] == [PIECE, PIECE]
    report["written"]["steps"][1]["op"] = "big#again1"
    assert columns(typed(report))["steps"]["mark"][:2] == [PIECE, AGAIN]
    report["sections"]["tile"] = None
    assert columns(typed(report))["steps"]["mark"][:2] == [AGAIN, AGAIN]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("_WHOLE", 60), ("_NEAR_PEAK", 4), ("_READERS", 90)):
        monkeypatch.setattr(page_data, name, value)


@pytest.mark.usefixtures("small")
def test_large_graphs_are_downsampled() -> None:
    report = chain_report(1000)
    data = page_data.page_data(typed(report))
    steps, buffers, figures = (page_values(data)[key] for key in ("steps", "buffers", "figures"))
    assert 40 <= data.steps_drawn == len(steps["index"]) <= 60
    assert data.steps == 1000
    assert figures["peakStep"] in steps["index"]
    assert max(steps["footprint"]) == figures["peak"]
    for step, size in zip(steps["index"], steps["footprint"], strict=True):
        assert report["written"]["steps"][step]["footprint_bytes"] == size
    assert 30 <= data.buffers_drawn == len(buffers["name"]) <= 60
    assert data.buffers == 1001
    assert page_values(data)["merged"]
    at_peak = {fault["tensor"] for fault in report["written"]["at_fault"]}
    assert at_peak <= {report["written"]["buffers"][place]["tensor"] for place in data.tensors}
    for place, order in enumerate(data.tensors):
        assert report["written"]["buffers"][order]["tensor"] == buffers["name"][place]


@pytest.mark.usefixtures("small")
def test_many_readers_are_counted() -> None:
    tensors = [Tensor("x", 10)] + [Tensor(f"t{i}", 10) for i in range(40)]
    nodes = [Op(f"op{i}", "Op", (0,), (i + 1,)) for i in range(40)]
    graph = Graph("fan", tuple(tensors), tuple(nodes), (0,), (40,))
    buffers = columns(report_with(graph, tuple(range(40))))["buffers"]
    place = buffers["name"].index("x")
    assert buffers["readers"][place] == 40
    assert buffers["read"][place] == [0, 1]


@given(st.lists(st.integers(0, 50), min_size=1, max_size=200), st.integers(1, 20))
def test_extremes_lose_none(values: list[int], buckets: int) -> None:
    places = extremes(values, buckets)
    assert places == sorted(set(places))
    assert {0, len(values) - 1} <= set(places)
    assert len(places) <= 2 * buckets + 2
    assert max(values) == max(values[place] for place in places)
    assert min(values) == min(values[place] for place in places)
    if len(values) > 2 * buckets:
        for bucket in range(buckets):
            low, high = bucket * len(values) // buckets, (bucket + 1) * len(values) // buckets
            kept = [values[place] for place in places if low <= place < high]
            assert (min(kept), max(kept)) == (min(values[low:high]), max(values[low:high]))


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(1, 9), st.integers(0, 60), st.integers(1, 20)), max_size=12),
    st.tuples(st.integers(1, 12), st.integers(1, 12)),
)
def test_merged_cells_cover_what_they_stand_for(
    steps: int, boxes: list[tuple[int, int, int, int]], grid: tuple[int, int]
) -> None:
    extents = [
        Rectangle(left % steps, min(steps, left % steps + width), bottom, bottom + height)
        for left, width, bottom, height in boxes
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_cells, "_COLUMNS", grid[0])
        patch.setattr(page_cells, "_ROWS", grid[1])
        cells = list(merged_cells(extents, steps))
    top = max((extent.top for extent in extents), default=0)
    covered: set[tuple[int, int]] = set()
    for cell in cells:
        assert 0 <= cell.left < cell.right <= steps
        assert 0 <= cell.bottom < cell.top <= top
        points = {(x, y) for x in range(cell.left, cell.right) for y in range(cell.bottom, cell.top)}
        assert not points & covered
        covered |= points
        # Nothing is covered that no extent is near: each cell of the grid under it is touched.
        assert any(
            e.left < cell.right and e.right > cell.left and e.bottom < cell.top and e.top > cell.bottom for e in extents
        )
    needed = {(x, y) for e in extents for x in range(e.left, e.right) for y in range(e.bottom, e.top)}
    assert needed <= covered


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists, max_leaves=8))
def test_json_ends_no_script(value: Any) -> None:
    text = as_script(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


@pytest.mark.parametrize("char", "<>&\u2028\u2029")
def test_each_character_that_means_something_is_escaped(char: str) -> None:
    assert as_script([f"a{char}b"]) == f'["a\\u{ord(char):04x}b"]'


def test_names_share_the_space(monkeypatch: pytest.MonkeyPatch) -> None:
    report = chain_report(30, "/".join(f"block<{i}>" for i in range(40)))
    whole = columns(typed(report))
    assert max(map(len, whole["steps"]["op"])) == 160
    monkeypatch.setattr(page_data, "_NAME_BYTES", 6000)
    less = columns(typed(report))
    assert max(map(len, less["steps"]["op"])) < 100
    assert len(set(less["steps"]["op"])) == 30
