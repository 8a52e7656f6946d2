"""The simulator of a pipeline, by hand."""

from __future__ import annotations

import pytest

from memsched.features.pipeline.simulate import cached, simulate
from memsched.graph.stages import Layer, LayerValue, Network, Skips, StageSchedule
from memsched.targets.model import PipelineRules

RULES = PipelineRules(
    parameter_cache_bytes=100, link_bytes_per_second=10.0, ops_per_second=40.0, utilisation=0.5, parameter_bits=8
)
"""Ten bytes or ten multiply-accumulates a second."""

NETWORK = Network(
    "three",
    (
        Layer("a", "Op", (0, 1), 10, ()),
        Layer("b", "Op", (2,), 20, (0,)),
        Layer("c", "Op", (1, 3), 0, (0, 1)),
        Layer("d", "Op", (1,), 30, (2,)),
    ),
    (
        LayerValue("x", 20, -1, (0,)),
        LayerValue("va", 30, 0, (1, 2)),
        LayerValue("vb", 5, 1, (2,)),
        LayerValue("vc", 10, 2, (3,), result=True),
        LayerValue("vd", 10, 3, (), result=True),
    ),
    (90, 30, 10, 60),
)


def schedule(*stages: int) -> StageSchedule:
    return StageSchedule(stages, max(stages) + 1, 0, 0, 0, 0, "feasible", "", "")


def test_three_stages_by_hand() -> None:
    found = simulate(NETWORK, schedule(0, 1, 2, 2), RULES, activations=(7, 8, 9))
    first, second, third = found.stages
    assert (first.on_cache, first.off_cache, first.receives, first.sends, first.activations) == (90, 30, 20, 30, 7)
    assert (first.input, first.parameters, first.compute, first.output, first.total) == (2.0, 3.0, 1.0, 3.0, 9.0)
    assert (second.on_cache, second.off_cache, second.receives, second.sends) == (10, 0, 30, 5)
    assert second.total == pytest.approx(3.0 + 0.0 + 2.0 + 0.5)
    # c and d share constant 1, which is held once; both results are sent.
    assert (third.on_cache, third.off_cache, third.receives, third.sends) == (90, 0, 35, 20)
    assert third.total == pytest.approx(3.5 + 0.0 + 3.0 + 2.0)
    assert found.throughput == pytest.approx(1 / 9)
    assert found.latency == pytest.approx(9.0 + 5.5 + 8.5)


@pytest.mark.parametrize(("skips", "bytes_through_b"), [("once", (30, 5)), ("through", (30, 35))])
def test_values_that_skip_a_stage(skips: Skips, bytes_through_b: tuple[int, int]) -> None:
    second = simulate(NETWORK, schedule(0, 1, 2, 2), RULES, skips=skips).stages[1]
    assert (second.receives, second.sends) == bytes_through_b


def test_what_fits_first_stays() -> None:
    assert cached([], 100) == (0, 0)
    assert cached([60, 50, 40, 1], 100) == (100, 51)
    assert cached([101, 100], 100) == (100, 101)
    assert cached([1], 0) == (0, 1)


def test_nothing_to_do_has_no_rate() -> None:
    empty = Network("none", (Layer("a", "Op", (), 0, ()),), (), ())
    found = simulate(empty, schedule(0), RULES)
    assert (found.throughput, found.latency) == (0.0, 0.0)


def test_assumptions_are_stated_with_their_numbers() -> None:
    once = " ".join(simulate(NETWORK, schedule(0, 0, 0, 0), RULES).assumptions)
    for told in ("1e-05 MB/s", "100 bytes", "8 bits", "50 %"):
        assert told in once
    through = simulate(NETWORK, schedule(0, 0, 0, 0), RULES, skips="through").assumptions
    assert [one for one in through if one not in once]
