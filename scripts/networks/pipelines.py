"""Networks for measurements of pipelines: the ten of RESPECT as Keras has them, and random DAGs.

`tests/data/keras_layers` holds a row per layer: name, type, parameters, elements of its output, and the layers before.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from memsched.graph.stages import Layer, LayerValue, Network

__all__ = ["NETWORKS", "keras_network", "random_network"]

NETWORKS = (
    "Xception", "ResNet50", "ResNet101", "ResNet152", "DenseNet121", "ResNet101V2", "ResNet152V2", "DenseNet169",
    "DenseNet201", "InceptionResNetV2",
)  # fmt: skip
"""In the order of RESPECT, Table I."""

_FOLDER = Path(__file__).parents[2] / "tests" / "data" / "keras_layers"

_SAME_PLACES = {"Activation", "BatchNormalization", "Add", "CustomScaleLayer", "Concatenate"}
"""Layers whose output has the height and width of their inputs."""

_INPUT = "InputLayer"
_COMPUTES = {"Conv2D", "SeparableConv2D", "Dense"}


class _Row(NamedTuple):
    name: str
    type: str
    parameters: int
    elements: int
    preds: list[int]


def keras_network(name: str) -> Network:
    """Return one of `NETWORKS` with 8-bit parameters and values: a byte for each, the state of batch norms included.

    Multiply-accumulates are parameters x places of the output (a bias counts as one). Places are elements over
    channels, which batch norms tell: they have four parameters per channel, or three without a scale.
    """
    rows = [_Row(*row) for row in json.loads((_FOLDER / f"{name}.json").read_text(encoding="utf-8"))["layers"]]
    places = _places(rows, 3 if name == "InceptionResNetV2" else 4)
    macs = [
        row.parameters * (1 if row.type == "Dense" else count) if row.type in _COMPUTES else 0
        for row, count in zip(rows, places, strict=True)
    ]
    return _network(name, rows, macs)


def random_network(nodes: int, degree: int, *, seed: int, reach: int = 8) -> Network:
    """Return a random DAG, in which at least one layer reads ``degree`` others and none reads more.

    Each layer reads those among the ``reach`` before it that nobody has read when they fall out of reach, and others by
    chance. Half of the layers have parameters, more of them the later they come, as in networks; outputs shrink.
    """
    rng = random.Random(f"{nodes} {degree} {seed}")
    preds: list[list[int]] = [[]]
    unread = {0}
    for node in range(1, nodes):
        near = range(max(0, node - reach), node)
        wanted = min(node, degree if node == nodes // 2 else rng.choice([1] * degree + list(range(1, degree + 1))))
        chosen = set(sorted(before for before in unread if before <= node - reach)[:degree])
        rest = [before for before in near if before not in chosen]
        # Those just before it are the likelier, so that most layers form chains.
        while len(chosen) < wanted and rest:
            before = rest[-1] if rng.random() < 0.5 else rng.choice(rest)
            rest.remove(before)
            chosen.add(before)
        preds.append(sorted(chosen))
        unread = unread - chosen | {node}
    rows = [
        _Row(
            f"layer_{node}",
            "Random" if node else _INPUT,
            round(1000 * (1 + 9 * node / nodes) ** 2 * rng.lognormvariate(0.0, 0.8)) if rng.random() < 0.5 else 0,
            max(1, round(100_000 * rng.lognormvariate(0.0, 0.5) / (1 + 9 * node / nodes))),
            befores,
        )
        for node, befores in enumerate(preds)
    ]
    return _network(f"random-{nodes}-{degree}-{seed}", rows, [200 * row.parameters for row in rows])


def _network(name: str, rows: Sequence[_Row], macs: Sequence[int]) -> Network:
    """Return a network whose layers have one output and at most one constant each; the first hands on the input."""
    readers: list[list[int]] = [[] for _ in rows]
    for layer, row in enumerate(rows):
        for before in row.preds:
            readers[before].append(layer)
    holders = [layer for layer, row in enumerate(rows) if row.parameters]
    number = {layer: index for index, layer in enumerate(holders)}
    return Network(
        name,
        tuple(
            Layer(row.name, row.type, (number[layer],) if layer in number else (), macs[layer], tuple(row.preds))
            for layer, row in enumerate(rows)
        ),
        (
            LayerValue("given", rows[0].elements, -1, (0,)),
            *(
                LayerValue(row.name, row.elements, layer, tuple(readers[layer]), not readers[layer])
                for layer, row in enumerate(rows)
            ),
        ),
        tuple(rows[layer].parameters for layer in holders),
    )


def _places(rows: Sequence[_Row], per_channel: int) -> list[int]:
    """Return height x width of each layer's output as far as it matters, which is for convolutions."""
    parents = list(range(len(rows)))

    def root(layer: int) -> int:
        while parents[layer] != layer:
            layer = parents[layer]
        return layer

    for layer, row in enumerate(rows):
        if row.type in _SAME_PLACES:
            for before in row.preds:
                parents[root(layer)] = root(before)
    known = {
        root(layer): row.elements * per_channel // row.parameters
        for layer, row in enumerate(rows)
        if row.type == "BatchNormalization"
    }
    result: list[int] = []
    for layer, row in enumerate(rows):
        # Without a batch norm behind it: the 1x1 convolution before a pooling, or the first one, with a stride of 2.
        before = result[row.preds[0]] if row.preds else 0
        result.append(known.get(root(layer), before or rows[0].elements // 3 // 4))
    return result
