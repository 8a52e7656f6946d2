"""What loops need at least, against files with loops over random layers, in random tiles and all forms."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite.model import parse
from memsched.graph.loop import Loop
from memsched.graph.model import Graph
from memsched.lowering.prices import Prices
from memsched.ops.geometry import describe
from memsched.plan.rewrite import dialect_of, read_back
from memsched.rewrites.tile.fold import fold_pads
from memsched.rewrites.tile.loop import LoopGroup, loop_of
from memsched.rewrites.tile.loop_cost import LoopCost
from memsched.rewrites.tile.loop_floor import LoopFloors
from memsched.rewrites.tile.loop_rewrite import with_loops
from memsched.rewrites.tile.loop_search import LoopSearch
from memsched.rewrites.tile.op_needs import OpsNeeds
from memsched.runtimes.known import runtime_of
from memsched.runtimes.tflm.dead_tensors import drop_dead_tensors
from memsched.runtimes.tflm.layout import best_offsets
from memsched.runtimes.tflm.persistent import estimates
from memsched.runtimes.tflm.plan import kernel_scratch, predict
from memsched.search.limits import QUICK
from memsched.search.run import Run
from memsched.targets.load import load_target
from memsched.targets.model import Target
from tests.formats.tflite_builder import MODELS
from tests.rewrites.tile.looped_nets import branched_net, looped_net
from tests.rewrites.tile.small_nets import SmallNet
from tests.rewrites.tile.test_loop_pools import MAKERS as POOLED
from tests.rewrites.tile.test_loop_pools import Maker as PoolMaker
from tests.suites import Draws

_MOST = 1 << 40


def net_of(seed: int) -> Module:
    rng = random.Random(seed)
    side = rng.choice([(4, 12), (8, 20), (2, 6)])
    return load_module(looped_net(seed, rng.randint(1, 4), side=side, sliced=rng.random() < 0.3), "net", LoadOptions())


def branches_of(seed: int) -> Module:
    rng = random.Random(seed)
    side = rng.choice([(4, 12), (2, 6)])
    data = branched_net(seed, rng.randint(2, 6), side=side, sliced=rng.random() < 0.3)
    return load_module(data, "net", LoadOptions())


def pools_of(seed: int) -> Module:
    rng = random.Random(seed)
    side = rng.choice([(4, 9), (2, 5)])
    data = branched_net(seed, rng.randint(1, 4), side=side, sliced=rng.random() < 0.3, pooled=True)
    return load_module(data, "net", LoadOptions())


def floors_of(graph: Graph, module: Module, target: Target, prices: Prices | None) -> LoopFloors:
    geometries = {op: describe(graph, op) for op in range(len(graph.ops))}
    dialect = dialect_of(module, target)
    needs = OpsNeeds(graph, target, dialect, geometries, prices)
    rest = {"prices": prices, "size": needs.size, "together": needs.together, "sharing": needs.sharing}
    return LoopFloors(graph, target, dialect, geometries, needs.readers, other=0, most=_MOST, **rest)  # type: ignore[arg-type]


def forms(graph: Graph, search: LoopSearch, rng: random.Random, count: int) -> Iterator[LoopCost]:
    """Loops over all layers, or some of them, in random tiles, in each form."""
    for _ in range(count):
        first = rng.randrange(len(graph.ops)) if rng.random() < 0.4 else 0
        last = rng.randrange(first, len(graph.ops)) if rng.random() < 0.4 else len(graph.ops) - 1
        shape = graph.tensors[graph.ops[last].outputs[0]].shape or ()
        sizes = tuple(rng.choice([1, rng.randint(1, shape[axis]), shape[axis]]) for axis in (1, 2))
        yield from search._forms(LoopGroup(tuple(range(first, last + 1)), (1, 2), sizes))


@pytest.mark.parametrize("name", ["tflm", "tflm-reference"])
def test_files_with_loops_need_no_less_and_keep_no_less(name: str) -> None:
    target, judged = load_target(name), 0
    for seed in range(24):
        judged += sum(files_need_no_less(net_of(seed), target, seed).values())
    assert judged > 100


@pytest.mark.parametrize("name", ["tflm", "tflm-reference"])
def test_files_with_loops_over_branches_need_no_less_and_keep_no_less(name: str, draws: Draws) -> None:
    judged = Counter[str]()
    for seed in range(draws(30, 80)):
        judged += files_need_no_less(branches_of(seed), load_target(name), seed)
    assert judged["several inputs"] > draws(8, 20)
    assert judged["several outputs"] > draws(8, 20)
    assert judged["several of both"] > draws(0, 5)


@pytest.mark.parametrize("name", ["tflm", "tflm-reference"])
def test_files_with_pools_that_pad_in_loops_need_no_less_and_keep_no_less(name: str) -> None:
    judged = Counter[str]()
    for seed in range(150):
        judged += files_need_no_less(pools_of(seed), load_target(name), seed)
    assert judged["windows"] > 20
    assert judged["windows of several"] > 10


@pytest.mark.parametrize("slices", [3, 15])
def test_a_loop_may_keep_less_than_all_the_slices_that_it_saves(slices: int) -> None:
    net, target = SmallNet(quantised=True), load_target("tflm-reference")
    x, y = net.value(1, 2 << slices, 8, 2), net.value(1, 2, 8, 2)
    last = x
    for _ in range(slices):
        last = net.half(last)
    module = net.module([x, y], [net.add(last, y)])
    graph, dialect = module.graphs[0], dialect_of(module, target)
    loop = loop_of(graph, LoopGroup(tuple(range(slices + 1)), (1, 2), (1, 8)), dialect)
    assert len(loop.side_inputs) == 1
    written = read_back(module, with_loops(graph, [loop], dialect), LoadOptions(), target)[1]
    kept = kept_in(written, target) - kept_in(module.native.model.data, target)
    floors = floors_of(graph, module, target, runtime_of(module, target).prices(module))
    (least,) = (form.kept for form in floors.ending(slices) if form.first == 0)
    assert least <= kept
    assert (kept < 0) is (slices > 3)


def files_need_no_less(module: Module, target: Target, seed: int) -> Counter[str]:
    """Judge files with loops in a network; return how many, by what the loops read and make."""
    rng, judged = random.Random(seed), Counter[str]()
    dialect, prices = dialect_of(module, target), runtime_of(module, target).prices(module)
    assert prices is not None
    graph = fold_pads(module.graphs[0], dialect)
    floors = floors_of(graph, module, target, prices)
    before = kept_in(module.native.model.data, target)
    before -= (prices.of_ops(module.graphs[0], module.graphs[0].ops) - prices.of_ops(graph, graph.ops)).persistent
    search = LoopSearch(graph, target, dialect, prices=prices, most_macs=_MOST)
    for one in forms(graph, search, rng, 4):
        loop = loop_of(graph, one.group, dialect)
        written = drop_dead_tensors(read_back(module, with_loops(graph, [loop], dialect), LoadOptions(), target)[1])[0]
        head, kept = head_in(written, target), kept_in(written, target) - before
        known = [form for form in floors.ending(one.group.ops[-1]) if form.first == one.group.ops[0]]
        judged.update(kinds_of(loop))
        assert any(form.level <= head and form.kept <= kept for form in known), (seed, one.group, head, kept, known)
    return judged


def kinds_of(loop: Loop) -> list[str]:
    """Say of what a loop has several, and whether it has layers that pad by themselves."""
    windows = any(step.window is not None for step in loop.steps)
    several = bool(loop.side_inputs or loop.side_outputs)
    return [kind_of(loop), *["windows"] * windows, *["windows of several"] * (windows and several)]


def kind_of(loop: Loop) -> str:
    """Say of what a loop has several."""
    if loop.side_inputs:
        return "several of both" if loop.side_outputs else "several inputs"
    return "several outputs" if loop.side_outputs else "one of each"


def head_in(written: bytes, target: Target) -> int:
    """The planned part of a file with the best plan, or with the runtime's own planner where that needs less."""
    model = parse(written)
    scratch = kernel_scratch(model)
    return min(
        predict(model, scratch, plan=plan).head for plan in (best_offsets(model, target, scratch, Run(QUICK)), None)
    )


def kept_in(written: bytes, target: Target) -> int:
    return estimates(parse(drop_dead_tensors(written)[0]), target.kernels)[target.pointer_bits].persistent


@pytest.mark.parametrize("name", ["tflm", "tflm-reference"])
def test_no_tiles_are_judged_to_need_less(name: str) -> None:
    judged = Counter[str]()
    for seed in range(12):
        judged += tiles_need_no_less(net_of(seed), load_target(name), seed)
    assert judged["one of each"] > 5_000


@pytest.mark.parametrize("name", ["tflm", "tflm-reference"])
def test_no_tiles_over_branches_are_judged_to_need_less(name: str, draws: Draws) -> None:
    judged = Counter[str]()
    for seed in range(draws(8, 40)):
        judged += tiles_need_no_less(branches_of(seed), load_target(name), seed)
    assert judged["several inputs"] > draws(100, 500)
    assert judged["several outputs"] > draws(100, 500)
    assert judged["several of both"] > draws(40, 200)


@pytest.mark.parametrize("name", ["tflm", "tflm-reference"])
def test_no_tiles_over_pools_that_pad_are_judged_to_need_less(name: str) -> None:
    judged = Counter[str]()
    for seed in range(120):
        judged += tiles_need_no_less(pools_of(seed), load_target(name), seed)
    assert judged["windows"] > 1_000
    assert judged["windows of several"] > 500


@pytest.mark.parametrize("make", POOLED)
def test_no_tiles_over_a_pool_that_pads_are_judged_to_need_less(make: PoolMaker) -> None:
    for quantised in (False, True):
        module, *_ = make(SmallNet(quantised=quantised))
        assert tiles_need_no_less(module, load_target("tflm"), 0)["windows"]
        for seed in range(4):
            files_need_no_less(module, load_target("tflm-reference"), seed)


def tiles_need_no_less(module: Module, target: Target, seed: int) -> Counter[str]:
    """Judge all loops in a network, in all tiles; return how many, by what the loops read and make."""
    dialect, judged = dialect_of(module, target), Counter[str]()
    graph = fold_pads(module.graphs[0], dialect)
    floors = floors_of(graph, module, target, None)
    search = LoopSearch(graph, target, dialect, prices=None, most_macs=_MOST)
    for last in range(len(graph.ops)):
        _, rows, columns, *_ = graph.tensors[graph.ops[last].outputs[0]].shape or (0, 0, 0)
        for first in range(last + 1):
            ops = tuple(range(first, last + 1))
            tiles = ((height, width) for height in range(1, rows + 1) for width in range(1, columns + 1))
            found = [one for sizes in tiles for one in search._forms(LoopGroup(ops, (1, 2), sizes))]
            if found:
                least = min(form.level for form in floors.ending(last) if form.first == first)
                judged.update(kinds_of(loop_of(graph, found[0].group, dialect)) * len(found))
                assert least <= min(one.peak for one in found), (seed, first, last)
    return judged


@pytest.mark.parametrize("name", ["tflm", "tflm-reference"])
def test_files_with_loops_over_all_layers_need_no_more_than_was_judged(name: str) -> None:
    """Of all types, and of several images, whose rows ahead are each image's own."""
    target, judged = load_target(name), Counter[str]()
    for seed in range(120):
        module, rng = branches_of(seed), random.Random(seed)
        dialect = dialect_of(module, target)
        graph = fold_pads(module.graphs[0], dialect)
        search = LoopSearch(graph, target, dialect, prices=None, most_macs=_MOST)
        shape = graph.tensors[graph.ops[-1].outputs[0]].shape or ()
        sizes = tuple(rng.randint(1, shape[axis]) for axis in (1, 2))
        for one in search._forms(LoopGroup(tuple(range(len(graph.ops))), (1, 2), sizes)):
            loop = loop_of(graph, one.group, dialect)
            written = read_back(module, with_loops(graph, [loop], dialect), LoadOptions(), target)[1]
            assert head_in(written, target) <= one.peak, (seed, one.group)
            judged[kind_of(loop)] += 1
            judged[f"{shape[0]} x {graph.tensors[loop.output].dtype}"] += 1
    assert judged["several outputs"] > 30
    assert judged["several inputs"] + judged["several of both"] > 5
    assert min(judged[f"{count} x {dtype}"] for count in (1, 2) for dtype in ("int8", "int16", "float32")) > 1, judged


def test_the_least_is_near_what_the_best_tiles_need() -> None:
    path, target = MODELS / "person_detect.tflite", load_target("tflm")
    module = load_module(path.read_bytes(), path.name, LoadOptions())
    graph = module.graphs[0]
    floors = floors_of(graph, module, target, None)
    search = LoopSearch(graph, target, dialect_of(module, target), prices=None, most_macs=_MOST)
    for first, last in ((0, 3), (0, 7), (4, 7), (8, 11)):
        least = min(form.level for form in floors.ending(last) if form.first == first)
        best = min(one.peak for one in search._forms(LoopGroup(tuple(range(first, last + 1)), (1, 2), (1, 1))))
        assert least <= best <= 1.02 * least
