"""Fusion on the networks of "Iterative Graph Optimization" and on large graphs."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from memsched.graph.liveness import Storage
from memsched.graph.model import Graph, Op, Tensor
from memsched.solve.fusion.iterate import fuse
from scripts.networks.topology import load_topology
from tests.failures import fails
from tests.random_graphs import random_layered_graph

NETWORKS = Path(__file__).parents[2] / "data" / "networks"

# Ops of the network, and the most tasks that fusion may leave.
SIZES = {
    "amoebanet_a": (577, 183),
    "darts": (403, 49),
    "hrnet_w18_small_v1": (150, 60),
    "hrnet_w18_small_v2": (280, 112),
    "hrnet_w32": (536, 151),
    "nasnet_a": (651, 145),
    "randwire1": (557, 92),
    "randwire2": (542, 69),
    "randwire3": (522, 88),
}


@pytest.mark.parametrize("name", SIZES)
def test_networks_shrink(name: str) -> None:
    storage = Storage.of(load_topology(NETWORKS / f"{name}.json"))
    started = time.process_time()
    fused = fuse(storage)
    assert time.process_time() - started < 2
    before, after = SIZES[name]
    assert fused.ops_before == before
    assert fused.ops_after <= after


def chain(sizes: list[int]) -> Graph:
    tensors = tuple(Tensor(f"t{index}", size) for index, size in enumerate(sizes))
    ops = tuple(Op(f"op{index}", "Op", (index,), (index + 1,)) for index in range(len(sizes) - 1))
    return Graph("chain", tensors, ops, (0,), (len(sizes) - 1,))


@pytest.mark.parametrize("step", [1, -1])
def test_long_sequences_are_fused_in_linear_time(step: int) -> None:
    storage = Storage.of(chain(list(range(1, 50_001))[::step]))
    started = time.process_time()
    assert fuse(storage).ops_after <= 2
    assert time.process_time() - started < 10


def test_a_layered_graph_of_100_000_ops_takes_seconds() -> None:
    storage = Storage.of(random_layered_graph(random.Random(1), 100_000))
    started = time.process_time()
    fused = fuse(storage)
    assert time.process_time() - started < 20
    assert fused.ops_after < 100_000


def test_hubs_do_not_make_it_quadratic() -> None:
    """One tensor that 20,000 ops read, and one op that reads what they all make."""
    count = 20_000
    tensors = tuple(Tensor(f"t{index}", 1 + index % 7) for index in range(count + 2))
    ops = [Op(f"op{index}", "Op", (0,), (index + 1,)) for index in range(count)]
    ops.append(Op("join", "Op", tuple(range(1, count + 1)), (count + 1,)))
    storage = Storage.of(Graph("hubs", tensors, tuple(ops), (0,), (count + 1,)))
    started = time.process_time()
    fuse(storage)
    assert time.process_time() - started < 20


def test_a_graph_without_ops() -> None:
    fused = fuse(Storage.of(Graph("empty", (Tensor("x", 1),), (), (0,), (0,))))
    assert fused.ops_after == 0


def test_a_topology_that_is_no_graph_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cyclic.json"
    path.write_text(
        '{"name": "cyclic", "tensors": {"a": 1, "b": 1}, "nodes": ['
        '{"name": "n", "op": "Op", "inputs": ["b"], "outputs": ["a"]},'
        '{"name": "m", "op": "Op", "inputs": ["a"], "outputs": ["b"]}], "inputs": [], "outputs": ["b"]}'
    )
    with fails("read-too-early", "'n'", "'b'"):
        load_topology(path)
