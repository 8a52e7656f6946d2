"""The generated networks: op for op the reference topologies, their published figures, and they run."""

from __future__ import annotations

import functools
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper

from memsched.graph.model import Graph
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.solve.schedule.portfolio import schedule_graph
from scripts.networks import __main__ as command
from scripts.networks.catalogue import EXPORTED, FURTHER, NAMES, PUBLISHED, build
from scripts.networks.random_weights import randomised
from scripts.networks.randwire import SEEDS, random_cell, watts_strogatz
from scripts.networks.table import lowered
from scripts.networks.topology import load_topology

REFERENCES = Path(__file__).parents[1] / "data" / "networks"
STORED = Path(__file__).parents[2] / "models" / "networks"

# ops, peaks in KB of 1024 bytes: file order, reverse post-order, proven optimum
FIGURES = {
    "nasnet_a": (651, 4405.91796875, 4405.91796875, 3943.875),
    "amoebanet_a": (577, 5001.625, 5038.375, 4630.5),
    "darts": (403, 1764.0, 1764.0, 1764.0),
    "randwire1": (557, 5494.125, 5494.125, 4538.625),
    "randwire2": (542, 6688.5, 6927.375, 6210.75),
    "randwire3": (522, 5255.25, 5255.25, 4777.5),
    "hrnet_w18_small_v1": (150, 6368.0, 7936.0, 6368.0),
    "hrnet_w18_small_v2": (280, 6396.0, 7936.0, 6396.0),
    "hrnet_w32": (536, 6592.0, 7936.0, 6592.0),
}
# The plane's mean before a classifier that is a MatMul: GlobalAveragePool gives a shape that MatMul does not take.
SAME_STEP = {("GlobalAveragePool", "ReduceMean")}

# Millions, from the publications; HRNet-W18-Small-V2 and W32 have a first stage of 64 channels there, of 32 here.
PARAMETERS = {
    "nasnet_a": 5.3,
    "amoebanet_a": 5.1,
    "darts": 4.7,
    "randwire1": 5.6,
    "randwire2": 5.6,
    "randwire3": 5.6,
    "hrnet_w18_small_v1": 13.2,
    "hrnet_w18_small_v2": 15.6,
    "hrnet_w32": 41.2,
    "pnasnet5_mobile": 5.1,
    "transformer": 85.0,
    "inception_resnet_v2": 55.9,
    "yolov8n": 3.15,
    "efficientnet_b0": 5.3,
    "unet_512": 7.76,
    "swin_t": 28.3,
    "whisper_tiny_encoder": 8.2,
    "gpt2_6": 82.0,
}
MULTIPLICATIONS = {"nasnet_a": 564, "pnasnet5_mobile": 588, "randwire1": 583, "randwire2": 583, "randwire3": 583}


@functools.cache
def model(name: str) -> ModelProto:
    return build(name)


@functools.cache
def graph(name: str) -> Graph:
    return lowered(model(name).SerializeToString(), name)


def steps(network: Graph) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Per op its type, the ops (or -1) that it reads from, and the bytes that it produces."""
    producer = {tensor: index for index, op in enumerate(network.ops) for tensor in op.outputs}
    return [
        (
            op.type,
            tuple(dict.fromkeys(producer.get(tensor, -1) for tensor in op.inputs)),
            tuple(network.tensors[tensor].size for tensor in op.outputs),
        )
        for op in network.ops
    ]


def run(session: onnxruntime.InferenceSession, seed: int) -> list[Any]:
    source = np.random.default_rng(seed)
    feeds = {item.name: source.standard_normal(item.shape).astype(np.float32) for item in session.get_inputs()}
    return list(session.run(None, feeds))


def session_of(network: ModelProto, level: onnxruntime.GraphOptimizationLevel) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    return onnxruntime.InferenceSession(network.SerializeToString(), options, providers=["CPUExecutionProvider"])


def test_every_network_of_the_figures_is_generated() -> None:
    assert set(PUBLISHED) == set(FIGURES) == {path.stem for path in REFERENCES.glob("*.json")}


@pytest.mark.parametrize("name", PUBLISHED)
def test_is_the_reference_topology_op_for_op(name: str) -> None:
    expected = steps(load_topology(REFERENCES / f"{name}.json"))
    got = steps(graph(name))
    assert [step[1:] for step in got] == [step[1:] for step in expected]
    renamed = {(before[0], after[0]) for before, after in zip(expected, got, strict=True) if before[0] != after[0]}
    assert renamed <= SAME_STEP


@pytest.mark.parametrize("name", PUBLISHED)
def test_has_the_published_figures(name: str) -> None:
    result = schedule_graph(graph(name), Run(Limits(time_limit=60)))
    assert result.schedule.status == "optimal"
    peaks = [result.baselines["file"][1], result.baselines["reverse post-order"][1], result.schedule.peak]
    assert (len(graph(name).ops), *(peak / 1024 for peak in peaks)) == FIGURES[name]


def parameters(network: ModelProto) -> int:
    constants = {item.name: numpy_helper.to_array(item) for item in network.graph.initializer}
    made = {
        node.output[0]: math.prod(int(extent) for extent in constants[node.input[-1]])
        for node in network.graph.node
        if node.op_type in {"ConstantOfShape", "Expand"}
    }
    read = {name for node in network.graph.node for name in node.input}
    biases = sum(constants[node.input[2]].size for node in network.graph.node if node.op_type == "Conv")
    return sum(size for name, size in made.items() if name in read) + biases


@pytest.mark.parametrize(("name", "millions"), PARAMETERS.items())
def test_has_about_the_published_number_of_parameters(name: str, millions: float) -> None:
    assert parameters(model(name)) / 1e6 == pytest.approx(millions, rel=0.013)


@pytest.mark.parametrize(("name", "millions"), MULTIPLICATIONS.items())
def test_has_about_the_published_number_of_multiplications(name: str, millions: float) -> None:
    assert sum(op.macs for op in graph(name).ops) / 1e6 == pytest.approx(millions, rel=0.02)


@pytest.mark.parametrize("name", NAMES)
def test_the_stored_file_is_what_the_generator_writes(name: str) -> None:
    data = (STORED / f"{name}.onnx").read_bytes()
    assert len(data) < 300_000
    assert ModelProto.FromString(data) == model(name)


def test_nothing_else_is_stored() -> None:
    assert {path.stem for path in STORED.glob("*.onnx")} == set(NAMES)
    assert sum(path.stat().st_size for path in STORED.iterdir()) < 3_000_000


@pytest.mark.parametrize("name", [*NAMES, *EXPORTED])
def test_is_valid_and_states_every_shape(name: str) -> None:
    network = model(name)
    onnx.checker.check_model(network, full_check=True)
    assert network.opset_import[0].version <= 17
    assert 8 <= network.ir_version <= 10
    stated = {value.name for value in (*network.graph.value_info, *network.graph.output)}
    weights = {"ConstantOfShape", "Expand"}
    assert all(set(node.output) <= stated for node in network.graph.node if node.op_type not in weights)
    # Inference in strict mode refuses a stated shape that contradicts the operators.
    onnx.shape_inference.infer_shapes(network, strict_mode=True)


@pytest.mark.parametrize("name", NAMES)
def test_runs_in_onnx_runtime(name: str) -> None:
    session = session_of(model(name), onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    outputs = run(session, 1)
    assert all(np.isfinite(output).all() and np.ptp(output) > 0 for output in outputs)
    if name in {"darts", "hrnet_w18_small_v1", "bifpn_d0", "lstm_unrolled"}:
        other = run(session, 2)
        assert all(not np.array_equal(before, after) for before, after in zip(outputs, other, strict=True))


@pytest.mark.parametrize("name", EXPORTED)
def test_runs_with_random_weights_in_a_session_without_options(name: str) -> None:
    network = randomised(model(name), 0)
    assert not {node.op_type for node in network.graph.node} & {"ConstantOfShape", "Expand"}
    session = session_of(network, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL)
    source = np.random.default_rng(1)
    feeds = {
        item.name: source.integers(0, 4, item.shape)
        if item.type == "tensor(int64)"
        else source.standard_normal(item.shape).astype(np.float32)
        for item in session.get_inputs()
    }
    (output,) = session.run(None, feeds)
    assert np.isfinite(output).all()
    assert output.std() > 0.01


@pytest.mark.parametrize("name", ["darts", "randwire2"])
def test_no_optimiser_takes_two_ops_for_the_same(name: str, tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.log_severity_level = 3
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(model(name).SerializeToString(), options, providers=["CPUExecutionProvider"])
    optimised = onnx.load(tmp_path / "optimised.onnx")
    for kinds in ({"Conv"}, {"MatMul", "Gemm"}):
        counts = [sum(node.op_type in kinds for node in network.graph.node) for network in (model(name), optimised)]
        assert counts[0] == counts[1]


@pytest.mark.parametrize("name", ["darts", "hrnet_w18_small_v1"])
def test_kept_activations_add_ops_and_nothing_else(name: str) -> None:
    kept = build(name, keep_activations=True)
    fused = steps(graph(name))
    whole = steps(lowered(kept.SerializeToString(), name))
    assert len(whole) > len(fused)
    assert [step[2] for step in whole if step[0] != "Relu"] == [step[2] for step in fused if step[0] != "Relu"]
    output = run(session_of(kept, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL), 1)[0]
    assert np.isfinite(output).all()
    assert np.ptp(output) > 0


def test_the_wiring_of_randwire_is_a_moved_ring() -> None:
    for seed in SEEDS.values():
        before = watts_strogatz(32, 4, 0.75, random.Random(seed))
        edges = [(low, high) for high, lows in enumerate(before) for low in lows]
        assert len(edges) == len(set(edges)) == 64
        assert all(low < high for low, high in edges)
    assert watts_strogatz(6, 2, 0.0, random.Random(0)) == [[], [0], [1], [2], [3], [0, 4]]


def test_a_random_cell_may_have_any_number_of_nodes() -> None:
    cell = lowered(random_cell(48, 7).SerializeToString(), "cell")
    assert sum(op.type == "Conv" for op in cell.ops) == 96


def test_the_other_networks_have_their_shapes() -> None:
    outputs = {
        name: [tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim) for value in model(name).graph.output]
        for name in FURTHER
    }
    assert outputs == {
        "pnasnet5_mobile": [(1, 1000)],
        "bifpn_d0": [(1, 64, 64 >> level, 64 >> level) for level in range(5)],
        "unetpp": [(1, 1, 256, 256)] * 4,
        "transformer": [(1, 128, 768)],
        "lstm_unrolled": [(1, 32, 128), (1, 1, 128)],
    }
    exported = {name: [value.type.tensor_type.shape.dim for value in model(name).graph.output] for name in EXPORTED}
    assert {name: [tuple(dim.dim_value for dim in shape) for shape in shapes] for name, shapes in exported.items()} == {
        "yolov8n": [(1, 84, 8400)],
        "efficientnet_b0": [(1, 1000)],
        "unet_512": [(1, 1, 512, 512)],
        "swin_t": [(1, 1000)],
        "whisper_tiny_encoder": [(1, 1500, 384)],
        "gpt2_6": [(1, 1, 50_257)],
        "sd_unet": [(1, 4, 64, 64)],
    }
    # Nodes of the nested U: five depths and ten on the skips, two convolutions each, and four heads.
    assert sum(op.type == "Conv" for op in graph("unetpp").ops) == 2 * 15 + 4
    # Eight fusing nodes per repeat, two convolutions each; five projections and that of P6.
    assert sum(op.type == "Conv" for op in graph("bifpn_d0").ops) == 3 * 8 * 2 + 6


def test_the_unrolled_cell_computes_an_lstm() -> None:
    network = model("lstm_unrolled")
    bias = numpy_helper.to_array(next(item for item in network.graph.initializer if item.name == "bias_512"))
    values = [
        float(numpy_helper.to_array(node.attribute[0].t)[0])
        for node in network.graph.node
        if node.op_type == "ConstantOfShape"
    ]
    source = np.random.default_rng(3)
    sequence, state, cell = (source.standard_normal(shape) for shape in ((32, 64), (128,), (128,)))
    feeds = {"sequence": sequence[None], "initial_state": state[None, None], "initial_cell": cell[None, None]}
    session = session_of(network, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    states, last = session.run(None, {name: value.astype(np.float32) for name, value in feeds.items()})
    for step in range(32):
        gates = values[0] * sequence[step].sum() + values[1] * state.sum() + bias
        forget, write, read = 1 / (1 + np.exp(-gates[:384].reshape(3, 128)))
        cell = forget * cell + write * np.tanh(gates[384:])
        state = read * np.tanh(cell)
        np.testing.assert_allclose(states[0, step], state, atol=1e-4)
    np.testing.assert_allclose(last[0, 0], cell, atol=1e-4)


def test_the_command_writes_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "folder" / "net.onnx"
    monkeypatch.setattr("sys.argv", ["networks", "lstm_unrolled", "-o", str(path)])
    assert command.main() == 0
    assert ModelProto.FromString(path.read_bytes()) == model("lstm_unrolled")


def test_the_command_prints_figures(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["networks", "--table", "hrnet_w18_small_v1"])
    assert command.main() == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("| hrnet_w18_small_v1 | 150 | 6368.0 | 7936.0 | 7936.0 | 6368.0 | 6368.0 | optimal |")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nasnet"], "there is no network 'nasnet'"), ([], "name a network"), (["darts"], "-o where to write")],
)
def test_the_command_says_what_is_wrong(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["networks", *arguments])
    with pytest.raises(SystemExit):
        command.main()
    assert message in capsys.readouterr().err
