"""The persistent part of arenas as TFLM builds really had it: measured on 64 and 32 bit, without a recorder.

Since then the options of FULLY_CONNECTED have become 16 bytes larger, 8 on 32 bit, which rounding may hide.
"""

from __future__ import annotations

import math
from collections import Counter

import ai_edge_litert.schema_py_generated as schema
import pytest

from memsched.base.errors import ModelError
from memsched.formats.tflite.model import FileModel, parse
from memsched.runtimes.tflm.persistent import (
    _ArenaTail,
    _init,
    _prepare,
    estimates,
    unknown_kernels,
)
from memsched.runtimes.tflm.quantization import quantization_counts
from tests.formats.tflite_builder import MODELS, O, Sub, T, build, int32s, options, pack, unpack


def persistent_bytes(model: FileModel, bits: int) -> int:
    return estimates(model)[bits].persistent


def planning_bytes(model: FileModel, bits: int) -> int:
    return estimates(model)[bits].planning


def load(name: str) -> FileModel:
    return parse((MODELS / f"{name}.tflite").read_bytes())


@pytest.mark.parametrize(
    ("name", "head", "used_64", "used_32"),
    [
        ("person_detect", 55296, 85024, 82300),
        ("micro_speech_quantized", 5968, 7312 + 16, 6812),
        ("hello_world_int8", 32, 1184 + 3 * 16, 716 + 2 * 16),
    ],
)
def test_arenas_of_real_models(name: str, head: int, used_64: int, used_32: int) -> None:
    model = load(name)
    assert head + persistent_bytes(model, 64) == used_64
    assert head + persistent_bytes(model, 32) == used_32


def test_planning_needs_more_than_a_small_model_itself() -> None:
    model = load("hello_world_int8")
    assert persistent_bytes(model, 64) + max(32, planning_bytes(model, 64)) == 1616 + 3 * 16


@pytest.mark.parametrize(("ops", "constants", "smallest"), [(20, 0, 3760), (60, 0, 10160), (60, 40, 12400)])
def test_planning_room_of_chains(ops: int, constants: int, smallest: int) -> None:
    """The smallest arenas in which such chains could be allocated, to 16 bytes, less the build's recorder of 240."""
    tensors = [T(f"t{i}", (1, 4)) for i in range(ops + 1)]
    tensors += [T(f"c{i}", (1, 4), data=bytes(16)) for i in range(constants)]
    model = parse(build(Sub(tensors, [O("NEG", [i], [i + 1]) for i in range(ops)], [0], [ops])))
    assert persistent_bytes(model, 64) + planning_bytes(model, 64) == smallest


def quantized(data: bytes) -> FileModel:
    model = unpack(data)
    for tensor in model.subgraphs[0].tensors:
        if tensor.type in {schema.TensorType.INT8, schema.TensorType.INT16}:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale, tensor.quantization.zeroPoint = [0.25], [0]
    return parse(pack(model))


@pytest.mark.parametrize(
    ("kind", "shapes", "dtype", "table", "tail"),
    [
        ("ADD", [(1, 4, 4, 4)] * 3, "INT8", "AddOptions", 784),
        ("ADD", [(1, 4, 4, 4)] * 3, "FLOAT32", "AddOptions", 688),
        ("SUB", [(1, 4, 4, 4)] * 3, "INT8", "SubOptions", 768),
        ("MUL", [(1, 4, 4, 4)] * 3, "INT8", "MulOptions", 752),
        ("MAXIMUM", [(1, 4, 4, 4)] * 3, "INT8", "MaximumMinimumOptions", 704),
        ("RELU", [(1, 4)] * 2, "INT8", None, 624),
        ("LOGISTIC", [(1, 4)] * 2, "INT8", None, 608),
        ("ELU", [(1, 4)] * 2, "INT8", None, 848),
        ("SOFTMAX", [(1, 4)] * 2, "FLOAT32", "SoftmaxOptions", 608),
        ("MAX_POOL_2D", [(1, 4, 4, 4), (1, 2, 2, 4)], "INT8", "Pool2DOptions", 656),
        ("SQUEEZE", [(1, 4), (4,)], "INT8", "SqueezeOptions", 624),
        ("PACK", [(4,), (4,), (2, 4)], "INT8", "PackOptions", 720),
        ("CAST", [(4, 4), (4, 4)], "FLOAT32", "CastOptions", 528),
        ("BATCH_MATMUL", [(1, 4, 8), (1, 8, 6), (1, 4, 6)], "INT8", "BatchMatMulOptions", 896),
    ],
)
def test_kernels_and_options(
    kind: str, shapes: list[tuple[int, ...]], dtype: str, table: str | None, tail: int
) -> None:
    """Tails of a build of October 2026 on 64 bit, less its recorder of 240 bytes."""
    last = len(shapes) - 1
    tensors = [T(f"t{i}", shape, dtype) for i, shape in enumerate(shapes)]
    op = O(kind, range(last), [last], options(table) if table else None)
    model = quantized(build(Sub(tensors, [op], range(last), [last])))
    assert persistent_bytes(model, 64) == tail
    assert persistent_bytes(model, 32) < tail
    assert unknown_kernels(model) == ()


class Recorder(_ArenaTail):
    def __init__(self) -> None:
        super().__init__()
        self.requested = 0

    def take(self, size: int, alignment: int = 16) -> None:
        self.requested += size
        super().take(size, alignment)


def test_fully_connected_weights_quantized_by_channel() -> None:
    """The persistent buffers of NASNet as recorded: 316,548 bytes with what compression adds to three kernels."""
    model = load("nasnetmobile_int8")
    kinds = Counter(operator.type for operator in model.subgraphs[0].operators)
    compression = 8 * (kinds["CONV_2D"] + kinds["DEPTHWISE_CONV_2D"] + kinds["FULLY_CONNECTED"])
    compression += 40 * kinds["CONCATENATION"]
    tail, graph = Recorder(), model.subgraphs[0]
    counts = quantization_counts(model)[0]
    for operator in graph.operators:
        _init(tail, operator, 64)
        _prepare(tail, graph, operator, counts, 64)
    assert tail.requested + 16 + compression == 316_548


def test_state_and_scratch_handles_are_persistent() -> None:
    tensors = [T("x", (2, 10)), T("f", (8, 10), data=bytes(320)), T("t", (8, 5), data=bytes(160))]
    tensors += [T("b", (4,), data=bytes(16)), T("state", (2, 40), variable=True), T("y", (2, 4))]
    sub = Sub(tensors, [O("SVDF", range(5), [5], options("SVDFOptions", rank=2))], [0], [5])
    assert persistent_bytes(parse(build(sub)), 64) == 1008


def test_bodies_of_control_flow_count() -> None:
    """Tails of the build of October 2026, less its recorder of 240 bytes, and of what it adds to subgraphs: 16."""
    negate = Sub([T("x"), T("y")], [O("NEG", [0], [1])], [0], [1])
    branch = O("IF", [0, 1], [2], options("IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2))
    model = parse(build(Sub([T("c", (1,), "BOOL"), T("x"), T("y")], [branch], [0, 1], [2]), negate, negate))
    assert persistent_bytes(model, 64) == 1136 - 256
    less = O("LESS", [0, 1], [2], options("LessOptions"))
    tensors = [T("x", (1,)), T("c", (1,), data=bytes(4)), T("y", (1,), "BOOL")]
    body = Sub([T("x", (1,)), T("y", (1,))], [O("NEG", [0], [1])], [0], [1])
    loop = O("WHILE", [0], [1], options("WhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2))
    main = Sub([T("x", (1,)), T("y", (1,))], [loop], [0], [1])
    model = parse(build(main, Sub(tensors, [less], [0], [2]), body))
    assert persistent_bytes(model, 64) == 1104 - 256


def test_kernels_without_figures_are_named() -> None:
    ops = [O("CUSTOM:even", [0], [1]), O("GELU", [0], [2]), O("NEG", [0], [3])]
    model = parse(build(Sub([T("x"), T("y"), T("z"), T("w")], ops, [0], [1, 2, 3])))
    assert unknown_kernels(model) == ("CUSTOM:even", "GELU")


def test_damaged_quantization_does_not_matter() -> None:
    data = (MODELS / "hello_world_int8.tflite").read_bytes()
    sound = persistent_bytes(parse(data), 64)
    for place in range(0, len(data), 7):
        damaged = bytearray(data)
        damaged[place] = 0xFF
        try:
            model = parse(bytes(damaged))
        except ModelError:
            continue
        assert 0 < persistent_bytes(model, 64) < 2**40 * math.ceil(sound)
        planning_bytes(model, 32)


def test_reductions_keep_data_and_axes_do_not() -> None:
    tensors = [T("x", (1, 8, 8, 6), "INT8"), T("axes", (2,), "INT32", int32s(1, 2)), T("y", (1, 6), "INT8")]
    op = O("MEAN", [0, 1], [2], options("ReducerOptions"))
    assert persistent_bytes(quantized(build(Sub(tensors, [op], [0], [2]))), 64) == 672
