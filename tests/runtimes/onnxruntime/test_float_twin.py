"""Dynamically quantized models: how far sessions without options are apart, and how far each is from the floats."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from memsched.runtimes.onnxruntime.float_twin import float_twin
from tests.runtimes.onnxruntime.measured import verify

WIDTH, LENGTH, LAYERS = 256, 64, 6


def feed_forward(erfs: int = 1) -> onnx.ModelProto:
    """Return layers of a transformer without attention, each activation in ``erfs`` parts, which no runtime merges."""
    rng = np.random.default_rng(0)
    weights: dict[str, onnx.TensorProto] = {}
    nodes: list[onnx.NodeProto] = []

    def weight(name: str, values: object) -> str:
        weights[name] = numpy_helper.from_array(np.asarray(values, np.float32), name)
        return name

    def node(kind: str, reads: list[str], made: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, reads, [made], f"{made}_node", **attributes))
        return made

    def linear(value: str, made: str, before: int, after: int) -> str:
        factor = weight(f"{made}_w", rng.standard_normal((before, after)) / np.sqrt(before))
        product = node("MatMul", [value, factor], f"{made}_product")
        return node("Add", [product, weight(f"{made}_b", 0.1 * rng.standard_normal(after))], made)

    value = "x"
    for layer in range(LAYERS):
        hidden = linear(value, f"up{layer}", WIDTH, 4 * WIDTH)
        scaled = node("Div", [hidden, weight("root", np.sqrt(2))], f"scaled{layer}")
        if erfs == 1:
            erf = node("Erf", [scaled], f"erf{layer}")
        else:
            parts = [f"part{layer}_{number}" for number in range(erfs)]
            nodes.append(helper.make_node("Split", [scaled], parts, f"split{layer}", axis=1))
            erf = node("Concat", [node("Erf", [one], f"{one}_erf") for one in parts], f"erf{layer}", axis=1)
        half = node("Mul", [hidden, node("Add", [erf, weight("one", 1)], f"sum{layer}")], f"twice{layer}")
        active = node("Mul", [half, weight("half", 0.5)], f"active{layer}")
        added = node("Add", [value, linear(active, f"down{layer}", 4 * WIDTH, WIDTH)], f"added{layer}")
        norms = [weight("gain", np.ones(WIDTH)), weight("shift", np.zeros(WIDTH))]
        value = node("LayerNormalization", [added, *norms], f"norm{layer}", axis=-1)
    shape = [1, LENGTH, WIDTH]
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", value))
    graph = helper.make_graph(nodes, "feed_forward", [given], [made], list(weights.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def quantized(model: onnx.ModelProto, path: Path) -> Path:
    """Store a model dynamically quantized."""
    onnx.save(model, path.with_suffix(".float.onnx"))
    quantize_dynamic(path.with_suffix(".float.onnx"), path, weight_type=QuantType.QInt8)
    return path


def outputs(model: Path | bytes, values: np.ndarray) -> np.ndarray:
    """Return what a session without options computes."""
    source = model if isinstance(model, bytes) else str(model)
    found: np.ndarray = onnxruntime.InferenceSession(source).run(None, {"x": values})[0]
    return found


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference by the largest magnitude of the first."""
    return float(np.abs(one - other).max() / np.abs(one).max())


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a quantized model, and one that is the same to the bit unless a session merges its activations."""
    folder = tmp_path_factory.mktemp("quantized")
    return quantized(feed_forward(), folder / "given.onnx"), quantized(feed_forward(2), folder / "written.onnx")


def test_the_twin_computes_what_the_weights_say(pair: tuple[Path, Path]) -> None:
    twin = float_twin(onnx.load(pair[0]))
    assert twin is not None
    values = np.random.default_rng(3).standard_normal((1, LENGTH, WIDTH)).astype(np.float32)
    exact = outputs(pair[0].with_suffix(".float.onnx"), values)
    beside = apart(exact, outputs(twin.SerializeToString(), values))
    # Weights are rounded in both, activations in the quantized one alone.
    assert 0 < beside < apart(exact, outputs(pair[0], values))
    assert float_twin(feed_forward()) is None


def test_how_far_sessions_are_apart_is_stated_and_how_far_from_floats(pair: tuple[Path, Path], tmp_path: Path) -> None:
    values = np.random.default_rng(3).standard_normal((1, LENGTH, WIDTH)).astype(np.float32)
    np.savez(tmp_path / "feeds.npz", x=values)
    found = verify(*pair, feeds=str(tmp_path / "feeds.npz"))
    assert found.outputs_equal
    assert found.default_apart
    given, written = (outputs(path, values) for path in pair)
    assert found.default_apart == pytest.approx(apart(given, written), rel=1e-6)
    twin = float_twin(onnx.load(pair[0]))
    assert twin is not None
    exact = outputs(twin.SerializeToString(), values)
    stated = [float(one) for note in found.stated for one in re.findall(r"\d\.\de-\d\d", note)]
    for error in (apart(given, written), apart(exact, given), apart(exact, written)):
        assert any(one == pytest.approx(error, rel=0.06) for one in stated), (error, found.stated)
