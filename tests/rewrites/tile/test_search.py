"""The search for groups: what it must reach on a real network, its frontier, budgets and limits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper

from memsched.commands.optimize.optimize import optimize
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.onnx import rewriter as onnx_rewriter
from memsched.formats.tflite import rewriter as tflite_rewriter
from memsched.graph.liveness import Storage, evaluate
from memsched.lowering.apply import apply_target
from memsched.rewrites.tile.pieces import Pieces, TilingGroup, plan_pieces
from memsched.rewrites.tile.rewrite import rewrite
from memsched.rewrites.tile.search import FrontierPoint, TilingSearch
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from scripts.networks import transformer
from scripts.networks.efficientnet import efficientnet_b0
from scripts.networks.unet import unet
from tests.formats.tflite_builder import MODELS
from tests.rewrites.tile.random_nets import onnx_net, tflite_net
from tests.rewrites.tile.searched import Found, searched
from tests.small_models import floats, model_of

UNTILED = 138_240


def mobilenet() -> Module:
    path = MODELS / "mobilenetv2_035_96_int8.tflite"
    return load_module(path.read_bytes(), "mobilenet", LoadOptions())


def searching(module: Module, percent: float) -> TilingSearch:
    graph = module.graphs[0]
    macs = sum(op.macs for op in graph.ops)
    rules, dialect = load_target("tflm"), tflite_rewriter.dialect(module)
    return TilingSearch(graph, rules, dialect, Run(Limits(None)), most_macs=int(macs * percent / 100))


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
    result = searched(searching(module, 3.0))
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
    one = TilingSearch(
        graph,
        load_target(target),
        tflite_rewriter.dialect(module),
        run,
        most_macs=sum(op.macs for op in graph.ops) * 15 // 100,
    )
    result = searched(one)
    assert result.best.peak <= 38_000
    assert best == sorted(best, reverse=True)


def test_a_search_that_is_left_again_and_again_ends_where_one_at_a_stretch_does() -> None:
    module = mobilenet()
    whole = searched(searching(module, 0.0))
    one, pauses, peaks = searching(module, 0.0), 0, [UNTILED]
    while not (part := searched(one, one.work + 0.001)).exhausted:
        pauses += 1
        peaks.append(part.best.peak)
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < UNTILED
    assert pauses > 100
    assert (part.best.peak, part.judged) == (whole.best.peak, whole.judged)


def encoder(monkeypatch: pytest.MonkeyPatch) -> ModelProto:
    """Return an encoder of Whisper tiny's sizes (Radford et al., "Robust Speech Recognition")."""
    sizes = {"_LAYERS": 4, "_WIDTH": 384, "_HEADS": 6, "_INNER": 1536, "_POSITIONS": 1500}
    for name, size in sizes.items():
        monkeypatch.setattr(transformer, name, size)
    return transformer.transformer()


@pytest.mark.parametrize(
    "build", [encoder, lambda _: efficientnet_b0(), lambda _: unet()], ids=["encoder", "efficientnet", "unet"]
)
def test_a_little_work_finds_a_large_part(
    build: Callable[[pytest.MonkeyPatch], ModelProto], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least a third of what the threefold work finds; the encoder's first groups give 2 %."""
    module = load_module(build(monkeypatch).SerializeToString(), "late", LoadOptions())
    graph, target = module.graphs[0], load_target("onnxruntime")
    given = evaluate(Storage.of(apply_target(graph, target)), range(len(graph.ops))).peak
    macs = sum(op.macs for op in graph.ops)
    one = TilingSearch(graph, target, onnx_rewriter.dialect(module), Run(Limits(None)), most_macs=macs // 10)
    little, more = searched(one, 1.0), searched(one, 3.0)
    assert more.judged > little.judged + 1
    assert 3 * (given - little.best.peak) >= given - more.best.peak > given // 3


def test_effort_ends_a_search_at_the_same_place_each_time() -> None:
    module = mobilenet()
    graph = module.graphs[0]
    results = []
    for effort in (0.0, 0.05, 0.1, 0.1, 0.4):
        search_of = TilingSearch(
            graph, load_target("tflm"), tflite_rewriter.dialect(module), Run(Limits(None)), most_macs=10**6
        )
        results.append(searched(search_of, effort))
    none, little, some, again, more = results
    assert none.judged <= 1
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
    rules = load_target("onnxruntime")
    one = TilingSearch(graph, rules, dialect, Run(Limits(None)), most_macs=macs // 4)
    result = searched(one, 10.0)
    assert [name for name, _ in one.refusals()] == ["high"]
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
    (group,) = result.report["sections"]["tile"]["groups"]
    assert len(group["ops"]) > 120
    assert len(group["kept_halos"]) > 60
    assert result.report["sections"]["tile"]["extra_macs_percent"] < 5
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

    def found() -> Found:
        one = TilingSearch(graph, target, dialect, Run(Limits(None)), most_macs=macs // 8)
        return searched(one)

    both = found()
    monkeypatch.setattr("memsched.rewrites.tile.trail.TilingTrail.streams_at_once", lambda _: False)
    alone = found()
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
    result = searched(TilingSearch(graph, target, dialect, Run(Limits(None)), most_macs=macs // 4), 0.5)
    before = evaluate(Storage.of(apply_target(graph, target)), range(len(graph.ops))).peak
    assert result.best.peak <= before
    for point in result.frontier:
        groups = [plan_pieces(graph, group, dialect) for group in point.groups if isinstance(group, TilingGroup)]
        tiled = rewrite(graph, [one for one in groups if isinstance(one, Pieces)], dialect)
        lowered = apply_target(tiled.graph, target)
        assert tiled.macs - macs == point.extra_macs
        # In-place writes across a group's edge are seen only in the whole graph.
        assert evaluate(Storage.of(lowered), range(len(lowered.ops))).peak <= point.peak
