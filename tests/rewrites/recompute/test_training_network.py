"""The training graph of the benchmarks: its gradients, and copies of its activations in ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from memsched.check.rewrite import check_rewrite
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx import rewriter
from memsched.lowering.apply import apply_target
from memsched.rewrites.recompute.rewrite import rematerialise
from memsched.rewrites.recompute.search import search
from memsched.runtimes.onnxruntime.verification import compare_models
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from memsched.targets.load import load_target
from scripts.networks.training import training


def with_weights(model: onnx.ModelProto, weights: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Return the model with the weights stored, not made."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    del changed.graph.node[:]
    changed.graph.node.extend(node for node in model.graph.node if node.op_type != "ConstantOfShape")
    changed.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    return changed


def test_the_gradient_is_that_of_the_loss() -> None:
    import onnxruntime as ort

    model = training()
    shapes = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    makers = [node for node in model.graph.node if node.op_type == "ConstantOfShape"]
    scores = next(node for node in model.graph.node if node.op_type == "MatMul").output[0]
    model.graph.output.append(helper.make_tensor_value_info(scores, onnx.TensorProto.FLOAT, [16, 10]))
    rng = np.random.default_rng(3)
    weights = {}
    for node in makers:
        extents = tuple(shapes[node.input[0]])
        fan_in = extents[0] if len(extents) == 2 else int(np.prod(extents[1:]))
        weights[node.output[0]] = (rng.standard_normal(extents) * np.sqrt(2 / fan_in)).astype(np.float32)
    images = rng.random((16, 3, 32, 32), np.float32)
    labels = np.eye(10, dtype=np.float32)[rng.integers(0, 10, 16)]

    def run(values: dict[str, np.ndarray]) -> tuple[float, list[np.ndarray]]:
        session = ort.InferenceSession(with_weights(model, values).SerializeToString())
        found = [np.asarray(one, np.float64) for one in session.run(None, {"images": images, "labels": labels})]
        logits = found.pop()
        return float(np.sum(np.log(np.sum(np.exp(logits), axis=1)) - np.sum(logits * labels, axis=1))), found

    gradients = run(weights)[1]
    # The outputs begin with the last layer.
    for name, gradient in zip(reversed(weights), gradients, strict=True):
        direction = gradient / np.linalg.norm(gradient)
        step = 1e-2
        high = run({**weights, name: (weights[name] + step * direction).astype(np.float32)})[0]
        low = run({**weights, name: (weights[name] - step * direction).astype(np.float32)})[0]
        assert (high - low) / (2 * step) == pytest.approx(np.sum(gradient * direction), rel=0.03)


def test_activations_computed_again_are_bit_equal() -> None:
    data = training().SerializeToString()
    module = load_module(data, "training.onnx", LoadOptions())
    graph, dialect, target = module.graphs[0], rewriter.dialect(module), load_target("ideal")
    order = schedule_graph(apply_target(graph, target), Run(Limits(None, effort=1.0))).schedule.order
    found = search(graph, order, target, dialect, Run(Limits(None, effort=1.0)), most_extra=0.1)
    assert found.best.peak < 0.95 * found.frontier[0].peak
    assert found.best.cost <= 0.1 * found.total
    again = rematerialise(graph, found.best.sequence, dialect).graph
    check_rewrite(graph, again)
    written = rewriter.serialize(module, again, range(len(again.ops)), {})
    assert compare_models(data, written).verification.outputs_equal
