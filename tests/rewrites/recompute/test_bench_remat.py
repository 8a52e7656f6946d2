"""The tables of the benchmark, on graphs that take no time."""

from __future__ import annotations

from memsched.formats.onnx.reader import read
from memsched.graph.dag import validate
from memsched.targets.load import load_target
from scripts.bench.remat import layers, network_table, random_table
from scripts.bench.runner.text import printed
from scripts.networks.unet import unet


def test_random_layers_are_valid_and_repeatable() -> None:
    graph = layers(60, 2)
    validate(graph)
    assert len(graph.ops) == 60
    assert graph == layers(60, 2) != layers(60, 3)


def test_each_random_graph_has_a_line_per_budget() -> None:
    lines = list(printed(random_table([20], [1], load_target("ideal"), 0.5)))
    assert [line.split(" | ")[2] for line in lines[2:]] == ["90.0 %", "80.0 %"]


def test_the_unet_needs_its_largest_step_whatever_is_repeated() -> None:
    assert read(unet().SerializeToString(), "unet.onnx").graphs[0].name == "unet"
    cells = [cell.strip() for cell in list(printed(network_table(["unet"], load_target("ideal"), 1)))[2].split("|")]
    assert cells[1] == "unet"
    assert {cells[3], cells[8]} == {"8,192.0"}
