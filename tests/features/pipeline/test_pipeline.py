"""Models cut into stages: the network that is seen, files that run in a row, and requests that cannot be met."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from memsched.base.errors import VerificationError
from memsched.check.stages import check_stages
from memsched.commands.failures import DEFECTS
from memsched.features.pipeline import pipeline as pipelining
from memsched.features.pipeline import stage_files
from memsched.features.pipeline.pipeline import StagedModel, network_of, pipeline
from memsched.features.pipeline.report import file_names, report_of
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.graph.stages import Constraints
from memsched.runtimes import segments as runner
from memsched.runtimes.kernels import kernel_seconds
from memsched.runtimes.special import WORDS
from memsched.runtimes.values import Verification
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from scripts.networks.catalogue import build
from tests.distributed_nets import random_net
from tests.failures import fails
from tests.features.pipeline.networks import all_schedules
from tests.formats.tflite_builder import O, Sub, T, options, unpack
from tests.formats.tflite_builder import build as tflite
from tests.open_batches import MODES, fate, with_open_batch
from tests.runtimes.test_special import IDENTITY, ONNX
from tests.small_models import branches, floats, model_of
from tests.tools.differential.stages import counted

MODELS = Path(__file__).resolve().parents[3] / "models"
SIDE = 8


def residual(blocks: int = 4) -> bytes:
    """Convolutions with a skip connection around every second one; each has other weights."""
    nodes, weights, last = [], [], "x"
    for block in range(blocks):
        for half in range(2):
            name = f"conv{block}{'ab'[half]}"
            values = np.random.default_rng(2 * block + half).normal(size=(4, 4, 3, 3)).astype(np.float32)
            weights.append(numpy_helper.from_array(values, f"w_{name}"))
            source = last if not half else f"conv{block}a_out"
            nodes.append(helper.make_node("Conv", [source, f"w_{name}"], [f"{name}_out"], name=name, pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Add", [last, f"conv{block}b_out"], [f"sum{block}"], name=f"add{block}"))
        last = f"sum{block}"
    nodes.append(helper.make_node("Relu", [last], ["y"], name="relu"))
    shape = [1, 4, SIDE, SIDE]
    return model_of(nodes, [floats("x", shape)], [floats("y", shape)], weights)


def check(staged: StagedModel) -> None:
    check_stages(staged.network, staged.schedule, staged.constraints)
    assert staged.verification is not None
    assert staged.verification.outputs_equal
    assert [len(segment.segment.ops) for segment in staged.segments] == [len(part.layers) for part in staged.figures]


@pytest.mark.parametrize("name", ["hrnet_w18_small_v1", "randwire1"])
def test_what_a_stage_needs_does_not_depend_on_the_clock(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour passes whenever it is looked at, and there is no limit of time."""
    graph = load_module(build(name).SerializeToString(), name, LoadOptions()).graph
    hours = itertools.count(0, 3600)
    monkeypatch.setattr("time.monotonic", lambda: float(next(hours)))
    cost = pipelining._stage_memory(graph, load_target("coral_edgetpu"), Run(Limits(None)), reorder=True)
    peak, bound = cost(range(len(graph.ops)), [])
    assert peak == bound


def test_the_network_of_a_model() -> None:
    module = load_module(residual(2), "m.onnx", LoadOptions())
    network = network_of(module, module.graph)
    assert [layer.name for layer in network.layers] == [
        "conv0a", "conv0b", "add0", "conv1a", "conv1b", "add1", "relu",
    ]  # fmt: skip
    assert [[network.constants[constant] for constant in layer.constants] for layer in network.layers[:3]] == [
        [576], [576], [],
    ]  # fmt: skip
    assert network.layers[5].preds == (2, 4)
    first, last = network.values[0], network.values[-1]
    assert (first.name, first.producer, first.readers, first.size) == ("x", -1, (0, 2), 4 * SIDE * SIDE * 4)
    assert (last.name, last.readers, last.result) == ("y", (), True)


@pytest.mark.parametrize("skips", ["once", "through"])
@pytest.mark.parametrize("scheduler", ["exact", "heuristic", "respect"])
def test_segments_in_a_row(scheduler: str, skips: str) -> None:
    staged = pipeline(residual(), stages=3, scheduler=scheduler, skips=skips)  # type: ignore[arg-type]
    check(staged)
    assert max(part.parameters for part in staged.figures) >= 3 * 576
    assert sum(part.parameters for part in staged.figures) == 8 * 576


@pytest.mark.parametrize("balance", ["params", "macs", "memory", "time"])
def test_what_is_balanced(balance: str) -> None:
    check(pipeline(residual(), stages=4, balance=balance))  # type: ignore[arg-type]


def test_kernels_that_were_measured_are_balanced(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"conv0a": 0.01, "add3": 0.02, "relu": 0.03}
    monkeypatch.setattr(pipelining, "kernel_seconds", lambda *_, **__: seconds)
    staged = pipeline(residual(), stages=2, balance="time", profile="model", verify=False)
    times = staged.simulation.stages
    assert sorted(round(stage.compute, 9) for stage in times) == [0.03, 0.03]
    assert not any(stage.off_cache for stage in times)
    assert any("measured" in one for one in staged.simulation.assumptions)
    assert sum(part.macs for part in staged.figures) == sum(layer.macs for layer in staged.network.layers)
    assert report_of(staged, file_names("m.onnx", None, 2, None, annotated=True)).values.request.profile == "model"
    monkeypatch.setattr(pipelining, "kernel_seconds", lambda *_, **__: {"nothing": 1.0})
    with fails("no-operator-times", "--profile model"):
        pipeline(residual(), stages=2, balance="time", profile="model")


def test_every_kernel_of_an_onnx_model_is_measured() -> None:
    module = load_module(residual(2), "-", LoadOptions())
    seconds = kernel_seconds(module, residual(2))
    assert seconds.keys() == {op.name for op in module.graph.ops}
    assert min(seconds.values()) >= 0 < sum(seconds.values())
    path = MODELS / "person_detect.tflite"
    with fails("no-operator-times", "litert"):
        pipeline(str(path), stages=2, profile="model")


def test_stages_are_written_into_the_whole_model() -> None:
    staged = pipeline(residual(), stages=2, verify=False)
    assert staged.annotated is not None
    model = onnx.load_from_string(staged.annotated)
    assert model.ir_version >= 11
    assert {node.device_configurations[0].pipeline_stage for node in model.graph.node} == {0, 1}
    assert pipeline(residual(), stages=2, verify=False, annotate=False).annotated is None


def test_cuts_that_were_asked_for() -> None:
    staged = pipeline(residual(), stages=2, cut_after=["add0"])
    check(staged)
    assert staged.segments[0].segment.ops == (0, 1, 2)
    staged = pipeline(residual(), stages=3, never_cut=["conv1a", "conv1b", "add1"], children_together=True)
    check(staged)
    stage = {layer.name: at for layer, at in zip(staged.network.layers, staged.schedule.stages, strict=True)}
    assert stage["conv1a"] == stage["conv1b"] == stage["add1"] == stage["conv2a"] == stage["add2"]


def test_tflite_models() -> None:
    staged = pipeline(str(MODELS / "micro_speech_quantized.tflite"), stages=2)
    check(staged)
    assert staged.annotated is None
    assert all(segment.model[4:8] == b"TFL3" for segment in staged.segments)


def test_one_stage_is_the_model_itself() -> None:
    staged = pipeline(branches(), stages=1)
    check(staged)
    assert staged.figures[0].layers == tuple(range(len(staged.network.layers)))


@pytest.mark.parametrize(
    ("options", "code", "about"),
    [
        ({"stages": 0}, "option-range", ("--stages 0",)),
        ({"stages": 99}, "too-many-stages", ("99", "13")),
        ({"stages": 2, "cut_after": ["conv0"]}, "no-such-operator", ("--cut-at 'conv0'", "'conv0b'")),
        ({"stages": 2, "never_cut": ["nothing"]}, "no-such-operator", ("--", "'nothing'")),
        ({"stages": 2, "cut_after": ["add0"], "never_cut": ["add0"]}, "cut-never-cut", ("'add0'",)),
        ({"stages": 2, "scheduler": "heuristic", "balance": "macs"}, "option-conflict", ("heuristic", "macs", "exact")),
        ({"stages": 2, "target": "tflm"}, "no-pipeline", ("'tflm'", "[pipeline]")),
    ],
)
def test_requests_that_cannot_be_met(options: dict[str, object], code: str, about: tuple[str, ...]) -> None:
    with fails(code, *about):
        pipeline(residual(), **options)  # type: ignore[arg-type]


def test_other_outputs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Verification("onnxruntime", 1, False, 1.0, None, None, None, None, relative_error=1.0)
    monkeypatch.setattr(runner, "run_in_a_row", lambda *_, **__: found)
    with fails("outputs-differ"):
        pipeline(residual(), stages=2)


def test_constraints_reach_the_schedule() -> None:
    staged = pipeline(residual(), stages=2, cut_after=["add1"], verify=False)
    assert staged.constraints == Constraints(2, cut_after=(5,))


@pytest.mark.parametrize("skips", ["once", "through"])
def test_rows_add_up_to_what_is_said(skips: str) -> None:
    """The cut of least traffic where tensors are handed through is not that where they are sent once."""
    staged = pipeline(residual(), stages=4, skips=skips, verify=False)  # type: ignore[arg-type]
    rows = report_of(staged, file_names("net.onnx", None, 4, None, annotated=True)).data
    received = sum(stage["receives_bytes"] for stage in rows["stages"])
    assert received == rows["result"]["communication_bytes"] + rows["result"]["inputs_bytes"]
    assert rows["result"]["status"] == "optimal"
    schedules = all_schedules(staged.network, staged.constraints)
    best = min(counted(staged.network, stages, 4, "params", staged.constraints.skips) for stages in schedules)
    assert (staged.schedule.objective, staged.schedule.communication) == best


@pytest.mark.parametrize("skips", ["once", "through"])
@pytest.mark.parametrize("seed", range(6))
def test_memory_that_is_balanced_is_what_the_segments_need(seed: int, skips: str) -> None:
    data = random_net(seed) if seed else branches(2)
    staged = pipeline(data, stages=2, balance="memory", skips=skips, verify=False)  # type: ignore[arg-type]
    peaks = [segment.plan.schedule.peak for segment in staged.segments]
    assert max(peaks) == staged.schedule.objective
    assert staged.schedule.status == "optimal" or "one topological" in staged.schedule.proof


def test_memory_is_balanced_by_the_best_order_of_each_stage() -> None:
    """In the file's order a stage of two products would need both; ordered, each is reduced before the next."""
    staged = pipeline(branches(3), stages=2, balance="memory", verify=False)
    file = pipeline(branches(3), stages=2, balance="memory", verify=False, allow=("inplace",))
    assert staged.schedule.objective < file.schedule.objective
    assert staged.schedule.status == file.schedule.status == "optimal"
    assert max(segment.plan.schedule.peak for segment in file.segments) == file.schedule.objective


def test_nothing_is_proven_of_memory_where_layers_may_be_rewritten() -> None:
    staged = pipeline(residual(2), stages=2, balance="memory", allow=("reorder", "inplace", "tile"), verify=False)
    assert (staged.schedule.status, staged.schedule.lower_bound) == ("feasible", 0)
    assert "rewritten" in staged.schedule.proof
    assert max(segment.plan.schedule.peak for segment in staged.segments) == staged.schedule.objective


def test_stages_in_pieces_refuse_other_batches() -> None:
    """What refuses them is the last operator, so that the compiler of an accelerator takes all others."""
    data = with_open_batch(_narrowing())
    staged = pipeline(data, stages=2, allow=("reorder", "inplace", "tile"), effort=1.0, time_limit=None)
    assert staged.verification is not None
    assert (staged.verification.relative_error or 0.0) < 1e-5
    files = [segment.model for segment in staged.segments]
    counts = [len(load_module(file, "stage.tflite", LoadOptions()).graph.ops) for file in files]
    assert max(counts) > 10
    plain = pipeline(data, stages=2, effort=1.0, time_limit=None)
    for before, after in zip(plain.segments, staged.segments, strict=True):
        main = unpack(before.model).subgraphs[0]
        shape = list(main.tensors[main.inputs[0]].shape)
        fates = {fate(before.model, after.model, mode, [[2, *shape[1:]]]) for mode in MODES}
        assert fates == {"equal" if before.model == after.model else "refused"}
        if before.model != after.model:
            read = load_module(after.model, "stage.tflite", LoadOptions()).graph
            assert [op.type for op in read.ops].count("GATHER") == 1
            assert read.ops[-1].type == "GATHER"
            assert after.arena >= after.plan.schedule.peak >= 4 * math.prod(shape)
    assert any(before.model != after.model for before, after in zip(plain.segments, staged.segments, strict=True))


def _narrowing() -> bytes:
    """Return convolutions by turns wide and narrow: what is between them needs less in pieces."""
    rng = np.random.default_rng(0)
    tensors, ops = [T("x", (1, 32, 32, 4))], []
    side, channels = 32, 4
    for layer, (stride, after) in enumerate(((1, 32), (2, 4), (1, 64), (2, 4))):
        side //= stride
        read = len(tensors)
        weights = rng.standard_normal((after, stride, stride, channels)).astype(np.float32)
        tensors += [
            T(f"w{layer}", weights.shape, data=weights.tobytes()),
            T(f"b{layer}", (after,), data=np.zeros(after, np.float32).tobytes()),
            T(f"y{layer}", (1, side, side, after)),
        ]
        stated = options("Conv2DOptions", strideH=stride, strideW=stride, dilationHFactor=1, dilationWFactor=1)
        ops.append(O("CONV_2D", [read - 1, read, read + 1], [read + 2], stated))
        channels = after
    return tflite(Sub(tensors, ops, [0], [len(tensors) - 1]))


@pytest.mark.parametrize("wrong_ones", [1, 3])
def test_stages_that_make_something_else_of_nan_make_way(monkeypatch: pytest.MonkeyPatch, wrong_ones: int) -> None:
    monkeypatch.delenv(DEFECTS)
    tried = itertools.count()
    run_in_order = stage_files.run_in_order

    def with_other(data: bytes, module: Any, segments: Any, seed: int, **more: Any) -> Any:
        wrong = next(tried) < wrong_ones
        files = [dataclasses.replace(segments[0], model=ONNX["nonfinite"])] if wrong else segments
        return run_in_order(data, module, files, seed, **more)

    monkeypatch.setattr(pipelining, "run_in_order", with_other)
    if wrong_ones == 3:
        with fails("outputs-differ", "NaN"):
            pipeline(IDENTITY, stages=1, allow=("reorder", "inplace", "tile"), effort=1.0, time_limit=None)
        return
    staged = pipeline(IDENTITY, stages=1, allow=("reorder", "inplace", "tile"), effort=1.0, time_limit=None)
    check(staged)
    assert staged.verification is not None
    assert staged.verification.special_values == tuple(WORDS.values())
    (note,) = [one for one in staged.notes if "rewritten layers" in one]
    assert "NaN" in note


@pytest.mark.parametrize("wrong_ones", [1, 2])
def test_stages_that_fail_make_way_for_simpler_ones(monkeypatch: pytest.MonkeyPatch, wrong_ones: int) -> None:
    monkeypatch.delenv(DEFECTS)
    tried = itertools.count()
    run_in_order = stage_files.run_in_order

    def fails_first(*told: Any, **more: Any) -> Any:
        if next(tried) < wrong_ones:
            raise VerificationError("wrong")
        return run_in_order(*told, **more)

    monkeypatch.setattr(pipelining, "run_in_order", fails_first)
    staged = pipeline(_narrowing(), stages=2, allow=("reorder", "inplace", "tile"), effort=1.0, time_limit=None)
    check(staged)
    assert next(tried) == wrong_ones + 1
    assert sum("wrong" in note for note in staged.notes) == wrong_ones
