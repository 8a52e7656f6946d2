"""How much is read at least, against all parts that may be asked for."""

from __future__ import annotations

import itertools
import random

import pytest

from memsched.ops.rules import (
    POINTWISE,
    AxisMap,
    ChannelGroups,
    Geometry,
    Merge,
    Reflection,
    Rule,
    Shift,
    Stride,
    Subdivision,
    Window,
)
from memsched.rewrites.tile.least_reads import lengths_read


def least(rule: Rule, length: int, full: int, made: int) -> int:
    geometry = Geometry((full,), {0: (length,)}, {0: (AxisMap(0, rule),)})
    return lengths_read(geometry, 0, (made,))[0]


def read(rule: Rule, length: int, place: int) -> set[int]:
    """The elements that one element of the output needs."""
    if isinstance(rule, Window):
        begin = place * rule.stride - rule.pad_before
        found = {begin + tap * rule.dilation for tap in range(rule.kernel)}
    elif isinstance(rule, Shift):
        found = {place - rule.offset}
    elif isinstance(rule, Stride):
        found = {rule.begin + rule.step * place}
    elif isinstance(rule, ChannelGroups):
        group = place // rule.outputs
        found = set(range(group * rule.inputs, (group + 1) * rule.inputs))
    elif isinstance(rule, Merge):
        found = set(range(place * rule.size, (place + 1) * rule.size))
    elif isinstance(rule, Subdivision):
        found = {place // rule.size}
    else:
        found = {place - (rule.pad_before if isinstance(rule, Reflection) else 0)}
    return found & set(range(length))


_RULES: list[tuple[Rule, int, int]] = [
    (POINTWISE, 6, 6),
    (Shift(2), 3, 6),
    (Stride(1, 2), 9, 4),
    (Stride(5, -1), 6, 5),
    (ChannelGroups(1, 2, divisible=False), 3, 6),
    (ChannelGroups(2, 3), 4, 6),
    (Merge(2), 10, 5),
    (Subdivision(2), 3, 6),
    (Reflection(1, 2, 1), 4, 7),
]


@pytest.mark.parametrize(("rule", "length", "full"), _RULES)
def test_no_elements_read_less(rule: Rule, length: int, full: int) -> None:
    check(rule, length, full)


def test_no_elements_under_windows_read_less() -> None:
    rng = random.Random(3)
    for _ in range(300):
        kernel, stride, dilation = rng.randint(1, 4), rng.randint(1, 4), rng.choice([1, 1, 2])
        reach = (kernel - 1) * dilation + 1
        before, after = rng.randrange(reach), rng.randrange(reach)
        length = rng.randint(max(1, reach - before - after), 12)
        full = (length + before + after - reach) // stride + 1
        if full <= 8:
            check(Window(kernel, stride, dilation, before, after), length, full)


def check(rule: Rule, length: int, full: int) -> None:
    whole = set[int]().union(*(read(rule, length, place) for place in range(full)))
    assert least(rule, length, full, full) <= len(whole)
    if isinstance(rule, Window):
        assert least(rule, length, full, full) == len(whole)
    for made in range(full):
        for places in itertools.combinations(range(full), made):
            needed = set[int]().union(*(read(rule, length, place) for place in places))
            # A part that lies in padding alone is refused.
            if needed or not places:
                assert least(rule, length, full, made) <= len(needed), (rule, length, full, places)
