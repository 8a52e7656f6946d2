"""What loops need at least, against files with loops over random layers, in random tiles and all forms."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions, Module
from memsched.formats.tflite.model import parse
from memsched.graph.model import Graph
from memsched.graph.prices import Prices
from memsched.planning.rewrite import dialect_of, read_back
from memsched.regions.geometry import describe
from memsched.runtimes.known import runtime_of
from memsched.runtimes.tflm.dead_tensors import drop_dead_tensors
from memsched.runtimes.tflm.layout import best_offsets
from memsched.runtimes.tflm.persistent import estimates
from memsched.runtimes.tflm.plan import kernel_scratch, predict
from memsched.targets.load import load_target
from memsched.targets.model import Target
from memsched.tiling.fold import fold_pads
from memsched.tiling.loop import LoopGroup, loop_of
from memsched.tiling.loop_cost import LoopCost
from memsched.tiling.loop_floor import LoopFloors
from memsched.tiling.loop_rewrite import with_loops
from memsched.tiling.loop_search import LoopSearch
from memsched.tiling.op_needs import OpsNeeds
from tests.formats.tflite_builder import MODELS
from tests.tiling.looped_nets import looped_net

_MOST = 1 << 40


def net_of(seed: int) -> Module:
    rng = random.Random(seed)
    side = rng.choice([(4, 12), (8, 20), (2, 6)])
    return load_module(looped_net(seed, rng.randint(1, 4), side=side, sliced=rng.random() < 0.3), "net", LoadOptions())


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
        module, rng = net_of(seed), random.Random(seed)
        dialect, prices = dialect_of(module, target), runtime_of(module, target).prices(module)
        assert prices is not None
        graph = fold_pads(module.graphs[0], dialect)
        floors = floors_of(graph, module, target, prices)
        before = kept_in(module.native.model.data, target)
        before -= (prices.of_ops(module.graphs[0], module.graphs[0].ops) - prices.of_ops(graph, graph.ops)).persistent
        search = LoopSearch(graph, target, dialect, prices=prices, most_macs=_MOST)
        for one in forms(graph, search, rng, 4):
            looped = with_loops(graph, [loop_of(graph, one.group, dialect)], dialect)
            written = drop_dead_tensors(read_back(module, looped, LoadOptions(), target)[1])[0]
            head, kept = head_in(written, target), kept_in(written, target) - before
            known = [form for form in floors.ending(one.group.ops[-1]) if form.first == one.group.ops[0]]
            judged += 1
            assert any(form.level <= head and form.kept <= kept for form in known), (seed, one.group, head, kept, known)
    assert judged > 100


def head_in(written: bytes, target: Target) -> int:
    """The planned part of a file with the best plan, or with the runtime's own planner where that needs less."""
    model = parse(written)
    scratch = kernel_scratch(model)
    return min(predict(model, scratch, plan=plan).head for plan in (best_offsets(model, target, scratch), None))


def kept_in(written: bytes, target: Target) -> int:
    return estimates(parse(drop_dead_tensors(written)[0]), target.kernels)[target.pointer_bits].persistent


@pytest.mark.parametrize("name", ["tflm", "tflm-reference"])
def test_no_tiles_are_judged_to_need_less(name: str) -> None:
    target, judged = load_target(name), 0
    for seed in range(12):
        module = net_of(seed)
        dialect = dialect_of(module, target)
        graph = fold_pads(module.graphs[0], dialect)
        floors = floors_of(graph, module, target, None)
        search = LoopSearch(graph, target, dialect, prices=None, most_macs=_MOST)
        for last in range(len(graph.ops)):
            _, rows, columns, *_ = graph.tensors[graph.ops[last].outputs[0]].shape or (0, 0, 0)
            for first in {form.first: None for form in floors.ending(last)}:
                ops = tuple(range(first, last + 1))
                tiles = ((height, width) for height in range(1, rows + 1) for width in range(1, columns + 1))
                peaks = [one.peak for sizes in tiles for one in search._forms(LoopGroup(ops, (1, 2), sizes))]
                least = min(form.level for form in floors.ending(last) if form.first == first)
                judged += len(peaks)
                assert least <= min(peaks, default=least), (seed, first, last)
    assert judged > 5_000


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
