"""How the policy's weights are rounded: what is left of a row's products, and the models that come of it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from memsched.features.pipeline import respect_policy
from memsched.features.pipeline.respect_embedding import WIDTH
from memsched.features.pipeline.respect_policy import policy_order, session
from scripts.networks.pipelines import random_network
from scripts.respect import quantise
from scripts.respect.export import export

CELLS = 24


def weights(seed: int = 0) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    """Return weights of a small policy that was not trained."""
    rng = np.random.default_rng(seed)
    shapes: dict[str, tuple[int, ...]] = {
        **{f"encoder.weight_{of}_l0": (4 * CELLS, columns) for of, columns in (("ih", WIDTH), ("hh", CELLS))},
        **{f"cell.weight_{of}": (4 * CELLS, columns) for of, columns in (("ih", WIDTH), ("hh", CELLS))},
        **{f"encoder.bias_{of}_l0": (4 * CELLS,) for of in ("ih", "hh")},
        **{f"cell.bias_{of}": (4 * CELLS,) for of in ("ih", "hh")},
        **{f"{of}.weight": (CELLS, CELLS) for of in ("glimpse_reference", "pointer_reference")},
        **{f"{of}_query.weight": (CELLS, CELLS) for of in ("glimpse", "pointer")},
        **{f"{of}_query.bias": (CELLS,) for of in ("glimpse", "pointer")},
        "pointer.weight": (1, CELLS),
        "first": (WIDTH,),
    }
    return {name: rng.uniform(-0.3, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def fewer_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantise, "GRAPHS", 10)
    monkeypatch.setattr(quantise, "NODES", (30,))


def test_products_with_the_vectors_met_change_less_than_by_plain_rounding() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(40, 32))
    # Vectors in few directions, as an LSTM's states are.
    met = rng.normal(size=(500, 6)) @ rng.normal(size=(6, 32))
    found = quantise.rounded(rows, met.T @ met / len(met), 0.25)
    assert np.abs(found * 0.25 - rows).max() < 1
    ours, plain = (np.linalg.norm(met @ (one * 0.25 - rows).T) for one in (found, np.rint(rows / 0.25)))
    assert ours < plain / 5


def test_where_vectors_are_of_all_directions_alike_weights_are_rounded_plainly() -> None:
    rows = np.random.default_rng(2).normal(size=(5, 8))
    assert quantise.rounded(rows, np.eye(8), 0.1).tolist() == np.rint(rows / 0.1).tolist()


@pytest.mark.usefixtures("fewer_graphs")
def test_the_rounded_models_choose_as_the_given_ones() -> None:
    given = export(weights())
    made = quantise.quantised(*given)
    for model in made:
        kinds = {one.name: numpy_helper.to_array(one).dtype for one in model.graph.initializer}
        steps = {name: kind for name, kind in kinds.items() if name.endswith("_steps")}
        assert len(steps) == 4
        assert set(steps.values()) <= {np.dtype(np.int8), np.dtype(np.int16)}
    first, second = (tuple(session(one.SerializeToString()) for one in models) for models in (given, made))
    same = 0
    for seed in range(10):
        parents = [layer.preds for layer in random_network(30, 4, seed=seed).layers]
        orders = [policy_order(parents, [1] * 30, models=(one[0], one[1])) for one in (first, second)]
        same += orders[0] == orders[1]
    assert same >= 8


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fewer_graphs: None) -> Iterator[Path]:
    monkeypatch.setattr(quantise, "PACKAGE", tmp_path)
    monkeypatch.setattr(respect_policy, "files", lambda _: tmp_path)
    respect_policy.sessions.cache_clear()
    yield tmp_path
    respect_policy.sessions.cache_clear()


def test_what_is_written_is_the_same_each_time_and_is_read(shipped: Path) -> None:
    given = export(weights())
    first = {path.name: path.read_bytes() for path in quantise.ship(*given)}
    assert {path.name: path.read_bytes() for path in quantise.ship(*given)} == first
    assert set(first) == {"respect_encoder.onnx.gz", "respect_decoder.onnx.gz"}
    for data in first.values():
        onnx.checker.check_model(onnx.load_from_string(gzip.decompress(data)), full_check=True)
    assert sorted(policy_order([(), (0,), (0,), (1, 2)], [1, 2, 3, 4])) == [0, 1, 2, 3]


def test_choices_are_compared_step_by_step(shipped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = export(weights())
    quantise.ship(*given)
    encoder, decoder = (
        quantise._Both(session(one.SerializeToString()), other)
        for one, other in zip(export(weights(seed=9)), respect_policy.sessions(), strict=True)
    )
    parents = [layer.preds for layer in random_network(60, 4, seed=0).layers]
    policy_order(parents, [1] * 60, models=(encoder, decoder))
    assert 0 < decoder.others < decoder.choices
