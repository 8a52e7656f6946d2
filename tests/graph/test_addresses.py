"""Where views, slices and concatenations lie, and that the checker rejects every other place."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from memsched.base.errors import GraphError, InternalError
from memsched.check.schedule import check_allocation
from memsched.graph.addresses import addresses, own_range, view_distances
from memsched.graph.liveness import Storage, evaluate
from memsched.graph.model import Allocation, Graph, Op, Placement, Schedule
from memsched.solve.allocate.arena import allocate
from tests.failures import fails
from tests.graph.examples import graph_of, schedule_of
from tests.random_graphs import random_graph, random_order

SIZES = {"x": 1, "a": 4, "b": 6, "c": 10, "e": 2, "d": 12, "s": 3, "v": 4, "y": 1}
OPS = [
    Op("a", "Conv", (0,), (1,)),
    Op("b", "Conv", (0,), (2,)),
    Op("c", "Concat", (1, 2), (3,), views=((3, 1), (3, 2))),
    Op("e", "Conv", (0,), (4,)),
    Op("d", "Concat", (4, 3), (5,), views=((5, 4), (5, 3))),
    Op("s", "Slice", (3,), (6,), views=((6, 3),), view_offsets=(5,)),
    Op("v", "Reshape", (1,), (7,), views=((7, 1),)),
    Op("y", "Conv", (5, 6, 7), (8,)),
]


def example() -> Graph:
    """c = (a, b) lies in d = (e, c); s shows bytes 5 to 8 of c; v is a in another shape."""
    return graph_of(SIZES, OPS, ["x"], ["y"])


def scheduled(graph: Graph) -> Schedule:
    order = tuple(range(len(graph.ops)))
    return schedule_of(order, evaluate(Storage.of(graph), order).peak)


def by_hand() -> Allocation:
    places = (
        Placement((1, 7), 2, 4, 0, 7),
        Placement((2,), 6, 6, 1, 7),
        Placement((4,), 0, 2, 3, 7),
        Placement((0,), 12, 1, 0, 3),
        Placement((8,), 12, 1, 7, 7),
    )
    return Allocation(places, 13, 13, 1, "optimal", "by hand")


def test_nested_concatenations_and_views_of_pieces_have_addresses() -> None:
    graph = example()
    check_allocation(graph, scheduled(graph), by_hand())
    assert addresses(graph, by_hand()) == (12, 2, 6, 2, 0, 0, 7, 2, 12)
    found = allocate(graph, scheduled(graph), alignment=1)
    check_allocation(graph, scheduled(graph), found)
    assert (found.arena, found.status) == (13, "optimal")


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_piece_anywhere_else_is_rejected(index: int) -> None:
    graph = example()
    places = list(by_hand().placements)
    places[index] = replace(places[index], offset=20)
    moved = replace(by_hand(), placements=tuple(places), arena=20 + places[index].size, status="feasible")
    with fails("pieces-misplaced"):
        check_allocation(graph, scheduled(graph), moved)


def test_only_the_outermost_concatenation_must_be_aligned() -> None:
    graph = example()
    found = allocate(graph, scheduled(graph), alignment=8)
    check_allocation(graph, scheduled(graph), found)
    tied, free = by_hand().placements[:3], by_hand().placements[3:]
    places = (*[replace(p, offset=p.offset + 2) for p in tied], *[replace(p, offset=16) for p in free])
    off_by_two = replace(by_hand(), placements=places, arena=17, alignment=4, status="feasible")
    with fails("misaligned", "'d'", "2"):
        check_allocation(graph, scheduled(graph), off_by_two)


@pytest.mark.parametrize(
    ("op", "change", "codes", "about"),
    [
        (5, {"view_offsets": (8,)}, ("view-outside", "view-past-end"), ("'s'", "'c'")),
        (5, {"view_offsets": (-1,)}, ("view-outside", "view-past-end"), ("'s'", "'c'")),
        (2, {"view_offsets": (0,)}, ("view-count", "view-offset-count"), ("2 views", "1 offsets")),
        (2, {"view_offsets": (0, 3)}, ("pieces-overlap", "views-conflict"), ()),
        (2, {"view_offsets": (0, 5)}, ("pieces-outside", "view-past-end"), ("'c'",)),
    ],
)
def test_views_that_contradict_each_other_are_rejected_by_both(
    op: int, change: dict[str, object], codes: tuple[str, str], about: tuple[str, ...]
) -> None:
    ops = list(OPS)
    ops[op] = replace(ops[op], **change)  # type: ignore[arg-type]
    graph = graph_of(SIZES, ops, ["x"], ["y"])
    with fails(codes[0], *about, kind=InternalError):
        check_allocation(graph, scheduled(graph), by_hand())
    with fails(codes[1], *about, kind=GraphError):
        allocate(graph, scheduled(graph), alignment=1)


def test_a_piece_of_two_concatenations_has_no_address() -> None:
    ops = [*OPS[:3], Op("d", "Concat", (2, 1), (5,), views=((5, 2), (5, 1)))]
    graph = graph_of({**SIZES, "d": 10}, ops, ["x"], ["c", "d"])
    with fails("pieces-unplaceable", "'d'"):
        allocate(graph, scheduled(graph), alignment=1)


def test_what_a_concatenation_has_beside_its_pieces_is_one_range() -> None:
    op = Op("c", "Concat", (1, 2), (3,), views=((3, 1), (3, 2)), view_offsets=(0, 7))
    graph = graph_of({"x": 1, "a": 4, "b": 6, "c": 13}, [*OPS[:2], op], ["x"], ["c"])
    found = allocate(graph, scheduled(graph), alignment=1)
    check_allocation(graph, scheduled(graph), found)
    where = addresses(graph, found)
    assert [at - (where[3] or 0) for at in where[1:] if at is not None] == [0, 7, 0]
    own = next(p for p in found.placements if p.tensors == (3,))
    assert (own.offset - (where[3] or 0), own.size) == (4, 3)
    wide = graph_of({"x": 1, "a": 4, "b": 6, "c": 14}, [*OPS[:2], op], ["x"], ["c"])
    with fails("views-scattered"):
        allocate(wide, scheduled(wide), alignment=1)


def test_a_view_that_is_named_twice_is_one_view() -> None:
    op = Op("c", "Concat", (1, 2), (3,), views=((3, 1), (3, 1), (3, 2)))
    graph = graph_of({"x": 1, "a": 4, "b": 6, "c": 10}, [*OPS[:2], op], ["x"], ["c"])
    assert view_distances(graph, op) == ((3, 1, 0), (3, 2, -4))


def test_pieces_follow_each_other_and_slices_begin_at_0_unless_offsets_say_otherwise() -> None:
    graph = example()
    assert [view_distances(graph, op) for op in OPS] == [
        (),
        (),
        ((3, 1, 0), (3, 2, -4)),
        (),
        ((5, 4, 0), (5, 3, -2)),
        ((6, 3, 5),),
        ((7, 1, 0),),
        (),
    ]
    assert view_distances(graph, replace(OPS[5], view_offsets=())) == ((6, 3, 0),)
    assert view_distances(graph, replace(OPS[2], view_offsets=(6, 0))) == ((3, 1, -6), (3, 2, 0))


def test_the_bytes_beside_the_pieces_are_found() -> None:
    graph = graph_of({"x": 1, "a": 4, "b": 6, "c": 13}, OPS[:2], ["x"], ["a", "b"])
    op = Op("c", "Concat", (1, 2), (3,), views=((3, 1), (3, 2)))
    for offsets, free in (((0, 4), (10, 13)), ((0, 7), (4, 7)), ((9, 3), (0, 3)), ((3, 7), (0, 3))):
        assert own_range(graph, replace(op, view_offsets=offsets), 3) == free
    full = graph_of({"x": 1, "a": 4, "b": 6, "c": 10}, OPS[:2], ["x"], ["a", "b"])
    assert own_range(full, op, 3) == (10, 10)
    with fails("views-overlap", "op 'c'", "byte 3"):
        own_range(graph, replace(op, view_offsets=(0, 3)), 3)
    with fails("views-scattered", "op 'c'"):
        own_range(graph, replace(op, view_offsets=(1, 5)), 3)


def test_a_concatenation_lies_where_its_own_bytes_say_when_no_piece_has_an_address() -> None:
    sizes = {"p": 4, "q": 2, "c": 9, "v": 9}
    op = Op("c", "Concat", (0, 1), (2,), views=((2, 0), (2, 1)))
    graph = graph_of(sizes, [op, Op("v", "Reshape", (2,), (3,), views=((3, 2),))], ["p", "q"], ["v"])
    own = Allocation((Placement((2,), 10, 3, 0, 1),), 13, 13, 1, "optimal", "")
    assert addresses(graph, own) == (None, None, 4, 4)
    with_p = replace(own, placements=(*own.placements, Placement((0,), 4, 4, 0, 0)))
    assert addresses(graph, with_p) == (4, None, 4, 4)
    assert addresses(graph, replace(own, placements=())) == (None, None, None, None)


def test_a_state_that_is_written_as_a_view_keeps_its_own_address() -> None:
    op = Op("f", "Op", (0,), (1, 2), views=((1, 0), (2, 0)))
    graph = graph_of({"x": 4, "state": 4, "v": 4}, [op], ["x"], ["v"], ["state"])
    places = (Placement((0,), 8, 4, 0, 0), Placement((1,), 0, 4, 0, 0))
    assert addresses(graph, Allocation(places, 12, 12, 1, "optimal", "")) == (8, 0, 8)


def test_random_mutations_of_pieces_are_rejected() -> None:
    rng = random.Random(8)
    moved = 0
    for _ in range(300):
        graph = random_graph(rng, rng.randint(3, 14), layable=True)
        order = random_order(rng, graph)
        profile = evaluate(Storage.of(graph), order)
        schedule = schedule_of(order, profile.peak, profile.in_place(Storage.of(graph), order))
        found = allocate(graph, schedule, alignment=1)
        check_allocation(graph, schedule, found)
        places = Storage.of(graph).buffers_of
        tied = {tensor for tensor, inside in enumerate(places) if len(inside) > 1}
        pieces = {source for op in graph.ops for output, source in op.views if output in tied}
        for index, placement in enumerate(found.placements):
            if placement.size and not pieces.isdisjoint(placement.tensors):
                changed = list(found.placements)
                changed[index] = replace(placement, offset=found.arena + 1)
                arena = found.arena + 1 + placement.size
                wrong = replace(found, placements=tuple(changed), arena=arena, status="feasible")
                with pytest.raises(InternalError):
                    check_allocation(graph, schedule, wrong)
                moved += 1
    assert moved > 50
