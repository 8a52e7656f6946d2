"""Small models that identities can be applied to, what they become, and how they are run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from memsched.check.algebra import check_algebra
from memsched.formats.files import load_module
from memsched.formats.known import format_of
from memsched.formats.module import LoadOptions, Module
from memsched.graph.dag import validate
from memsched.graph.identity import Identity
from memsched.plan.rewrite import dialect_of, read_back
from memsched.rewrites.algebra.apply import applied, identities
from memsched.rewrites.algebra.draft import AlgebraDraft
from memsched.targets.load import load_target
from tests.formats.tflite_builder import O, Sub, T, build

RNG = np.random.default_rng(3)

POINTWISE = ("Relu", "Sigmoid", "Tanh", "Abs", "Neg")


_MOVED = ("turned", "flat", "rounded", "spread")


class OnnxNet:
    """Appends nodes to a model with input x."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.shapes: dict[str, tuple[int, ...]] = {"x": tuple(shape)}
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, values: Any) -> str:
        """Add a constant, and return its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def add(self, kind: str, reads: Sequence[str], shape: Sequence[int], **attributes: Any) -> str:
        """Add a node, and return what it makes."""
        made = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(reads), [made], f"n{len(self.nodes)}", **attributes))
        self.shapes[made] = tuple(shape)
        return made

    def pad(self, read: str, before: int, after: int) -> str:
        """Pad rows and columns."""
        batch, channels, height, width = self.shapes[read]
        pads = self.constant(np.array([0, 0, before, before, 0, 0, after, after], dtype=np.int64))
        return self.add("Pad", [read, pads], (batch, channels, height + before + after, width + before + after))

    def crop(self, read: str, first: int, last: int, step: int = 1) -> str:
        """Leave rows and columns out."""
        batch, channels, height, width = self.shapes[read]
        words = ([first] * 2, [height - last, width - last], [2, 3], [step] * 2)
        sides = (len(range(first, size - last, step)) for size in (height, width))
        given = [self.constant(np.array(one, dtype=np.int64)) for one in words]
        return self.add("Slice", [read, *given], (batch, channels, *sides))

    def pool(self, read: str, kernel: int = 1, stride: int = 2, kind: str = "AveragePool") -> str:
        """Take the mean or the largest of windows."""
        batch, channels, height, width = self.shapes[read]
        sides = ((size - kernel) // stride + 1 for size in (height, width))
        words = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
        return self.add(kind, [read], (batch, channels, *sides), **words)

    def conv(self, read: str, made: int, kernel: int = 3, group: int = 1) -> str:
        """Convolve with padding that keeps the sides."""
        batch, channels, *sides = self.shapes[read]
        weights = self.constant(RNG.normal(size=(made, channels // group, kernel, kernel)).astype(np.float32))
        bias = self.constant(RNG.normal(size=made).astype(np.float32))
        words = {"kernel_shape": [kernel] * 2, "pads": [kernel // 2] * 4, "group": group}
        return self.add("Conv", [read, weights, bias], (batch, made, *sides), **words)

    def join(self, reads: Sequence[str]) -> str:
        """Concatenate along channels."""
        batch, _, *sides = self.shapes[reads[0]]
        return self.add("Concat", reads, (batch, sum(self.shapes[read][1] for read in reads), *sides), axis=1)

    def same(self, kind: str, *reads: str) -> str:
        """Add a node that makes the shape that it reads."""
        return self.add(kind, reads, self.shapes[reads[0]])

    def twice(self, read: str) -> str:
        """Repeat rows and columns."""
        batch, channels, height, width = self.shapes[read]
        scales = self.constant(np.array([1, 1, 2, 2], dtype=np.float32))
        words = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return self.add("Resize", [read, "", scales], (batch, channels, 2 * height, 2 * width), **words)

    def turned(self, read: str) -> str:
        """Exchange rows and columns."""
        batch, channels, height, width = self.shapes[read]
        return self.add("Transpose", [read], (batch, channels, width, height), perm=[0, 1, 3, 2])

    def flat(self, read: str) -> str:
        """Lay rows of each channel behind one another, and back."""
        shape = self.shapes[read]
        made = read
        for sides in ((*shape[:2], -1), shape):
            wanted = self.constant(np.array(sides, dtype=np.int64))
            made = self.add("Reshape", [made, wanted], (*shape[:2], shape[2] * shape[3]) if -1 in sides else shape)
        return made

    def rounded(self, read: str, between: Sequence[str] = ()) -> str:
        """Quantise to a byte each and back; ``between`` are methods for what lies between."""
        scale, zero = self.constant(np.float32(0.05)), self.constant(np.uint8(100))
        made = self.add("QuantizeLinear", [read, scale, zero], self.shapes[read])
        for name in between:
            made = getattr(self, name)(made)
        return self.add("DequantizeLinear", [made, scale, zero], self.shapes[made])

    def spread(self, read: str) -> str:
        """Repeat the mean of each channel in all rows and columns."""
        shape = self.shapes[read]
        mean = self.pool(read, shape[2], 1)
        return self.add("Expand", [mean, self.constant(np.array(shape, dtype=np.int64))], shape)

    def data(self, *outputs: str) -> bytes:
        """Return the model's file."""
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, self.shapes[name]) for name in ("x", *outputs)]
        graph = helper.make_graph(self.nodes, "net", values[:1], values[1:], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())


def random_net(seed: int) -> bytes:
    """Return a model of 8 to 16 nodes that pads, crops, joins, repeats and convolves."""
    rng = random.Random(seed)
    net = OnnxNet((1, rng.randint(1, 3), 9, 9))
    made = ["x"]
    for _ in range(rng.randint(8, 16)):
        read = rng.choice(made[-3:])
        channels, height = net.shapes[read][1:3]
        kind = rng.choice(("element", "twin", "pad", "crop", "pool", "join", "conv", "depthwise", "twice", *_MOVED))
        alike = [one for one in made if net.shapes[one][2:] == net.shapes[read][2:]]
        if kind in {"element", "twin"}:
            made += [net.same(rng.choice(POINTWISE), read) for _ in range(1 if kind == "element" else 2)]
            if kind == "twin":
                made.append(net.same("Add", *made[-2:]))
        elif kind == "pad":
            made.append(net.pad(read, rng.randint(0, 1), rng.randint(0, 2)))
        elif kind == "crop" and height > 4:
            made.append(net.crop(read, rng.randint(0, 1), rng.randint(0, 1), rng.choice((1, 1, 2))))
        elif kind == "pool" and height > 3:
            made.append(net.pool(read, rng.choice((1, 1, 2)), 2, rng.choice(("AveragePool", "MaxPool"))))
        elif kind == "join" and channels < 12:
            made.append(net.join([read, *(rng.choice(alike) for _ in range(rng.randint(1, 2)))]))
        elif kind == "conv":
            made.append(net.conv(read, rng.randint(1, 4)))
        elif kind == "depthwise":
            made.append(net.conv(read, channels, group=channels))
        elif kind == "twice" and height < 10:
            made.append(net.twice(read))
        elif kind == "rounded":
            made.append(net.rounded(read, rng.choices(("turned", "flat"), k=rng.randint(0, 2))))
        elif kind in _MOVED:
            made.append(getattr(net, kind)(read))
    return net.data(*dict.fromkeys(one for one in (made[-1], made[-2]) if one != "x"))


def tflite_net() -> bytes:
    """Return a float model: a row of pad, crop and subsampling, equal ops, and a join that ReLU and Conv read."""
    pool, crop, join = schema.Pool2DOptionsT(), schema.StridedSliceOptionsT(), schema.ConcatenationOptionsT()
    pool.padding, pool.strideH, pool.strideW, pool.filterHeight, pool.filterWidth = 1, 2, 2, 1, 1
    conv = schema.Conv2DOptionsT()
    conv.padding, conv.strideH, conv.strideW, conv.fusedActivationFunction = 0, 1, 1, 1
    conv.dilationHFactor = conv.dilationWFactor = 1
    join.axis = 3

    def numbers(*values: int) -> bytes:
        return np.array(values, dtype=np.int32).tobytes()

    tensors = [
        *(T("x", (1, 7, 7, 2)), T("a", (1, 7, 7, 2)), T("b", (1, 7, 7, 2))),
        T("paddings", (4, 2), "INT32", data=numbers(0, 0, 0, 1, 0, 1, 0, 0)),
        *(T("padded", (1, 8, 8, 2)), T("begin", (4,), "INT32", data=numbers(0, 1, 1, 0))),
        *(T("end", (4,), "INT32", data=numbers(1, 8, 8, 2)), T("steps", (4,), "INT32", data=numbers(1, 1, 1, 1))),
        *(T("cropped", (1, 7, 7, 2)), T("small", (1, 4, 4, 2)), T("other", (1, 4, 4, 2))),
        *(T("joined", (1, 4, 4, 4)), T("r", (1, 4, 4, 4))),
        *(T("w", (3, 3, 3, 4), data=RNG.normal(size=(3, 3, 3, 4)).astype("<f4").tobytes()),),
        *(T("v", (3,), data=RNG.normal(size=3).astype("<f4").tobytes()), T("y", (1, 4, 4, 3))),
    ]
    ops = [
        *(O("RELU", [0], [1]), O("RELU", [0], [2])),
        *(O("PAD", [1, 3], [4]), O("STRIDED_SLICE", [4, 5, 6, 7], [8], crop), O("AVERAGE_POOL_2D", [8], [9], pool)),
        O("AVERAGE_POOL_2D", [2], [10], pool),
        *(O("CONCATENATION", [9, 10], [11], join), O("TANH", [11], [12]), O("CONV_2D", [12, 13, 14], [15], conv)),
    ]
    return build(Sub(tensors=tensors, ops=ops, outputs=[15]))


def drafted(data: bytes) -> tuple[Module, AlgebraDraft]:
    """Return a model, and its graph before any identity."""
    module = load_module(data, "net", LoadOptions())
    names, _ = format_of(module).constants_read(module)
    constants = {op.name: tuple(read) for op, read in zip(module.graphs[0].ops, names, strict=True)}
    target = load_target("onnxruntime" if module.format == "onnx" else "tflm")
    return module, AlgebraDraft(module.graphs[0], dialect_of(module, target), constants)


def closed(draft: AlgebraDraft, kinds: Sequence[str], rounds: int = 3) -> tuple[AlgebraDraft, list[Identity]]:
    """Return a graph with all identities of these kinds, checked one by one, and these."""
    way: list[Identity] = []
    draft, given = replace(draft, sums="sum" in kinds), draft.graph
    for _ in range(rounds):
        before = len(way)
        for one in [one for one in identities(draft) if one.kind in kinds]:
            further = applied(draft, one)
            if further is not None:
                validate(further.graph)
                check_algebra(given, further.graph, draft.constants)
                draft, way = further, [*way, one]
        if len(way) == before:
            break
    return draft, way


def written(module: Module, draft: AlgebraDraft) -> bytes:
    """Return the file of what a model became."""
    target = load_target("onnxruntime" if module.format == "onnx" else "tflm")
    return read_back(module, draft.graph, LoadOptions(), target, proven=True)[1]


def onnx_outputs(data: bytes, seed: int = 0) -> list[Any]:
    """Return what ONNX Runtime makes of random inputs, without optimising anything."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(seed)
    feeds = {one.name: rng.normal(size=one.shape).astype(np.float32) for one in session.get_inputs()}
    return list(session.run(None, feeds))


def tflite_outputs(data: bytes, seed: int = 0) -> list[Any]:
    """Return what LiteRT makes of random inputs, without a delegate."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    resolver = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    (given,) = interpreter.get_input_details()
    rng = np.random.default_rng(seed)
    interpreter.set_tensor(given["index"], rng.normal(size=given["shape"]).astype(np.float32))
    interpreter.invoke()
    return [interpreter.get_tensor(one["index"]) for one in interpreter.get_output_details()]
