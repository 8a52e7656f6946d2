"""Dimensions that an ONNX model leaves open: what is cut for one size is refused at others, the rest stays right."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.commands.optimize import finish
from memsched.commands.optimize import optimize as compiler
from memsched.commands.optimize.optimize import optimize
from memsched.formats.onnx import dimensions
from memsched.plan import write as writing
from memsched.report.schema import json_schema
from memsched.runtimes.onnxruntime.opened import opened
from memsched.runtimes.sessions import DEFAULT, LISTED
from tests.cli.conftest import Run
from tests.formats.tflite.test_open_sizes import halves, negated
from tests.needs import recent_onnxruntime
from tests.onnx_dags import shuffled, varied
from tests.outcomes import line_with
from tests.small_models import branches

pytestmark = recent_onnxruntime

FLOAT = TensorProto.FLOAT
REFUSED = "Got invalid dimensions for input"
NAMED = ("--order-guarantee", "session")
"""A session that is named: what another one's process and time are found to be here decides nothing."""


def weight(name: str, shape: Sequence[int]) -> onnx.TensorProto:
    rng = np.random.default_rng(len(name))
    return numpy_helper.from_array((rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32), name)


def model_of(nodes: Any, shape: Sequence[Any], out: Sequence[Any], weights: Any, known: Any = ()) -> bytes:
    def value(name: str, dims: Sequence[Any]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, FLOAT, dims)

    graph = helper.make_graph(
        nodes, "g", [value("x", shape)], [value("y", out)], weights, value_info=[value(*one) for one in known]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return bytes(made.SerializeToString())


def ffn() -> bytes:
    """Return a block of a transformer that is wide inside, its length open in every declaration."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "up"], ["h"], "up"),
        node("Relu", ["h"], ["r"], "act"),
        node("MatMul", ["r", "down"], ["y"], "down"),
    ]
    known = [("h", ["B", "N", 512]), ("r", ["B", "N", 512])]
    return model_of(nodes, ["B", "N", 64], ["B", "N", 64], [weight("up", (64, 512)), weight("down", (512, 64))], known)


def convolutions() -> bytes:
    """Return three convolutions that take images of any size; an output's dimensions have names of their own."""
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w1"], ["a"], "a", pads=[1] * 4),
        node("Relu", ["a"], ["r"], "r"),
        node("Conv", ["r", "w2"], ["b"], "b", pads=[1] * 4),
        node("Conv", ["b", "w3"], ["y"], "y", pads=[1] * 4),
    ]
    weights = [weight("w1", (16, 3, 3, 3)), weight("w2", (16, 16, 3, 3)), weight("w3", (2, 16, 3, 3))]
    return model_of(nodes, ["N", 3, "H", "W"], ["N", 2, "outH", "outW"], weights)


def sessions(model: bytes) -> list[Any]:
    """Open a model as the report says, and without any option."""
    return [opened(model, point) for point in (LISTED, DEFAULT)]


@pytest.mark.parametrize(
    ("make", "given", "right", "wrong", "fixed"),
    [
        (ffn, {"dims": {"B": 1, "N": 512}}, (1, 512, 64), (1, 600, 64), {"B": 1, "N": 512}),
        (ffn, {"dims": {"B": 1, "N": 512}}, (1, 512, 64), (2, 512, 64), {"B": 1, "N": 512}),
        (
            *(convolutions, {"input_shapes": {"x": (1, 3, 64, 64)}}, (1, 3, 64, 64), (1, 3, 80, 80)),
            {"N": 1, "H": 64, "W": 64},
        ),
    ],
)
def test_a_model_in_pieces_is_refused_at_other_sizes(make: Any, given: Any, right: Any, wrong: Any, fixed: Any) -> None:
    result = optimize(make(), level=2, effort=0.3, **given)
    report = result.report.data
    assert report["sections"]["tile"]["applied"]
    for session in sessions(result.model):
        assert session.run(None, {"x": np.ones(right, np.float32)})[0].shape[1:2] == (512 if make is ffn else 2,)
        with pytest.raises(Exception, match=REFUSED):
            session.run(None, {"x": np.ones(wrong, np.float32)})
    written = onnx.load_model_from_string(result.model)
    onnx.checker.check_model(written, full_check=True)
    declared = (*written.graph.input, *written.graph.output, *written.graph.value_info)
    assert all(dim.dim_value > 0 for value in declared for dim in value.type.tensor_type.shape.dim)
    assert {one["dimension"]: one["size"] for one in report["output"]["fixed_dimensions"]} == fixed
    tried = report["sections"]["verification"]["other_sizes"]
    assert {one["dimension"] for one in tried} == set(fixed)
    assert {one["outcome"] for one in tried} == {"refused"}
    assert len(tried) == 2 * len(fixed)
    jsonschema.validate(report, json_schema("report"))


def reopened(data: bytes) -> bytes:
    """Return a model as an earlier release would have written it: in pieces of one size, but open for any."""
    model = onnx.load_model_from_string(data)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[1].dim_param = "N"
    del model.graph.value_info[:]
    return bytes(model.SerializeToString())


def test_a_file_whose_dimensions_are_left_open_is_not_written(
    monkeypatch: pytest.MonkeyPatch, run: Run, tmp_path: Path
) -> None:
    """It returns 512 rows for 640, and no session complains."""
    write = writing.write_model

    def careless(*arguments: Any, **options: Any) -> Any:
        written = write(*arguments, **options)
        return dataclasses.replace(written, model=reopened(written.model))

    monkeypatch.setattr(finish, "write_model", careless)
    (tmp_path / "ffn.onnx").write_bytes(ffn())
    arguments = ("--dim", "B=1", "--dim", "N=512", "--allow", "reorder,inplace,tile", *NAMED, "--effort", 0.3)
    done = run("optimize", tmp_path / "ffn.onnx", *arguments)
    done.failed("outputs-differ", "N = 640", "[1, 512, 64]", "[1, 640, 64]")
    assert not (tmp_path / "ffn_memsched.onnx").exists()


@pytest.mark.quick
def test_verify_finds_a_file_that_is_wrong_at_another_size(run: Run, tmp_path: Path) -> None:
    """At the size that is stated, both compute the same."""
    found = optimize(ffn(), level=2, effort=1, dims={"B": 1, "N": 512}, verify=False)
    files = {"given": ffn(), "closed": found.model, "open": reopened(found.model)}
    for name, data in files.items():
        (tmp_path / f"{name}.onnx").write_bytes(data)
    sizes = ("--dim", "B=1", "--dim", "N=512")
    done = run("verify", tmp_path / "given.onnx", tmp_path / "open.onnx", *sizes, "--rtol", 1e-3, "--atol", 1e-3)
    assert done.code == 4
    assert "N = 640" in done.out
    done = run("verify", tmp_path / "given.onnx", tmp_path / "closed.onnx", *sizes, "--rtol", 1e-3, "--atol", 1e-3)
    assert done.code == 0, done.out
    assert "N = 640" in done.out


def test_verify_finds_a_tflite_file_that_drops_batches(run: Run, tmp_path: Path) -> None:
    for name, data in {"given": negated(), "halves": halves((-1, 4)), "closed": halves(None)}.items():
        (tmp_path / f"{name}.tflite").write_bytes(data)
    for name, code in {"halves": 4, "closed": 0, "given": 0}.items():
        done = run("verify", tmp_path / "given.tflite", tmp_path / f"{name}.tflite")
        assert done.code == code, done.out
        assert "x[0] = 2" in done.out
    told = json.loads(run("verify", tmp_path / "given.tflite", tmp_path / "halves.tflite", "--json").out)
    assert told["passed"] is False
    assert [one["outcome"] for one in told["other_sizes"]] == ["wrong"]


def test_the_terminal_says_what_is_fixed_and_tried(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ffn.onnx").write_bytes(ffn())
    arguments = ("--dim", "B=1", "--dim", "N=512", "--allow", "reorder,inplace,tile", *NAMED, "--effort", 0.3)
    done = run("optimize", tmp_path / "ffn.onnx", *arguments)
    assert done.code == 0, done.err
    assert line_with(done.out, "fixed", " B = 1, N = 512")
    assert line_with(done.out, " B = 2, B = 3, N = 640, N = 256: refused")
    report = json.loads((tmp_path / "ffn_memsched.json").read_text())
    assert {one["dimension"]: one["size"] for one in report["output"]["fixed_dimensions"]} == {"B": 1, "N": 512}
    tried = report["sections"]["verification"]["other_sizes"]
    assert [(one["size"], one["outcome"]) for one in tried] == [(size, "refused") for size in (2, 3, 640, 256)]


def skips(size: Any) -> bytes:
    """Return a net whose first value, of open size, is needed at both ends and is cheap to compute again."""
    node = helper.make_node
    nodes = [
        node("Exp", ["x"], ["a"], "a"),
        node("ReduceMean", ["a"], ["m"], "m", axes=[1, 2], keepdims=1),
        node("Mul", ["x", "m"], ["w"], "w"),
        node("Neg", ["w"], ["v"], "v"),
        node("ReduceMean", ["v"], ["n"], "n", axes=[1, 2], keepdims=1),
        node("Mul", ["a", "n"], ["y"], "y"),
    ]
    known = [(name, [size, 16, 16]) for name in "awv"]
    return model_of(nodes, [size, 16, 16], [size, 16, 16], [], known)


def same_at(given: bytes, written: bytes, shapes: Sequence[Sequence[int]]) -> None:
    for shape in shapes:
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        for before, after in zip(sessions(given), sessions(written), strict=True):
            (one,), (other,) = before.run(None, {"x": x}), after.run(None, {"x": x})
            assert one.shape == other.shape
            assert one.tobytes() == other.tobytes()


def test_values_computed_again_stay_right_at_every_size() -> None:
    given = skips("N")
    result = optimize(given, allow=("reorder", "inplace", "remat"), max_extra_macs=100.0, dims={"N": 64}, effort=1.0)
    report = result.report.data
    assert report["sections"]["recompute"]["applied"]
    assert report["output"]["fixed_dimensions"] == []
    assert {one["outcome"] for one in report["sections"]["verification"]["other_sizes"]} == {"equal"}
    same_at(given, result.model, [(64, 16, 16), (65, 16, 16), (7, 16, 16)])
    written = onnx.load_model_from_string(result.model)
    sizes = {dim.dim_value for value in written.graph.value_info for dim in value.type.tensor_type.shape.dim}
    assert 64 not in sizes


@pytest.mark.parametrize("guarantee", ["session", "pins", "default", "none"])
def test_orders_and_pins_stay_right_at_every_size(guarantee: Any) -> None:
    changed = 0
    for seed in range(1):
        model = shuffled(varied(seed), seed)
        given = model.SerializeToString()
        symbols = {one.name for one in dimensions.open_inputs(model)}
        result = optimize(given, order_guarantee=guarantee, effort=0.5, dims=dict.fromkeys(symbols, 6))
        if result.model == given or not symbols:
            continue
        changed += 1
        tried = result.report["sections"]["verification"]["other_sizes"]
        assert {one["outcome"] for one in tried} == {"equal"}, seed
    for given in (branches(side="N"), siblings("N")):
        result = optimize(given, order_guarantee=guarantee, effort=0.5, dims={"N": 16})
        if result.model != given:
            changed += 1
            tried = result.report["sections"]["verification"]["other_sizes"]
            assert [(one["size"], one["outcome"]) for one in tried] == [(20, "equal"), (8, "equal")]
            same_at(given, result.model, [feed_shape(given, 16), feed_shape(given, 5)])
    assert changed or guarantee == "none"


def feed_shape(model: bytes, size: int) -> list[int]:
    """Return the shape of the only input with its open dimension set."""
    (value,) = onnx.load_model_from_string(model).graph.input
    return [dim.dim_value or size for dim in value.type.tensor_type.shape.dim]


def siblings(size: Any) -> bytes:
    """Return a net for which ONNX Runtime's own order is worse than the file's, so that pins help."""
    node = helper.make_node
    nodes = [
        node("Mul", ["x", "two"], ["wide"], "wide"),
        node("Concat", ["wide"] * 4, ["wider"], "wider", axis=0),
        node("ReduceMean", ["wider"], ["mean"], "mean", axes=[0, 1, 2]),
        node("Sub", ["x", "two"], ["kept"], "kept"),
        node("Add", ["mean", "kept"], ["y"], "join"),
    ]
    return model_of(nodes, [1, size, 16], [1, size, 16], [numpy_helper.from_array(np.array([2], np.float32), "two")])


def test_sizes_that_no_input_has_are_not_cut() -> None:
    """Where a size depends on data, no runtime can be made to refuse another one."""
    node = helper.make_node
    nodes = [
        node("NonZero", ["x"], ["found"], "found"),
        node("Cast", ["found"], ["f"], "f", to=FLOAT),
        node("Transpose", ["f"], ["rows"], "rows", perm=[1, 0]),
        node("MatMul", ["rows", "up"], ["h"], "up"),
        node("Relu", ["h"], ["r"], "act"),
        node("MatMul", ["r", "down"], ["y"], "down"),
    ]
    given = model_of(nodes, [16, 16], ["K", 2], [weight("up", (2, 256)), weight("down", (256, 2))])
    result = optimize(given, level=2, input_shapes={"found": (2, 256)}, effort=1)
    assert result.report["sections"]["tile"] is None
    assert compiler._NOT_CUT in result.report["verdict"]["notes"]


def test_dimensions_are_fixed_wherever_they_are_declared() -> None:
    """In inputs and outputs, computed values, bodies and sequences; a name for two sizes is taken away."""
    body = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["n"], "n")],
        "body",
        [],
        [helper.make_tensor_value_info("n", FLOAT, ["N", 4])],
        value_info=[helper.make_tensor_value_info("inner", FLOAT, ["N", "twice", None])],
    )
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "a"),
        helper.make_node("If", ["c"], ["b"], "if", then_branch=body, else_branch=body),
        helper.make_node("SequenceConstruct", ["b"], ["s"], "s"),
        helper.make_node("SequenceAt", ["s", "zero"], ["y"], "y"),
    ]
    values = [
        helper.make_tensor_value_info("x", FLOAT, ["N", "twice"]),
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
    ]
    inside = helper.make_tensor_sequence_value_info("s", FLOAT, ["N", 4])
    graph = helper.make_graph(
        nodes, "g", values, [helper.make_tensor_value_info("y", FLOAT, ["N", None])],
        [helper.make_tensor("zero", TensorProto.INT64, [], [0])],
        value_info=[helper.make_tensor_value_info("a", FLOAT, ["twice", 4]), inside],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module = compiler.load(model.SerializeToString(), input_shapes={"x": (6, 4)}, dims={})
    dimensions.fix(model, module.graphs[0])

    def dims(value: onnx.ValueInfoProto) -> list[int | str | None]:
        (shape,) = dimensions._shapes(value.type)
        return [dim.dim_value or dim.dim_param or None for dim in shape.dim]

    main = model.graph
    assert [dims(value) for value in main.input] == [[6, 4], []]
    assert [dims(value) for value in main.output] == [[6, 4]]
    assert {value.name: dims(value) for value in main.value_info}["a"] == [6, 4]
    assert {value.name: dims(value) for value in main.value_info}["s"] == [6, 4]
    inner = main.node[1].attribute[0].g
    assert dims(inner.output[0]) == [6, 4]
    # "twice" stands for 4 in x and for 6 in a.
    assert dims(inner.value_info[0]) == [6, None, None]
