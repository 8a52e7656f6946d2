from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import ai_edge_litert.schema_py_generated as schema
import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from memsched.formats.capabilities import Stages
from memsched.formats.known import capability
from memsched.formats.segment import Segment
from memsched.formats.segments import extract
from memsched.formats.tflite import metadata as tflite_metadata
from memsched.formats.tflite import model as tflite_model
from tests.failures import fails
from tests.formats.tflite_builder import MODELS, O, Sub, T, branches, build, int32s, options, pack, unpack
from tests.segment_cuts import cut, load, random_stages, segments_of

MODES = (OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, OpResolverType.AUTO)


def interpreter(model: bytes, mode: Any = MODES[0]) -> Interpreter:
    made = Interpreter(model_content=model, num_threads=1, experimental_op_resolver_type=mode)
    made.allocate_tensors()
    return made


def run(model: bytes, values: Mapping[str, Any], mode: Any = MODES[0]) -> dict[str, Any]:
    """Return the outputs of one model in LiteRT; ``values`` may hold more than its inputs."""
    loaded = interpreter(model, mode)
    for detail in loaded.get_input_details():
        loaded.set_tensor(detail["index"], values[detail["name"]])
    loaded.invoke()
    return {detail["name"]: loaded.get_tensor(detail["index"]) for detail in loaded.get_output_details()}


def feed_of(model: bytes, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        detail["name"]: rng.integers(-100, 100, detail["shape"]).astype(detail["dtype"])
        for detail in interpreter(model).get_input_details()
    }


def assert_same(data: bytes, files: Sequence[bytes], feed: Mapping[str, Any]) -> None:
    """Check that segments in a row give the model's outputs bit by bit, with and without delegates."""
    for mode in MODES:
        held = dict(feed)
        for file in files:
            held.update(run(file, held, mode))
        for name, value in run(data, feed, mode).items():
            assert (held[name].dtype, held[name].shape) == (value.dtype, value.shape)
            assert held[name].tobytes() == value.tobytes()


def said(value: Any) -> Any:
    """Return what a table of the schema's object API says, without what numbers of the file may differ in."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (int, float, str, bytes, type(None))):
        return value
    if isinstance(value, (list, tuple, np.ndarray)):
        return [said(one) for one in value]
    return {type(value).__name__: {name: said(one) for name, one in vars(value).items()}}


@pytest.mark.parametrize("name", ["hello_world_int8", "micro_speech_quantized", "mobilenetv2_035_96_int8"])
@pytest.mark.parametrize("through", [False, True])
def test_segments_in_a_row_are_the_model(name: str, through: bool) -> None:
    data = (MODELS / f"{name}.tflite").read_bytes()
    module = load(data)
    for count in range(2, min(5, len(module.graph.ops)) + 1):
        stages = random_stages(module, count, random.Random(count))
        files = cut(module, segments_of(module, stages, through=through))
        assert_same(data, files, feed_of(data))


def test_a_large_network_runs_in_four_segments() -> None:
    data = (MODELS / "nasnetmobile_int8.tflite").read_bytes()
    module = load(data)
    files = cut(module, segments_of(module, random_stages(module, 4, random.Random(3))))
    assert_same(data, files, feed_of(data))
    assert sum(map(len, files)) < 1.5 * len(data)


def test_operators_and_tensors_are_copied_whole() -> None:
    """`person_detect` states quantisations that LiteRT refuses to load; segments keep even these."""
    data = (MODELS / "person_detect.tflite").read_bytes()
    module = load(data)
    segments = segments_of(module, random_stages(module, 3, random.Random(0)))
    old = unpack(data)
    by_name = {bytes(one.name): one for one in old.subgraphs[0].tensors}
    for segment, file in zip(segments, cut(module, segments), strict=True):
        new = unpack(file)
        steps = [module.native.mappings[0].operators[op] for op in segment.ops]
        for number, operator in zip(steps, new.subgraphs[0].operators, strict=True):
            was = old.subgraphs[0].operators[number]
            assert said(operator.builtinOptions) == said(was.builtinOptions)
            codes = [model.operatorCodes[one.opcodeIndex] for model, one in ((new, operator), (old, was))]
            assert said(codes[0]) == said(codes[1])
        for tensor in new.subgraphs[0].tensors:
            was = by_name[bytes(tensor.name)]
            assert said(tensor.quantization) == said(was.quantization)
            one, other = new.buffers[tensor.buffer].data, old.buffers[was.buffer].data
            assert one is other is None or bytes(one) == bytes(other)
        used = {one.opcodeIndex for one in new.subgraphs[0].operators}
        assert used == set(range(len(new.operatorCodes)))


def random_table(name: str, rng: random.Random) -> Any:
    """Return an options table of the schema with random values in all its fields."""
    table = getattr(schema, f"{name}T")()
    reader = getattr(schema, name)
    for field, value in vars(table).items():
        method = field[0].upper() + field[1:]
        if hasattr(reader, f"{method}AsNumpy"):
            most = 2 if field == "windowReversal" else 100
            setattr(table, field, [rng.randrange(most) for _ in range(rng.randrange(1, 5))])
        elif value is None:
            setattr(table, field, f"text{rng.randrange(1000)}".encode())
        elif isinstance(value, bool):
            setattr(table, field, not value)
        else:
            setattr(table, field, type(value)(rng.randrange(1, 100)))
    return table


def all_options() -> list[tuple[str, str]]:
    """Return the unions of options and the names in them, as the installed schema has them."""
    bodies = {"If", "While", "CallOnce", "Call", "StablehloWhile", "StablehloCase", "StablehloReduce"}
    bodies |= {
        "StablehloCustomCall",
        "StablehloReduceWindow",
        "StablehloScatter",
        "StablehloSort",
        "StableHLOComposite",
    }
    return [
        (union, name)
        for union in ("BuiltinOptions", "BuiltinOptions2")
        for name in vars(getattr(schema, union))
        if name.endswith("Options") and name.removesuffix("Options") not in bodies
    ]


def test_the_options_of_every_operator_are_copied_whole() -> None:
    rng = random.Random(0)
    tables = [random_table(name, rng) for _, name in all_options()]
    assert len(tables) > 130
    tensors = [T("x"), *(T(f"y{number}") for number in range(len(tables)))]
    ops = [O("CUSTOM:any", [0], [number + 1], table) for number, table in enumerate(tables)]
    data = build(Sub(tensors, ops, [0], range(1, len(tensors))))
    module = load(data)
    half = len(ops) // 2
    for picked in (range(half), range(half, len(ops))):
        names = tuple(f"y{number}" for number in picked)
        new = unpack(extract(module, Segment(tuple(picked), ("x",), names), {}))
        for number, operator in zip(picked, new.subgraphs[0].operators, strict=True):
            found = operator.builtinOptions if operator.builtinOptions is not None else operator.builtinOptions2
            assert said(found) == said(tables[number])


def test_every_part_of_a_tensor_is_copied() -> None:
    model = unpack(build(Sub([T("x"), T("w", data=bytes(16)), T("s", (1,), data=bytes(4)), T("y")],
                             [O("ADD", [0, 1], [3], options("AddOptions"))], [0], [3])))  # fmt: skip
    weight = model.subgraphs[0].tensors[1]
    weight.sparsity = schema.SparsityParametersT()
    weight.sparsity.traversalOrder, weight.sparsity.blockMap = [0, 1], [1]
    weight.sparsity.dimMetadata = []
    for kind in ("Int32Vector", "Uint16Vector", "Uint8Vector"):
        dim = schema.DimensionMetadataT()
        dim.format, dim.denseSize = 1, 7
        dim.arraySegmentsType = dim.arrayIndicesType = getattr(schema.SparseIndexVector, kind)
        dim.arraySegments, dim.arrayIndices = (getattr(schema, f"{kind}T")() for _ in range(2))
        dim.arraySegments.values, dim.arrayIndices.values = [0, 2, 3], [1, 2, 200]
        weight.sparsity.dimMetadata.append(dim)
    weight.quantization = quantization = schema.QuantizationParametersT()
    quantization.min, quantization.max, quantization.scale, quantization.zeroPoint = [0.5], [1.5], [0.25], [1 << 40]
    quantization.quantizedDimension = 1
    quantization.detailsType = schema.QuantizationDetails.BlockwiseQuantization
    quantization.details = schema.BlockwiseQuantizationT()
    quantization.details.scales, quantization.details.zeroPoints, quantization.details.blockSize = 2, -1, 32
    weight.variantTensors = [schema.VariantSubTypeT()]
    weight.variantTensors[0].shape, weight.variantTensors[0].type = [2, 3], 9
    model.subgraphs[0].tensors[0].shapeSignature = [-1, 4]
    model.externalBufferGroups = [schema.ExternalBufferGroupT()]
    model.externalBufferGroups[0].name = b"weights.bin"
    model.externalBuffers = [schema.ExternalBufferT()]
    model.externalBuffers[0].id, model.externalBuffers[0].length, model.externalBuffers[0].packing = 3, 9, b"none"
    model.subgraphs[0].tensors[2].externalBuffer = 3
    data = pack(model)
    new = unpack(extract(load(data), Segment((0,), ("x",), ("y",)), {}))
    assert [one.name for one in new.subgraphs[0].tensors] == [b"x", b"y", b"w", b"s"]
    copy = new.subgraphs[0].tensors[2]
    # The scales are another tensor now.
    assert copy.quantization.details.scales == 3
    copy.quantization.details.scales = 2
    for field in ("sparsity", "quantization", "variantTensors"):
        assert said(getattr(copy, field)) == said(getattr(weight, field))
    assert list(new.subgraphs[0].tensors[0].shapeSignature) == [-1, 4]
    assert said(new.externalBuffers) == said(model.externalBuffers)
    assert said(new.externalBufferGroups) == said(model.externalBufferGroups)
    assert new.subgraphs[0].tensors[3].externalBuffer == 3


def loops() -> Sub:
    """A main graph with a WHILE between two operators; the bodies are subgraphs 2 and 3, behind one of no use."""
    tensors = [T("x"), T("a"), T("n", (1,), "INT32", int32s(0)), T("m", (1,), "INT32"), T("b"), T("y")]
    loop = options("WhileOptions", condSubgraphIndex=2, bodySubgraphIndex=3)
    return Sub(tensors, [O("NEG", [0], [1]), O("WHILE", [2, 1], [3, 4], loop), O("EXP", [4], [5])], [0], [5])


def test_bodies_go_with_the_operators_that_execute_them() -> None:
    unused = Sub([T("u"), T("v")], [O("ABS", [0], [1])], [0], [1], "unused")
    condition = Sub(
        [T("i", (1,), "INT32"), T("v"), T("three", (1,), "INT32", int32s(3)), T("less", (1,), "BOOL")],
        [O("LESS", [0, 2], [3])], [0, 1], [3], "condition",
    )  # fmt: skip
    half = np.full(4, 0.5, np.float32).tobytes()
    body = Sub(
        [T("i", (1,), "INT32"), T("v"), T("one", (1,), "INT32", int32s(1)), T("half", (1, 4), data=half),
         T("j", (1,), "INT32"), T("w")],
        [O("ADD", [0, 2], [4], options("AddOptions")), O("MUL", [1, 3], [5], options("MulOptions"))],
        [0, 1], [4, 5], "body",
    )  # fmt: skip
    data = build(loops(), unused, condition, body)
    module = load(data)
    files = cut(module, segments_of(module, [0, 1, 2]))
    assert [[part.name for part in tflite_model.parse(file).subgraphs] for file in files] == [
        ["main"],
        ["main", "condition", "body"],
        ["main"],
    ]
    assert_same(data, files, feed_of(data))


def test_a_value_is_passed_through_as_one_tensor() -> None:
    ops = [O("NEG", [0], [1]), O("EXP", [1], [2]), O("ADD", [1, 2], [3], options("AddOptions"))]
    data = build(Sub([T("x"), T("a"), T("b"), T("y")], ops, [0], [3]))
    module = load(data)
    segments = segments_of(module, [0, 1, 2], through=True)
    assert segments[1] == Segment((1,), ("a",), ("a", "b"))
    assert_same(data, cut(module, segments), feed_of(data))
    for mode in MODES:
        alone = extract(module, Segment((), ("a",), ("a",)), {})
        assert run(alone, {"a": np.ones((1, 4), np.float32)}, mode)["a"].tolist() == [[1, 1, 1, 1]]


def test_what_computes_constants_goes_to_every_segment_that_needs_it() -> None:
    halves = np.arange(4, dtype=np.float16).tobytes()
    tensors = [T("x"), T("half", (1, 4), "FLOAT16", halves), T("w"), T("a"), T("b"), T("y")]
    add = options("AddOptions")
    ops = [O("NEG", [0], [3]), O("DEQUANTIZE", [1], [2]), O("ADD", [3, 2], [4], add), O("ADD", [4, 2], [5], add)]
    data = build(Sub(tensors, ops, [0], [5]))
    module = load(data)
    files = cut(module, segments_of(module, [0, 1, 2]))
    assert [[one.type for one in tflite_model.parse(file).subgraphs[0].operators] for file in files] == [
        ["NEG"],
        ["DEQUANTIZE", "ADD"],
        ["DEQUANTIZE", "ADD"],
    ]
    assert_same(data, files, feed_of(data))


def test_values_get_the_names_of_the_module() -> None:
    tensors = [T("x"), T("same"), T("same"), T("", data=bytes(16)), T("")]
    ops = [O("NEG", [0], [1]), O("EXP", [1], [2]), O("ADD", [2, 3], [4], options("AddOptions"))]
    data = build(Sub(tensors, ops, [0], [4]))
    module = load(data)
    segments = segments_of(module, [0, 1, 2])
    assert [segment.outputs for segment in segments] == [("same",), ("same#2",), ("tensor#4",)]
    files = cut(module, segments)
    held = feed_of(data)
    for file in files:
        held.update(run(file, held))
    assert held["tensor#4"].tobytes() == run(data, held)[""].tobytes()


def handle(output: int) -> O:
    return O("VAR_HANDLE", [], [output], options("VarHandleOptions", sharedName=b"state"))


def stateful() -> bytes:
    """One variable behind a handle, set once by a body, read and written; then an operator without state."""
    tensors = [T("x"), T("h", (), "RESOURCE"), T("r"), T("sum"), T("y")]
    ops = [
        O("CALL_ONCE", [], [], options("CallOnceOptions", initSubgraphIndex=1)),
        O("NEG", [0], [4]),
        handle(1),
        O("READ_VARIABLE", [1], [2]),
        O("ADD", [2, 4], [3], options("AddOptions")),
        O("ASSIGN_VARIABLE", [1, 3], []),
    ]
    start = Sub([T("h", (), "RESOURCE"), T("zero", data=bytes(16))], [handle(0), O("ASSIGN_VARIABLE", [0, 1], [])],
                [], [], "start")  # fmt: skip
    return build(Sub(tensors, ops, [0], [3]), start)


def test_operators_of_one_state_stay_together() -> None:
    data = stateful()
    module = load(data)
    assert capability(module, Stages).together(module) == ((0, 2, 3, 5),)
    files = cut(module, [Segment((1,), ("x",), ("y",)), Segment((0, 2, 3, 4, 5), ("y",), ("sum",))])
    whole, parts = interpreter(data), [interpreter(file) for file in files]
    for step in range(3):
        held: dict[str, Any] = {"x": np.full((1, 4), step + 1, np.float32)}
        for one in parts:
            for detail in one.get_input_details():
                one.set_tensor(detail["index"], held[detail["name"]])
            one.invoke()
            held.update({detail["name"]: one.get_tensor(detail["index"]) for detail in one.get_output_details()})
        whole.set_tensor(whole.get_input_details()[0]["index"], held["x"])
        whole.invoke()
        assert held["sum"].tobytes() == whole.get_tensor(whole.get_output_details()[0]["index"]).tobytes()
    with fails("state-shared", "('h')"):
        extract(module, Segment((2, 3), (), ("r",)), {})


def test_operators_of_one_variable_stay_together() -> None:
    tensors = [T("x"), T("state", variable=True), T("a"), T("b"), T("y")]
    ops = [O("SVDF", [0, 1], [2]), O("NEG", [2], [3]), O("SVDF", [3, 1], [4])]
    module = load(build(Sub(tensors, ops, [0], [4])))
    assert capability(module, Stages).together(module) == ((0, 2),)
    with fails("state-shared", "'a' and 'y'", "('state')"):
        extract(module, Segment((0, 1), ("x",), ("b",)), {})
    whole = extract(module, Segment((0, 1, 2), ("x",), ("y",)), {})
    assert [tensor.variable for tensor in tflite_model.parse(whole).subgraphs[0].tensors].count(True) == 1


def test_random_generators_may_be_apart() -> None:
    shape = T("shape", (2,), "INT32", int32s(1, 4))
    ops = [O("RANDOM_UNIFORM", [0], [1], options("RandomOptions", seed=1)),
           O("RANDOM_UNIFORM", [0], [2], options("RandomOptions", seed=2))]  # fmt: skip
    other = load(build(Sub([shape, T("a"), T("b")], ops, [], [1, 2])))
    assert capability(other, Stages).together(other) == ()


def test_handles_cannot_be_handed_over() -> None:
    tensors = [T("h", (), "RESOURCE"), T("y")]
    module = load(build(Sub(tensors, [O("READ_VARIABLE", [0], [1])], [0], [1])))
    with fails("not-handed-over", "'h'", "resource"):
        extract(module, Segment((0,), ("h",), ("y",)), {})


def test_metadata_that_holds_for_parts_is_kept() -> None:
    edges = tflite_metadata.encode_control_dependencies([((0, 2), (1, 5), (2, 6))])
    metadata = [
        ("min_runtime_version", b"2.3"),
        (tflite_metadata.OFFLINE_PLAN, bytes(20)),
        ("TFLITE_METADATA", b"about inputs"),
        (tflite_metadata.CONTROL_DEPENDENCIES, edges),
    ]
    module = load(build(branches(), metadata=metadata))
    names = [tensor.name for tensor in module.graph.tensors]
    outputs = [tuple(names[t] for op in part for t in module.graph.ops[op].outputs) for part in ((0, 2, 1), (4, 6))]
    first = extract(module, Segment((0, 2, 1), ("x",), outputs[0]), {"memsched.pipeline_stage": "1/2"})
    model = tflite_model.parse(first)
    assert {name: model.contents(buffer) for name, buffer in model.metadata} == {
        "min_runtime_version": b"2.3",
        "memsched.pipeline_stage": b"1/2",
        tflite_metadata.CONTROL_DEPENDENCIES: tflite_metadata.encode_control_dependencies([((0, 1),)]),
    }
    second = extract(module, Segment((4, 6), (outputs[0][0], outputs[0][1]), outputs[1]), {})
    assert tflite_metadata.control_dependencies(tflite_model.parse(second)) == ((),)


def test_bytes_outside_the_flatbuffer_move_into_it() -> None:
    weights = np.arange(4, dtype=np.float32).tobytes()
    model = unpack(build(Sub([T("x"), T("w", data=weights), T("y")], [O("CUSTOM:own", [0, 1], [2])], [0], [2])))
    buffer = model.buffers[1]
    buffer.data, buffer.offset, buffer.size = None, 1 << 20, 16
    operator = model.subgraphs[0].operators[0]
    operator.largeCustomOptionsOffset, operator.largeCustomOptionsSize = 1 << 20, 5
    size = len(pack(model)) + 15 & ~15
    buffer.offset, operator.largeCustomOptionsOffset = size, size + 16
    data = pack(model).ljust(size, b"\0") + weights + b"large"
    new = unpack(extract(load(data), Segment((0,), ("x",), ("y",)), {}))
    operator = new.subgraphs[0].operators[0]
    assert (bytes(operator.customOptions), operator.largeCustomOptionsOffset) == (b"large", 0)
    assert bytes(new.buffers[new.subgraphs[0].tensors[2].buffer].data) == weights


def test_weights_lie_at_multiples_of_16() -> None:
    data = (MODELS / "mobilenetv2_035_96_int8.tflite").read_bytes()
    module = load(data)
    for file in cut(module, segments_of(module, random_stages(module, 3, random.Random(0)))):
        assert all(buffer.start % 16 == 0 for buffer in tflite_model.parse(file).buffers if buffer.size)


def test_what_is_no_part_of_the_model_is_refused() -> None:
    module = load(build(branches()))
    for segment, expected in (
        (Segment((0,), (), ("wide0",)), ("read-before-made", "'x'")),
        (Segment((0,), ("x",), ("sum0",)), ("not-held", "'sum0'")),
        (Segment((0,), ("x", "axis"), ("wide0",)), ("not-given", "'axis'")),
    ):
        with fails(*expected):
            extract(module, segment, {})


def test_fields_of_a_later_schema_are_refused() -> None:
    data = bytearray(build(Sub([T("x"), T("y")], [O("CUSTOM:own", [0], [1], options("ReshapeOptions", newShape=[1]))],
                               [0], [1])))  # fmt: skip
    module = load(bytes(data))
    table = module.native.model.subgraphs[0].operators[0].table
    assert extract(module, Segment((0,), ("x",), ("y",)), {})
    # The same table under the number of one without fields, and under one that does not exist.
    slot = next(at for at in range(table, table + 40) if data[at] == schema.BuiltinOptions.ReshapeOptions)
    for number in (schema.BuiltinOptions.ExpOptions, 250):
        data[slot] = number
        with fails("later-schema"):
            extract(load(bytes(data)), Segment((0,), ("x",), ("y",)), {})
