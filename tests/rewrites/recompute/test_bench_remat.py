"""The table of the benchmark, on a graph that takes no time."""

from __future__ import annotations

from memsched.formats.onnx.reader import read
from memsched.targets.load import load_target
from scripts.bench.remat import network_table
from scripts.bench.runner.text import printed
from scripts.networks.unet import unet


def test_the_unet_needs_its_largest_step_whatever_is_repeated() -> None:
    assert read(unet().SerializeToString(), "unet.onnx").graphs[0].name == "unet"
    cells = [cell.strip() for cell in list(printed(network_table(["unet"], load_target("ideal"), 1)))[2].split("|")]
    assert cells[1] == "unet"
    assert {cells[3], cells[8]} == {"8,192.0"}
