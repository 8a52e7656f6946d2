"""Give a model of `scripts.networks`, whose weight tensors are one number each, weights that make its outputs vary.

    python -m scripts.networks.random_weights models/networks/transformer.onnx -o transformer_random.onnx

Only then do equal outputs say something of how the model was rewritten. Files get as large as the weights are.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

__all__ = ["randomised"]

_LEARNED = {"Add", "BatchNormalization", "Conv", "ConvTranspose", "Gemm", "LayerNormalization", "MatMul", "Mul"}
"""Operators whose constants are learned; those of others say what is to be done."""

_MADE = {"ConstantOfShape", "Expand"}
"""Operators that make weights of constants; their last input is the shape."""


def randomised(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """Return ``model`` with random float32 weights, of a size that keeps magnitudes from layer to layer."""
    draws = np.random.default_rng(seed)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    known = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    learned = {name for node in graph.node if node.op_type in _LEARNED for name in node.input}
    for one in graph.initializer:
        value = known[one.name]
        if one.name in learned and value.dtype == np.float32 and value.size > 1:
            # Scales, variances and biases stay near what they are.
            drawn = value + 0.01 * draws.standard_normal(value.shape)
            one.CopyFrom(numpy_helper.from_array(drawn.astype(np.float32), one.name))
    shaped = {
        node.output[0]: known[node.input[-1]]
        for node in graph.node
        if node.op_type in _MADE and all(name in known for name in node.input)
    }
    kept = [node for node in graph.node if node.output[0] not in shaped]
    del graph.node[:]
    graph.node.extend(kept)
    for name, shape in shaped.items():
        graph.initializer.append(numpy_helper.from_array(_weights(draws, [int(length) for length in shape]), name))
    return result


def _weights(draws: np.random.Generator, shape: list[int]) -> NDArray[np.float32]:
    # Convolutions sum over all but the first axis, matrix products over the first.
    terms = int(np.prod(shape[1:])) if len(shape) > 2 else shape[0]
    weights: NDArray[np.float32] = draws.standard_normal(shape, dtype=np.float32) / np.float32(np.sqrt(terms))
    return weights


def main() -> int:
    """Write the model that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    data = randomised(onnx.load(args.model), args.seed).SerializeToString(deterministic=True)
    args.output.write_bytes(data)
    print(f"{args.output}: {len(data):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
