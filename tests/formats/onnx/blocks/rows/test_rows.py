"""Loops over rows of images, run beside the network as given, at heights and widths of every kind."""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, helper

from memsched.formats.blocks import Range
from memsched.formats.onnx.blocks.accurate import accurate
from memsched.formats.onnx.blocks.model import open_model
from memsched.formats.onnx.blocks.rows.loops import RowLoop, Span, spans_of
from memsched.formats.onnx.blocks.rows.plan import LoopWorks, arrange, choose
from memsched.formats.onnx.blocks.rows.write import write_rows
from memsched.formats.onnx.structure import graphs_of
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime.ranged import compare_at, draw_at, run_on
from tests.formats.onnx.blocks.rows.compare import compare, differences, field_of
from tests.formats.onnx.blocks.rows.images import LAYERS, Images
from tests.runtimes.onnxruntime.measured import run_at


@pytest.mark.parametrize("seed", [*range(24), 205])  # 205: nothing is worth a loop
def test_random_networks_compute_the_same_at_every_size(seed: int) -> None:
    numbers = random.Random(seed)
    compare(seed, [(numbers.randint(1, 3), 12 * numbers.randint(1, 8), 12 * numbers.randint(1, 5)) for _ in range(3)])


@pytest.mark.parametrize("layer", range(len(LAYERS)))
@pytest.mark.parametrize("seed", range(3))
def test_nothing_but_the_result_is_kept(layer: int, seed: int) -> None:
    net = Images()
    x = net.op("Relu", net.conv("x", 8))
    model = net.model(net.conv(LAYERS[layer](net, x, random.Random(seed)), 4))
    field = field_of(model)
    plan = arrange(LoopWorks(field, 1), frozenset(), 0)
    kept = {name for loop in plan.loops for name in loop.made}
    assert kept == {model.graph.output[0].name}
    written = write_rows(model, field, plan, 1)
    assert max(differences(model, written, [(1, 12, 12), (2, 84, 24), (1, 132, 36)])) <= 1e-5


def _stack(count: int) -> tuple[ModelProto, list[str]]:
    net = Images()
    made = ["x"]
    for _ in range(count):
        made.append(net.conv(made[-1], 8))
    return net.model(net.conv(made[-1], 3)), made


def test_halos_add_up_and_strides_align() -> None:
    net = Images()
    first = net.conv("x", 8)
    half = net.conv(first, 8, 4, rate=Fraction(1, 2), strides=[2, 2], pads=[1] * 4)
    last = net.conv(half, 8)
    field = field_of(net.model(last))
    loop = RowLoop((0, 1, 2), (last,), (), ("x",))
    spans, step = spans_of(field, loop)
    # A row of the half needs one more on both sides, which are four rows of the image, and one more of each padding.
    assert spans[half] == Span(Fraction(1), 1, 1)
    assert spans[first] == Span(Fraction(2), 4, 3)
    assert spans["x"] == Span(Fraction(2), 6, 4)
    assert step == 1


def test_more_work_is_less_memory_and_none_is_beyond_its_limit() -> None:
    model, made = _stack(6)
    field = field_of(model)
    plain = arrange(LoopWorks(field, 1), frozenset(), field.largest)
    (plan,) = choose(field, (1.01, 3.0), 1)
    assert not plain.loops
    assert 1.01 * field.work < plan.work <= 3 * field.work
    assert plan.peak <= plain.peak / 1.5
    assert len(plan.loops) < len(made)
    assert not choose(field, (1.01,), 1)


def test_an_image_goes_while_the_next_one_comes(tmp_path: Path) -> None:
    net = Images()
    made = ["x"]
    for width in (12, 16, 20, 16):
        made.append(net.instance_norm(net.conv(made[-1], width)))
    model = net.model(net.conv(made[-1], 1))
    ranges = {"batch": Range(1, 1), "height": Range(12, 1200, 12, named=True), "width": Range(12, 1200, 12, named=True)}
    field = field_of(model, ranges)
    plan = arrange(LoopWorks(field, 1), field.heavy, 0)
    assert len(plan.runs) == 1
    apart = dataclasses.replace(plan, runs=tuple((number,) for number in range(len(plan.loops))))
    took = []
    for name, one in (("together", plan), ("apart", apart)):
        written = write_rows(model, field, one, 1)
        onnx.save(written, tmp_path / f"{name}.onnx")
        assert max(differences(model, written, [(1, 1188, 60)])) <= 1e-5
        found = run_at(tmp_path / f"{name}.onnx", {"batch": 1, "height": 1200, "width": 1200}, seed=0)
        assert isinstance(found, Measured)
        took.append(found.peak)
    images = sorted(field.graph.bytes_of(name) for name in field.heavy)
    # Apart, the two largest images are there at once: one that is made, and the one that it is made of.
    assert took[0] < took[1] - 0.5 * images[-2]


def test_heights_beyond_the_range_are_refused() -> None:
    model, _ = _stack(3)
    field = field_of(model)
    written = write_rows(model, field, choose(field, (3.0,), 1)[0], 1)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(written.SerializeToString(), options)
    with pytest.raises(Exception, match="height_must_be_12_to_240_multiple_of_12"):
        session.run(None, {"x": np.zeros((1, 3, 252, 24), np.float32)})
    with pytest.raises(Exception, match="width_must_be_12_to_240_multiple_of_12"):
        session.run(None, {"x": np.zeros((1, 3, 24, 25), np.float32)})


def _normal(x: npt.NDArray[np.float32], groups: int) -> npt.NDArray[np.float64]:
    flat = x.astype(np.float64).reshape(len(x), groups, -1)
    found: npt.NDArray[np.float64] = (flat - flat.mean(2, keepdims=True)) / np.sqrt(flat.var(2, keepdims=True) + 1e-5)
    return found.reshape(x.shape)


@pytest.mark.parametrize("block", [1, 4 << 20])
def test_statistics_are_no_further_from_float64_than_the_runtimes_own(block: int) -> None:
    net = Images(4)
    model = net.model(net.instance_norm(net.op("MaxPool", "x", kernel_shape=[2, 1], strides=[2, 1])))
    reference, field = accurate(model), field_of(model)
    assert reference is not None
    written = write_rows(model, field, arrange(LoopWorks(field, block), frozenset(), 0), block)
    x = (np.random.default_rng(0).standard_normal((1, 4, 240, 240)) + 30).astype(np.float32)
    weights = {one.name: np.frombuffer(one.raw_data, np.float32) for one in model.graph.initializer}
    scale, bias = (weights[name].astype(np.float64).reshape(4, 1, 1) for name in model.graph.node[1].input[1:])
    exact = _normal(x.reshape(1, 4, 120, 2, 240).max(3), 4) * scale + bias
    errors = []
    for one in (model, reference, written):
        session = onnxruntime.InferenceSession(one.SerializeToString())
        errors.append(np.abs(session.run(None, {"x": x})[0] - exact).max())
    assert max(errors[1:]) <= errors[0]
    assert accurate(_stack(1)[0]) is None


def test_sizes_are_multiples_where_a_network_halves_and_doubles() -> None:
    net = Images()
    first = net.conv("x", 8)
    half = net.conv(first, 8, rate=Fraction(1, 2), strides=[2, 2])
    quarter = net.conv(half, 8, rate=Fraction(1, 2), strides=[2, 2])
    back = net.op("Add", net.resize(quarter, 2, mode="nearest"), half)
    net.shapes[back] = net.shapes[half]
    model = net.model(net.conv(net.op("Add", net.resize(back, 2, mode="nearest"), first), 1))
    ranges = {"height": Range(1, 1024, named=True), "width": Range(1, 1024, named=True)}
    opened = open_model(model.SerializeToString(), "net.onnx", {}, ranges)
    assert {name: span.multiple for name, span in opened.ranges.items()} == {"batch": 1, "height": 4, "width": 4}
    point = opened.points()[0]
    assert point.rows[-1].dimension == "height"
    written = ModelProto.FromString(point.build())
    assert max(differences(model, written, [(1, 8, 4), (2, 256, 32), (1, 100, 76)])) <= 1e-5


def test_old_operator_sets_are_raised_to_one_with_loops() -> None:
    net = Images()
    x = "x"
    for _ in range(4):
        x = net.op("Relu", net.conv(x, 16))
    model = net.model(net.conv(x, 1), opset=11)
    ranges = {"height": Range(1, 1024, named=True), "width": Range(1, 1024, named=True)}
    point = open_model(model.SerializeToString(), "net.onnx", {}, ranges).points()[0]
    written = ModelProto.FromString(point.build())
    assert [one.version for one in written.opset_import] == [13]
    assert max(differences(model, written, [(1, 9, 4), (2, 250, 33)])) <= 1e-5


def test_saturated_outputs_are_judged_beside_those_of_the_graph_as_it_is(tmp_path: Path) -> None:
    net = Images()
    normal = net.instance_norm(net.conv("x", 8))
    first, second = tmp_path / "first.onnx", tmp_path / "second.onnx"
    onnx.save(net.model(normal), first)
    net.nodes.append(helper.make_node("Mul", [normal, net.constant(np.float32(1.001))], ["moved"]))
    net.shapes["moved"] = net.shapes[normal]
    onnx.save(net.model("moved"), second)
    sizes = [{"batch": 1, "height": 24, "width": 36}]
    _, ((found,),) = compare_at([first, second], sizes, seed=0, tolerance=1e-5)
    assert found.apart is not None
    assert found.given_apart is not None
    assert found.given_apart < 1e-5 < found.apart
    _, ((same,),) = compare_at([first, first], sizes, seed=0, tolerance=1e-5)
    assert same.equal
    assert same.apart is None


def _deep(width: int, count: int) -> ModelProto:
    net = Images()
    x = net.conv("x", width)
    for _ in range(count):
        x = net.instance_norm(net.conv(x, width))
    return net.model(net.conv(x, 1))


@pytest.mark.parametrize("external", [False, True])
def test_weights_of_loops_are_held_once_and_are_constants_of_their_bodies(tmp_path: Path, external: bool) -> None:
    model = _deep(320, 9)
    field = field_of(model)
    plan = arrange(LoopWorks(field, 1), field.heavy, 0)
    assert len(plan.loops) > 8, "branches lie in branches"
    written = write_rows(model, field, plan, 1)
    stored = {one.name: one for one in model.graph.initializer}
    weights = sum(one.ByteSize() for one in stored.values())
    assert {one.name: one for one in written.graph.initializer if one.name in stored} == stored
    took = []
    for name, one in (("given", model), ("written", written)):
        path = tmp_path / f"{name}.onnx"
        onnx.save(
            onnx.load_model_from_string(one.SerializeToString()),
            path,
            save_as_external_data=external,
            location=f"{name}.data",
            size_threshold=4096,
        )
        draw_at(path, {"batch": 1, "height": 12, "width": 12}, tmp_path / "feeds.npz", seed=0)
        found = run_on(path, tmp_path / "feeds.npz", even=True)
        assert isinstance(found, Measured)
        took.append(found.peak)
    # For every body around they would be held once more. What lies beside the file as given is not read into the heap.
    assert took[1] < took[0] + (1.3 if external else 0.5) * weights
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    onnxruntime.InferenceSession(tmp_path / "written.onnx", options, providers=["CPUExecutionProvider"])
    session = onnx.load(tmp_path / "optimised.onnx", load_external_data=False)
    nodes = [node for scope in graphs_of(session.graph) for node in scope.graph.node]
    assert any(node.op_type == "Conv" for node in nodes)
    assert not any(set(stored) & set(node.input) for node in nodes if node.op_type in {"Conv", "Reshape"})


def test_a_session_is_opened_without_a_warning(tmp_path: Path) -> None:
    model = _deep(16, 10)
    field = field_of(model)
    plan = arrange(LoopWorks(field, 1), field.heavy, 0)
    assert max(map(len, plan.runs)) > 8
    onnx.save(write_rows(model, field, plan, 1), tmp_path / "written.onnx")
    opened = f"import onnxruntime\nonnxruntime.InferenceSession({str(tmp_path / 'written.onnx')!r})"
    told = subprocess.run([sys.executable, "-c", opened], capture_output=True, check=True, text=True)
    assert told.stderr == ""
