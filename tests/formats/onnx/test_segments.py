from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx import segments as onnx_segments
from memsched.formats.onnx.capabilities import OnnxStages
from memsched.formats.segment import Segment
from memsched.formats.segments import extract
from tests import onnx_dags
from tests.failures import fails
from tests.segment_cuts import LEVELS, assert_same, cut, load, random_stages, run, segments_of
from tests.small_models import floats, model_of

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)


def constant(name: str, values: Any, dtype: Any = np.float32) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array(values, dtype), name)


def node(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs, outputs, outputs[0], **attributes)


def in_two(data: bytes, first: int, **options: Any) -> tuple[list[bytes], list[Segment]]:
    """Cut a model behind its first ``first`` ops."""
    module = load(data, **options)
    segments = segments_of(module, [int(op >= first) for op in range(len(module.graph.ops))])
    return cut(module, segments), segments


def proto(data: bytes) -> onnx.ModelProto:
    return onnx.load_model_from_string(data)


MODELS: dict[str, Callable[[int], onnx.ModelProto]] = {
    "elementwise": onnx_dags.elementwise,
    "reshaping": lambda seed: onnx_dags.reshaping(seed, 17),
    "varied": onnx_dags.varied,
    "shapes": lambda seed: onnx_dags.elementwise(seed, shape_nodes=True, symbolic=True),
}


@given(st.sampled_from(sorted(MODELS)), st.integers(0, 10_000), st.integers(2, 5), st.booleans())
def test_segments_in_a_row_are_the_model(kind: str, seed: int, count: int, through: bool) -> None:
    model = MODELS[kind](seed)
    data = model.SerializeToString()
    module = load(data, dims={"rows": onnx_dags.ROWS} if kind == "shapes" else {})
    stages = random_stages(module, count, random.Random(seed))
    segments = segments_of(module, stages, through=through)
    assert_same(data, cut(module, segments), onnx_dags.feed_of(model, seed))


@pytest.mark.parametrize("name", ["resnet50", "densenet121", "shufflenet"])
def test_light_models_run_in_a_row(name: str) -> None:
    data = (LIGHT / f"light_{name}.onnx").read_bytes()
    module = load(data)
    segments = segments_of(module, random_stages(module, 4, random.Random(1)))
    files = cut(module, segments)
    shape = module.graph.tensors[module.graph.inputs[0]].shape
    feed = {segments[0].inputs[0]: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    assert_same(data, files, feed)


def test_a_segment_holds_only_what_it_needs() -> None:
    nodes = [
        node("Mul", ["x", "shared"], ["a"]),
        node("Gelu", ["a"], ["b"], domain="com.microsoft"),
        node("Add", ["b", "shared"], ["c"]),
        node("Mul", ["c", "last"], ["y"]),
    ]
    weights = [constant("shared", [2.0]), constant("last", [3.0]), constant("unread", [4.0])]
    model = proto(model_of(nodes, [floats("x", [3, 4])], [floats("y", [3, 4])], weights))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    helper.set_model_props(model, {"kept": "yes", "stage": "old"})
    data = model.SerializeToString()
    files, _ = in_two(data, 2)
    assert_same(data, files, {"x": X})
    first, second = map(proto, files)
    assert [tensor.name for tensor in first.graph.initializer] == ["shared"]
    assert [tensor.name for tensor in second.graph.initializer] == ["shared", "last"]
    assert {entry.domain for entry in first.opset_import} == {"", "com.microsoft"}
    assert {entry.domain for entry in second.opset_import} == {""}
    assert {entry.key: entry.value for entry in second.metadata_props} == {"kept": "yes", "stage": "1"}


def test_computed_constants_go_to_every_segment_that_needs_them() -> None:
    nodes = [
        node("Constant", [], ["two"], value=constant("two", [2.0])),
        node("Add", ["two", "one"], ["three"]),
        node("Mul", ["x", "three"], ["a"]),
        node("Neg", ["two"], ["unused"]),
        node("Sub", ["a", "three"], ["y"]),
    ]
    data = model_of(nodes, [floats("x", [3, 4])], [floats("y", [3, 4])], [constant("one", [1.0])])
    files, _ = in_two(data, 1)
    assert_same(data, files, {"x": X})
    for file in files:
        assert [one.output[0] for one in proto(file).graph.node][:2] == ["two", "three"]
        assert len(proto(file).graph.node) == 3


def test_outputs_keep_their_types_and_may_be_read_later() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Add", ["a", "b"], ["y"])]
    outputs = [floats("a", ["rows", 4]), floats("y", ["rows", 4])]
    data = model_of(nodes, [floats("x", ["rows", 4])], outputs)
    files, segments = in_two(data, 1, dims={"rows": 3})
    assert_same(data, files, {"x": X})
    assert [segment.outputs for segment in segments] == [("a",), ("y",)]
    graph = proto(files[0]).graph
    assert (graph.input[0], graph.output[0]) == (proto(data).graph.input[0], proto(data).graph.output[0])
    assert proto(files[1]).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "rows"
    # What the user stated when the model was read is no part of it: other numbers of rows run too.
    assert_same(data, files, {"x": np.ones((7, 4), np.float32)})


def test_a_stated_bound_of_what_depends_on_data_is_not_written() -> None:
    nodes = [node("NonZero", ["x"], ["places"]), node("Abs", ["places"], ["a"]), node("Neg", ["a"], ["y"])]
    y = helper.make_tensor_value_info("y", TensorProto.INT64, [2, None])
    data = model_of(nodes, [floats("x", [3, 4])], [y])
    shapes = {"places": (2, 12)}
    files, segments = in_two(data, 1, input_shapes=shapes)
    assert_same(data, files, {"x": np.eye(3, 4, dtype=np.float32)})
    module = load(data, input_shapes=shapes)
    assert OnnxStages().segment_options(module, segments[1]).input_shapes == {
        "places": (2, 12),
        "a": (2, 12),
        "y": (2, 12),
    }


def test_values_are_passed_through_under_their_names() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Add", ["a", "b"], ["y"])]
    data = model_of(nodes, [floats("x", [3, 4])], [floats("y", [3, 4])])
    module = load(data)
    files = cut(module, segments_of(module, [0, 1, 2], through=True))
    middle = proto(files[1]).graph
    assert [value.name for value in middle.output] == ["a", "b"]
    assert len(middle.node) == 1
    for level in (LEVELS.ORT_DISABLE_ALL, LEVELS.ORT_ENABLE_ALL):
        assert_same(data, files, {"x": X}, level)
    # Even a segment without ops runs.
    passing = extract(module, Segment((), ("a",), ("a",)), {})
    onnx.checker.check_model(proto(passing), full_check=True)
    assert run(passing, {"a": X})["a"].tobytes() == X.tobytes()


def test_inputs_go_to_all_segments_that_read_them_and_unused_ones_to_none() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Add", ["a", "x"], ["y"])]
    data = model_of(nodes, [floats("x", [3, 4]), floats("unused", [1])], [floats("y", [3, 4])])
    module = load(data)
    segments = segments_of(module, [0, 1])
    assert [segment.inputs for segment in segments] == [("x",), ("x", "a")]
    cut(module, segments)
    files = [extract(module, Segment((0,), ("x", "unused"), ("a",)), {}), extract(module, segments[1], {})]
    assert_same(data, files, {"x": X, "unused": np.ones(1, np.float32)})


def branching() -> bytes:
    """An If whose bodies capture a value, a weight and a computed constant; in one a Loop with a weight of its own."""
    step = helper.make_graph(
        [node("Identity", ["again"], ["go"]), node("Mul", ["value", "inner"], ["next"])],
        "step",
        [
            helper.make_tensor_value_info("trip", TensorProto.INT64, []),
            helper.make_tensor_value_info("again", TensorProto.BOOL, []),
            floats("value", [3, 4]),
        ],
        [helper.make_tensor_value_info("go", TensorProto.BOOL, []), floats("next", [3, 4])],
        [constant("inner", [1.5])],
    )
    loop = node("Loop", ["trips", "yes", "a"], ["looped"], body=step)
    then = helper.make_graph([loop, node("Add", ["looped", "sum"], ["t"])], "then", [], [floats("t", [3, 4])])
    other = helper.make_graph([node("Mul", ["a", "w"], ["e"])], "else", [], [floats("e", [3, 4])])
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Add", ["w", "w"], ["sum"]),
        node("Neg", ["x"], ["before"]),
        node("If", ["condition"], ["b"], then_branch=then, else_branch=other),
        node("Add", ["b", "before"], ["y"]),
    ]
    inputs = [floats("x", [3, 4]), helper.make_tensor_value_info("condition", TensorProto.BOOL, [])]
    constants = [constant("w", [2.0]), constant("trips", 3, np.int64), constant("yes", True, np.bool_)]
    return model_of(nodes, inputs, [floats("y", [3, 4])], constants)


@pytest.mark.parametrize("stages", [[0, 0, 1, 1], [0, 1, 2, 3], [0, 0, 1, 2]])
@pytest.mark.parametrize("condition", [True, False])
def test_bodies_go_with_what_they_capture(stages: list[int], condition: bool) -> None:
    data = branching()
    module = load(data)
    files = cut(module, segments_of(module, stages))
    assert_same(data, files, {"x": X, "condition": np.array(condition)})
    held = [{tensor.name for tensor in proto(file).graph.initializer} for file in files]
    assert [bool(names) for names in held] == [stage == stages[2] for stage in sorted(set(stages))]


def with_function(version: int) -> bytes:
    """A model whose function is inlined where it imports the model's own version of the operators."""
    imports = [helper.make_opsetid("", version)]
    inner = [helper.make_node("Relu", ["v"], ["w"]), helper.make_node("Neg", ["w"], ["r"])]
    used = helper.make_function("own", "Used", ["v"], ["r"], inner, imports)
    unused = helper.make_function("own", "Unused", ["v"], ["r"], inner, imports)
    nodes = [node("Used", ["x"], ["a"], domain="own"), node("Exp", ["a"], ["b"]), node("Abs", ["b"], ["y"])]
    graph = helper.make_graph(nodes, "main", [floats("x", [3, 4])], [floats("y", [3, 4])])
    graph.value_info.extend([floats("a", [3, 4])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[used, unused], ir_version=9)
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(("version", "left"), [(17, [[], []]), (16, [["Used"], []])])
def test_functions_go_where_they_are_called(version: int, left: list[list[str]]) -> None:
    data = with_function(version)
    module = load(data)
    stages = [int(op.name == "y") for op in module.graph.ops]
    files = cut(module, segments_of(module, stages))
    assert_same(data, files, {"x": X})
    assert [[one.name for one in proto(file).functions] for file in files] == left


def test_sequences_and_strings_go_from_segment_to_segment() -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["parts"], axis=0),
        node("SequenceLength", ["parts"], ["n"]),
        node("ConcatFromSequence", ["parts"], ["y"], axis=0),
    ]
    count = helper.make_tensor_value_info("n", TensorProto.INT64, [])
    data = model_of(nodes, [floats("x", [3, 4])], [count, floats("y", [3, 4])])
    files, _ = in_two(data, 1)
    assert_same(data, files, {"x": X})
    texts = [helper.make_tensor_value_info(name, TensorProto.STRING, [2]) for name in ("s", "t")]
    data = model_of([node("Identity", ["s"], ["a"]), node("Identity", ["a"], ["t"])], texts[:1], texts[1:])
    files, _ = in_two(data, 1)
    assert_same(data, files, {"s": np.array(["one", "two"], object)})


def test_elements_of_less_than_a_byte_keep_their_type() -> None:
    nodes = [
        node("QuantizeLinear", ["x", "scale"], ["q"], output_dtype=TensorProto.INT4),
        node("DequantizeLinear", ["q", "scale"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "m", [floats("x", [3, 4])], [floats("y", [3, 4])], [constant("scale", 0.5)])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    files, _ = in_two(data, 1)
    assert proto(files[1]).graph.input[0].type.tensor_type.elem_type == TensorProto.INT4


def test_old_models_list_initializers_as_inputs_and_defaults_stay_replaceable() -> None:
    nodes = [node("Mul", ["x", "w"], ["a"]), node("Mul", ["a", "v"], ["y"])]
    inputs = [floats(name, shape) for name, shape in (("x", [3, 4]), ("w", [1]), ("v", [1]))]
    model = proto(model_of(nodes, inputs, [floats("y", [3, 4])], [constant("w", [2.0]), constant("v", [3.0])]))
    files, _ = in_two(model.SerializeToString(), 1)
    assert [[value.name for value in proto(file).graph.input] for file in files] == [["x", "w"], ["a", "v"]]
    assert run(files[0], {"x": X})["a"].tobytes() == (X * 2).tobytes()
    model.ir_version = 3
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 8))
    files, _ = in_two(model.SerializeToString(), 1)
    assert_same(model.SerializeToString(), files, {"x": X})


def test_external_data_keeps_its_references(tmp_path: Path) -> None:
    weight = constant("w", np.arange(12).reshape(3, 4))
    nodes = [node("Mul", ["x", "w"], ["a"]), node("Neg", ["a"], ["y"])]
    model = proto(model_of(nodes, [floats("x", [3, 4])], [floats("y", [3, 4])], [weight]))
    path = tmp_path / "model.onnx"
    onnx.save_model(
        model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0, convert_attribute=False
    )
    module = load_module(path.read_bytes(), str(path), LoadOptions())
    segments = segments_of(module, [0, 1])
    files = [extract(module, segment, {}) for segment in segments]
    tensor = proto(files[0]).graph.initializer[0]
    assert {entry.key: entry.value for entry in tensor.external_data}["location"] == "weights.bin"
    assert not proto(files[1]).graph.initializer


def test_constant_outputs_are_handed_out_when_asked_for() -> None:
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["w"], ["c"])]
    outputs = [floats("y", [3, 4]), floats("c", [1]), floats("w", [1])]
    data = model_of(nodes, [floats("x", [3, 4])], outputs, [constant("w", [2.0])])
    module = load(data)
    file = extract(module, Segment((0,), ("x",), ("y", "c", "w")), {})
    onnx.checker.check_model(proto(file), full_check=True)
    assert_same(data, [file], {"x": X})


def test_what_is_no_part_of_the_model_is_refused() -> None:
    module = load(model_of([node("Relu", ["x"], ["y"])], [floats("x", [3, 4])], [floats("y", [3, 4])]))
    for segment, expected in (
        (Segment((0,), (), ("y",)), ("read-before-made", "'x'")),
        (Segment((0,), ("x",), ("z",)), ("not-held", "'z'")),
        (Segment((0,), ("x", "z"), ("y",)), ("not-given", "'z'")),
    ):
        with fails(*expected):
            extract(module, segment, {})


def test_annotations_and_sparse_weights_stay_with_what_they_describe() -> None:
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Neg", ["a"], ["y"])]
    dense = helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])
    sparse = helper.make_sparse_tensor(dense, helper.make_tensor("at", TensorProto.INT64, [2], [0, 5]), [4, 4])
    model = proto(model_of(nodes, [floats("x", [3, 4])], [floats("y", [3, 4])], [constant("s", [0.5])]))
    model.graph.sparse_initializer.append(sparse)
    note = model.graph.quantization_annotation.add(tensor_name="a")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    data = model.SerializeToString()
    # ONNX's inference does not know the shapes of sparse weights.
    module = load(data, input_shapes={"a": (3, 4)})
    files = [extract(module, segment, {}) for segment in segments_of(module, [0, 1])]
    assert_same(data, files, {"x": X})
    first, second = (proto(file).graph for file in files)
    assert [len(graph.sparse_initializer) for graph in (first, second)] == [1, 0]
    assert all(len(graph.quantization_annotation) == len(graph.initializer) == 1 for graph in (first, second))


def test_stages_are_written_into_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    data = branching()
    module = load(data)
    written = OnnxStages().annotate_stages(module, [0, 0, 1, 2])
    model = proto(written)
    onnx.checker.check_model(model, full_check=True)
    assert model.ir_version == 11
    stages = {one.output[0]: [each.pipeline_stage for each in one.device_configurations] for one in model.graph.node}
    assert stages == {"a": [0], "sum": [], "before": [0], "b": [1], "y": [2]}
    (configuration,) = model.configuration
    used = {one.configuration_id for each in model.graph.node for one in each.device_configurations}
    assert (used, configuration.num_devices) == ({configuration.name}, 3)
    feed = {"x": X, "condition": np.array(True)}
    assert run(written, feed)["y"].tobytes() == run(data, feed)["y"].tobytes()
    # A segment of the annotated model keeps the configuration that its nodes name.
    part = extract(load(written), Segment((0,), ("x",), ("a",)), {})
    onnx.checker.check_model(proto(part), full_check=True)
    assert len(proto(part).configuration) == 1
    with fails("op-count"):
        OnnxStages().annotate_stages(module, [0])
    monkeypatch.setattr(onnx, "IR_VERSION", 10)
    with fails("newer-ir-version", onnx.__version__):
        onnx_segments.annotate_stages(module, [0, 0, 1, 2])
