from __future__ import annotations

import hashlib

import pytest

from memsched.base.errors import GraphError, UsageError
from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite import reader
from memsched.formats.tflite.model import parse
from memsched.formats.tflite.reader import COMPUTES_SHAPES
from memsched.graph.liveness import Storage, evaluate
from tests.failures import fails
from tests.formats.tflite_builder import MODELS, O, Sub, T, branches, build, int32s, options, pack, unpack


def load(data: bytes, **stated: object) -> Module:
    return reader.read(data, "model.tflite", LoadOptions(**stated))  # type: ignore[arg-type]


def file_order_peak(module: Module) -> int:
    return evaluate(Storage.of(module.graph), range(len(module.graph.ops))).peak


@pytest.mark.parametrize(
    ("name", "ops", "peak", "macs", "weights"),
    [
        ("hello_world_int8", 3, 32, 288, 420),
        ("micro_speech_quantized", 4, 5_960, 336_000, 16_704),
        ("person_detect", 31, 55_296, 7_157_888, 218_928),
        ("mobilenetv2_035_96_int8", 65, 138_240, 10_666_928, 423_056),
        ("nasnetmobile_int8", 567, 1_019_904, 563_638_816, 5_254_182),
    ],
)
def test_real_models(name: str, ops: int, peak: int, macs: int, weights: int) -> None:
    data = (MODELS / f"{name}.tflite").read_bytes()
    module = load(data)
    assert (module.format, module.sha256) == ("tflite", hashlib.sha256(data).hexdigest())
    assert len(module.graph.ops) == ops
    assert file_order_peak(module) == peak
    assert sum(op.macs for op in module.graph.ops) == macs
    assert module.weights_bytes == weights
    assert module.constant_ops == 0


def test_agrees_with_the_generated_accessors() -> None:
    data = (MODELS / "nasnetmobile_int8.tflite").read_bytes()
    graph, other = load(data).native.model.subgraphs[0], unpack(data).subgraphs[0]
    assert [t.name.encode() for t in graph.tensors] == [t.name for t in other.tensors]
    assert [t.shape for t in graph.tensors] == [tuple(t.shape) for t in other.tensors]
    assert [(o.inputs, o.outputs) for o in graph.operators] == [
        (tuple(o.inputs), tuple(o.outputs)) for o in other.operators
    ]
    conv = next(index for index, op in enumerate(graph.operators) if op.type == "CONV_2D")
    stored = other.operators[conv].builtinOptions
    assert graph.operators[conv].attributes["strides"] == (stored.strideH, stored.strideW)


def test_constants_are_no_tensors_and_positions_count_all_inputs() -> None:
    sub = Sub(
        [T("c", (1, 4), data=bytes(16)), T("x"), T("y")], [O("SUB", [0, 1], [2], options("SubOptions"))], [1], [2]
    )
    graph = load(build(sub)).graph
    assert [tensor.name for tensor in graph.tensors] == ["x", "y"]
    assert (graph.ops[0].inputs, graph.ops[0].positions) == ((0,), (1,))
    assert graph.ops[0].attributes["fused_activation_function"] == "NONE"


def test_ops_on_constants_alone_are_no_steps() -> None:
    sub = Sub(
        [T("x"), T("half", (1, 4), "FLOAT16", bytes(8)), T("w"), T("y")],
        [O("DEQUANTIZE", [1], [2]), O("ADD", [0, 2], [3])],
        [0],
        [3],
    )
    module = load(build(sub))
    assert module.constant_ops == 1
    assert [op.type for op in module.graph.ops] == ["ADD"]
    assert [tensor.name for tensor in module.graph.tensors] == ["x", "y"]


def test_a_constant_that_is_an_output_is_still_produced() -> None:
    sub = Sub([T("x"), T("c", data=bytes(16)), T("y"), T("z")], [O("EXP", [1], [2]), O("EXP", [0], [3])], [0], [2, 3])
    module = load(build(sub))
    assert module.constant_ops == 0
    assert len(module.graph.ops) == 2


def test_random_numbers_and_custom_ops_of_constants_are_steps() -> None:
    shape = T("shape", (2,), "INT32", int32s(1, 4))
    ops = [O("RANDOM_UNIFORM", [1], [2]), O("CUSTOM:dice", [1], [3]), O("ADD", [2, 3], [4]), O("ADD", [4, 0], [5])]
    module = load(build(Sub([T("x"), shape, T("r"), T("d"), T("s"), T("y")], ops, [0], [5])))
    assert module.constant_ops == 0
    assert [op.type for op in module.graph.ops] == ["RANDOM_UNIFORM", "CUSTOM:dice", "ADD", "ADD"]


@pytest.mark.parametrize(
    ("dtype", "shape", "size"),
    [
        *(("INT4", (3, 3), 5), ("UINT4", (5,), 3), ("INT2", (5,), 2), ("FLOAT16", (3,), 6), ("BOOL", (3,), 3)),
        *(("COMPLEX128", (3,), 48), ("INT64", (), 8), ("FLOAT32", (0, 7), 0), ("BFLOAT16", (2, 2), 8)),
    ],
)
def test_sizes_of_element_types(dtype: str, shape: tuple[int, ...], size: int) -> None:
    graph = load(build(Sub([T("x", shape, dtype), T("y", shape, dtype)], [O("RESHAPE", [0], [1])], [0], [1]))).graph
    assert (graph.tensors[0].size, graph.tensors[0].shape) == (size, shape)


@pytest.mark.parametrize("dtype", ["STRING", "RESOURCE", "VARIANT"])
def test_what_has_no_size_is_named(dtype: str) -> None:
    module = load(build(Sub([T("text", (3,), dtype), T("y")], [O("CUSTOM:parse", [0], [1])], [0], [1])))
    assert not module.graph.tensors[0].sized
    assert module.graph.tensors[0].size == 0
    assert any("'text'" in note for note in module.notes)


def test_dynamic_shapes_are_counted_as_stored_and_named() -> None:
    module = load(build(Sub([T("x", (1, 4), signature=(-1, 4)), T("y")], [O("EXP", [0], [1])], [0], [1])))
    assert module.graph.tensors[0].size == 16
    assert [("'x'" in note, COMPUTES_SHAPES in note) for note in module.notes] == [(True, False)]


def test_shapes_that_are_computed_are_said_to_take_more_than_stored() -> None:
    tensors = [T("x", (1, 4), signature=(-1, 4)), T("s", (2,), "INT32"), T("y", (1, 4), signature=(-1, 4))]
    net = Sub(tensors, [O("SHAPE", [0], [1]), O("RESHAPE", [0, 1], [2])], [0], [2])
    assert any(COMPUTES_SHAPES in note and "'x', 'y'" in note for note in load(build(net)).notes)


def test_names_become_unique() -> None:
    tensors = [T("a"), T("a"), T(""), T("a#1"), T("")]
    ops = [O("EXP", [0], [1]), O("EXP", [1], [2]), O("EXP", [2], [3]), O("EXP", [3], [4])]
    graph = load(build(Sub(tensors, ops, [0], [4]))).graph
    assert [t.name for t in graph.tensors] == ["a", "a#1'", "tensor#2", "a#1", "tensor#4"]
    assert [op.name for op in graph.ops] == ["a#1'", "tensor#2", "a#1", "tensor#4"]


def test_absent_inputs_are_left_out() -> None:
    op = O("FULLY_CONNECTED", [0, 1, -1], [2], options("FullyConnectedOptions", keepNumDims=True))
    graph = load(build(Sub([T("x"), T("w", (2, 4), data=bytes(32)), T("y", (1, 2))], [op], [0], [2]))).graph
    assert graph.ops[0].inputs == (0,)
    assert graph.ops[0].macs == 8
    assert graph.ops[0].attributes["keep_num_dims"] is True


def test_unknown_operators_are_scheduled_like_any_other() -> None:
    graph = load(build(Sub([T("x"), T("y"), T("z")], [O(4711, [0], [1]), O("CUSTOM:fft", [1], [2])], [0], [2]))).graph
    assert [op.type for op in graph.ops] == ["BUILTIN_4711", "CUSTOM:fft"]


def test_dead_tensors_are_noted() -> None:
    module = load(build(Sub([T("x"), T("y"), T("dead", (50_000,), "INT8")], [O("EXP", [0], [1])], [0], [1])))
    assert [tensor.name for tensor in module.graph.tensors] == ["x", "y"]
    assert any("'dead'" in note and "50000 bytes" in note for note in module.notes)


def test_an_empty_list_is_a_constant() -> None:
    sub = Sub([T("x", (1,)), T("scalar", (0,), "INT32"), T("y", ())], [O("RESHAPE", [0, 1], [2])], [0], [2])
    assert [tensor.name for tensor in load(build(sub)).graph.tensors] == ["x", "y"]


def test_data_outside_the_flatbuffer_makes_a_constant() -> None:
    sub = Sub([T("x"), T("c", data=b"\x01"), T("y")], [O("ADD", [0, 1], [2])], [0], [2])
    model = unpack(build(sub))
    model.buffers[1].data, model.buffers[1].size = None, 16
    model.buffers[1].offset = 1 << 40
    length = len(pack(model))
    model.buffers[1].offset = length
    module = load(pack(model) + bytes(16))
    assert [tensor.name for tensor in module.graph.tensors] == ["x", "y"]
    assert module.weights_bytes == 16
    with fails("damaged"):
        load(pack(model) + bytes(15))


def _bodies(kind: str, table: object) -> Module:
    main = Sub([T("flag", (), "BOOL"), T("x"), T("y")], [O(kind, [0, 1], [2], table)], [0, 1], [2])
    one = Sub([T("a"), T("b")], [O("EXP", [0], [1])], [0], [1], "one")
    two = Sub([T("a"), T("b"), T("c")], [O("EXP", [0], [1]), O("EXP", [1], [2])], [0], [2], "two")
    unused = Sub([T("a"), T("b")], [O("EXP", [0], [1])], [0], [1], "entry")
    return load(build(main, one, two, unused))


@pytest.mark.parametrize(
    ("kind", "table", "graphs"),
    [
        ("IF", options("IfOptions", thenSubgraphIndex=1, elseSubgraphIndex=2), [1, 2]),
        ("WHILE", options("WhileOptions", condSubgraphIndex=2, bodySubgraphIndex=1), [2, 1]),
        ("CALL", options("CallOptions", subgraph=2), [2]),
        ("STABLEHLO_WHILE", options("StablehloWhileOptions", condSubgraphIndex=1, bodySubgraphIndex=2), [1, 2]),
        ("STABLEHLO_COMPOSITE", options("StableHLOCompositeOptions", decompositionSubgraphIndex=1), [1]),
        ("STABLEHLO_COMPOSITE", options("StableHLOCompositeOptions", decompositionSubgraphIndex=-1), []),
        ("STABLEHLO_CASE", options("StablehloCaseOptions", branchSubgraphIndices=[1, 2, 1]), [1, 2]),
    ],
)
def test_ops_that_execute_subgraphs(kind: str, table: object, graphs: list[int]) -> None:
    module = _bodies(kind, table)
    assert [graph.name for graph in module.graphs] == ["main", "one", "two", "entry"]
    assert [(body.graph, body.parent, body.op) for body in module.bodies] == [(graph, 0, 0) for graph in graphs]


def test_a_body_that_gets_constants_is_executed_all_the_same() -> None:
    call = O("CALL", [1], [2], options("CallOptions", subgraph=1))
    main = Sub([T("x"), T("c", data=bytes(16)), T("y"), T("z")], [call, O("ADD", [0, 2], [3])], [0], [3])
    module = load(build(main, Sub([T("a"), T("b")], [O("EXP", [0], [1])], [0], [1])))
    assert module.constant_ops == 0
    assert [(body.graph, body.op) for body in module.bodies] == [(1, 0)]


def test_subgraphs_that_execute_each_other_in_a_circle() -> None:
    main = Sub([T("x"), T("y")], [O("CALL", [0], [1], options("CallOptions", subgraph=1))], [0], [1])
    one = Sub([T("x"), T("y")], [O("CALL", [0], [1], options("CallOptions", subgraph=2))], [0], [1])
    two = Sub([T("x"), T("y")], [O("CALL", [0], [1], options("CallOptions", subgraph=1))], [0], [1])
    with fails("calls-itself", "'model.tflite'", "subgraph 1"):
        load(build(main, one, two))


@pytest.mark.parametrize(
    ("kind", "shapes", "table", "expected"),
    [
        ("CONV_2D", [(1, 8, 8, 4), (16, 3, 3, 2), (1, 4, 4, 16)], "Conv2DOptions", 256 * 18),
        ("DEPTHWISE_CONV_2D", [(1, 8, 8, 4), (1, 3, 3, 4), (1, 4, 4, 4)], "DepthwiseConv2DOptions", 64 * 9),
        ("CONV_3D", [(1, 4, 4, 4, 2), (2, 2, 2, 2, 8), (1, 2, 2, 2, 8)], "Conv3DOptions", 64 * 16),
        ("BATCH_MATMUL", [(2, 3, 5), (2, 5, 7), (2, 3, 7)], "BatchMatMulOptions", 42 * 5),
        ("CONV_2D", [(1, 8, 8, 4), (16,), (1, 4, 4, 16)], "Conv2DOptions", 0),
        ("EXP", [(1, 8), (1, 8), (1, 8)], None, 0),
    ],
)
def test_macs(kind: str, shapes: list[tuple[int, ...]], table: str | None, expected: int) -> None:
    tensors = [T(f"t{index}", shape) for index, shape in enumerate(shapes)]
    op = O(kind, [0, 1], [2], options(table) if table else None)
    assert load(build(Sub(tensors, [op], [0, 1], [2]))).graph.ops[0].macs == expected


def test_macs_of_transposed_convolutions() -> None:
    shape = T("shape", (4,), "INT32", int32s(1, 8, 8, 3))
    tensors = [shape, T("w", (3, 2, 2, 5), data=bytes(240)), T("x", (1, 4, 4, 5)), T("y", (1, 8, 8, 3))]
    op = O("TRANSPOSE_CONV", [0, 1, 2], [3], options("TransposeConvOptions"))
    assert load(build(Sub(tensors, [op], [2], [3]))).graph.ops[0].macs == 80 * 12


def test_small_constants_become_attributes() -> None:
    tensors = [T("x", (4, 4)), T("b", (2,), "INT32", int32s(1, 0)), T("s", (2,), "INT32", int32s(2, 4)), T("y", (2, 4))]
    graph = load(build(Sub(tensors, [O("SLICE", [0, 1, 2], [3])], [0], [3]))).graph
    assert dict(graph.ops[0].attributes) == {"begin": (1, 0), "size": (2, 4)}


def test_a_file_out_of_order_is_refused() -> None:
    sub = Sub([T("x"), T("y"), T("z")], [O("EXP", [1], [2]), O("EXP", [0], [1])], [0], [2])
    with fails("read-too-early", "'model.tflite'", "'z'", "'y'", kind=GraphError):
        load(build(sub))


def test_stated_shapes_must_be_the_stored_ones() -> None:
    data = build(branches())
    assert load(data, input_shapes={"x": (1, 8)}).graph.inputs == (0,)
    with fails("shape-differs", "--shape x", "1,8", kind=UsageError):
        load(data, input_shapes={"x": (2, 8)})
    with fails("no-such-tensor", "--shape y", "'x'", kind=UsageError):
        load(data, input_shapes={"y": (1, 8)})
    with fails("no-such-dimension", "--dim N", kind=UsageError):
        load(data, dims={"N": 1})


def test_large_models_are_read_in_linear_time() -> None:
    tensors = [T(f"t{index}", (1, 4)) for index in range(20_001)]
    ops = [O("EXP", [index], [index + 1]) for index in range(20_000)]
    module = load(build(Sub(tensors, ops, [0], [20_000])))
    assert len(module.graph.ops) == 20_000


def test_a_file_is_read_once_by_those_who_follow_each_other() -> None:
    data = build(branches())
    assert parse(data) is parse(data)
