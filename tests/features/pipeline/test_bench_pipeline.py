"""The benchmark of pipelines: its networks are RESPECT's, and its tables say what was found."""

from __future__ import annotations

import pytest

from scripts.bench import pipeline
from scripts.bench.runner.command import main
from scripts.networks.pipelines import NETWORKS, keras_network, random_network

TABLE_I = {
    "Xception": 134, "ResNet50": 177, "ResNet101": 347, "ResNet152": 517, "DenseNet121": 429, "ResNet101V2": 379,
    "ResNet152V2": 566, "DenseNet169": 597, "DenseNet201": 709, "InceptionResNetV2": 782,
}  # fmt: skip
"""RESPECT, Table I: |V|."""

GIGA_MACS = {"ResNet50": 3.87, "DenseNet121": 2.83, "Xception": 8.36, "InceptionResNetV2": 13.17}
"""As is known of these networks."""


def test_the_networks_are_those_of_the_document() -> None:
    assert set(NETWORKS) == set(TABLE_I)
    for name, layers in TABLE_I.items():
        net = keras_network(name)
        assert len(net.layers) == layers
        assert max(len(layer.preds) for layer in net.layers) == (4 if name == "InceptionResNetV2" else 2)
        if name in GIGA_MACS:
            assert sum(layer.macs for layer in net.layers) / 1e9 == pytest.approx(GIGA_MACS[name], abs=0.01)


@pytest.mark.parametrize("nodes", [30, 800])
@pytest.mark.parametrize("degree", [2, 6])
def test_random_networks_have_the_degree_that_was_asked_for(nodes: int, degree: int) -> None:
    net = random_network(nodes, degree, seed=0)
    assert len(net.layers) == nodes
    assert max(len(layer.preds) for layer in net.layers) == degree
    assert all(before < number for number, layer in enumerate(net.layers) for before in layer.preds)
    assert net == random_network(nodes, degree, seed=0)
    assert net != random_network(nodes, degree, seed=1)


def test_tables(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--networks", "Xception", "--stages", "4", "--repeats", "1", "--nodes", "30", "--degrees", "3"]
    monkeypatch.setattr(pipeline, "learned_scheduler", lambda: None)
    assert main(["pipeline", *arguments, "--seeds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| Xception | 134 | 4 | 5,965,744 | optimal | 6,324,456 | 6.01 |  |  |" in "\n".join(lines)
    assert any(line.startswith("| average |  | 4 |  | 1 of 1 optimal |") for line in lines)
    assert any(line.startswith("| 30 | 3 | 2 | 2 | 0.00 |") for line in lines)
    for table in "\n".join(lines).split("\n\n")[2:]:
        assert len({line.count("|") for line in table.splitlines()}) == 1
