"""Plans for several devices turned into models and programs: whatever the plan, the outputs are the model's."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.distributed_models import given_sends, program_of, step_model
from memsched.distributed_running import TOLERANCE
from memsched.distributed_steps import follow
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx_parts import PartsWriter
from memsched.formats.onnx_rewriter import dialect
from memsched.graph.distribution import Distribution
from memsched.runtimes.compare import relative_error
from tests.distributed_nets import play, random_net, random_plan, reference


def executed(model: bytes, module: Module, plan: Distribution) -> tuple[float, list[int], list[int]]:
    """Execute a plan in this process; return the error, the bytes held at most, and the bytes of weights."""
    words = dialect(module)
    followed = follow(module.graph, plan, words)
    steps = range(len(plan.steps))
    models = [[step_model(followed, device, step, words) for step in steps] for device in range(plan.devices)]
    writer = PartsWriter(module)
    weights = [0] * plan.devices

    def part(device: int, step: int) -> bytes:
        found = models[device][step]
        assert found is not None
        written = writer.write(found.graph, {})
        onnx.checker.check_model(written.data, full_check=True)
        weights[device] += written.weights
        return written.data

    rng = np.random.default_rng(0)
    feeds = {
        module.graph.tensors[tensor].name: rng.standard_normal(module.graph.tensors[tensor].shape).astype(np.float32)
        for tensor in module.graph.inputs
    }
    programs = [program_of(followed, device, models[device]) for device in range(plan.devices)]
    outputs, held = play(programs, given_sends(followed), part, feeds)
    wanted = reference(model, feeds)
    assert list(outputs) == list(wanted)
    return relative_error(list(wanted.values()), list(outputs.values())), held, weights


@given(st.integers(0, 1 << 30))
@settings(max_examples=40)
def test_random_plans_of_random_networks_compute_the_same(seed: int) -> None:
    model = random_net(seed)
    module = load_module(model, "net.onnx", LoadOptions())
    plan = random_plan(module.graph, seed, PartsWriter(module).constant_bytes())
    error, _, _ = executed(model, module, plan)
    assert error <= TOLERANCE
