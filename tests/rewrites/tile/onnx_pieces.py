"""Judges deduced ranges in ONNX Runtime: a piece computed from its deduced inputs against the slice of the whole."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from memsched.formats.module import LoadOptions
from memsched.formats.onnx import reader
from memsched.graph.model import Graph, Op, Region
from memsched.ops.geometry import described
from memsched.ops.ranges import PieceNeeds, WeightSlice, deduce
from memsched.ops.rules import Refusal
from tests.rewrites.tile.onnx_layer import Layer
from tests.rewrites.tile.onnx_layers import random_layer

Array = Any
PADDED = {"Conv", "QLinearConv", "MaxPool", "AveragePool", "LpPool", "ConvTranspose"}


@dataclass
class Verdict:
    """What was found: pieces equal and refused, layers, and a line per failure."""

    layers: int = 0
    pieces: int = 0
    equal: int = 0
    refused: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def add(self, other: Verdict) -> None:
        self.layers += other.layers
        self.pieces += other.pieces
        self.equal += other.equal
        self.refused += other.refused
        self.kinds += other.kinds
        self.reasons += other.reasons
        self.failures += other.failures


def judge(seed: int, count: int, pieces: int = 3, layers: Sequence[Layer] | None = None) -> Verdict:
    """Judge ``count`` random layers, or those given, with ``pieces`` random regions each."""
    r = random.Random(seed)
    verdict = Verdict()
    by_opset: dict[int, list[Layer]] = {}
    for layer in layers if layers is not None else [random_layer(r) for _ in range(count)]:
        by_opset.setdefault(layer.opset, []).append(layer)
    for opset, some in sorted(by_opset.items()):
        verdict.add(_judge(r, opset, some, pieces))
    return verdict


def _judge(r: random.Random, opset: int, layers: Sequence[Layer], count: int) -> Verdict:
    whole = Model(opset)
    for number, layer in enumerate(layers):
        whole.add(layer, f"L{number}_")
    results = whole.run()
    graph = reader.read(whole.bytes(shapes=results), "whole.onnx", LoadOptions()).graphs[0]
    op_of = {op.name: index for index, op in enumerate(graph.ops)}
    verdict, parts = Verdict(layers=len(layers)), Model(opset)
    expected: dict[str, tuple[Layer, Array, PieceNeeds, Region]] = {}
    for number, layer in enumerate(layers):
        result = results[f"L{number}_y"]
        verdict.kinds[layer.kind] += 1
        for piece in range(count if result.size else 0):
            region = random_region(r, result.shape)
            found = deduced(graph, op_of[f"L{number}_"], region)
            verdict.pieces += 1
            if isinstance(found, Refusal):
                verdict.refused += 1
                verdict.reasons[f"{layer.kind}: {found.code}"] += 1
                continue
            prefix = f"P{number}_{piece}_"
            parts.add(piece_of(layer, graph.ops[op_of[f"L{number}_"]], found, region), prefix)
            slices = tuple(slice(start, stop) for start, stop in region.ranges)
            expected[f"{prefix}y"] = (layer, result[slices], found, region)
    for name, value in parts.run().items():
        layer, wanted, found, region = expected[name]
        ends = zip(value.shape, found.crop, strict=True)
        part = value[tuple(slice(low, size - high) for size, (low, high) in ends)]
        same = part.shape == wanted.shape and (
            np.array_equal(part, wanted) if layer.exact else np.allclose(part, wanted, 1e-5, 1e-5)
        )
        verdict.equal += same
        if not same:
            shapes = {name: array.shape for name, array in (layer.data | layer.constants).items()}
            verdict.failures.append(f"{layer.kind} {layer.attributes} {shapes} opset {opset} {region} -> {found}")
    return verdict


def deduced(graph: Graph, op: int, region: Region) -> PieceNeeds | Refusal:
    """Return what a piece needs, whatever the table of cuts says of it: here all numbers are whole and finite."""
    geometry = described(graph, op)
    return geometry if isinstance(geometry, Refusal) else deduce(geometry, graph.ops[op], region)


def random_region(r: random.Random, shape: tuple[int, ...]) -> Region:
    """Return a part that is mostly whole on some axes, and often begins or ends with the tensor."""
    ranges = []
    for size in shape:
        start, stop = 0, size
        if r.random() < 0.6:
            start = r.randrange(size) if r.random() < 0.7 else 0
            stop = r.randint(start + 1, size) if r.random() < 0.7 else size
        ranges.append((start, stop))
    return Region(tuple(ranges))


# From what is needed to a node ------------------------------------------------------------------------------------


def piece_of(layer: Layer, op: Op, needed: PieceNeeds, region: Region) -> Layer:
    """Return the layer of a piece: operands cut, and what the op's own words for pads and shapes become."""
    kept = {name: value for name, value in layer.attributes.items() if name not in {"auto_pad", "output_shape"}}
    piece = Layer(layer.kind, attributes=kept, opset=layer.opset, domain=layer.domain)
    attributes = dict(needed.attributes)
    pads = next((one.pads for one in needed.inputs if one.region is not None), ())
    if layer.kind in PADDED:
        spatial = pads[2:]
        piece.attributes["pads"] = [pair[0] for pair in spatial] + [pair[1] for pair in spatial]
    computed = [stop - start for start, stop in needed.computed(region).ranges]
    entries = dict(zip(op.positions, needed.inputs, strict=True))
    for position, name in enumerate(layer.inputs):
        entry = entries.get(position)
        if not name:
            piece.skip()
        elif name in layer.data:
            assert entry is not None
            if entry.region is not None:
                part = layer.data[name][tuple(slice(start, stop) for start, stop in entry.region.ranges)]
                piece.give(np.asarray(part))  # a scalar's part is no array
        else:
            array = _constant(layer, position, layer.constants[name], needed.weights)
            if array is not None:
                piece.state(_shape_operand(layer, position, array, pads, computed, attributes))
    if layer.kind in {"Conv", "QLinearConv", "ConvTranspose"}:
        piece.attributes.update(attributes)
    return piece


def _constant(layer: Layer, position: int, array: Array, weights: Sequence[WeightSlice]) -> Array | None:
    for one in weights:
        if one.position == position:
            if one.start == one.stop:
                return None
            array = np.take(array, range(one.start, one.stop), one.axis)
    return array


def _shape_operand(
    layer: Layer,
    position: int,
    array: Array,
    pads: Sequence[tuple[int, int]],
    computed: Sequence[int],
    attributes: dict[str, Any],
) -> Array:
    if layer.kind == "Pad" and position == 1:
        last = layer.constants.get("c3")
        axes = range(len(pads)) if last is None else [int(axis) for axis in last]
        return np.array([pads[axis][0] for axis in axes] + [pads[axis][1] for axis in axes], np.int64)
    if layer.kind in {"Reshape", "Expand"} and position == 1:
        return np.array(computed, np.int64)
    if layer.kind == "Resize" and position == 3:
        return np.array([computed[axis] for axis in layer.attributes.get("axes", range(len(computed)))], np.int64)
    if layer.kind == "Slice":
        name = ("", "starts", "ends", "axes", "steps")[position]
        return np.array(attributes[name], np.int64)
    return array


class Model:
    """Many layers side by side in one model."""

    def __init__(self, opset: int) -> None:
        self.opset = opset
        self.nodes: list[Any] = []
        self.inputs: list[Any] = []
        self.initializers: list[Any] = []
        self.feeds: dict[str, Array] = {}

    def add(self, layer: Layer, prefix: str) -> None:
        names = [prefix + name if name else "" for name in layer.inputs]
        node = helper.make_node(layer.kind, names, [f"{prefix}y"], prefix, domain=layer.domain, **layer.attributes)
        self.nodes.append(node)
        for name, array in layer.data.items():
            self.inputs.append(
                helper.make_tensor_value_info(
                    prefix + name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape)
                )
            )
            self.feeds[prefix + name] = array
        for name, array in layer.constants.items():
            self.initializers.append(numpy_helper.from_array(np.asarray(array), prefix + name))

    def link(self, layer: Layer, output: str) -> None:
        """Add a layer that reads tensors of other layers by their names."""
        self.nodes.append(helper.make_node(layer.kind, layer.inputs, [output], output, **layer.attributes))
        self.initializers += [numpy_helper.from_array(array, name) for name, array in layer.constants.items()]

    def give(self, name: str, array: Array) -> None:
        """Add a graph input."""
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(array.shape)))
        self.feeds[name] = array

    def bytes(self, shapes: dict[str, Array] | None = None) -> bytes:
        outputs = [helper.make_empty_tensor_value_info(node.output[0]) for node in self.nodes]
        if shapes is not None:
            outputs = [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), list(array.shape))
                for name, array in shapes.items()
            ]
        graph = helper.make_graph(self.nodes, "layers", self.inputs, outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9)
        return bytes(model.SerializeToString())

    def run(self) -> dict[str, Array]:
        if not self.nodes:
            return {}
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(self.bytes(), options, providers=["CPUExecutionProvider"])
        names = [node.output[0] for node in self.nodes]
        return dict(zip(names, session.run(names, self.feeds), strict=True))
