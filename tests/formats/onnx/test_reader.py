"""Reading ONNX: structure, constants, bodies, functions, attributes and bad input."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from memsched.base.errors import GraphError, ModelError
from memsched.formats.module import LoadOptions
from memsched.formats.onnx import functions as onnx_functions
from memsched.formats.onnx import reader
from tests.failures import fails
from tests.formats.onnx_builder import (
    BOOL,
    INT64,
    branch,
    call,
    constant,
    function,
    make,
    node,
    read,
    relu_chain,
    sizes,
    value,
)


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
    assert any("'w'" in note for note in module.notes)


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


def test_sizes_follow_from_those_of_sparse_initializers() -> None:
    """ONNX's inference has no type for them, where ONNX Runtime makes tensors of them."""
    sparse = helper.make_sparse_tensor(constant("w", np.ones(2, np.float32)), constant("i", np.array([0, 9])), [4, 6])
    nodes = [node("MatMul", "x w", "m"), node("Relu", "m", "y")]
    model = make(nodes, [value("x", [2, 4])], [value("y", None)], sparse_initializer=[sparse])
    assert sizes(read(model)) == {"x": 32, "m": 48, "y": 48}


def test_sparse_initializers_are_constants() -> None:
    sparse = helper.make_sparse_tensor(constant("w", np.ones(2, np.float32)), constant("i", np.array([0, 3])), [4])
    model = make([node("Add", "x w", "y")], [value("x", [4])], [value("y", [4])], sparse_initializer=[sparse])
    module = read(model)
    assert sizes(module) == {"x": 16, "y": 16}
    assert module.weights_bytes == 8 + 16


def test_functions_without_a_kernel_are_read_as_their_steps() -> None:
    """In graphs, bodies and functions; names that are taken stay as they are."""
    then = branch("then", node("HardSwish", "a", "t"), outputs="t")
    other = branch("else", node("Neg", "a", "e"), outputs="e")
    nodes = [
        node("HardSwish", "x", "a", name="act"),
        node("If", "c", "b", then_branch=then, else_branch=other),
        call("F", "b", "a.HardSigmoid"),
        node("Abs", "a.HardSigmoid", "y"),
    ]
    inner = function("F", node("HardSwish", "p", "q"))
    given = [value("x", [4]), value("c", [], BOOL)]
    module = read(make(nodes, given, [value("y", [4])], functions=[inner], domains=["my"]))
    kinds = [op.type for op in module.graphs[0].ops]
    assert kinds == ["HardSigmoid", "Mul", "If", "HardSigmoid", "Mul", "Abs"]
    assert [op.name for op in module.graphs[0].ops][:2] == ["a.HardSigmoid_2", "act"]
    assert ["HardSigmoid", "Mul"] in [[op.type for op in graph.ops] for graph in module.graphs]
    assert any("HardSwish and Mish" in note for note in module.notes)


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
    with fails("calls-itself", "F"):
        read(model)


def test_functions_that_multiply_beyond_reason_are_refused() -> None:
    functions = [function("F0", node("Relu", "p", "q"))]
    functions += [function(f"F{i}", call(f"F{i - 1}", "p", "m"), call(f"F{i - 1}", "m", "q")) for i in range(1, 40)]
    model = make([call("F39", "x", "y")], [value("x", [8])], [value("y", None)], functions=functions, domains=["my"])
    with fails("too-many-ops"):
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


def test_nodes_without_names_get_unique_ones_and_own_names_stay() -> None:
    nodes = [
        node("Relu", "x", "a"),
        node("Relu", "x", "b"),
        node("Add", "a b", "c", name="d"),
        node("Relu", "c", "d"),
    ]
    module = read(make(nodes, [value("x", [4])], [value("d", None)]))
    assert [op.name for op in module.graph.ops] == ["a", "b", "d", "d#1"]
    # A node is the same wherever it is stored.
    moved = read(make([nodes[1], nodes[0], *nodes[2:]], [value("x", [4])], [value("d", None)]))
    assert [op.name for op in moved.graph.ops] == ["b", "a", "d", "d#1"]


def test_a_name_that_two_nodes_of_a_graph_have_is_refused() -> None:
    twice = [node("Relu", "x", "a", name="n"), node("Relu", "a", "y", name="n")]
    with fails("node-twice", "'net'", "'n'"):
        read(make(twice, [value("x", [4])], [value("y", None)]))
    # A Constant is no node for the runtime, and a body has names of its own.
    body = branch("body", node("Relu", "a", "b", name="n"), outputs="b")
    nodes = [
        node("Constant", "", "k", value_float=1.0, name="n"),
        node("Add", "x k", "a", name="n"),
        node("If", "c", "y", then_branch=body, else_branch=body),
    ]
    assert read(make(nodes, [value("x", [4]), value("c", [], BOOL)], [value("y", [4])])).graph.ops[0].name == "a"


def test_a_name_depends_on_the_nodes_of_its_own_graph_alone() -> None:
    """Bodies that are told apart by numbers counted over all graphs change places with the ops that run them."""
    bodies = [
        branch("body", node("Relu", captured, "inner"), node("Neg", "inner", "made"), outputs="made")
        for captured in "ab"
    ]
    nodes = [
        node("Abs", "x", "a"),
        node("Exp", "x", "b"),
        *(
            node("If", "cond", made, then_branch=body, else_branch=body)
            for made, body in zip("pq", bodies, strict=True)
        ),
        node("Add", "p q", "y"),
    ]
    given = [value("x", [4]), value("cond", [], BOOL)]
    first = read(make(nodes, given, [value("y", [4])]))
    second = read(make([nodes[1], nodes[3], nodes[0], nodes[2], nodes[4]], given, [value("y", [4])]))
    names = [[op.name for op in graph.ops] for graph in first.graphs]
    assert names[1:] == [["inner", "made"]] * 4
    assert [[op.name for op in graph.ops] for graph in second.graphs][1:] == names[1:]


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
    assert any("'s'" in note for note in module.notes)


def test_unread_outputs_of_unknown_size_count_nothing() -> None:
    nodes = [helper.make_node("Unfold", ["x"], ["y", "mask"], domain="my"), node("Relu", "y", "z")]
    model = make(nodes, [value("x", [4])], [value("z", None)], value_info=[value("y", [4])], domains=["my"])
    module = read(model)
    assert not next(tensor for tensor in module.graph.tensors if tensor.name == "mask").sized
    assert any("'mask'" in note for note in module.notes)


def corrupted() -> list[tuple[str, onnx.ModelProto | bytes, tuple[str, ...]]]:
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
        ("empty", b"", ("empty-file",)),
        ("random", bytes(range(7, 250)), ("not-onnx",)),
        ("truncated", relu_chain().SerializeToString()[:-7], ("not-onnx",)),
        ("no graph", no_graph, ("not-onnx",)),
        ("no nodes", make([], *two), ("no-ops",)),
        ("no opset", no_opset, ("no-opset", "opset_import")),
        ("opset of another domain", make([node("Relu", "x", "y")], *two, opset=1, domains=["my"]), ()),
        ("no IR version", no_ir, ("no-ir-version",)),
        ("IR version of the future", new_ir, ("newer-ir-version", "1000")),
        (
            "cycle",
            make([node("Add", "x b", "a"), node("Relu", "a", "b"), node("Relu", "b", "y")], *two),
            ("read-too-early",),
        ),
        ("reads itself", make([node("Add", "x y", "y")], *two), ("read-too-early",)),
        ("missing tensor", make([node("Add", "x gone", "y")], *two), ("no-producer", "'gone'")),
        ("missing output", make([node("Relu", "x", "a")], *two), ("no-producer", "'y'")),
        ("two producers", make([node("Relu", "x", "y"), node("Abs", "x", "y")], *two), ("two-producers",)),
        ("input produced", make([node("Relu", "x", "y"), node("Abs", "y", "x")], *two), ("two-producers",)),
        (
            "two inputs",
            make([node("Relu", "x", "y")], [value("x", [4]), value("x", [4])], two[1]),
            ("name-twice", "'x'"),
        ),
        ("two initializers", make([node("Add", "x w", "y")], *two, [weight, weight]), ("name-twice", "'w'")),
        (
            "negative dimension",
            make([node("Relu", "x", "y")], [value("x", [-4])], two[1]),
            ("negative-dimension", "-4"),
        ),
        (
            "absurd shape",
            make([node("Relu", "x", "y")], [value("x", [1 << 40, 1 << 40])], two[1]),
            ("absurd-size", "2^62"),
        ),
        ("negative constant", make([node("Add", "x w", "y")], *two, [absurd]), ("negative-dimension", "'w'")),
        ("element type", make([node("Relu", "x", "y")], [value("x", [4], 99)], two[1]), ("no-such-type", "99")),
        ("wrong declared type", wrong_type, ("type-differs", "float32", "int64")),
        (
            "input without type",
            make([node("Relu", "x", "y")], [onnx.ValueInfoProto(name="x")], two[1]),
            ("no-type", "'x'"),
        ),
        ("split into fewer", make([node("Split", "x", "y z", num_outputs=1)], *two, opset=18), ("bad-attribute", "1")),
        ("no equation", make([node("Einsum", "x", "y", equation=bytes(8))], *two), ("bad-attribute",)),
        (
            "endless split",
            make([node("Split", "x", "y", num_outputs=1 << 40)], *two, opset=18),
            ("bad-attribute", f"{1 << 40}"),
        ),
    ]


@pytest.mark.parametrize(
    ("model", "expected"), [case[1:] for case in corrupted()], ids=[case[0] for case in corrupted()]
)
def test_bad_models_give_one_clear_line(model: onnx.ModelProto | bytes, expected: tuple[str, ...]) -> None:
    data = model if isinstance(model, bytes) else model.SerializeToString()
    if not expected:
        del (proto := onnx.ModelProto.FromString(data)).opset_import[:1]
        data, expected = proto.SerializeToString(), ("no-opset", "opset_import")
    with fails(*expected, kind=ModelError) as caught:
        reader.read(data, "bad.onnx", LoadOptions())
    assert caught.value.location.split(": ")[0] == "bad.onnx"
    assert str(caught.value).count("bad.onnx") == 1
    assert "\n" not in str(caught.value)


def test_names_that_are_no_text_are_refused() -> None:
    data = relu_chain().SerializeToString().replace(b"Relu", b"\xff\xfe\xfd\xfc")
    with fails("not-utf8"):
        reader.read(data, "bad.onnx")


def test_native_inference_meets_no_value_without_a_type() -> None:
    encode = helper.make_node(
        "LabelEncoder", ["a"], ["y"], domain="ai.onnx.ml", keys_int64s=[1], values_floats=[1.0], default_float=0.0
    )
    nodes = [helper.make_node("Fuse", ["x"], ["a"], domain="my"), encode]
    model = make(nodes, [value("x", [4], INT64)], [value("y", None)], domains=["my", "ai.onnx.ml"])
    model.opset_import[2].version = 4
    with fails("unknown-shape", "'a'"):
        read(model)
    assert sizes(read(model, input_shapes={"a": (4,)})) == {"x": 32, "a": 32, "y": 16}


def test_a_capture_produced_too_late_is_refused() -> None:
    then, other = branch("t", node("Relu", "a", "t"), outputs="t"), branch("e", node("Relu", "x", "e"), outputs="e")
    nodes = [node("If", "c", "y", then_branch=then, else_branch=other), node("Abs", "x", "a")]
    with fails("read-too-early", "'a'"):
        read(make(nodes, [value("x", [4]), value("c", [], BOOL)], [value("y", None)]))


def test_graph_error_is_raised_for_structure() -> None:
    with pytest.raises(GraphError):
        read(make([node("Add", "x gone", "y")], [value("x", [4])], [value("y", None)]))
