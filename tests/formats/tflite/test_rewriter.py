"""Rewritten graphs as TFLite files: pieces, helpers and copies, bit-equal in LiteRT and read back."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import numpy as np
import pytest

from memsched.base.errors import InternalError, ModelError
from memsched.check.rewrite import check_rewrite, check_written
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite import metadata as tflite_metadata
from memsched.formats.tflite import rewriter
from memsched.formats.tflite.model import parse
from memsched.formats.tflite.reader import UNUSED
from memsched.graph.model import Graph, Op, Region, Tensor
from memsched.runtimes.litert import verification as litert
from tests.failures import fails
from tests.formats.tflite_builder import MODELS, O, Sub, T, build

RNG = np.random.default_rng(11)


def floats(*shape: int) -> bytes:
    values: bytes = RNG.normal(size=shape).astype("<f4").tobytes()
    return values


def conv_options(padding: int = 1) -> Any:
    options = schema.Conv2DOptionsT()
    options.padding, options.strideH, options.strideW = padding, 1, 1
    options.dilationHFactor = options.dilationWFactor = 1
    return options


def small_net(**metadata: bytes) -> bytes:
    """x (1, 8, 6, 4) -> 3x3 VALID conv (1, 6, 4, 4) -> relu -> 1x1 conv (1, 6, 4, 6)."""
    return build(
        Sub(
            tensors=[
                T("x", (1, 8, 6, 4)),
                T("w1", (4, 3, 3, 4), data=floats(4, 3, 3, 4)),
                T("b1", (4,), data=floats(4)),
                T("a", (1, 6, 4, 4)),
                T("r", (1, 6, 4, 4)),
                T("w2", (6, 1, 1, 4), data=floats(6, 1, 1, 4)),
                T("b2", (6,), data=floats(6)),
                T("y", (1, 6, 4, 6)),
            ],
            ops=[
                O("CONV_2D", [0, 1, 2], [3], conv_options()),
                O("RELU", [3], [4]),
                O("CONV_2D", [4, 5, 6], [7], conv_options()),
            ],
            outputs=[7],
        ),
        metadata=list(metadata.items()),
    )


class Builder:
    """Appends ops and tensors to a graph that is rewritten by hand."""

    def __init__(self, module: Module) -> None:
        self.given = module.graphs[0]
        self.dialect = rewriter.dialect(module)
        self.tensors = list(self.given.tensors)
        self.ops: list[Op] = []

    def tensor(self, name: str) -> int:
        return next(i for i, tensor in enumerate(self.tensors) if tensor.name == name)

    def new(self, name: str, shape: Sequence[int], like: int) -> int:
        dtype = self.tensors[like].dtype
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        self.tensors.append(Tensor(name, size, tuple(shape), dtype))
        return len(self.tensors) - 1

    def slice(self, source: int, axis: int, begin: int, end: int, name: str) -> int:
        shape = self.tensors[source].shape
        assert shape is not None
        starts, ends = [0] * len(shape), list(shape)
        starts[axis], ends[axis] = begin, end
        made = self.new(name, [b - a for a, b in zip(starts, ends, strict=True)], source)
        attributes = self.dialect.slice_attributes(shape, starts, ends)
        self.ops.append(Op(name, "SLICE", (source,), (made,), attributes=attributes, positions=(0,)))
        return made

    def pad(self, source: int, pads: Sequence[tuple[int, int]], name: str) -> int:
        shape = self.tensors[source].shape
        assert shape is not None
        made = self.new(name, [n + a + b for n, (a, b) in zip(shape, pads, strict=True)], source)
        self.ops.append(
            Op(name, "PAD", (source,), (made,), attributes=self.dialect.pad_attributes(pads), positions=(0,))
        )
        return made

    def piece(self, origin: str, reads: int, axis: int, begin: int, end: int, valid: bool = False) -> int:
        op = next(op for op in self.given.ops if op.name == origin)
        shape = self.given.tensors[op.outputs[0]].shape
        assert shape is not None
        ranges = [(0, size) for size in shape]
        ranges[axis] = (begin, end)
        name = f"{origin}#{axis}_{begin}"
        made = self.new(name, [b - a for a, b in ranges], op.outputs[0])
        attributes = self.dialect.piece_attributes(op, ((0, 0), (0, 0))) if valid else op.attributes
        assert attributes is not None
        self.ops.append(
            replace(
                op,
                name=name,
                inputs=(reads,),
                outputs=(made,),
                origin=origin,
                region=Region(tuple(ranges)),
                attributes=attributes,
            )
        )
        return made

    def concat(self, parts: Sequence[int], axis: int, output: str) -> None:
        attributes = self.dialect.concat_attributes(axis)
        positions = tuple(range(len(parts)))
        target = (self.tensor(output),)
        name = f"{output}#concat"
        self.ops.append(Op(name, "CONCATENATION", tuple(parts), target, attributes=attributes, positions=positions))

    def keep(self, *names: str) -> None:
        self.ops += [op for op in self.given.ops if op.name in names]

    def graph(self) -> Graph:
        """Return the graph without the tensors that nothing names."""
        used = {t for op in self.ops for t in (*op.inputs, *op.outputs)} | {*self.given.inputs, *self.given.outputs}
        left = [index for index in range(len(self.tensors)) if index in used]
        place = {old: new for new, old in enumerate(left)}
        ops = tuple(
            replace(op, inputs=tuple(place[t] for t in op.inputs), outputs=tuple(place[t] for t in op.outputs))
            for op in self.ops
        )
        return replace(
            self.given,
            tensors=tuple(self.tensors[index] for index in left),
            ops=ops,
            inputs=tuple(place[t] for t in self.given.inputs),
            outputs=tuple(place[t] for t in self.given.outputs),
        )


def load(data: bytes) -> tuple[Module, Builder]:
    module = load_module(data, "given.tflite", LoadOptions())
    return module, Builder(module)


def written(module: Module, data: bytes, graph: Graph, *, atol: float = 0.0, **options: Any) -> bytes:
    """Write, read back, compare with the plan, and run both models."""
    check_rewrite(module.graphs[0], graph)
    order = list(range(len(graph.ops)))
    result = rewriter.serialize(module, graph, order, **options)
    found = load_module(result, "written.tflite", LoadOptions())
    check_written(graph, order, found.graphs[0], named=False)
    assert not [note for note in found.notes if UNUSED in note]
    verification = litert.verify(data, result, runs=2)
    assert verification.outputs_equal or (verification.max_abs_error or 1) <= atol, verification
    return result


def rows_of_small_net(build: Builder) -> None:
    parts = []
    for begin, end in ((0, 2), (2, 6)):
        made = build.slice(build.tensor("x"), 1, begin, end + 2, f"x{begin}")
        made = build.piece("a", made, 1, begin, end)
        made = build.piece("r", made, 1, begin, end)
        parts.append(build.piece("y", made, 1, begin, end))
    build.concat(parts, 1, "y")


def test_rows_in_two_pieces_compute_the_same() -> None:
    data = small_net()
    module, builder = load(data)
    rows_of_small_net(builder)
    result = parse(written(module, data, builder.graph(), atol=1e-5))
    weights = [tensor.name for tensor in result.subgraphs[0].tensors if tensor.has_data and tensor.dtype == "float32"]
    assert weights == ["w1", "b1", "w2", "b2"]  # shared, not copied
    given = len(module.native.model.buffers)
    assert [buffer.start % 16 for buffer in result.buffers[given:]] == [0] * 4


def test_what_was_made_for_the_old_subgraph_is_left_out_and_the_order_can_be_pinned() -> None:
    plan = struct.pack("<3i8i", 1, 1, 8, *range(0, 128, 16))
    data = small_net(OfflineMemoryAllocation=plan, other=b"kept")
    module, builder = load(data)
    rows_of_small_net(builder)
    result = parse(written(module, data, builder.graph(), atol=1e-5, control_dependencies=True))
    assert [name for name, _ in result.metadata] == ["other", tflite_metadata.CONTROL_DEPENDENCIES]
    edges = tflite_metadata.control_dependencies(result)
    assert edges is not None
    assert tflite_metadata.is_chain(edges[0], 9)


def test_channels_in_two_pieces_get_their_part_of_the_weights() -> None:
    data = small_net()
    module, builder = load(data)
    builder.keep("a", "r")
    parts = [builder.piece("y", builder.tensor("r"), 3, begin, end) for begin, end in ((0, 2), (2, 6))]
    builder.concat(parts, 3, "y")
    result = parse(written(module, data, builder.graph(), atol=1e-5))
    shapes = [tensor.shape for tensor in result.subgraphs[0].tensors if tensor.name.startswith(("w2/", "b2/"))]
    assert sorted(shapes) == [(2,), (2, 1, 1, 4), (4,), (4, 1, 1, 4)]


def test_weights_that_are_computed_are_in_no_pieces() -> None:
    """A DEQUANTIZE of constants is part of no graph: what it makes counts as a constant, too."""
    tensors = [T("x", (1, 8, 6, 4)), T("w8", (6, 1, 1, 4), "INT8", bytes(range(24)), scales=(0.1,))]
    tensors += [T("w", (6, 1, 1, 4)), T("b", (6,), data=floats(6)), T("y", (1, 8, 6, 6))]
    data = build(Sub(tensors, [O("DEQUANTIZE", [1], [2]), O("CONV_2D", [0, 2, 3], [4], conv_options())], [0], [4]))
    module, builder = load(data)
    builder.concat([builder.piece("y", builder.tensor("x"), 3, begin, end) for begin, end in ((0, 2), (2, 6))], 3, "y")
    with fails("cannot-cut", "'w'"):
        rewriter.serialize(module, builder.graph(), range(3))
    module, builder = load(data)
    rows = [builder.slice(builder.tensor("x"), 1, begin, end, f"x{begin}") for begin, end in ((0, 3), (3, 8))]
    parts = [builder.piece("y", one, 1, *ends) for one, ends in zip(rows, ((0, 3), (3, 8)), strict=True)]
    builder.concat(parts, 1, "y")
    written(module, data, builder.graph(), atol=1e-5)


def test_a_quantised_network_is_bit_equal_in_pieces_of_rows_and_channels() -> None:
    """The first two layers of MobileNetV2: a strided SAME convolution padded by hand, and a depthwise in two parts."""
    data = (MODELS / "mobilenetv2_035_96_int8.tflite").read_bytes()
    module, builder = load(data)
    first, second = module.graphs[0].ops[:2]
    assert (first.type, second.type) == ("CONV_2D", "DEPTHWISE_CONV_2D")
    image = builder.slice(builder.tensor(module.graphs[0].tensors[first.inputs[0]].name), 1, 0, 49, "image0")
    upper = builder.piece(first.name, builder.pad(image, ((0, 0), (0, 0), (0, 1), (0, 0)), "pad0"), 1, 0, 24, True)
    image = builder.slice(first.inputs[0], 1, 48, 96, "image1")
    lower = builder.piece(first.name, builder.pad(image, ((0, 0), (0, 1), (0, 1), (0, 0)), "pad1"), 1, 24, 48, True)
    name = module.graphs[0].tensors[first.outputs[0]].name
    builder.concat([upper, lower], 1, name)
    parts = []
    for begin, end in ((0, 8), (8, 16)):
        channels = builder.slice(builder.tensor(name), 3, begin, end, f"channels{begin}")
        parts.append(builder.piece(second.name, channels, 3, begin, end))
    builder.concat(parts, 3, module.graphs[0].tensors[second.outputs[0]].name)
    builder.ops += module.graphs[0].ops[2:]
    written(module, data, builder.graph())


def test_what_does_not_fit_the_model_is_refused() -> None:
    module, builder = load(small_net())
    builder.keep("a", "r", "y")
    graph = builder.graph()
    for op in (
        replace(graph.ops[1], name="new", origin="nothing"),
        replace(graph.ops[1], name="new"),
        replace(graph.ops[1], origin="y"),
        replace(graph.ops[1], attributes={"strange": 1}),
    ):
        broken = replace(graph, ops=(graph.ops[0], op, graph.ops[2]))
        with pytest.raises(InternalError):
            rewriter.serialize(module, broken, range(3))
    with fails("op-count"):
        rewriter.serialize(module, graph, [0, 1])


def test_tables_of_a_later_schema_are_not_copied() -> None:
    data = bytearray(small_net())
    root = struct.unpack_from("<I", data, 0)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    slots = (struct.unpack_from("<H", data, vtable)[0] - 4) // 2
    assert slots <= 10
    module, builder = load(bytes(data))
    rows_of_small_net(builder)
    table = module.native.model.subgraphs[0].operators[0].table
    place = table - struct.unpack_from("<i", data, table)[0]
    # The operator's vtable claims to reach into what follows it: slots that no schema of today has.
    struct.pack_into("<H", data, place, 4 + 2 * 20)
    try:
        damaged, builder = load(bytes(data))
    except ModelError:
        return
    rows_of_small_net(builder)
    with fails("later-schema"):
        rewriter.serialize(damaged, builder.graph(), range(len(builder.ops)))
