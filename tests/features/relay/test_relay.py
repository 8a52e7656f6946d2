"""Where a model is cut and where what is handed over lies, against the definitions tried on every choice."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from memsched.features.relay.cuts import RelayCuts
from memsched.features.relay.layout import HandOver, RelayLayout, lay_out
from memsched.features.relay.search import StageRange, search
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.graph.model import Graph
from memsched.runtimes.arena_facts import round_up
from memsched.search.limits import Limits
from memsched.search.run import Run
from tests.features.relay.nets import random_net
from tests.random_graphs import random_graph

SEEDS = range(40)


def graph_of(seed: int) -> Graph:
    if seed % 2:
        return load_module(random_net(seed), "net.tflite", LoadOptions()).graphs[0]
    return random_graph(random.Random(seed), 9, extras=False)


def all_stages(places: Sequence[int]) -> Iterator[tuple[StageRange, ...]]:
    inner = places[1:-1]
    for count in range(len(inner) + 1):
        for chosen in itertools.combinations(inner, count):
            ends = (places[0], *chosen, places[-1])
            yield tuple(itertools.pairwise(ends))


@pytest.mark.parametrize("seed", SEEDS)
def test_what_crosses_a_cut_is_what_is_there_and_still_needed(seed: int) -> None:
    graph = graph_of(seed)
    cuts = RelayCuts.of(graph, range(len(graph.ops)))
    for place in range(len(graph.ops) + 1):
        there = {*graph.inputs, *(tensor for op in graph.ops[:place] for tensor in op.outputs)}
        later = {*graph.outputs, *(tensor for op in graph.ops[place:] for tensor in op.inputs)}
        assert set(cuts.crossing(place)) == there & later
        assert cuts.handed[place] == sum(round_up(graph.tensors[tensor].size) for tensor in there & later)


@pytest.mark.parametrize("seed", SEEDS)
def test_stages_read_and_make_all_that_they_must(seed: int) -> None:
    graph = graph_of(seed)
    cuts = RelayCuts.of(graph, range(len(graph.ops)))
    places = sorted({0, len(graph.ops), *(1 + (seed * step) % max(1, len(graph.ops) - 1) for step in (1, 3, 7))})
    there = set(graph.inputs)
    for first, last in itertools.pairwise(places):
        assert set(cuts.inputs(first, last)) <= there
        made = {tensor for op in graph.ops[first:last] for tensor in op.outputs}
        read = {tensor for op in graph.ops[first:last] for tensor in op.inputs}
        assert read - made == set(cuts.inputs(first, last))
        outside = {tensor for op in graph.ops[last:] for tensor in op.inputs} | set(graph.outputs)
        assert set(cuts.outputs(first, last)) == made & outside
        there |= made & outside
    assert set(graph.outputs) <= there


def occupied(layout: RelayLayout, count: int) -> Iterator[list[tuple[int, int, int]]]:
    """Yield at each moment the tensors at the block's end: where each begins and ends, counted from the end.

    The moments: before each stage reads its inputs, and when the last has run.
    """
    for stage in range(count + 1):
        yield [
            (one.tensor, one.from_end - one.size, one.from_end)
            for one in layout.hand_overs
            if one.maker < stage <= one.last
        ]


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_handed_over_lies_apart_and_outside_the_arenas(seed: int) -> None:
    graph = graph_of(seed)
    cuts = RelayCuts.of(graph, range(len(graph.ops)))
    for stages in itertools.islice(all_stages(cuts.places), 0, 200, 7):
        layout = lay_out(cuts, stages)
        ends = [*layout.kept, layout.results]
        for stage, held in enumerate(occupied(layout, len(stages))):
            for (one, begin, end), (other, low, high) in itertools.combinations(held, 2):
                assert end <= low or high <= begin, (one, other)
            assert max((end for *_, end in held), default=0) <= ends[stage]
            if stage < len(stages):
                first, last = stages[stage]
                assert {tensor for tensor, *_ in held} >= set(cuts.kept(first, last))
        assert all(one.from_end % 16 == 0 for one in layout.hand_overs)


class Table:
    """Costs from a table: an estimate below, found out in two steps."""

    def __init__(self, seed: int, count: int) -> None:
        self.value = {
            (i, j): 10 + (seed * 31 + i * 17 + j * 29) % 40 + 12 * (j - i)
            for i in range(count)
            for j in range(i + 1, count)
        }
        self.asked: dict[StageRange, int] = {}

    def estimate(self, first: int, last: int) -> int:
        return self.value[first, last] * 2 // 3

    def known(self, first: int, last: int) -> int | None:
        return self.value[first, last] + 5 if (first, last) in self.asked else None

    def least(self, stage: StageRange) -> int:
        return self.value[stage] - 2

    def find_out(self, stage: StageRange) -> tuple[int, int, bool]:
        self.asked[stage] = self.asked.get(stage, 0) + 1
        value = self.value[stage]
        if self.asked[stage] == 1:
            return value - 2, value + 5, False
        return value, value, True


@pytest.mark.parametrize("most", [None, 1, 2, 3])
@pytest.mark.parametrize("seed", range(12))
def test_the_largest_stage_is_the_least_of_all_cuts_and_few_are_found_out(seed: int, most: int | None) -> None:
    count = 9
    costs = Table(seed, count)
    found = search(range(count), costs, Run(Limits(None)), most=most, enough=None)
    every = [stages for stages in all_stages(range(count)) if most is None or len(stages) <= most]
    best = min(max(costs.value[stage] for stage in stages) for stages in every)
    assert (found.needed, found.estimate, found.ended) == (best, best, True)
    assert found.least <= best
    assert max(costs.value[stage] for stage in found.stages) == best
    fewest = min(len(stages) for stages in every if max(costs.value[stage] for stage in stages) == best)
    assert len(found.stages) >= fewest
    assert found.looked_at < len(costs.value)


def test_a_budget_is_met_with_the_fewest_stages() -> None:
    costs = Table(3, 9)
    whole = costs.value[0, 8]
    assert search(range(9), costs, Run(Limits(None)), most=None, enough=whole + 5).stages == ((0, 8),)


def test_a_search_without_time_gives_the_whole() -> None:
    found = search(range(9), Table(1, 9), Run(Limits(0.0)), most=None, enough=None)
    assert found.stages == ((0, 8),)
    assert not found.ended
    assert found.least < found.needed


def test_ops_of_one_state_and_tensors_that_cannot_be_handed_over_stay_together() -> None:
    graph = graph_of(1)
    order = range(len(graph.ops))
    assert RelayCuts.of(graph, order, [(1, 4)]).places == tuple(
        place for place in range(len(graph.ops) + 1) if place not in (2, 3, 4)
    )


def moved(layout: RelayLayout, places: dict[int, int], size: int) -> bool:
    """Whether some order of moving what stage 0 makes keeps every byte of it, tried on real bytes."""
    made = [one for one in layout.hand_overs if one.maker == 0]
    for order in itertools.permutations(made):
        block = bytearray(size)
        for one in made:
            block[places[one.tensor] : places[one.tensor] + one.size] = bytes([one.tensor + 1]) * one.size
        for one in order:
            begin = size - one.from_end
            block[begin : begin + one.size] = block[places[one.tensor] : places[one.tensor] + one.size]
        if all(block[size - one.from_end :][: one.size] == bytes([one.tensor + 1]) * one.size for one in made):
            return True
    return False


@pytest.mark.parametrize("seed", range(60))
def test_what_a_stage_makes_can_be_moved_within_the_block_and_in_no_smaller_one(seed: int) -> None:
    draw = random.Random(seed)
    sizes = [16 * draw.randrange(1, 5) for _ in range(draw.choice((2, 3)))]
    ends = list(itertools.accumulate(sizes))
    starts, at = {}, 0
    for tensor in draw.sample(range(len(sizes)), len(sizes)):
        at += 16 * draw.randrange(3)
        starts[tensor] = at
        at += sizes[tensor]
    layout = RelayLayout(
        tuple(HandOver(tensor, 0, 1, size, ends[tensor]) for tensor, size in enumerate(sizes)), (0, ends[-1]), 0
    )
    least = max(at, ends[-1] + 16)
    size = layout.block_bytes([at, 16], [starts, {}])
    assert moved(layout, starts, size)
    assert not any(moved(layout, starts, smaller) for smaller in range(least, size, 16))
