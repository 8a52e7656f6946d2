"""The search for groups: what it must reach on a real network, its frontier, budgets and limits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from memsched.commands.optimize.optimize import optimize
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx import rewriter as onnx_rewriter
from memsched.formats.tflite import rewriter as tflite_rewriter
from memsched.graph.dialect import Dialect
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from memsched.targets.model import Target
from memsched.tiling.pieces import Pieces, TilingGroup, plan_pieces
from memsched.tiling.rewrite import rewrite
from memsched.tiling.search import FrontierPoint, TilingResult, TilingSearch
from scripts.networks import transformer
from scripts.networks.efficientnet import efficientnet_b0
from scripts.networks.unet import unet
from tests.formats.tflite_builder import MODELS
from tests.small_models import floats, model_of
from tests.tiling.random_nets import onnx_net, tflite_net

UNTILED = 138_240


def search(
    graph: Graph, target: Target, dialect: Dialect, run: Run, *, most_macs: int, budget: int | None = None
) -> TilingResult:
    """The groups that a search finds by the end of its run."""
    one = TilingSearch(graph, target, dialect, run, most_macs=most_macs, budget=budget)
    return one.run(run.deadline(), run.deadline(), run.effort() if run.limits.time_limit != 0 else 0.0)


def mobilenet() -> Module:
    path = MODELS / "mobilenetv2_035_96_int8.tflite"
    return load_module(path.read_bytes(), "mobilenet", LoadOptions())


def found(module: Module, percent: float, *, seconds: float | None = None, budget: int | None = None) -> TilingResult:
    graph = module.graphs[0]
    macs = sum(op.macs for op in graph.ops)
    return search(
        graph,
        load_target("tflm"),
        tflite_rewriter.dialect(module),
        Run(Limits(seconds)),
        most_macs=int(macs * percent / 100),
        budget=budget,
    )


def real_peak(module: Module, point: FrontierPoint) -> tuple[int, int]:
    """The peak and work of the whole rewritten graph."""
    graph, dialect = module.graphs[0], tflite_rewriter.dialect(module)
    groups = [plan_pieces(graph, group, dialect) for group in point.groups if isinstance(group, TilingGroup)]
    result = rewrite(graph, [one for one in groups if isinstance(one, Pieces)], dialect)
    lowered = apply_target(result.graph, load_target("tflm"))
    profile = evaluate(Storage.of(lowered), range(len(lowered.ops)))
    return profile.peak, result.macs - sum(op.macs for op in graph.ops)


def test_a_network_falls_to_a_third_without_extra_work_that_the_frontier_does_not_state() -> None:
    module = mobilenet()
    result = found(module, 3.0)
    assert result.exhausted
    points = result.frontier
    assert points[0] == FrontierPoint(UNTILED, 0, ()) or points[0].extra_macs == 0
    assert [point.peak for point in points] == sorted((point.peak for point in points), reverse=True)
    assert [point.extra_macs for point in points] == sorted(point.extra_macs for point in points)
    assert result.best.peak <= 60_000
    for point in points:
        assert real_peak(module, point) == (point.peak, point.extra_macs)


@pytest.mark.parametrize("target", ["tflm", "tflm-reference"])
def test_points_past_the_limit_of_work_lead_to_less_memory_within_it(target: str) -> None:
    module, best = mobilenet(), [UNTILED]
    graph = module.graphs[0]
    run = Run(
        Limits(None),
        stop=lambda: best[-1] <= 38_000,
        on_progress=lambda progress: best.append(progress.best_peak),
    )
    result = search(
        graph,
        load_target(target),
        tflite_rewriter.dialect(module),
        run,
        most_macs=sum(op.macs for op in graph.ops) * 15 // 100,
    )
    assert result.best.peak <= 38_000
    assert best == sorted(best, reverse=True)


def test_a_budget_takes_the_least_work_that_meets_it() -> None:
    module = mobilenet()
    generous, tight = found(module, 1.0, budget=90_000), found(module, 1.0, budget=58_000)
    assert generous.best.peak <= 90_000
    assert tight.best.peak <= 58_000
    assert generous.best.extra_macs <= tight.best.extra_macs
    assert found(module, 15.0, budget=UNTILED).best == FrontierPoint(UNTILED, 0, ())


def test_no_time_means_no_groups_and_a_stop_ends_the_search() -> None:
    module = mobilenet()
    result = found(module, 15.0, seconds=0.0)
    assert result.best == FrontierPoint(UNTILED, 0, ())
    assert not result.exhausted


def test_a_search_that_is_left_again_and_again_ends_where_one_at_a_stretch_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("memsched.tiling.search._LEAST_EFFORT", 0.0)
    module = mobilenet()
    graph = module.graphs[0]
    arguments = (graph, load_target("tflm"), tflite_rewriter.dialect(module), Run(Limits(None)))
    whole = TilingSearch(*arguments, most_macs=0).run(math.inf, math.inf)
    one, pauses, peaks = TilingSearch(*arguments, most_macs=0), 0, [UNTILED]
    while not (part := one.run(-math.inf, math.inf)).exhausted:
        pauses += 1
        peaks.append(part.best.peak)
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[1] < UNTILED
    assert pauses > 100
    assert (part.best.peak, part.exhausted) == (whole.best.peak, whole.exhausted)


def test_looking_at_what_was_found_changes_nothing_that_comes_after() -> None:
    module = mobilenet()
    arguments = (module.graphs[0], load_target("tflm"), tflite_rewriter.dialect(module), Run(Limits(None)))
    for percent in (0.0, 15.0):
        most = int(sum(op.macs for op in module.graphs[0].ops) * percent / 100)
        whole = TilingSearch(*arguments, most_macs=most).run(math.inf, math.inf, 0.3)
        one, until = TilingSearch(*arguments, most_macs=most), UNTILED - 1
        while (part := one.run(math.inf, math.inf, 0.3, until=until)).reached:
            assert part.best.groups
            assert part.best.peak <= until
            until = part.best.peak - 1
        assert (part.frontier, part.judged) == (whole.frontier, whole.judged)


def encoder(monkeypatch: pytest.MonkeyPatch) -> ModelProto:
    """Return an encoder of Whisper tiny's sizes (Radford et al., "Robust Speech Recognition")."""
    sizes = {"_LAYERS": 4, "_WIDTH": 384, "_HEADS": 6, "_INNER": 1536, "_POSITIONS": 1500}
    for name, size in sizes.items():
        monkeypatch.setattr(transformer, name, size)
    return transformer.transformer()


@pytest.mark.parametrize(
    "build", [encoder, lambda _: efficientnet_b0(), lambda _: unet()], ids=["encoder", "efficientnet", "unet"]
)
def test_a_search_that_begins_late_finds_a_large_part_and_goes_no_further(
    build: Callable[[pytest.MonkeyPatch], ModelProto], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least a third of what the threefold work finds; the encoder's first groups give 2 %."""
    module = load_module(build(monkeypatch).SerializeToString(), "late", LoadOptions())
    graph, target = module.graphs[0], load_target("onnxruntime")
    given = evaluate(Storage.of(apply_target(graph, target)), range(len(graph.ops))).peak
    macs = sum(op.macs for op in graph.ops)
    one = TilingSearch(graph, target, onnx_rewriter.dialect(module), Run(Limits(None)), most_macs=macs // 10)
    late = one.run(-math.inf, -math.inf)
    assert one.run(-math.inf, -math.inf).judged == late.judged + 1
    more = one.run(math.inf, math.inf, 3.0)
    assert more.judged > late.judged + 1
    assert 3 * (given - late.best.peak) >= given - more.best.peak > given // 3


def test_a_search_that_finds_nothing_ends_after_the_least_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memsched.tiling.search._LEAST_EFFORT", 0.0005)
    monkeypatch.setattr("memsched.tiling.search._LEAST_EFFORT_FOR_NOTHING", 0.001)
    # With every halo kept, the very first way helps.
    monkeypatch.setattr("memsched.tiling.choices.TilingChoices.streamed", lambda _: [])
    module = mobilenet()
    one = TilingSearch(
        module.graphs[0], load_target("tflm"), tflite_rewriter.dialect(module), Run(Limits(None)), most_macs=0
    )
    late = one.run(-math.inf, -math.inf)
    assert not late.best.groups
    assert (late.judged, late.exhausted) == (1, False)
    monkeypatch.setattr("memsched.tiling.search._LEAST_EFFORT_FOR_NOTHING", 0.4)
    found_some = one.run(-math.inf, -math.inf)
    assert found_some.best.groups
    assert 1 < found_some.judged < 100


def test_effort_ends_a_search_at_the_same_place_each_time() -> None:
    module = mobilenet()
    graph = module.graphs[0]
    results = []
    for effort in (0.0, 0.05, 0.1, 0.1, 0.4):
        search_of = TilingSearch(
            graph, load_target("tflm"), tflite_rewriter.dialect(module), Run(Limits(None)), most_macs=10**6
        )
        results.append(search_of.run(math.inf, math.inf, effort))
    none, little, some, again, more = results
    assert none.judged == 0
    assert some == again
    assert not more.exhausted
    assert 0 < little.judged < some.judged < more.judged
    assert UNTILED >= little.best.peak >= some.best.peak >= more.best.peak
    assert more.best.peak < UNTILED


def test_groups_begin_and_end_beside_an_op_that_cannot_be_cut() -> None:
    """Convolutions, a resize of aligned corners, convolutions: cut before and after it, and it is named."""
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["wide"], "wide", pads=[1] * 4),
        helper.make_node("AveragePool", ["wide"], ["low"], "low", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node(
            "Resize", ["low", "", "scales"], ["high"], "high",
            mode="linear", coordinate_transformation_mode="align_corners",
        ),
        helper.make_node("Conv", ["high", "b"], ["again"], "again", pads=[1] * 4),
        helper.make_node("AveragePool", ["again"], ["y"], "y", kernel_shape=[4, 4], strides=[4, 4]),
    ]  # fmt: skip
    values = np.random.default_rng(0)
    weights = [values.normal(size=(8, depth, 3, 3)).astype("f") for depth in (3, 8)]
    constants = [numpy_helper.from_array(array, name) for array, name in zip(weights, "ab", strict=True)]
    constants.append(numpy_helper.from_array(np.array([1, 1, 2, 2], "f"), "scales"))
    data = model_of(nodes, [floats("x", [1, 3, 32, 32])], [floats("y", [1, 8, 8, 8])], constants)
    module = load_module(data, "resized", LoadOptions())
    graph, dialect = module.graphs[0], onnx_rewriter.dialect(module)
    macs = sum(op.macs for op in graph.ops)
    result = search(
        *(graph, load_target("onnxruntime"), dialect, Run(Limits(None, effort=10.0))),
        most_macs=macs // 4,
    )
    assert [name for name, _ in result.refusals] == ["high"]
    assert (3, 4) in [group.ops for group in result.best.groups]
    assert not any(2 in group.ops for point in result.frontier for group in point.groups)
    assert result.best.peak < 2 * graph.tensors[graph.ops[0].outputs[0]].size


def waiting_net(layers: int) -> bytes:
    """Return a network through all of which its first layer waits: wherever it is cut in two, two wide values live."""
    nodes = [helper.make_node("Conv", ["x", "first"], ["v0"], "first", pads=[1] * 4)]
    for number in range(layers):
        nodes.append(helper.make_node("Conv", [f"v{number}", "w"], [f"c{number}"], f"conv{number}", pads=[1] * 4))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"v{number + 1}"], f"relu{number}"))
    nodes.append(helper.make_node("Add", [f"v{layers}", "v0"], ["sum"], "sum"))
    nodes.append(helper.make_node("MaxPool", ["sum"], ["y"], "pool", kernel_shape=[4, 4], strides=[4, 4]))
    values = np.random.default_rng(0)
    shapes = {"first": (8, 1, 3, 3), "w": (8, 8, 3, 3)}
    weights = [numpy_helper.from_array(values.normal(0, 0.2, size).astype("f"), name) for name, size in shapes.items()]
    return model_of(nodes, [floats("x", [1, 1, 256, 8])], [floats("y", [1, 8, 64, 2])], weights)


def test_groups_longer_than_all_others_are_cut_with_every_halo_kept() -> None:
    """And they run: `optimize` compares the outputs, and measures the peak in ONNX Runtime."""
    data = waiting_net(70)
    graph = load_module(data, "waiting", LoadOptions()).graphs[0]
    wide = graph.tensors[graph.ops[0].outputs[0]].size
    result = optimize(
        data, level=2, budget=2 * wide, max_slowdown=None, order_guarantee="session", time_limit=None, effort=5.0
    )
    (group,) = result.report["tiling"]["groups"]
    assert len(group["ops"]) > 120
    assert len(group["kept_halos"]) > 60
    assert result.report["tiling"]["extra_macs_percent"] < 5
    assert result.report["budget"]["met"]
    seen = result.verification
    assert seen is not None
    assert seen.outputs_equal
    assert seen.measured_peak_after_bytes is not None
    assert seen.measured_peak_after_bytes <= 2 * wide


@pytest.mark.parametrize("seed", [7, 11, 12, 30, 48, 50])
def test_trails_find_together_what_one_finds_alone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of these networks, long groups first need less for one half, and more for the other."""
    module = load_module(tflite_net(seed, 9), "random", LoadOptions())
    graph, dialect, target = module.graphs[0], tflite_rewriter.dialect(module), load_target("litert")
    macs = sum(op.macs for op in graph.ops)

    def searched() -> TilingResult:
        one = TilingSearch(graph, target, dialect, Run(Limits(None)), most_macs=macs // 8)
        return one.run(math.inf, math.inf)

    both = searched()
    monkeypatch.setattr("memsched.tiling.trail.TilingTrail.streams_at_once", lambda _: False)
    alone = searched()
    assert both.exhausted
    assert alone.exhausted
    assert both.judged >= alone.judged
    assert both.best.required <= alone.best.required
    for point in alone.frontier:
        assert any(other.required <= point.required and other.extra_macs <= point.extra_macs for other in both.frontier)


@pytest.mark.parametrize("seed", range(6))
def test_frontiers_of_random_networks_hold(seed: int) -> None:
    module = load_module(onnx_net(seed), "random", LoadOptions())
    graph, dialect, target = module.graphs[0], onnx_rewriter.dialect(module), load_target("ideal")
    macs = sum(op.macs for op in graph.ops)
    result = search(graph, target, dialect, Run(Limits(None, effort=0.5)), most_macs=macs // 4)
    before = evaluate(Storage.of(apply_target(graph, target)), range(len(graph.ops))).peak
    assert result.best.peak <= before
    for point in result.frontier:
        groups = [plan_pieces(graph, group, dialect) for group in point.groups if isinstance(group, TilingGroup)]
        tiled = rewrite(graph, [one for one in groups if isinstance(one, Pieces)], dialect)
        lowered = apply_target(tiled.graph, target)
        assert tiled.macs - macs == point.extra_macs
        # In-place writes across a group's edge are seen only in the whole graph.
        assert evaluate(Storage.of(lowered), range(len(lowered.ops))).peak <= point.peak
