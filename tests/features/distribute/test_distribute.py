"""Plans for several devices turned into models and programs: whatever the plan, the outputs are the model's."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from memsched.features.distribute import distribute as distributing
from memsched.features.distribute.distribute import distribute, run_plan
from memsched.features.distribute.execute import execute
from memsched.features.distribute.expressed import inexpressible
from memsched.features.distribute.follow import follow
from memsched.features.distribute.plan import plan_in
from memsched.features.distribute.report import report_of
from memsched.features.distribute.search import search
from memsched.features.distribute.shares import even
from memsched.features.distribute.space import Space
from memsched.features.distribute.step_models import given_sends, program_of, step_model
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx.parts import PartsWriter
from memsched.formats.onnx.rewriter import dialect
from memsched.graph.distribution import Axis, Distribution
from memsched.report.outputs import TOLERANCE
from memsched.runtimes.compare import compare, relative_error
from memsched.runtimes.special import WORDS
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.cluster import LinearTime
from tests.distributed_nets import Net, classifier, cluster_of, play, random_net, random_plan, reference
from tests.failures import fails
from tests.rewrites.tile.onnx_layers import random_layer
from tests.rewrites.tile.onnx_pieces import Model
from tests.runtimes.test_special import IDENTITY
from tests.small_models import external_branches


def executed(model: bytes, module: Module, plan: Distribution) -> tuple[float, list[int], list[int]]:
    """Execute a plan in this process; return the error, the bytes held at most, and the bytes of weights."""
    rng = np.random.default_rng(0)
    feeds = {
        module.graph.tensors[tensor].name: rng.standard_normal(module.graph.tensors[tensor].shape).astype(np.float32)
        for tensor in module.graph.inputs
    }
    outputs, held, weights = outputs_of(module, plan, feeds)
    wanted = reference(model, feeds)
    assert list(outputs) == list(wanted)
    return relative_error(list(wanted.values()), list(outputs.values())), held, weights


def outputs_of(
    module: Module, plan: Distribution, feeds: Mapping[str, Any]
) -> tuple[dict[str, Any], list[int], list[int]]:
    """Execute a plan in this process; return outputs, the bytes held at most, and the bytes of weights."""
    words = dialect(module)
    followed = follow(module.graph, plan, words)
    steps = range(len(plan.steps))
    models = [[step_model(followed, device, step, words) for step in steps] for device in range(plan.devices)]
    writer = PartsWriter(module)
    weights = [0] * plan.devices

    def part(device: int, step: int) -> bytes:
        found = models[device][step]
        assert found is not None
        written = writer.write(found.graph, found.parts, {})
        onnx.checker.check_model(written.data, full_check=True)
        weights[device] += written.weights
        return written.data

    programs = [program_of(followed, device, models[device]) for device in range(plan.devices)]
    outputs, held = play(programs, given_sends(followed), part, feeds)
    return outputs, held, weights


@given(st.integers(0, 1 << 30))
@settings(max_examples=40)
def test_random_plans_of_random_networks_compute_the_same(seed: int) -> None:
    model = random_net(seed)
    module = load_module(model, "net.onnx", LoadOptions())
    plan = random_plan(module.graph, seed, PartsWriter(module).constant_bytes())
    error, _, _ = executed(model, module, plan)
    assert error <= TOLERANCE


@given(st.integers(0, 1 << 30))
@settings(max_examples=60)
def test_layers_of_every_kind_are_divided(seed: int) -> None:
    layer = random_layer(random.Random(seed))
    # In ceil mode ONNX's shapes and the runtime's differ where a window begins beyond the padding.
    assume(not layer.attributes.get("ceil_mode"))
    net = Model(layer.opset)
    net.add(layer, "layer_")
    results = net.run()
    module = load_module(net.bytes(shapes=results), "net.onnx", LoadOptions())
    assume(module.graph.ops and all(array.size for array in results.values()))
    plan = random_plan(module.graph, seed, PartsWriter(module).constant_bytes())
    outputs, _, _ = outputs_of(module, plan, net.feeds)
    wanted, found = list(results.values()), [outputs[name] for name in results]
    assert compare(wanted, found)[0] or relative_error(wanted, found) <= TOLERANCE


def test_weights_beside_the_model_go_into_its_parts(tmp_path: Path) -> None:
    path = external_branches(tmp_path)
    module = load_module(path.read_bytes(), str(path), LoadOptions())
    plan = random_plan(module.graph, 1)
    feeds = {"x": np.ones(module.graph.tensors[module.graph.inputs[0]].shape or (), np.float32)}
    outputs, _, weights = outputs_of(module, plan, feeds)
    wanted = reference(str(path), feeds)
    assert relative_error(list(wanted.values()), list(outputs.values())) <= TOLERANCE
    assert sum(weights) > 0


def test_nothing_is_held_twice() -> None:
    """What a process holds is what the plan counts, but for values that are put together where none is computed."""
    module = load_module(classifier(), "net.onnx", LoadOptions())
    writer = PartsWriter(module)
    space = Space.of(module.graph, None, writer.constant_bytes())
    axes: list[Axis] = [
        next(axis for axis in ("rows", "channels", "whole") if axis in found) for found in space.divisions
    ]
    plan = plan_in(space, even(space, axes, 3), cluster_of(3))
    _, held, weights = executed(classifier(), module, plan)
    for device, planned in enumerate(plan.memory):
        assert held[device] + weights[device] == pytest.approx(planned, rel=0.02)


def test_an_output_that_nobody_reads_needs_no_size() -> None:
    net = Net()
    x = net.conv(net.given(1, 3, 8, 8), 4)
    net.nodes.append(helper.make_node("Dropout", [x], ["dropped", "mask"], name="drop"))
    net.shapes["dropped"] = net.shapes[x]
    model = net.model(net.same("Relu", "dropped"))
    module = load_module(model, "net.onnx", LoadOptions())
    error, _, _ = executed(model, module, random_plan(module.graph, 3))
    assert error <= TOLERANCE


def late_inputs() -> bytes:
    """A sum of inputs, each of which is read only once the sum before it is there."""
    net = Net()
    x = net.same("Relu", net.given(1, 8, 16, 16))
    for _ in range(4):
        x = net.same("Add", x, net.given(1, 8, 16, 16))
    return net.model(x)


@pytest.mark.parametrize("data", [late_inputs(), classifier(), *map(random_net, (1, 2, 5))])
@pytest.mark.parametrize("method", ["single", "even"])
def test_other_plans_are_those_that_the_methods_find(data: bytes, method: Literal["single", "even"]) -> None:
    found = distribute(data, cluster=cluster_of(3), effort=0.5)
    order = [share.op for share in found.plan.shares]
    weights = found.models.writer.constant_bytes()
    refused = inexpressible(found.module.graph, dialect(found.module), weights)
    run = Run.of(Limits(None, effort=0.5))
    plan = search(
        *(found.module.graph, found.cluster, run), method=method, order=order, weights=weights, refused=refused
    )
    told = found.single if method == "single" else found.even
    assert (told.latency, told.memory, told.fits) == (plan.latency, plan.memory, True)
    assert found.plan.latency <= told.latency * (1 + 1e-8)


def test_the_other_plan_on_one_device_is_on_one_that_has_the_memory() -> None:
    data, equal = classifier(), cluster_of(2)
    needed = max(distribute(data, cluster=equal, method="single", effort=0.5).plan.memory)
    quick, slow = equal.devices
    small = replace(quick, memory=needed - 1)
    other = replace(slow, default=LinearTime(1e-6, 2e-9, 2e-10))
    found = distribute(data, cluster=replace(equal, devices=(small, other)), effort=0.5)
    assert found.single.fits
    assert found.single.memory[1] == needed


def test_no_plan_is_written_that_makes_something_else_of_nan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_nan(*told: Any) -> Any:
        *first, part, how = told

        def changed(device: int, step: int) -> bytes:
            model = onnx.load_model_from_string(part(device, step))
            name = model.graph.output[0].name
            for node in model.graph.node:
                node.output[:] = ["any" if one == name else one for one in node.output]
            model.graph.node.append(helper.make_node("IsNaN", ["any"], ["none"]))
            model.graph.node.append(helper.make_node("Where", ["none", "nothing", "any"], [name]))
            model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.float32), "nothing"))
            return bytes(model.SerializeToString())

        run: Any = execute
        return run(*first, changed, how)

    path = tmp_path / "net.onnx"
    path.write_bytes(IDENTITY)
    plan = distribute(path, cluster=cluster_of(2), method="even", effort=1.0)
    found = run_plan(plan)
    assert found.executed is not None
    assert tuple(report_of(found).data["run"]["special_values"]) == tuple(WORDS.values())
    monkeypatch.setattr(distributing, "execute", without_nan)
    with fails("outputs-differ", "NaN", " 0 "):
        run_plan(plan)
