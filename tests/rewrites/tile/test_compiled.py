"""Pieces judged by the compiled core: the figures are those that Python finds by writing them."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from memsched.core.library import library
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.graph.model import Graph, Op
from memsched.lowering.prices import Kept, Pace, Prices
from memsched.ops.rules import Refusal
from memsched.plan.rewrite import dialect_of
from memsched.rewrites.tile.choices import TilingChoices
from memsched.rewrites.tile.compiled import CompiledPieces, WrittenFigures
from memsched.rewrites.tile.local import GroupCost, Intervals
from memsched.rewrites.tile.pieces import TilingGroup
from memsched.rewrites.tile.search import TilingSearch
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from memsched.targets.model import InPlaceRule, Target, WorkspaceRule
from tests.formats.tflite_builder import MODELS
from tests.rewrites.tile.random_nets import onnx_net, tflite_net
from tests.rewrites.tile.searched import searched

pytestmark = pytest.mark.skipif(library() is None, reason="no compiled core")

TARGETS = ("ideal", "tflm", "tflm-reference", "litert-reference", "onnxruntime")


def loaded(data: bytes) -> Module:
    return load_module(data, "net", LoadOptions())


def in_python(graph: Graph, target: Target, module: Module, prices: Prices | None = None) -> Intervals:
    """Intervals that are judged without the core."""
    intervals = Intervals(graph, target, dialect_of(module, target), prices)
    vars(intervals)["_core"] = None
    return intervals


def ways(intervals: Intervals, rng: random.Random, most: int) -> list[TilingGroup]:
    """Random intervals, cut in random ways."""
    count, found = len(intervals.graph.ops), []
    usable = [not isinstance(intervals.geometries[op], Refusal) for op in range(count)]
    for _ in range(most):
        first = rng.randrange(count)
        last = min(count - 1, first + rng.choice([0, 1, 2, 3, 5, 8]))
        if not all(usable[first : last + 1]):
            continue
        choices = TilingChoices(intervals, first, last)
        series = [way for ladder in choices.ladders() for way in ladder]
        for _ in range(3):
            if series:
                way = rng.choice(series)
                found.append(way)
                series = list(choices.near(way))
    return found


def judged_both_ways(
    module: Module, target: Target, seed: int, most: int, prices: Prices | None = None
) -> list[GroupCost | Refusal]:
    """What the core says of random ways, each of which Python agrees with."""
    graph = module.graphs[0]
    plain = in_python(graph, target, module, prices)
    compiled = Intervals(graph, target, dialect_of(module, target), prices)
    said = []
    for way in ways(compiled, random.Random(seed), most):
        # As if all of it needed much: then a way is refused for its own reasons alone.
        interval = replace(compiled.interval(way.ops[0], way.ops[-1]), peak=10**15)
        expected, found = (one.judge(interval, way, 10**12) for one in (plain, compiled))
        assert found == expected or (isinstance(found, Refusal) and isinstance(expected, Refusal)), way
        said.append(found)
    return said


@pytest.mark.parametrize("target", TARGETS)
def test_random_networks_cost_what_python_finds(target: str) -> None:
    said = [
        one
        for seed in range(3)
        for net in (onnx_net, tflite_net)
        for one in judged_both_ways(loaded(net(seed)), load_target(target), seed, 6)
    ]
    assert sum(isinstance(one, GroupCost) for one in said) > 20


def test_the_core_judges_most_ways_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Counter[bool]()
    evaluate = CompiledPieces.evaluate

    def counted(pieces: CompiledPieces) -> WrittenFigures | None:
        found = evaluate(pieces)
        alone[found is not None] += 1
        return found

    monkeypatch.setattr(CompiledPieces, "evaluate", counted)
    for target in ("tflm", "litert-reference"):
        for seed in range(2):
            judged_both_ways(loaded(tflite_net(seed)), load_target(target), seed, 8)
    assert alone[True] > 10 * alone[False]


def test_sharing_of_every_kind_is_as_in_python() -> None:
    rules = structs.replace(
        load_target("tflm"),
        in_place=(
            InPlaceRule(("ADD", "MUL", "CONV_2D", "Add", "Relu", "Clip"), match="bytes", elementwise=True),
            InPlaceRule(("DEPTHWISE_CONV_2D", "Conv"), inputs=(0,), match="shape", sole_reader=True, above_bytes=64),
        ),
        workspace=(WorkspaceRule(("CONV_2D", "Conv", "SLICE"), 0.7), WorkspaceRule(("CONCATENATION",), 1.5)),
        overwrite_inputs=False,
        outputs_own=True,
        align_parts=False,
    )
    for seed in range(20, 23):
        for net in (onnx_net, tflite_net):
            judged_both_ways(loaded(net(seed)), rules, seed, 6)


def test_prices_of_ways_that_help_are_as_in_python() -> None:
    def price(graph: Graph, op: Op) -> Kept:
        channels = (graph.tensors[op.outputs[0]].shape or (0,))[-1] if op.macs else 0
        return Kept(100 + len(op.type) + channels, 7)

    prices = Prices(Kept(1000, 50), price, Kept(120, 7), Pace(1000.0, 0.5, 0.25))
    for seed in range(2):
        judged_both_ways(loaded(onnx_net(seed)), load_target("onnxruntime"), seed, 8, prices)


def test_what_every_op_keeps_alike_needs_no_python_where_the_last_axis_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(300)
    prices = Prices(Kept(), lambda _graph, _op: kept, kept, Pace(1000.0, 0.5), uniform=True)
    cuts = Counter[bool]()
    cost = Intervals._cost

    def counted(intervals: Intervals, *arguments: Any) -> GroupCost:
        cuts["_core" in vars(intervals) and vars(intervals)["_core"] is None] += 1
        return cost(intervals, *arguments)

    monkeypatch.setattr(Intervals, "_cost", counted)
    for seed in range(2):
        judged_both_ways(loaded(onnx_net(seed)), load_target("ideal"), seed, 8, prices)
    assert cuts[True] > 5 > cuts[False]


def test_a_search_finds_the_same_with_the_core_and_without() -> None:
    module = loaded((MODELS / "mobilenetv2_035_96_int8.tflite").read_bytes())
    graph, target = module.graphs[0], load_target("litert-reference")
    found = []
    for core in (True, False):
        one = TilingSearch(graph, target, dialect_of(module, target), Run(Limits(None)), most_macs=10**6)
        if not core:
            vars(one.intervals)["_core"] = None
        found.append((searched(one, 0.4), one.work))
    assert found[0] == found[1]
