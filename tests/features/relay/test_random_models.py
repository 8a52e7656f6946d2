"""Random networks in stages with loops, executed in TFLM: a few of those of `tests.tools.relayed_models`."""

from __future__ import annotations

import pytest

from tests.runtimes.tflm.interpreter import needs_tflm
from tests.tools.relayed_models import judge


@needs_tflm
@pytest.mark.parametrize(("seed", "what"), [(2, "stages"), (3, "stages"), (8, "1 with loops"), (13, "2 with loops")])
def test_stages_with_loops_compute_the_same(seed: int, what: str) -> None:
    result = judge(seed, effort=1.0)
    assert not result.startswith("WRONG"), result
    assert what in result


@needs_tflm
@pytest.mark.parametrize("seed", [163, 181])
def test_no_block_is_larger_than_the_arena_as_given(seed: int) -> None:
    """What is handed over must be movable: with several outputs that takes more here than cutting saves."""
    assert not judge(seed, effort=0.5).startswith("WRONG")
