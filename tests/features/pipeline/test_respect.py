"""The learned scheduler: what the policy reads, the order it gives, and the stages that come of it."""

from __future__ import annotations

import builtins
import csv
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from math import log
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from memsched.base.errors import UsageError
from memsched.check.stages import check_stages
from memsched.features.pipeline import exact, respect, respect_policy
from memsched.features.pipeline.condense import condense, parameters_of
from memsched.features.pipeline.possible import explain
from memsched.features.pipeline.respect_embedding import PARENTS, WIDTH, asap_levels, embed
from memsched.features.pipeline.respect_policy import policy_order
from memsched.graph.stages import Constraints, Network, StageSchedule
from memsched.search.limits import Limits
from scripts.networks.pipelines import NETWORKS, keras_network, random_network
from tests.failures import fails
from tests.features.pipeline.networks import constraints, network, networks, parameters_of_stages

RECORD = Path(__file__).parents[3] / "docs" / "respect.json"


@pytest.fixture
def fresh_sessions() -> Iterator[None]:
    respect_policy.sessions.cache_clear()
    yield
    respect_policy.sessions.cache_clear()


def checked(net: Network, rules: Constraints, limits: Limits | None = None) -> StageSchedule:
    found = respect.schedule(net, rules, limits=limits) if limits else respect.schedule(net, rules)
    check_stages(net, found, rules)
    assert found.method == "respect"
    assert found.objective == max(parameters_of_stages(net, found.stages))
    return found


def test_rows_of_a_diamond_by_hand() -> None:
    # 0 -> 1 -> 2 -> 3 and 0 -> 3: levels 0, 1, 2, 3; parents of the latest level come first.
    rows = embed([(), (0,), (1,), (0, 2)], [0, 3, 0, 1])
    none = [-1.0] * PARENTS
    assert rows.shape == (4, WIDTH)
    assert rows[0].tolist() == [0, *[0] * PARENTS, *none, 0, 0]
    assert rows[2].tolist() == pytest.approx([2 / 3, 1 / 3, *[0] * 5, 0.25, *none[1:], 0.5, 0])
    assert rows[3].tolist() == pytest.approx([1, 2 / 3, *[0] * 5, 0.5, 0, *none[2:], 0.75, log(2)])
    assert rows[1, -1] == pytest.approx(log(4))


def test_of_many_parents_the_latest_are_kept() -> None:
    parents: list[tuple[int, ...]] = [(), *[()] * 5, (0,), (6,), tuple(range(8))]
    rows = embed(parents, [1] * 9)
    kept = (rows[8, 1 + PARENTS : 1 + 2 * PARENTS] * 9).round().astype(int)
    assert kept.tolist() == [7, 6, 5, 4, 3, 2]


@pytest.mark.parametrize(("parents", "memory"), [([], []), ([()], [0]), ([(), (), ()], [0, 0, 0])])
def test_rows_of_graphs_with_nothing_to_divide_by(parents: list[tuple[int, ...]], memory: list[int]) -> None:
    assert embed(parents, memory).shape == (len(parents), WIDTH)
    assert policy_order(parents, memory) == list(dict.fromkeys(policy_order(parents, memory)))


def test_ratios_do_not_depend_on_the_size_of_a_network() -> None:
    chain = [(), *[(node,) for node in range(99)]]
    assert embed(chain, [5] * 100)[50].tolist() == pytest.approx(embed(chain[:50], [9] * 50)[25].tolist(), abs=0.02)


def test_levels_are_longest_paths() -> None:
    assert asap_levels([(), (0,), (0,), (1, 2), (0, 3)]) == [0, 1, 1, 2, 3]


@given(networks(most=12), st.booleans())
def test_an_order_has_each_node_once(net: Network, parents_first: bool) -> None:
    parents = [layer.preds for layer in net.layers]
    order = policy_order(parents, [layer.macs for layer in net.layers], parents_first=parents_first)
    assert sorted(order) == list(range(len(parents)))
    if parents_first:
        place = {node: index for index, node in enumerate(order)}
        assert all(place[before] < place[node] for node, befores in enumerate(parents) for before in befores)


def test_the_policy_chooses() -> None:
    orders = {tuple(policy_order(*rows(random_network(40, 4, seed=seed)))) for seed in range(5)}
    assert len(orders) == 5
    assert all(order != tuple(range(40)) for order in orders)


def rows(net: Network) -> tuple[Sequence[Sequence[int]], list[int]]:
    return [layer.preds for layer in net.layers], [
        sum(net.constants[constant] for constant in layer.constants) for layer in net.layers
    ]


@given(st.data())
def test_schedules_respect_what_is_asked(data: st.DataObject) -> None:
    net = data.draw(networks(most=10))
    rules = data.draw(constraints(len(net.layers), most=5))
    if explain(net, rules) is not None:
        with pytest.raises(UsageError):
            respect.schedule(net, rules)
        return
    found = checked(net, rules)
    assert found.objective >= exact.schedule(net, rules).objective >= found.lower_bound


@given(st.data())
def test_cuts_asked_for_in_larger_graphs(data: st.DataObject) -> None:
    net = random_network(40, data.draw(st.integers(2, 6)), seed=data.draw(st.integers(0, 99)))
    cuts = tuple(data.draw(st.lists(st.integers(0, 39), max_size=6, unique=True)))
    never = tuple(data.draw(st.lists(st.integers(0, 39), max_size=3, unique=True)))
    rules = Constraints(data.draw(st.integers(2, 9)), cuts, never, data.draw(st.booleans()))
    assume(explain(net, rules) is None)
    checked(net, rules)


def test_cuts_that_the_order_does_not_allow_move_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(respect, "even_split")
    # Two chains of which each link is cut: the third links of both only fit into the last of three stages.
    net = network([(0, 1), (1, 2), (3, 4), (4, 5)], [1, 2, 3, 4, 5, 6])
    assert checked(net, Constraints(3, cut_after=(0, 1, 3, 4))).stages == (0, 1, 2, 0, 1, 2)


def test_one_layer_per_stage_and_hundreds_of_stages() -> None:
    chain = network([(node, node + 1) for node in range(299)], [1] * 300)
    assert checked(chain, Constraints(300)).stages == tuple(range(300))
    assert checked(chain, Constraints(1)).status == "optimal"


@pytest.mark.parametrize(("name", "stages", "document"), [("Xception", 4, 2.26), ("DenseNet121", 5, 2.74)])
def test_gaps_are_at_most_the_documents(name: str, stages: int, document: float) -> None:
    net = keras_network(name)
    found = checked(net, Constraints(stages))
    best = exact.schedule(net, Constraints(stages))
    assert best.objective == best.lower_bound or best.status == "optimal"
    assert 100 * (found.objective / best.objective - 1) <= document


def test_longer_orders_are_cut_at_chosen_places() -> None:
    net = random_network(3000, 4, seed=1)
    found = checked(net, Constraints(6))
    assert found.objective <= 1.02 * found.lower_bound
    checked(net, Constraints(6, cut_after=(100, 2000)))


def test_when_the_time_is_up_layers_follow_in_their_own_order() -> None:
    net = random_network(60, 4, seed=3)
    parents, memory = rows(net)
    order = policy_order(parents, memory, deadline=0.0)
    assert order == list(range(60))
    checked(net, Constraints(4), Limits(0.0))


def test_sizes_beyond_sixty_bits() -> None:
    net = network([(0, 1), (1, 2), (2, 3)], [1 << 70, 1 << 70, 1 << 70, 1 << 71], [1 << 65] * 4)
    assert checked(net, Constraints(3)).objective == 1 << 71


def test_the_same_in_every_process() -> None:
    code = (
        "from memsched.graph.stages import Constraints\n"
        "from memsched.features.pipeline import respect\n"
        "from scripts.networks.pipelines import random_network\n"
        "print(respect.schedule(random_network(120, 5, seed=7), Constraints(5, children_together=False)).stages)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[3],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert found == {f"{respect.schedule(random_network(120, 5, seed=7), Constraints(5)).stages}\n"}


@pytest.mark.usefixtures("fresh_sessions")
def test_without_onnxruntime_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(
        name: str,
        namespace: Mapping[str, object] | None = None,
        local: Mapping[str, object] | None = None,
        names: Sequence[str] | None = (),
        level: int = 0,
    ) -> object:
        if name == "onnxruntime":
            raise ImportError(name)
        return real(name, namespace, local, names or (), level)

    monkeypatch.setattr(builtins, "__import__", missing)
    with fails("runtime-missing", "pip install onnxruntime"):
        respect.schedule(network([(0, 1)], [1, 1]), Constraints(2))


def test_the_shipped_policy_is_the_one_that_the_record_describes() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    shipped = {name: files("memsched.features.pipeline").joinpath(name).read_bytes() for name in record["sha256"]}
    assert {name: hashlib.sha256(data).hexdigest() for name, data in shipped.items()} == record["sha256"]
    assert sum(map(len, shipped.values())) < 500_000
    with (RECORD.parent.parent / "scripts" / "respect" / "curve.csv").open(newline="", encoding="utf-8") as file:
        curve = list(csv.DictReader(file))
    for run in record["runs"]:
        rows = [row for row in curve if row["run"] == run["name"]]
        assert int(rows[-1]["update"]) == run["updates"]
        assert run["graphs_decoded"] == run["updates"] * run["batch"]
        best = next(row for row in rows if int(row["update"]) == run["best_at_update"])
        assert float(best["held_out_cost"]) == run["held_out_cost"][1]


def test_its_orders_are_those_of_the_weights_in_32_bits() -> None:
    # `python -m scripts.respect.quantise` rounds them. The digest is of the orders that they gave before that.
    nets = [keras_network(name) for name in NETWORKS]
    nets += [random_network(30, 4 + 2 * (seed % 2), seed=seed) for seed in range(20)]
    digest = hashlib.sha256()
    for net in nets:
        condensed = condense(net, Constraints(4))
        order = policy_order(condensed.preds, parameters_of(net, condensed).weights)
        digest.update(str(order).encode())
    assert digest.hexdigest() == "5ccd4679c3c16813c237c7658230cf099446036faf9d50b47c472f776a3bbeb3"
