"""Order, repetitions and addresses of small models together, from `memsched.optimize`."""

from __future__ import annotations

import pytest

from tests.tools.exhaustive import judge


@pytest.mark.parametrize("first", [0, 12])
def test_nothing_is_missed_that_every_way_tried_out_finds(first: int) -> None:
    assert [wrong for seed in range(first, first + 12) for wrong in judge(seed, most=7)] == []
