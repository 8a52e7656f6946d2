"""The policy in few bits: `python -m scripts.respect.quantise FOLDER` makes of two 32-bit ONNX models what ships.

Weights are multiples of a step, one step for each matrix. A row's weights are rounded one after the other, and what one
loses is made up for by those that are still to be rounded, so that the row's products with the vectors that the policy
meets change the least (Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", section 3). Those vectors are met on graphs like those of the training, some of them larger.

`--compare` rounds nothing: it counts decisions in which the shipped policy differs from the 32-bit one.
"""

from __future__ import annotations

import argparse
import random
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from memsched.features.pipeline.condense import condense, parameters_of
from memsched.features.pipeline.respect import cut_order
from memsched.features.pipeline.respect_embedding import WIDTH
from memsched.features.pipeline.respect_policy import policy_order, session, sessions
from memsched.graph.stages import Constraints, Network
from scripts.networks.pipelines import NETWORKS, keras_network, random_network
from scripts.respect.graphs import random_graph

__all__ = ["quantised", "rounded", "ship"]

Floats = NDArray[np.floating[Any]]

PACKAGE = Path(__file__).parents[2] / "memsched" / "features" / "pipeline"
GRAPHS = 120
NODES = (30, 30, 100, 300)
SEED = 5

STEPS = {"encoder_W": 0.002, "decoder_W": 0.002, "decoder_R": 0.21}
"""Steps in standard deviations of the matrix; small where little can make up for what rounding loses."""

OTHER_STEP = 0.23
DAMPING = 1e-4
"""Of the mean square of a vector's numbers: how much the directions count that were never met."""

READ = {
    "encoder": {
        "encoder_W": ("embeddings", False),
        "encoder_R": ("all", True),
        "glimpse_weight": ("contexts", False),
        "pointer_weight": ("contexts", False),
    },
    "decoder": {
        "decoder_W": ("inputs", False),
        "decoder_R": ("states", True),
        "glimpse_weight": ("next_hidden", False),
        "pointer_weight": ("glimpse", False),
    },
}
"""Matrix to the value that it is multiplied with, and whether that is an LSTM's state of a step before."""


def ship(encoder: onnx.ModelProto, decoder: onnx.ModelProto) -> list[Path]:
    """Write respect_encoder.onnx.gz and respect_decoder.onnx.gz into the package and return where."""
    paths = []
    for name, model in zip(READ, quantised(encoder, decoder), strict=True):
        # What is left are bytes without repetitions: codes of their own lengths are all that helps. No time is kept.
        packer = zlib.compressobj(9, zlib.DEFLATED, 31, 9, zlib.Z_HUFFMAN_ONLY)
        paths.append(PACKAGE / f"respect_{name}.onnx.gz")
        paths[-1].write_bytes(packer.compress(model.SerializeToString(deterministic=True)) + packer.flush())
    return paths


def quantised(encoder: onnx.ModelProto, decoder: onnx.ModelProto) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """Return both models with the matrices in steps; all else stays in 32 bits."""
    squares = _squares(encoder, decoder)
    first, second = (_in_steps(model, squares[name]) for name, model in zip(READ, (encoder, decoder), strict=True))
    return first, second


def rounded(rows: Floats, squares: Floats, step: float) -> NDArray[np.int16]:
    """Return multiples of ``step`` near ``rows`` with which products with the vectors met are nearly the same.

    Args:
        rows: [row, column].
        squares: [column, column]: mean of the outer product of each vector with itself.
        step: What the numbers returned are to be multiplied with.
    """
    size = len(squares)
    damped = squares + DAMPING * np.trace(squares) / size * np.eye(size)
    # Columns with much weight come first, while there are many left to make up for them.
    sequence = np.argsort(-np.diag(damped), kind="stable")
    inverse = np.linalg.cholesky(np.linalg.inv(damped[np.ix_(sequence, sequence)])).T
    left = rows[:, sequence].astype(np.float64)
    found = np.zeros(rows.shape, np.int16)
    for place, column in enumerate(sequence):
        found[:, column] = np.rint(left[:, place] / step)
        lost = (left[:, place] - found[:, column] * step) / inverse[place, place]
        left[:, place:] -= np.outer(lost, inverse[place, place:])
    return found


def _in_steps(model: onnx.ModelProto, squares: Mapping[str, Floats]) -> onnx.ModelProto:
    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, nodes = made.graph, []
    for tensor in list(graph.initializer):
        if tensor.name not in squares:
            continue
        name, weights = tensor.name, numpy_helper.to_array(tensor)
        # An LSTM's matrices are [direction, row, column]; the others are transposed for MatMul.
        rows = weights[0] if weights.ndim == 3 else weights.T
        step = np.float32(STEPS.get(name, OTHER_STEP) * weights.std())
        whole = rounded(rows, squares[name], float(step))
        small = whole.astype(np.int8) if np.abs(whole).max() < 128 else whole
        graph.initializer.remove(tensor)
        graph.initializer.append(
            numpy_helper.from_array(
                np.ascontiguousarray(small[None] if weights.ndim == 3 else small.T), f"{name}_steps"
            )
        )
        graph.initializer.append(numpy_helper.from_array(np.array(step), f"{name}_step"))
        # Constants: ONNX Runtime computes them once, when the session is made.
        nodes += [
            helper.make_node("Cast", [f"{name}_steps"], [f"{name}_counts"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"{name}_counts", f"{name}_step"], [name]),
        ]
    others = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *others])
    onnx.checker.check_model(made, full_check=True)
    return made


class _Watched:
    """A session that adds up the outer products of what its matrices are multiplied with."""

    def __init__(self, name: str, model: onnx.ModelProto) -> None:
        watched = onnx.ModelProto()
        watched.CopyFrom(model)
        self._outputs = [one.name for one in model.graph.output]
        self._inputs = {one.name for one in model.graph.input}
        for node in watched.graph.node:
            if node.op_type == "LSTM" and not node.output[0]:
                node.output[0] = "states"
        self._read = READ[name]
        self._extra = sorted({value for value, _ in self._read.values()} - self._inputs - set(self._outputs))
        watched.graph.output.extend(helper.make_empty_tensor_value_info(one) for one in self._extra)
        self._session = session(watched.SerializeToString())
        self.sums: dict[str, Floats] = {}
        self.counts: dict[str, int] = {}

    def run(self, _: None, feeds: Mapping[str, Floats]) -> list[Any]:
        found: list[Any] = self._session.run([*self._outputs, *self._extra], dict(feeds))
        values = {**feeds, **dict(zip([*self._outputs, *self._extra], found, strict=True))}
        for name, (value, before) in self._read.items():
            vectors = values[value].reshape(-1, values[value].shape[-1]).astype(np.float64)
            if before:
                start = feeds["hidden"] if "hidden" in feeds else np.zeros_like(vectors[:1])
                vectors = np.concatenate((start, vectors[:-1]))
            self.sums[name] = self.sums.get(name, 0) + vectors.T @ vectors
            self.counts[name] = self.counts.get(name, 0) + len(vectors)
        return found[: len(self._outputs)]


def _squares(encoder: onnx.ModelProto, decoder: onnx.ModelProto) -> dict[str, dict[str, Floats]]:
    """Return per model and matrix the mean outer product of the vectors that it is multiplied with."""
    watched = {name: _Watched(name, model) for name, model in zip(READ, (encoder, decoder), strict=True)}
    rng = random.Random(SEED)
    for _ in range(GRAPHS):
        graph = random_graph(rng, rng.choice(NODES), rng.randint(2, 6))
        policy_order(graph.parents, graph.memory, models=(watched["encoder"], watched["decoder"]))
    return {name: {key: one.sums[key] / one.counts[key] for key in one.sums} for name, one in watched.items()}


class _Both:
    """Two policies side by side: vectors of both in a row, the first one's choices, and how many the second shares."""

    def __init__(self, first: Any, second: Any) -> None:
        self._first, self._second = first, second
        self.choices = self.others = 0

    def run(self, _: None, feeds: Mapping[str, Floats]) -> list[Any]:
        """Run both models, be they encoders or decoders."""
        single = {name: value for name, value in feeds.items() if name in {"embeddings", "inputs"}}
        halves = {name: np.split(value, 2, axis=-1) for name, value in feeds.items() if name not in single}
        ours, theirs = (
            model.run(None, {**single, **{name: np.ascontiguousarray(half[at]) for name, half in halves.items()}})
            for at, model in enumerate((self._first, self._second))
        )
        if "inputs" in feeds:
            self.choices += 1
            self.others += int(ours[0] != theirs[0])
        # The choice, and the row before the first: one of each.
        single_of = {(), (WIDTH,)}
        pairs = zip(ours, theirs, strict=True)
        return [one if one.shape[-1:] in single_of else np.concatenate((one, other), -1) for one, other in pairs]


def _compare(models: tuple[Any, Any]) -> None:
    """Print how many choices, orders and schedules of the policy differ from those of the shipped one."""
    print("| graphs | choices | differ | orders | differ | schedules | differ |")
    print("| --- " + "| ---: " * 6 + "|")
    for name, networks in _compared():
        encoder, decoder = (_Both(*pair) for pair in zip(models, sessions(), strict=True))
        orders = schedules = other_orders = other_schedules = 0
        for network, together in networks:
            for stages in (4, 5, 6):
                condensed = condense(network, Constraints(stages, children_together=together))
                if len(condensed.groups) < stages:
                    continue
                loads = parameters_of(network, condensed)
                if stages == 4:
                    policy_order(condensed.preds, loads.weights, models=(encoder, decoder))
                    found = [policy_order(condensed.preds, loads.weights, models=one) for one in (models, sessions())]
                    orders += 1
                    other_orders += found[0] != found[1]
                schedules += 1
                cuts = [cut_order(condensed, loads, order, stages) for order in found]
                other_schedules += cuts[0] != cuts[1]
        cells = (decoder.choices, decoder.others, orders, other_orders, schedules, other_schedules)
        print(f"| {name} | {' | '.join(f'{cell:,}' for cell in cells)} |", flush=True)


def _compared() -> Iterator[tuple[str, Iterator[tuple[Network, bool]]]]:
    for together in (False, True):
        rule = ", readers together" if together else ""
        yield f"the ten networks{rule}", ((keras_network(name), together) for name in NETWORKS)
    for nodes, seeds in ((30, 200), (100, 60), (300, 20), (800, 6)):
        yield f"random, {nodes} nodes", _drawn(nodes, seeds // 2)


def _drawn(nodes: int, seeds: int) -> Iterator[tuple[Network, bool]]:
    for degree in (4, 6):
        yield from ((random_network(nodes, degree, seed=seed), False) for seed in range(seeds))


def main() -> None:
    """Write what ships, or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="with respect_encoder.onnx and respect_decoder.onnx")
    parser.add_argument("--compare", action="store_true", help="count decisions that differ instead")
    asked = parser.parse_args()
    encoder, decoder = (onnx.load(asked.folder / f"respect_{name}.onnx") for name in READ)
    if asked.compare:
        _compare((session(encoder.SerializeToString()), session(decoder.SerializeToString())))
        return
    for path in ship(encoder, decoder):
        print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
