"""Reading ONNX: structure, constants, bodies, functions, sizes, attributes and bad input."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.errors import GraphError, ModelError, UnknownShapeError, UsageError
from memsched.formats import onnx_functions, onnx_reader
from memsched.formats.module import LoadOptions, Module

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def value(name: str, shape: Sequence[int | str | None] | None, element: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def node(kind: str, reads: str, writes: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, reads.split(), writes.split(), **attributes)


def constant(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def make(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    *,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
    opset: int = 17,
    **graph: Any,
) -> onnx.ModelProto:
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    proto = helper.make_graph(nodes, "net", inputs, outputs, list(initializers), **graph)
    return helper.make_model(proto, opset_imports=imports, functions=functions, ir_version=10)


def read(model: onnx.ModelProto, **options: Any) -> Module:
    return onnx_reader.read(model.SerializeToString(), "net.onnx", LoadOptions(**options))


def sizes(module: Module, graph: int = 0) -> dict[str, int]:
    return {tensor.name: tensor.size for tensor in module.graphs[graph].tensors}


def relu_chain() -> onnx.ModelProto:
    return make([node("Relu", "x", "a", name="r"), node("Abs", "a", "y")], [value("x", [1, 4])], [value("y", None)])


def test_reads_tensors_ops_and_header() -> None:
    model = relu_chain()
    module = read(model)
    graph = module.graph
    assert (graph.name, module.format, module.path) == ("net", "onnx", "net.onnx")
    assert sizes(module) == {"x": 16, "a": 16, "y": 16}
    assert [(op.name, op.type, op.inputs, op.outputs, op.positions) for op in graph.ops] == [
        ("r", "Relu", (0,), (1,), (0,)),
        ("y", "Abs", (1,), (2,), (0,)),
    ]
    assert (graph.inputs, graph.outputs, module.notes, module.bodies) == ((0,), (2,), (), ())
    assert (graph.tensors[1].shape, graph.tensors[1].dtype) == ((1, 4), "float32")
    assert len(module.sha256) == 64


def test_absent_inputs_and_outputs_leave_no_tensors() -> None:
    clip = helper.make_node("Clip", ["x", "", "top"], ["y"])
    pool = helper.make_node("MaxPool", ["y"], ["z", ""], kernel_shape=[2])
    module = read(make([clip, pool], [value("x", [1, 1, 4]), value("top", [])], [value("z", None)]))
    assert module.graph.ops[0].positions == (0, 2)
    assert len(module.graph.ops[1].outputs) == 1


def test_constants_and_what_follows_from_them_are_no_steps() -> None:
    nodes = [
        node("Constant", "", "c", value=constant("c", np.ones((2, 3), np.float32))),
        node("Add", "c w", "d"),
        node("Mul", "x d", "y"),
    ]
    model = make(nodes, [value("x", [2, 3])], [value("y", None)], [constant("w", np.ones((3,), np.float32))])
    module = read(model)
    assert [op.type for op in module.graph.ops] == ["Mul"]
    assert sizes(module) == {"x": 24, "y": 24}
    assert module.constant_ops == 2
    assert module.weights_bytes == 24 + 12


@pytest.mark.parametrize(
    "random",
    [
        node("RandomNormalLike", "w", "r"),
        node("Bernoulli", "w", "r"),
        node("RandomUniform", "", "r", shape=[3]),
        helper.make_node("Dropout", ["w", "", "train"], ["r"]),
        helper.make_node("Draw", ["w"], ["r"], domain="my"),
    ],
)
def test_random_and_unknown_ops_of_constants_are_steps(random: onnx.NodeProto) -> None:
    weights = [constant("w", np.ones(3, np.float32)), constant("train", np.array(True))]
    model = make([random, node("Add", "x r", "y")], [value("x", [3])], [value("y", [3])], weights, domains=["my"])
    model.graph.value_info.append(value("r", [3]))
    assert [op.type.split(".")[-1] for op in read(model).graph.ops] == [random.op_type, "Add"]


def test_inputs_with_a_default_are_constants_and_noted() -> None:
    model = make(
        [node("Add", "x w", "y")],
        [value("x", [3]), value("w", [3])],
        [value("y", None)],
        [constant("w", np.ones(3, "f"))],
    )
    module = read(model)
    assert sizes(module) == {"x": 12, "y": 12}
    assert any("default" in note and "'w'" in note for note in module.notes)


def test_constant_outputs_are_noted_and_inputs_may_be_outputs() -> None:
    model = make(
        [node("Relu", "x", "y")],
        [value("x", [3])],
        [value("y", None), value("w", [3]), value("x", [3])],
        [constant("w", np.ones(3, "f"))],
    )
    module = read(model)
    assert [module.graph.tensors[t].name for t in module.graph.outputs] == ["y", "x"]
    assert any("'w'" in note for note in module.notes)


def test_sparse_initializers_are_constants() -> None:
    sparse = helper.make_sparse_tensor(constant("w", np.ones(2, np.float32)), constant("i", np.array([0, 3])), [4])
    model = make([node("Add", "x w", "y")], [value("x", [4])], [value("y", [4])], sparse_initializer=[sparse])
    module = read(model)
    assert sizes(module) == {"x": 16, "y": 16}
    assert module.weights_bytes == 8 + 16


def branch(name: str, *nodes: onnx.NodeProto, outputs: str, initializers: Any = ()) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [value(out, None) for out in outputs.split()], list(initializers))


def test_bodies_become_graphs_and_captures_inputs_of_their_op() -> None:
    then = branch("then", node("Relu", "a", "t"), outputs="t")
    inner = branch("inner", node("Add", "a b", "i"), outputs="i")
    deep = branch("deep", node("Neg", "b", "j"), outputs="j")
    other = branch("else", node("If", "c", "e", name="nested", then_branch=inner, else_branch=deep), outputs="e")
    nodes = [
        node("Abs", "x", "a"),
        node("Neg", "x", "b"),
        node("If", "c", "y", name="branching", then_branch=then, else_branch=other),
    ]
    module = read(make(nodes, [value("x", [2, 4]), value("c", [], BOOL)], [value("y", None)]))
    assert [(body.graph, body.parent, body.op) for body in module.bodies] == [
        (1, 0, 2),
        (2, 0, 2),
        (3, 1, 0),
        (4, 1, 0),
    ]
    op = module.graph.ops[2]
    assert [module.graph.tensors[t].name for t in op.inputs] == ["c", "a", "b"]
    assert op.positions == (0, -1, -1)
    outer = module.graphs[1]
    assert outer.name == "branching.else_branch"
    assert [(outer.tensors[t].name, outer.tensors[t].external) for t in outer.inputs] == [
        ("a", True),
        ("b", True),
        ("c", True),
    ]
    # What it makes is of a known size: the runtime makes room for it in the output of the op that executes it.
    assert [tensor.external for tensor in module.graphs[4].tensors] == [True, True, True]


def test_body_inputs_are_its_own_and_outer_constants_stay_constants() -> None:
    body = helper.make_graph(
        [node("Add", "state w", "next"), node("Identity", "next", "scan")],
        "body",
        [value("i", [], INT64), value("go", [], BOOL), value("state", [4])],
        [value("go", [], BOOL), value("next", None), value("scan", None)],
    )
    nodes = [node("Loop", "count go0 x", "last all", name="loop", body=body)]
    model = make(
        nodes,
        [value("x", [4])],
        [value("last", [4]), value("all", [5, 4])],
        [constant("w", np.ones(4, "f")), constant("count", np.array(5)), constant("go0", np.array(True))],
    )
    module = read(model)
    graph = module.graphs[1]
    assert [(graph.tensors[t].name, graph.tensors[t].external) for t in graph.inputs] == [
        ("i", False),
        ("go", False),
        ("state", False),
    ]
    assert module.graph.ops[0].inputs == (0,)
    assert module.graph.ops[0].positions == (2,)


def test_control_flow_of_constants_alone_stays_a_step() -> None:
    then = branch("then", node("Identity", "w", "t"), outputs="t")
    other = branch("else", node("Neg", "w", "e"), outputs="e")
    nodes = [node("If", "c", "k", then_branch=then, else_branch=other), node("Add", "x k", "y")]
    weights = [constant("c", np.array(True)), constant("w", np.ones(4, "f"))]
    module = read(make(nodes, [value("x", [4])], [value("y", None)], weights))
    assert [op.type for op in module.graph.ops] == ["If", "Add"]
    assert (module.graph.ops[0].inputs, len(module.graphs[1].ops)) == ((), 0)


def function(name: str, *nodes: onnx.NodeProto, domains: Sequence[str] = ("my",)) -> onnx.FunctionProto:
    imports = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_function("my", name, ["p"], ["q"], list(nodes), imports)


def call(name: str, reads: str, writes: str) -> onnx.NodeProto:
    return helper.make_node(name, [reads], [writes], domain="my")


def test_functions_are_inlined() -> None:
    inner = function("Inner", node("Relu", "p", "m"), node("Abs", "m", "q"))
    outer = function("Outer", call("Inner", "p", "m"), call("Inner", "m", "q"))
    model = make(
        [call("Outer", "x", "y")], [value("x", [8])], [value("y", None)], functions=[outer, inner], domains=["my"]
    )
    module = read(model)
    assert [op.type for op in module.graph.ops] == ["Relu", "Abs", "Relu", "Abs"]
    assert sum(sizes(module).values()) == 5 * 32
    assert any("inlined" in note for note in module.notes)


def test_recursive_functions_are_refused() -> None:
    first = function("F", call("G", "p", "q"))
    second = function("G", call("F", "p", "q"))
    model = make(
        [call("F", "x", "y")], [value("x", [8])], [value("y", None)], functions=[first, second], domains=["my"]
    )
    with pytest.raises(ModelError, match="calls itself"):
        read(model)


def test_functions_that_multiply_beyond_reason_are_refused() -> None:
    functions = [function("F0", node("Relu", "p", "q"))]
    functions += [function(f"F{i}", call(f"F{i - 1}", "p", "m"), call(f"F{i - 1}", "m", "q")) for i in range(1, 40)]
    model = make([call("F39", "x", "y")], [value("x", [8])], [value("y", None)], functions=functions, domains=["my"])
    with pytest.raises(ModelError, match="inlining"):
        read(model)
    assert not onnx_functions.calls_functions(relu_chain())


def test_unknown_domains_are_scheduled_where_value_info_tells() -> None:
    nodes = [helper.make_node("Fuse", ["x"], ["a"], domain="my"), node("Relu", "a", "y")]
    model = make(nodes, [value("x", [4])], [value("y", None)], value_info=[value("a", [7])], domains=["my"])
    module = read(model)
    assert (module.graph.ops[0].type, sizes(module)["y"]) == ("my.Fuse", 28)


def test_effects_without_outputs_keep_their_order() -> None:
    nodes = [helper.make_node("Print", ["x"], [], name=f"p{i}", domain="my") for i in range(3)]
    module = read(make([*nodes, node("Relu", "x", "y")], [value("x", [4])], [value("y", None)], domains=["my"]))
    assert module.graph.dependencies == ((0, 1), (1, 2))


def test_names_are_made_unique_but_own_names_stay() -> None:
    nodes = [
        node("Relu", "x", "a", name="n"),
        node("Relu", "a", "b", name="n"),
        node("Relu", "b", "c", name="d"),
        node("Relu", "c", "d"),
    ]
    module = read(make(nodes, [value("x", [4])], [value("d", None)]))
    assert [op.name for op in module.graph.ops] == ["n", "b", "d", "d#1"]


def test_attributes_and_small_constant_inputs() -> None:
    nodes = [
        node("Slice", "x starts ends axes", "a"),
        node("Concat", "a a", "b", axis=0),
        node("Constant", "", "low", value_float=0.5),
        node("Clip", "b low", "y"),
    ]
    weights = [constant("starts", [0]), constant("ends", [2]), constant("axes", [1])]
    ops = read(make(nodes, [value("x", [4, 4])], [value("y", None)], weights)).graph.ops
    # What an absent input means is stated: it is no input whose value is unknown.
    assert ops[0].attributes == {"starts": (0,), "ends": (2,), "axes": (1,), "steps": (1,)}
    assert (ops[1].attributes, ops[2].attributes) == ({"axis": 0}, {"min": (0.5,)})


@pytest.mark.parametrize(("element", "expected"), [("INT4", 5), ("UINT4", 5), ("FLOAT4E2M1", 5), ("BOOL", 9)])
def test_packed_and_one_byte_elements(element: str, expected: int) -> None:
    number = getattr(TensorProto, element)
    model = make([node("Identity", "x", "y")], [value("x", [9], number)], [value("y", [9], number)], opset=25)
    assert sizes(read(model)) == {"x": expected, "y": expected}


def test_values_without_a_size_are_noted() -> None:
    nodes = [node("SequenceConstruct", "x x", "s"), node("ConcatFromSequence", "s", "y", axis=0)]
    module = read(make(nodes, [value("x", [2, 3])], [value("y", [4, 3])]))
    tensor = module.graph.tensors[1]
    assert (tensor.name, tensor.size, tensor.sized) == ("s", 0, False)
    assert any("'s' (a sequence)" in note for note in module.notes)


def test_unread_outputs_of_unknown_size_count_nothing() -> None:
    nodes = [helper.make_node("Unfold", ["x"], ["y", "mask"], domain="my"), node("Relu", "y", "z")]
    model = make(nodes, [value("x", [4])], [value("z", None)], value_info=[value("y", [4])], domains=["my"])
    module = read(model)
    assert not next(tensor for tensor in module.graph.tensors if tensor.name == "mask").sized
    assert any("'mask'" in note for note in module.notes)


def corrupted() -> list[tuple[str, onnx.ModelProto | bytes, str]]:
    two = [value("x", [4])], [value("y", None)]
    no_graph = onnx.ModelProto(ir_version=8)
    no_opset, no_ir, new_ir = relu_chain(), relu_chain(), relu_chain()
    del no_opset.opset_import[:]
    no_ir.ClearField("ir_version")
    new_ir.ir_version = 1000
    absurd = constant("w", np.ones(3, "f"))
    absurd.dims[0] = -3
    wrong_type = make([node("Relu", "x", "a"), node("Relu", "a", "y")], *two, value_info=[value("a", [4], INT64)])
    weight = constant("w", np.ones(4, "f"))
    return [
        ("empty", b"", "empty"),
        ("random", bytes(range(7, 250)), "not an ONNX model"),
        ("truncated", relu_chain().SerializeToString()[:-7], "not an ONNX model"),
        ("no graph", no_graph, "no graph"),
        ("no nodes", make([], *two), "no nodes"),
        ("no opset", no_opset, "opset_import"),
        ("opset of another domain", make([node("Relu", "x", "y")], *two, opset=1, domains=["my"]), ""),
        ("no IR version", no_ir, "IR version"),
        ("IR version of the future", new_ir, "newer"),
        ("cycle", make([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")], *two), "cycle"),
        ("reads itself", make([node("Add", "x y", "y")], *two), "cycle"),
        ("missing tensor", make([node("Add", "x gone", "y")], *two), "'gone', which no op produces"),
        ("missing output", make([node("Relu", "x", "a")], *two), "graph output 'y'"),
        ("two producers", make([node("Relu", "x", "y"), node("Abs", "x", "y")], *two), "more than one producer"),
        ("input produced", make([node("Relu", "x", "y"), node("Abs", "y", "x")], *two), "more than one producer"),
        ("two inputs", make([node("Relu", "x", "y")], [value("x", [4]), value("x", [4])], two[1]), "two inputs"),
        ("two initializers", make([node("Add", "x w", "y")], *two, [weight, weight]), "two initializers"),
        ("negative dimension", make([node("Relu", "x", "y")], [value("x", [-4])], two[1]), "negative dimension -4"),
        ("absurd shape", make([node("Relu", "x", "y")], [value("x", [1 << 40, 1 << 40])], two[1]), "2\\^62"),
        ("negative constant", make([node("Add", "x w", "y")], *two, [absurd]), "negative"),
        ("element type", make([node("Relu", "x", "y")], [value("x", [4], 99)], two[1]), "element type"),
        ("wrong declared type", wrong_type, "float32 where the model declares int64"),
        ("input without type", make([node("Relu", "x", "y")], [onnx.ValueInfoProto(name="x")], two[1]), "no type"),
        ("split into fewer", make([node("Split", "x", "y z", num_outputs=1)], *two, opset=18), "splits into 1"),
        ("no equation", make([node("Einsum", "x", "y", equation=bytes(8))], *two), "equation"),
        ("endless split", make([node("Split", "x", "y", num_outputs=1 << 40)], *two, opset=18), "splits into"),
    ]


@pytest.mark.parametrize(
    ("model", "message"), [case[1:] for case in corrupted()], ids=[case[0] for case in corrupted()]
)
def test_bad_models_give_one_clear_line(model: onnx.ModelProto | bytes, message: str) -> None:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    if message == "":
        del (proto := onnx.ModelProto.FromString(data)).opset_import[:1]
        data, message = proto.SerializeToString(), "opset_import"
    with pytest.raises(ModelError, match=message) as caught:
        onnx_reader.read(data, "bad.onnx", LoadOptions())
    assert str(caught.value).startswith("bad.onnx: ")
    assert "\n" not in str(caught.value)


def test_names_that_are_no_text_are_refused() -> None:
    data = relu_chain().SerializeToString().replace(b"Relu", b"\xff\xfe\xfd\xfc")
    with pytest.raises(ModelError):
        onnx_reader.read(data, "bad.onnx")


def test_native_inference_meets_no_value_without_a_type() -> None:
    encode = helper.make_node(
        "LabelEncoder", ["a"], ["y"], domain="ai.onnx.ml", keys_int64s=[1], values_floats=[1.0], default_float=0.0
    )
    nodes = [helper.make_node("Fuse", ["x"], ["a"], domain="my"), encode]
    model = make(nodes, [value("x", [4], INT64)], [value("y", None)], domains=["my", "ai.onnx.ml"])
    model.opset_import[2].version = 4
    with pytest.raises(UnknownShapeError, match="'a'"):
        read(model)
    assert sizes(read(model, input_shapes={"a": (4,)})) == {"x": 32, "a": 32, "y": 16}


def test_a_capture_produced_too_late_is_refused() -> None:
    then, other = branch("t", node("Relu", "a", "t"), outputs="t"), branch("e", node("Relu", "x", "e"), outputs="e")
    nodes = [node("If", "c", "y", then_branch=then, else_branch=other), node("Abs", "x", "a")]
    with pytest.raises(ModelError, match="'a' before"):
        read(make(nodes, [value("x", [4]), value("c", [], BOOL)], [value("y", None)]))


class TestShapes:
    def test_unknown_input_names_the_exact_option(self) -> None:
        model = make([node("Relu", "x", "y")], [value("x", ["N", 3])], [value("y", None)])
        with pytest.raises(UnknownShapeError, match=r"'x' has shape \[N, 3\]; state it with --dim N=1$"):
            read(model)
        assert sizes(read(model, dims={"N": 5})) == {"x": 60, "y": 60}
        assert sizes(read(model, input_shapes={"x": (2, 3)})) == {"x": 24, "y": 24}

    @pytest.mark.parametrize(
        ("inputs", "options"),
        [
            ({"x": ["N", 3, "H", "W"]}, "--dim N=1 --dim 'H=<height>' --dim 'W=<width>'"),
            ({"x": [None, 3, None, None]}, "--input-shape 'x:1,3,<height>,<width>'"),
            ({"x": [None, None, None, 3]}, "--input-shape 'x:1,<height>,<width>,3'"),
            ({"x": ["?", 3, "?", "?"]}, "--input-shape 'x:1,3,<height>,<width>'"),
            ({"x": ["batch", "seq_len"], "m": ["batch", "seq_len"]}, "--dim batch=1 --dim 'seq_len=<seq_len>'"),
            ({"x": [None, None], "h": [2, None, 128]}, "--input-shape 'x:1,<length>' --input-shape h:2,1,128"),
            ({"x": [None, None, None]}, "--input-shape 'x:1,<length 1>,<length 2>'"),
            ({"x": None}, "--input-shape 'x:<shape>'"),
        ],
    )
    def test_every_open_size_is_asked_for_at_once(self, inputs: dict[str, Any], options: str) -> None:
        """With lengths that a model can have: a batch of one, and a word where people choose."""
        nodes = [node("Relu", name, f"{name}y") for name in inputs]
        outputs = [value(f"{name}y", None) for name in inputs]
        model = make(nodes, [value(name, dims) for name, dims in inputs.items()], outputs)
        with pytest.raises(UnknownShapeError) as caught:
            read(model)
        assert str(caught.value).endswith(f"; state it with {options}")
        assert shlex.split(options) == list(caught.value.options)

    def test_all_computed_sizes_that_others_follow_from_are_asked_for_at_once(self) -> None:
        nodes = [
            node("NonZero", "x", "n"),
            node("Transpose", "n", "y"),
            node("NonZero", "y", "m"),
            node("NonZero", "x", "k"),
        ]
        outputs = [value(name, None, INT64) for name in ("y", "m", "k")]
        with pytest.raises(UnknownShapeError) as caught:
            read(make(nodes, [value("x", [2, 5])], outputs))
        assert caught.value.options == ("--input-shape", "n:2,<most>", "--input-shape", "k:2,<most>")

    def test_a_name_for_everything_unknown_is_no_name(self) -> None:
        model = make([node("Relu", "x", "y")], [value("x", ["?", 3, "?", "?"])], [value("y", ["?", 3, "?", "?"])])
        module = read(model, input_shapes={"x": (1, 3, 6, 4)})
        assert sizes(module) == {"x": 288, "y": 288}
        assert any("'?' differ in length" in note for note in module.notes)

    def test_a_stated_input_shape_names_its_dimensions(self) -> None:
        model = make([node("Add", "x z", "y")], [value("x", ["N"]), value("z", ["N"])], [value("y", None)])
        assert sizes(read(model, input_shapes={"x": (6,)}))["z"] == 24

    def test_unnamed_dimensions_and_ranks(self) -> None:
        nameless = make([node("Relu", "x", "y")], [value("x", [None, 3])], [value("y", None)])
        with pytest.raises(UnknownShapeError, match="--input-shape x:1,3"):
            read(nameless)
        rankless = make([node("Relu", "x", "y")], [value("x", None)], [value("y", None)])
        with pytest.raises(UnknownShapeError, match="unknown rank"):
            read(rankless)
        assert sizes(read(rankless, input_shapes={"x": (2, 3)}))["y"] == 24
        minus_one = make([node("Relu", "x", "y")], [value("x", [-1, 3])], [value("y", None)])
        assert sizes(read(minus_one, input_shapes={"x": (2, 3)}))["y"] == 24

    def test_data_dependent_shapes_take_an_upper_bound(self) -> None:
        nodes = [node("NonZero", "x", "n"), node("Transpose", "n", "y")]
        model = make(nodes, [value("x", [2, 5])], [value("y", None, INT64)])
        with pytest.raises(
            UnknownShapeError, match=r"tensor 'n', output of op 'n' .NonZero.*--input-shape 'n:2,<most>'"
        ):
            read(model)
        assert sizes(read(model, input_shapes={"n": (2, 10)})) == {"x": 40, "n": 160, "y": 160}

    def test_custom_outputs_take_a_stated_shape_and_the_likely_type(self) -> None:
        nodes = [helper.make_node("Fuse", ["x"], ["a"], domain="my"), node("Relu", "a", "y")]
        model = make(nodes, [value("x", [4])], [value("y", None)], domains=["my"])
        with pytest.raises(UnknownShapeError, match=r"my\.Fuse"):
            read(model)
        module = read(model, input_shapes={"a": (3,)})
        assert sizes(module) == {"x": 16, "a": 12, "y": 12}
        assert any("element type of 'a'" in note for note in module.notes)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"input_shapes": {"x": (5, 4)}}, "fixes 1"),
            ({"input_shapes": {"x": (1, 4, 1)}}, "3 dimensions"),
            ({"input_shapes": {"a": (9, 9)}}, "fixes 1"),
            ({"input_shapes": {"no": (9, 9)}}, "no tensor of that name"),
            ({"dims": {"N": 3}}, "no symbolic dimension"),
        ],
    )
    def test_statements_that_do_not_fit(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            read(relu_chain(), **options)

    def test_contradicting_statements(self) -> None:
        model = make([node("Relu", "x", "y")], [value("x", ["N"])], [value("y", None)])
        with pytest.raises(UsageError, match="elsewhere 2"):
            read(model, dims={"N": 2}, input_shapes={"x": (3,)})

    def test_operators_win_over_contradicting_declarations(self) -> None:
        nodes = [node("Relu", "x", "a"), node("Relu", "a", "y")]
        module = read(make(nodes, [value("x", [2, 3])], [value("y", [9])], value_info=[value("a", [5, 3])]))
        assert sizes(module) == {"x": 24, "a": 24, "y": 24}
        assert sum("the computed shape holds" in note for note in module.notes) == 2

    def test_shape_arithmetic_is_carried_out(self) -> None:
        nodes = [
            node("Shape", "x", "s"),
            node("ReduceProd", "s", "p", keepdims=1),
            node("Constant", "", "two", value=constant("two", np.array([2], np.int64))),
            node("Div", "p two", "half"),
            node("Concat", "two half", "target", axis=0),
            node("Reshape", "x target", "r"),
            node("Transpose", "r", "y", perm=[1, 0]),
        ]
        module = read(make(nodes, [value("x", [3, 4])], [value("y", None)]))
        assert next(tensor for tensor in module.graph.tensors if tensor.name == "y").shape == (6, 2)
        assert [op.type for op in module.graph.ops][:2] == ["Shape", "ReduceProd"]

    def test_huge_ranges_are_not_computed(self) -> None:
        nodes = [node("Range", "zero n one", "r"), node("Cast", "r", "f", to=FLOAT), node("Add", "x f", "y")]
        weights = [constant(name, np.array(number)) for name, number in (("zero", 0), ("n", 1 << 40), ("one", 1))]
        module = read(make(nodes, [value("x", [1])], [value("y", None)], weights))
        assert sizes(module)["y"] == 4 << 40

    def test_large_constants_do_not_reach_the_inference(self) -> None:
        big = constant("big", np.ones((1000, 10), np.float32))
        nodes = [node("Constant", "", "k", value=big), node("MatMul", "x k", "a"), node("MatMul", "a w", "y")]
        model = make(nodes, [value("x", [2, 1000])], [value("y", None)], [constant("w", np.ones((10, 300), "f"))])
        module = read(model)
        assert sizes(module) == {"x": 8000, "a": 80, "y": 2400}
        assert module.weights_bytes == 40000 + 12000


def test_graph_error_is_raised_for_structure() -> None:
    with pytest.raises(GraphError):
        read(make([node("Add", "x gone", "y")], [value("x", [4])], [value("y", None)]))
