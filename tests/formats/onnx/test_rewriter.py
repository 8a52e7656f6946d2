"""Rewritten graphs as ONNX files: pieces on rows and channels, copies, helpers, in ONNX Runtime and read back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.base.errors import InternalError
from memsched.check.rewrite import check_rewrite, check_written
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx import rewriter
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph, Op, Region, Tensor
from memsched.runtimes.onnxruntime.verification import compare_models
from scripts.bench.offline import offline_optimized
from tests.failures import fails

RNG = np.random.default_rng(7)


def model_of(nodes: list[Any], weights: dict[str, np.ndarray], opset: int) -> bytes:
    """x (1, 4, 8, 6) -> ... -> y (1, 6, 8, 6)."""
    initializers = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 6, 8, 6])],
        initializers,
    )
    result: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8
    ).SerializeToString()
    return result


def two_convs(opset: int = 17, auto: bool = False) -> bytes:
    window: dict[str, Any] = {"auto_pad": "SAME_UPPER"} if auto else {"pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], "first", kernel_shape=[3, 3], **window),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Add", ["r", "bias"], ["s"], "add"),
        helper.make_node("Conv", ["s", "w2"], ["y"], "second", kernel_shape=[1, 1]),
    ]
    weights = {
        "w1": RNG.normal(size=(4, 4, 3, 3)),
        "b1": RNG.normal(size=4),
        "bias": RNG.normal(size=(1, 4, 8, 1)),
        "w2": RNG.normal(size=(6, 4, 1, 1)),
    }
    return model_of(nodes, weights, opset)


class Builder:
    """Appends ops and tensors to a graph that is rewritten by hand."""

    def __init__(self, module: Module, dialect: Dialect) -> None:
        self.given = module.graphs[0]
        self.dialect = dialect
        self.tensors = list(self.given.tensors)
        self.ops: list[Op] = []

    def tensor(self, name: str) -> int:
        return next(i for i, tensor in enumerate(self.tensors) if tensor.name == name)

    def new(self, name: str, shape: Sequence[int]) -> int:
        self.tensors.append(Tensor(name, 4 * int(np.prod(shape)), tuple(shape), "float32"))
        return len(self.tensors) - 1

    def keep(self, *names: str) -> None:
        self.ops += [op for op in self.given.ops if op.name in names]

    def slice(self, source: int, axis: int, begin: int, end: int, name: str) -> int:
        shape = self.tensors[source].shape
        assert shape is not None
        starts, ends = [0] * len(shape), list(shape)
        starts[axis], ends[axis] = begin, end
        made = self.new(name, [b - a for a, b in zip(starts, ends, strict=True)])
        attributes = self.dialect.slice_attributes(shape, starts, ends)
        self.ops.append(Op(f"{name}_slice", "Slice", (source,), (made,), attributes=attributes, positions=(0,)))
        return made

    def piece(self, origin: str, reads: int, axis: int, begin: int, end: int, pads: Any = None, **extra: Any) -> int:
        op = next(op for op in self.given.ops if op.name == origin)
        shape = self.given.tensors[op.outputs[0]].shape
        assert shape is not None
        ranges = [(0, size) for size in shape]
        ranges[axis] = (begin, end)
        name = f"{origin}#{axis}_{begin}"
        made = self.new(name, [b - a for a, b in ranges])
        attributes = op.attributes if pads is None else self.dialect.piece_attributes(op, pads)
        assert attributes is not None
        self.ops.append(
            replace(
                op,
                name=name,
                inputs=(reads,),
                outputs=(made,),
                origin=origin,
                region=Region(tuple(ranges)),
                attributes={**attributes, **extra},
                macs=0,
            )
        )
        return made

    def concat(self, parts: Sequence[int], axis: int, output: str) -> None:
        target = self.tensor(output)
        self.ops.append(
            Op(
                f"{output}_concat",
                "Concat",
                tuple(parts),
                (target,),
                attributes=self.dialect.concat_attributes(axis),
                positions=tuple(range(len(parts))),
            )
        )

    def graph(self, unused: Sequence[str] = ()) -> Graph:
        left = [i for i, tensor in enumerate(self.tensors) if tensor.name not in unused]
        place = {old: new for new, old in enumerate(left)}
        ops = tuple(
            replace(op, inputs=tuple(place[t] for t in op.inputs), outputs=tuple(place[t] for t in op.outputs))
            for op in self.ops
        )
        return replace(
            self.given,
            tensors=tuple(self.tensors[i] for i in left),
            ops=ops,
            inputs=tuple(place[t] for t in self.given.inputs),
            outputs=tuple(place[t] for t in self.given.outputs),
        )


def written(module: Module, data: bytes, graph: Graph) -> bytes:
    """Write, read back, compare with the plan, and run both models."""
    check_rewrite(module.graphs[0], graph)
    order = list(range(len(graph.ops)))
    result = rewriter.serialize(module, graph, order, {"memsched.test": "1"})
    check_written(graph, order, load_module(result, "written.onnx", LoadOptions()).graphs[0])
    proto = onnx.ModelProto.FromString(result)
    assert [(entry.key, entry.value) for entry in proto.metadata_props] == [("memsched.test", "1")]
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors}
    values = {
        value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim) for value in proto.graph.value_info
    }
    # Sizes are stated of all that is new, and of nothing that is gone.
    assert values.items() <= shapes.items()
    assert {tensor.name for tensor in graph.tensors} - {tensor.name for tensor in module.graphs[0].tensors} <= set(
        values
    )
    found = compare_models(data, result, rtol=1e-5, atol=1e-6)
    assert found.outputs_close, found.verification
    return result


def load(data: bytes) -> tuple[Module, Builder]:
    module = load_module(data, "given.onnx", LoadOptions())
    return module, Builder(module, rewriter.dialect(module))


@pytest.mark.parametrize(("opset", "auto"), [(9, False), (13, False), (17, True)])
def test_rows_in_two_pieces_compute_the_same(opset: int, auto: bool) -> None:
    data = two_convs(opset, auto)
    module, build = load(data)
    parts = []
    for begin, end in ((0, 4), (4, 8)):
        first, last = max(0, begin - 1), min(8, end + 1)
        rows = build.slice(build.tensor("x"), 2, first, last, f"x{begin}")
        pads = ((first - (begin - 1), end + 1 - last), (1, 1))
        made = build.piece("first", rows, 2, begin, end, pads, **({"auto_pad": "NOTSET"} if auto else {}))
        made = build.piece("relu", made, 2, begin, end)
        made = build.piece("add", made, 2, begin, end)
        parts.append(build.piece("second", made, 2, begin, end, ((0, 0), (0, 0))))
    build.concat(parts, 2, "y")
    result = onnx.ModelProto.FromString(written(module, data, build.graph(["a", "r", "s"])))
    names = {tensor.name for tensor in result.graph.initializer}
    assert {"w1", "b1", "w2"} <= names  # shared, not copied
    assert "bias" not in names  # each piece adds its own rows of it


def test_channels_in_two_pieces_get_their_part_of_the_weights() -> None:
    data = two_convs()
    module, build = load(data)
    build.keep("first", "relu", "add")
    parts = [build.piece("second", build.tensor("s"), 1, begin, end) for begin, end in ((0, 2), (2, 6))]
    build.concat(parts, 1, "y")
    result = onnx.ModelProto.FromString(written(module, data, build.graph()))
    assert sorted(tuple(t.dims) for t in result.graph.initializer if t.name.startswith("w2")) == [
        (2, 4, 1, 1),
        (4, 4, 1, 1),
    ]


def test_computed_weights_are_cut_by_a_constant_node() -> None:
    nodes = [
        helper.make_node(
            "ConstantOfShape", ["shape"], ["w"], "weights", value=numpy_helper.from_array(np.ones(1, "f"))
        ),
        helper.make_node("Conv", ["x", "w"], ["y"], "conv", kernel_shape=[1, 1]),
    ]
    model = onnx.ModelProto.FromString(model_of(nodes, {}, 17))
    model.graph.initializer.append(numpy_helper.from_array(np.array([6, 4, 1, 1]), "shape"))
    data = model.SerializeToString()
    module, build = load(data)
    parts = [build.piece("conv", build.tensor("x"), 1, begin, end) for begin, end in ((0, 3), (3, 6))]
    build.concat(parts, 1, "y")
    written(module, data, build.graph())


def test_a_copy_survives_the_optimiser_and_computes_the_same(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "relu"),
        helper.make_node("Conv", ["r", "w1"], ["a"], "first", kernel_shape=[1, 1]),
        helper.make_node("Add", ["a", "r"], ["s"], "add"),
        helper.make_node("Conv", ["s", "w2"], ["y"], "second", kernel_shape=[1, 1]),
    ]
    weights = {"w1": RNG.normal(size=(4, 4, 1, 1)), "w2": RNG.normal(size=(6, 4, 1, 1))}
    data = model_of(nodes, weights, 17)
    module, build = load(data)
    build.keep("relu", "first")
    relu, add, second = (next(op for op in build.given.ops if op.name == name) for name in ("relu", "add", "second"))
    copy = build.new("r#1", (1, 4, 8, 6))
    attributes = build.dialect.copy_attributes(relu, 1)
    build.ops.append(replace(relu, name="relu#1", outputs=(copy,), origin="relu", attributes=attributes))
    build.ops += [replace(add, inputs=(add.inputs[0], copy)), second]
    path = tmp_path / "copied.onnx"
    path.write_bytes(written(module, data, build.graph()))
    kept = [node.op_type for node in onnx.ModelProto.FromString(offline_optimized(path, "basic")).graph.node]
    assert kept.count("Relu") == 2


def test_what_does_not_fit_the_model_is_refused() -> None:
    module, build = load(two_convs())
    build.keep("first", "relu", "add", "second")
    graph = build.graph()
    strange = replace(graph, ops=(*graph.ops[:-1], replace(graph.ops[-1], name="new", origin="nothing")))
    with fails("unknown-op", "'nothing'"):
        rewriter.serialize(module, strange, range(4), {})
    with fails("op-count"):
        rewriter.serialize(module, graph, [0, 1, 2], {})
    with fails("op-differs"):
        check_written(graph, [0, 1, 2, 3], replace(graph, ops=(*graph.ops[:2], graph.ops[3], graph.ops[2])))
    for broken in (
        replace(graph.ops[2], type="Mul"),
        replace(graph.ops[2], name="new", macs=3),
        replace(graph.ops[2], origin="second"),
        replace(graph.ops[2], origin="add", region=Region(((0, 1), (0, 4), (0, 4), (0, 6)))),
    ):
        with pytest.raises(InternalError):
            check_rewrite(module.graphs[0], replace(graph, ops=(*graph.ops[:2], broken, graph.ops[3])))


def test_what_reads_steps_names_the_axes_that_it_cuts() -> None:
    old, new = (rewriter.dialect(load(two_convs(opset))[0]) for opset in (9, 17))
    assert old.stepped is None
    assert new.stepped is not None
    shape, starts = (1, 4, 8, 6), (0, 0, 1, 0)
    found = new.stepped.attributes(shape, starts, shape, (1, 1, 2, 1))
    assert found == {"starts": (1,), "ends": (8,), "steps": (2,), "axes": (2,)}
    assert new.stepped.attributes(shape, (0,) * 4, shape, (1,) * 4)["axes"] == (0,)
    assert "steps" not in old.slice_attributes(shape, starts, shape)
    assert new.slice_attributes(shape, starts, shape)["steps"] == (1,)


@pytest.mark.parametrize("cut", [False, True])
def test_sizes_are_fixed_where_pieces_are_cut_and_stay_open_for_copies(cut: bool) -> None:
    model = onnx.ModelProto.FromString(two_convs())
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "rows"
    module = load_module(model.SerializeToString(), "given.onnx", LoadOptions(dims={"rows": 1}))
    build = Builder(module, rewriter.dialect(module))
    build.keep("first", "relu", "add") if cut else build.keep("first", "relu", "add", "second")
    if cut:
        parts = [build.piece("second", build.tensor("s"), 1, begin, end) for begin, end in ((0, 2), (2, 6))]
        build.concat(parts, 1, "y")
    else:
        relu, add, second = build.ops[1:]
        copy = build.new("r#1", (1, 4, 8, 6))
        attributes = build.dialect.copy_attributes(relu, 1)
        again = replace(relu, name="relu#1", outputs=(copy,), origin="relu", attributes=attributes)
        build.ops[2:] = [again, replace(add, inputs=(copy, *add.inputs[1:])), second]
    graph = build.graph()
    result = onnx.ModelProto.FromString(rewriter.serialize(module, graph, range(len(graph.ops)), {}))
    dim = result.graph.input[0].type.tensor_type.shape.dim[0]
    assert (dim.dim_value, dim.dim_param) == ((1, "") if cut else (0, "rows"))


def test_first_versions_of_the_format_list_new_weights_as_inputs() -> None:
    model = onnx.ModelProto.FromString(two_convs(9))
    model.ir_version = 3
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    data = model.SerializeToString()
    module, build = load(data)
    build.keep("first", "relu", "add")
    parts = [build.piece("second", build.tensor("s"), 1, begin, end) for begin, end in ((0, 2), (2, 6))]
    build.concat(parts, 1, "y")
    result = onnx.ModelProto.FromString(written(module, data, build.graph()))
    names = {tensor.name for tensor in result.graph.initializer}
    assert "w2" not in names
    assert {value.name for value in result.graph.input} == {"x", *names}
