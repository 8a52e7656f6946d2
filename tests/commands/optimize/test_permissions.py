"""The extra work that is permitted is that of all rewrites together, by multiply-accumulates as well."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memsched
from memsched.commands.optimize.permissions import percent_left
from tests.tools.mixed_models import onnx_model


@pytest.mark.parametrize("seed", [3, 9, 30])
def test_pieces_and_repetitions_together_stay_within_what_is_permitted(seed: int) -> None:
    data, most = onnx_model(seed), 30.0
    report = memsched.optimize(data, effort=0.1, level=3, max_extra_macs=most, max_slowdown=None, verify=False).report
    tiling, remat = report["sections"]["tile"], report["sections"]["recompute"]
    pieces = tiling["extra_macs_percent"] if tiling["applied"] else 0.0
    again = remat["extra_work_percent"] if remat["applied"] else 0.0
    assert max(report["verdict"]["extra_macs_percent"], pieces + again) <= most
    steps = memsched.analyze(data, frontier=True, effort=0.1, max_extra_macs=most).report["sections"]["frontier"]
    assert max(step["extra_macs_percent"] for step in steps) <= most


@given(
    st.floats(0, 300),
    st.integers(1, 1000),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=4),
)
def test_what_is_left_adds_up_to_no_more_than_was_permitted(
    permitted: float, macs: int, parts: list[tuple[float, float]]
) -> None:
    extra_macs, work = 0.0, 0.0
    for of_macs, of_work in parts:
        left = percent_left(permitted, macs, int(extra_macs), work) / 100
        done = macs + int(extra_macs)
        extra_macs += int(of_macs * left * done)
        work += of_work * left * done / macs
        assert extra_macs <= (permitted / 100) * macs + 1e-6
        assert work <= permitted / 100 + 1e-9


def test_without_multiply_accumulates_work_alone_counts() -> None:
    assert percent_left(30.0, 0, 0, 0.1) == pytest.approx(20.0)
    assert percent_left(30.0, 0, 0, 0.4) == 0
