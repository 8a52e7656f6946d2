"""The benchmarks print what they claim to: figures, verdicts, and what is missing in words."""

from __future__ import annotations

import dataclasses
import random
import re
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from memsched.graph import dag
from memsched.graph.liveness import Storage
from memsched.graph.model import Graph
from memsched.search.limits import Limits
from scripts.bench import growth
from scripts.bench.runner.command import benchmark, parser_of
from scripts.bench.runner.models import network
from scripts.bench.runner.text import line as row_of
from scripts.bench.runner.text import printed
from scripts.bench.schedule import ablation, cells, determinism, fusion, networks, onnxsim
from scripts.bench.schedule.published import ABLATION, NETWORKS, Published
from scripts.networks.catalogue import NAMES, PUBLISHED
from scripts.networks.growth import KINDS, layered, stacked
from scripts.networks.randwire import random_cell
from tests.small_models import branches


def rows(lines: Sequence[str], first: str) -> list[list[str]]:
    """Return the cells of the rows that begin with ``first``; every table must be whole."""
    widths = {line.count("|") for line in "\n".join(lines).split("\n\n")[1].splitlines()}
    assert len(widths) == 1
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith(f"| {first} |")]


# Published figures ----------------------------------------------------------------------------------------------


def test_every_published_network_has_its_figures() -> None:
    assert tuple(NETWORKS) == tuple(PUBLISHED)
    assert set(ABLATION) < set(NETWORKS)


@pytest.mark.parametrize("name", NETWORKS)
def test_may_take_a_tenth_of_the_published_seconds_or_half_a_second(name: str) -> None:
    published = NETWORKS[name]
    allowed = published.seconds / 10 if published.seconds > 5.1 else 0.5
    assert published.target <= allowed + 0.05


# Tables ---------------------------------------------------------------------------------------------------------


def test_table_of_networks() -> None:
    lines = list(printed(networks.tables(["hrnet_w18_small_v1", "unetpp"], "paper", Limits(None), 2)))
    peaks, seconds, reductions = rows(lines, "hrnet_w18_small_v1")
    assert peaks[1:2] == ["150"]
    assert peaks[4:] == ["6,368.0", "7,936.0", "7,936.0", "**6,368.0**", "6,368.0", "optimal"]
    assert seconds[6:8] == ["0.5", "yes"] or float(seconds[5].strip("*")) > 0.5
    assert reductions[1:] == ["7,936.0 -> 6,368.0", "19.8 %", "7,936 -> 6,368", "19.8 %", "yes", "0.0 %"]
    assert rows(lines, "unetpp")[2][1:] == ["21,248.0 -> 20,480.0", "3.6 %", "-", "-", "-", "1.2 %"]
    assert not any("mean of" in line for line in lines)


@pytest.mark.parametrize(
    ("reduction", "reproduced", "expected"),
    [(0.2, True, "yes"), (0.1999, True, "yes"), (0.198, True, "**no**"), (0.3, False, "another graph")],
)
def test_a_reduction_is_reached_up_to_the_published_precision(
    reduction: float, reproduced: bool, expected: str
) -> None:
    assert networks.reached(reduction, Published(1000, 800, 1, 0.5, reproduced=reproduced)) == expected


def test_table_of_fusion() -> None:
    found = rows(list(printed(fusion.table(["hrnet_w18_small_v1", "unetpp"], "paper", 1))), "hrnet_w18_small_v1")
    forms = ["-", "activations", "activations, batch norms"]
    assert [row[1:3] for row in found] == [[form, ops] for form, ops in zip(forms, ("150", "225", "316"), strict=True)]
    assert all(float(row[4].removesuffix("x")) == pytest.approx(int(row[2]) / int(row[3]), abs=0.06) for row in found)


def test_table_of_cells_shows_the_gap() -> None:
    proven = rows(list(printed(cells.table([16], [0], "paper", Limits(time_limit=600), "exact"))), "16")[0]
    assert proven[7:9] == ["0.0 %", "optimal"]
    open_ = rows(list(printed(cells.table([64], [0], "paper", Limits(time_limit=0), "auto"))), "64")[0]
    assert float(open_[7].split()[0]) > 0
    assert open_[8] == "feasible"


def test_ablation_of_a_small_network() -> None:
    storage = Storage.of(network("hrnet_w18_small_v1", "paper"))
    found = {method.name: ablation.solve(storage, method, 600, 3) for method in ablation.METHODS[1:]}
    assert {cell.peak for cell in found.values()} == {6368 * 1024}
    assert all(cell.proven for cell in found.values())
    assert found["partition"].parts[0] == 3
    assert found["fusion, pruning"].parts == (1, 1)
    assert found["partition"].tasks == 150 > found["all"].tasks
    assert found["partition"].variables > found["partition, pruning"].variables > 0
    assert found["partition, fusion"].variables > found["all"].variables > 0


def test_an_ablation_out_of_time_says_so() -> None:
    (row, *_) = rows(list(printed(ablation.table(["hrnet_w18_small_v1"], "paper", 0.0, 3))), "hrnet_w18_small_v1")
    assert row[1] == "origin"
    assert row[6:] == ["-", "**time limit**", "3600+ s"]


def test_onnxsim_is_skipped_with_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxsim, "interpreter", lambda _folder, *, install: None)
    (line,) = printed(onnxsim.table(["darts"], install=False))
    assert line.startswith("Skipped: onnxsim ")
    assert "`--install`" in line


def test_onnxsim_is_given_both_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[bytes] = []

    def plan(_python: Path, models: Sequence[Path]) -> list[dict[str, int]]:
        given.extend(path.read_bytes() for path in models)
        return [{"arena": 4000 * 1024}, {"arena": 3000 * 1024}]

    monkeypatch.setattr(onnxsim, "interpreter", lambda _folder, *, install: Path(sys.executable))
    monkeypatch.setattr(onnxsim, "plan", plan)
    (row,) = rows(list(printed(onnxsim.table(["nasnet_a"], install=False))), "nasnet_a")
    assert row[1:] == ["4,405.9", "4,405.9", "4,000.0", "3,943.9", "3,943.9", "3,000.0", "25.0 %"]
    assert given[0] != given[1]


@pytest.mark.parametrize("table", ["networks", "fusion", "ablation", "onnxsim"])
def test_an_unknown_network_is_named(table: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser_of(f"schedule.{table}").parse_args(["darts", "resnet"])
    assert re.search("'resnet'.* nasnet_a, ", capsys.readouterr().err)


def test_no_name_means_every_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "table", lambda names, _target, _repeats: iter(names))
    values = parser_of("schedule.fusion").parse_args([])
    assert tuple(benchmark("schedule.fusion").tables(values)) == NAMES


# Determinism ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["branches", "parts"])
def test_no_result_changes_with_workers_or_hash_seed(name: str, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    # The addresses of the second are searched in processes of their own when there are workers.
    model.write_bytes(branches() if name == "branches" else random_cell(40, 1, stages=3).SerializeToString())
    found = determinism.outcomes(model, determinism.SETTINGS, [])
    assert len(found) == len(determinism.SETTINGS)
    assert found[0].model != model.read_bytes()
    assert all(outcome == found[0] for outcome in found)


def test_a_change_would_be_noticed(tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(branches())
    settings = [(1, "0")]
    (better,) = determinism.outcomes(model, settings, [])
    (same,) = determinism.outcomes(model, settings, ["--solver", "file"])
    assert better.model != same.model
    assert better.report != same.report
    assert '"seconds"' not in better.report


# Growth ---------------------------------------------------------------------------------------------------------


def check_graph(graph: Graph) -> None:
    dag.validate(graph)
    read = {tensor for op in graph.ops for tensor in op.inputs}
    made = {tensor for op in graph.ops for tensor in op.outputs}
    assert set(graph.inputs) | made == set(range(len(graph.tensors)))
    assert made - read == set(graph.outputs)


@pytest.mark.parametrize("ops", [1, 12, 13, 100, 1000])
def test_layered_graphs(ops: int) -> None:
    graph = layered(ops)
    check_graph(graph)
    assert len(graph.ops) == ops
    assert len(graph.outputs) <= 12
    assert graph == layered(ops) != layered(ops, seed=1) or ops == 1


def test_stacked_cells() -> None:
    stem, one, many = stacked(1), stacked(2), stacked(1000)
    per_cell = len(one.ops) - 1
    assert len(stem.ops) == 1
    assert len(many.ops) - per_cell < 1000 <= len(many.ops)
    assert (len(many.ops) - 1) % per_cell == 0
    check_graph(many)
    assert len(many.outputs) == 1
    # A cell has six parts of 44 channels at 28x28; nothing is larger.
    assert max(tensor.size for tensor in many.tensors) == 4 * 6 * 44 * 28 * 28


def test_growth_is_measured_in_a_process_of_its_own() -> None:
    found = growth.measure("layered", 60, 5.0)
    assert found.ops == 60
    assert found.lower_bound <= found.peak <= min(found.greedy, found.file)
    assert 1 < found.graph_megabytes <= found.megabytes < 2000
    cells_of_row = row_of(growth.row(found)).strip("| ").split(" | ")
    assert cells_of_row[:2] == ["layered", "60"]
    assert cells_of_row[9] == found.status


def test_a_failing_measurement_says_so() -> None:
    with pytest.raises(SystemExit, match=r"nothing, 10 ops: exit 1: [\s\S]*KeyError"):
        growth.measure("nothing", 10, 1.0)


def some_measurements() -> list[growth.Measurement]:
    source = random.Random(0)
    first = growth.Measurement("layered", 100, 9, 9, 9, 8, 8, "optimal", "greedy", 1.0, 2.0, 0.5, 20, 40)
    return [
        dataclasses.replace(first, kind=kind, ops=ops, simple_seconds=source.random() + ops / 1000)
        for kind in KINDS
        for ops in (100, 1000)
    ]


def test_drawing_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match=r"pip install matplotlib"):
        growth.draw(some_measurements(), tmp_path / "growth.svg")


def test_drawing(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pictures = [tmp_path / "a.svg", tmp_path / "new" / "b.svg"]
    for picture in pictures:
        growth.draw(some_measurements(), picture)
    assert pictures[0].read_bytes() == pictures[1].read_bytes()
    assert b"stacked: " in pictures[0].read_bytes()
