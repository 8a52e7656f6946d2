from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memsched.runtimes.arena_facts import round_up
from memsched.runtimes.tflm import planner
from memsched.runtimes.tflm.planner import TflmRequest, greedy_offsets, head_bytes

SIZES = st.sampled_from([16, 32, 48, 96, 160])


@st.composite
def requests(draw: st.DrawFn) -> list[TflmRequest]:
    found = []
    for _ in range(draw(st.integers(0, 12))):
        first = draw(st.integers(-1, 6))
        offset = draw(st.none() | st.sampled_from([0, 16, 48, 64, 200]))
        found.append(TflmRequest(draw(SIZES), first, draw(st.integers(first, 7)), offset))
    return found


def naive(wanted: list[TflmRequest]) -> list[int]:
    """Byte by byte: every placed buffer blocks its bytes for all that meet it in time."""
    order = [i for i, one in enumerate(wanted) if one.offset is not None]
    order += sorted([i for i, one in enumerate(wanted) if one.offset is None], key=lambda i: (wanted[i].size, i))[::-1]
    offsets: dict[int, int] = {}
    for index in order:
        one = wanted[index]
        if one.offset is not None:
            offsets[index] = one.offset
            continue
        blocked: set[int] = set()
        for other, offset in offsets.items():
            times = range(wanted[other].first, wanted[other].last + 1)
            if any(one.first <= time <= one.last for time in times):
                blocked.update(range(offset, offset + wanted[other].size))
        start = 0
        while blocked & set(range(start, start + one.size)):
            start += 8
        offsets[index] = start
    return [offsets[index] for index in range(len(wanted))]


@settings(max_examples=200, deadline=None)
@given(requests(), st.booleans())
def test_it_places_as_a_naive_planner_does(wanted: list[TflmRequest], listed: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "_MOST_PAIRS", 100 if listed else -1)
        assert list(greedy_offsets(wanted)) == naive(wanted)


def test_of_equal_sizes_the_later_comes_first() -> None:
    wanted = [TflmRequest(32, 0, 1), TflmRequest(32, 0, 1), TflmRequest(64, 1, 1)]
    assert greedy_offsets(wanted) == (96, 64, 0)


def test_given_offsets_come_first_and_may_overlap() -> None:
    wanted = [TflmRequest(64, 0, 2), TflmRequest(16, 0, 2, 32), TflmRequest(32, 1, 3, 32), TflmRequest(32, 2, 2)]
    offsets = greedy_offsets(wanted)
    assert offsets == (64, 32, 32, 0)
    assert head_bytes(wanted, offsets) == 128


def test_nothing_needs_nothing() -> None:
    assert greedy_offsets([]) == ()
    assert head_bytes([], ()) == 0
    assert [round_up(size) for size in (0, 1, 16, 17)] == [0, 16, 16, 32]
