"""The search for loops: rows of padding by brute force, points that are what they say, limits that are kept."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from memsched.commands.optimize.place import Request, as_stored, prepare
from memsched.formats.module import LoadOptions
from memsched.formats.tflite import reader
from memsched.graph.loop import Loop
from memsched.ops.rules import Refusal
from memsched.plan.rewrite import dialect_of, plain, read_back
from memsched.rewrites.tile.fold import fold_pads
from memsched.rewrites.tile.loop import LoopGroup, plan_loop
from memsched.rewrites.tile.loop_cost import bytes_around, lead_rows
from memsched.rewrites.tile.loop_rewrite import with_loops
from memsched.rewrites.tile.loop_search import LoopSearch
from memsched.rewrites.tile.loop_ways import tiles_of
from memsched.runtimes.tflm.arena import prices
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.formats.tflite_builder import MODELS
from tests.rewrites.tile.looped_nets import looped_net
from tests.rewrites.tile.searched import loops


def _overwritten(loop: Loop, row: int, padded_row: int, lead: int) -> bool:
    """Whether a tile writes rows over the padded input that a later tile reads, if both begin at one byte."""
    tiles = list(loop.each())
    part, before = loop.parts[loop.input], loop.pads[0][0] + lead
    height, rows = loop.parts[loop.output].sizes[0], loop.lengths[loop.input][0]
    for number, tile in enumerate(tiles):
        end = (tile[0] + height) * row
        for other in tiles[number + 1 :]:
            begin = part.begin(other)[0]
            if loop.inner_pads:
                # All of the part that lies in the input, and as much again before it as lies behind the last row.
                begin = max(0, begin - max(0, begin + part.sizes[0] - rows))
            if (begin + before) * padded_row < end:
                return True
    return False


def test_rows_of_padding_are_the_fewest_that_serve() -> None:
    rng, seen = random.Random(3), 0
    for seed in range(60):
        module = reader.read(looped_net(seed), "net.tflite", LoadOptions())
        words = dialect_of(module, load_target("tflm-reference"))
        graph = fold_pads(module.graphs[0], words)
        first = rng.randrange(len(graph.ops))
        last = rng.randrange(first, len(graph.ops))
        shape = graph.tensors[graph.ops[last].outputs[0]].shape or ()
        sizes = tuple(rng.randint(1, shape[axis]) for axis in (1, 2))
        group = LoopGroup(tuple(range(first, last + 1)), (1, 2), sizes, pads_inside=seed % 2 > 0)
        loop = plan_loop(graph, group, words)
        if isinstance(loop, Refusal) or loop.count == 1:
            continue
        row, padded_row = rng.randint(1, 50), rng.randint(1, 50)
        lead = lead_rows(loop, row, padded_row)
        assert not _overwritten(loop, row, padded_row, lead)
        assert not lead or _overwritten(loop, row, padded_row, lead - 1)
        seen += 1
    assert seen > 15


def test_points_fall_with_rising_work_within_the_limit() -> None:
    module = reader.read((MODELS / "person_detect.tflite").read_bytes(), "person_detect.tflite", LoadOptions())
    target = load_target("tflm-reference")
    words = dialect_of(module, target)
    graph = fold_pads(module.graphs[0], words)
    macs = sum(op.macs for op in graph.ops)
    search = LoopSearch(graph, target, words, prices=prices(module, target), most_macs=macs * 15 // 100)
    points = loops(search, 10.0)
    assert search.exhausted
    assert points[0].extra_macs == 0
    assert points[-1].peak < 20_000
    for one, other in itertools.pairwise(points):
        assert one.required > other.required
        assert one.extra_macs < other.extra_macs <= macs * 15 // 100
    for point in points:
        ops = [op for group in point.groups for op in group.ops]
        assert ops == sorted(set(ops))
    again = LoopSearch(graph, target, words, prices=prices(module, target), most_macs=macs * 15 // 100)
    assert loops(again, 10.0) == points


def test_loops_that_are_to_cost_nothing_have_few_tiles() -> None:
    rules, more = load_target("tflm-reference"), 0
    for seed in range(8):
        module = reader.read(looped_net(seed), "net.tflite", LoadOptions())
        words = dialect_of(module, rules)
        graph = fold_pads(module.graphs[0], words)
        # A tile for every so many multiply-accumulates of the graph: with an op that has enough of them, no limit.
        for macs in (0, 200_000, 10_000_000):
            heavy = replace(graph, ops=(*graph.ops[:-1], replace(graph.ops[-1], macs=macs)))
            most = sum(op.macs for op in heavy.ops) // 20_000
            for extra in (0, 1):
                points = loops(LoopSearch(heavy, rules, words, prices=None, most_macs=extra), 0.1)
                groups = [group for point in points for group in point.groups]
                shapes = [graph.tensors[graph.ops[group.ops[-1]].outputs[0]].shape or () for group in groups]
                tiles = max(map(tiles_of, groups, shapes), default=0)
                assert extra or tiles <= most
                more += extra and tiles > most
    assert more


def test_groups_that_are_dropped_come_no_more() -> None:
    module = reader.read((MODELS / "person_detect.tflite").read_bytes(), "person_detect.tflite", LoadOptions())
    target = load_target("tflm-reference")
    words = dialect_of(module, target)
    search = LoopSearch(
        fold_pads(module.graphs[0], words), target, words, prices=prices(module, target), most_macs=1_000_000
    )
    best = loops(search, 0.3)[-1]
    search.drop(best.groups)
    assert not any(set(best.groups) & set(point.groups) for point in loops(search, 0.1))


def test_ops_that_no_loop_holds_are_named_with_the_reason() -> None:
    module = reader.read((MODELS / "person_detect.tflite").read_bytes(), "person_detect.tflite", LoadOptions())
    target = load_target("tflm-reference")
    words = dialect_of(module, target)
    graph = fold_pads(module.graphs[0], words)
    search = LoopSearch(graph, target, words, prices=prices(module, target), most_macs=1_000_000)
    held = {op for point in loops(search, 0.3) for group in point.groups for op in group.ops}
    refused = dict(search.refusals())
    assert not held & refused.keys()
    reasons = {graph.ops[op].type: reason for op, reason in refused.items()}
    assert "2 axes" in reasons["SOFTMAX"]
    assert "CONV_2D" not in reasons


@pytest.mark.parametrize(("rules", "most_off"), [("tflm-reference", 1), ("tflm", 4)])
def test_files_need_about_what_points_promise_where_copies_lie_over_their_inputs(rules: str, most_off: int) -> None:
    module = reader.read((MODELS / "person_detect.tflite").read_bytes(), "person_detect.tflite", LoadOptions())
    target = msgspec.structs.replace(load_target(rules), budget_for="activations")
    words = dialect_of(module, target)
    graph = fold_pads(module.graphs[0], words)
    search = LoopSearch(graph, target, words, prices=None, most_macs=sum(op.macs for op in graph.ops) * 15 // 100)
    points = [point for point in loops(search, 1.2) if point.groups]
    assert points[-1].required <= 18_432
    off = []
    for point in (*points[::3], points[-1]):
        planned = [plan_loop(graph, group, words) for group in point.groups]
        rewritten = with_loops(graph, [loop for loop in planned if isinstance(loop, Loop)], words)
        written, _ = read_back(plain(module), rewritten, LoadOptions(), target, lambda: None, ())
        file = as_stored(written, prepare(written, target, in_place=True), Request(Run(Limits(None))))
        off.append(1 - file.required / point.required)
    # Tiles of loops in a row may lie in more places than are counted with, and files in fewer.
    assert abs(off[-1]) < 0.01
    assert sum(abs(one) >= 0.01 for one in off) <= most_off
    assert all(abs(one) < 0.1 for one in off)


def test_files_need_what_points_promise_where_no_copy_lies_over_its_input() -> None:
    module = reader.read((MODELS / "person_detect.tflite").read_bytes(), "person_detect.tflite", LoadOptions())
    rules = load_target("tflm")
    apart = tuple(rule for rule in rules.part_views if rule.kind != "concatenation")
    target = msgspec.structs.replace(rules, budget_for="activations", part_views=apart)
    words = dialect_of(module, target)
    graph = fold_pads(module.graphs[0], words)
    search = LoopSearch(graph, target, words, prices=None, most_macs=sum(op.macs for op in graph.ops) * 15 // 100)
    points = [point for point in loops(search, 10.0) if point.groups]
    assert points[-1].required < 21_500
    for point in (points[0], points[-1]):
        planned = [plan_loop(graph, group, words) for group in point.groups]
        rewritten = with_loops(graph, [loop for loop in planned if isinstance(loop, Loop)], words)
        written, _ = read_back(plain(module), rewritten, LoadOptions(), target, lambda: None, ())
        file = as_stored(written, prepare(written, target, in_place=True), Request(Run(Limits(None))))
        # Alignment of single tensors takes a few bytes less than was counted.
        assert 0 <= point.required - file.required <= 64


@pytest.mark.parametrize(("seed", "target", "required"), [(32, "tflm-reference", 848), (33, "tflm", 3616)])
def test_no_loops_over_any_layers_in_any_tiles_need_less(seed: int, target: str, required: int) -> None:
    module = reader.read(looped_net(seed, 5, side=(6, 12)), "net.tflite", LoadOptions())
    rules = load_target(target)
    words = dialect_of(module, rules)
    graph = fold_pads(module.graphs[0], words)
    most = sum(op.macs for op in graph.ops) // 4
    search = LoopSearch(graph, rules, words, prices=None, most_macs=most)
    assert loops(search, 10.0)[-1].required == required
    assert search.exhausted
    every = LoopSearch(graph, rules, words, prices=None, most_macs=most)
    for first, last in itertools.combinations_with_replacement(range(len(graph.ops)), 2):
        shape = graph.tensors[graph.ops[last].outputs[0]].shape or ()
        if len(shape) == 4:
            for sizes in itertools.product(range(1, shape[1] + 1), range(1, shape[2] + 1)):
                every._judge(LoopGroup(tuple(range(first, last + 1)), (1, 2), sizes))
    assert every.points()[-1].required == required


def test_what_tiles_take_around_a_loop_is_least_of_all_rooms_below_it() -> None:
    rng = random.Random(5)
    for _ in range(200):
        steps = tuple(tuple(rng.randint(1, 9) for _ in range(rng.randint(1, 4))) for _ in range(3))
        below = rng.randint(0, 20)
        totals = []
        for room in range(below, below + 40):
            above = [min(sum(sizes) - sum(kept) for kept in _subsets(sizes) if sum(kept) <= room) for sizes in steps]
            totals.append(room + max(above))
        assert bytes_around(steps, below) == min(totals)


def _subsets(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for count in range(len(sizes) + 1):
        yield from itertools.combinations(sizes, count)
