"""What the learned scheduler is trained with: graphs, exact labels, and the cut on arrays. PyTorch is not needed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from memsched.features.pipeline import exact
from memsched.features.pipeline.condense import condense, parameters_of
from memsched.features.pipeline.respect_cut import best_cut
from memsched.graph.stages import Constraints, Network
from scripts.respect.cut import compiled_cut
from scripts.respect.graphs import Graph, random_graph
from scripts.respect.labels import exact_stages
from tests.features.pipeline.networks import communication_of, network, parameters_of_stages


def network_of(graph: Graph) -> Network:
    edges = [(before, node) for node, befores in enumerate(graph.parents) for before in befores]
    return network(edges, graph.memory, graph.sizes)


@pytest.mark.parametrize("degree", [2, 3, 4, 5, 6])
def test_graphs_have_the_degree_and_the_order_that_were_asked_for(degree: int) -> None:
    rng = random.Random(degree)
    for _ in range(50):
        graph = random_graph(rng, 30, degree)
        assert max(len(befores) for befores in graph.parents) == degree
        assert all(before < node for node, befores in enumerate(graph.parents) for before in befores)
        assert all(graph.parents[1:])
        assert len(graph.parents) == len(graph.memory) == len(graph.sizes) == 30


def test_labels_are_as_good_as_the_exact_schedulers() -> None:
    rng = random.Random(1)
    for number in range(10):
        graph = random_graph(rng, 10, 2 + number % 5)
        labels = exact_stages(graph, (3, 4), 100_000)
        assert labels is not None
        net = network_of(graph)
        for count, stages in zip((3, 4), labels, strict=True):
            best = exact.schedule(net, Constraints(count))
            assert best.status == "optimal"
            assert sorted(set(stages)) == list(range(count))
            assert max(parameters_of_stages(net, stages)) == best.objective
            assert communication_of(net, stages) == best.communication
            assert all(stages[before] <= stages[node] for node, line in enumerate(graph.parents) for before in line)


def test_graphs_with_too_many_closed_sets_are_left_out() -> None:
    wide = Graph(((), *[(0,)] * 9), (1,) * 10, (1,) * 10)
    assert exact_stages(wide, (4,), 500) is None
    assert exact_stages(wide, (4,), 600) is not None


def test_the_cut_while_training_is_the_packages() -> None:
    rng = random.Random(2)
    for number in range(12):
        graph = random_graph(rng, 16, 2 + number % 5)
        parents = np.full((1, 16, 6), -1, np.int64)
        for node, befores in enumerate(graph.parents):
            parents[0, node, : len(befores)] = befores
        found = compiled_cut()(
            np.arange(16)[None],
            parents,
            np.array([graph.memory], np.int64),
            np.array([graph.sizes], np.int64),
            np.array([4], np.int64),
        )
        condensed = condense(network_of(graph), Constraints(4))
        assert found[0].tolist() == best_cut(condensed, parameters_of(network_of(graph), condensed), range(16), 4)
