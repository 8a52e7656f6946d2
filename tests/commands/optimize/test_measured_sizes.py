"""At which sizes of a range files are run, whatever the time permits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from memsched.commands.optimize.measured_sizes import RangedSizes, measured_sizes, seconds_to_judge
from memsched.formats.blocks import OpenModel, Range
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime import ranged
from memsched.search.limits import Limits
from memsched.search.run import Run

SECONDS_AT_512 = 0.2


@pytest.fixture(autouse=True)
def _timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a model whose time grows with its length."""

    def runs_at(path: Path, sizes: Mapping[str, int], *, seed: int, most: int) -> list[Measured] | str:
        del path, seed, most
        return [Measured(1 << 20, clock=(SECONDS_AT_512 * sizes["n"] / 512,))]

    monkeypatch.setattr(ranged, "runs_at", runs_at)


def sizes(limit: float | None, points: int = 7, *, judged: bool = True) -> RangedSizes:
    """Return the sizes for a model with scores of every pair of 8,192 tokens, 50 bytes each."""
    opened = OpenModel(
        {"n": Range(1, 8192, named=True)},
        lambda: (),
        lambda at: 50 * at["n"] ** 2,
        lambda at: (),
        lambda: 1,
        lambda: None,
        lambda at: {},
    )
    run = Run(Limits(limit), started=0.0, clock=lambda: 0.0)
    return measured_sizes(opened, Path("net.onnx"), {}, points, run, judged=judged)


def test_without_a_limit_of_time_memory_alone_decides() -> None:
    found = sizes(None)
    assert found.large == {"n": 2048}  # twice as many take 839 MB
    assert found.small == {"n": 512}
    assert found.short == {"n": 64}
    assert found.large in found.compared


def test_more_time_permits_larger_sizes_and_never_less_than_the_small_one() -> None:
    found = [sizes(seconds).large["n"] for seconds in (1.0, 60.0, 100.0, 200.0, 400.0, 1000.0, 4000.0)]
    assert found == sorted(found)
    assert found[0] == 512
    assert found[-1] == 2048
    assert all(one.small == {"n": 512} for one in map(sizes, (1.0, 200.0)))


@pytest.mark.parametrize("points", [2, 7])
def test_runs_at_these_sizes_take_no_longer_than_there_is(points: int) -> None:
    limit = 300.0
    length = sizes(limit, points).large["n"]
    run = SECONDS_AT_512 * (length / 512) ** 2  # at most: the largest value grows so
    assert length > 512
    assert seconds_to_judge(run, SECONDS_AT_512) + run * (12 + 3 * points) + 2 * points <= limit


def test_what_need_not_be_judged_in_time_leaves_more_for_larger_sizes() -> None:
    assert sizes(100.0, judged=False).large["n"] > sizes(100.0).large["n"]
