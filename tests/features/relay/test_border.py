"""Stages of models whose callers give what the first layer reads and take what the last one makes."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from memsched.commands.failures import DEFECTS, REPORT_IT
from memsched.commands.options import RelayOptions
from memsched.features.relay.relay import relay
from memsched.features.relay.report import relay_names, relay_report
from memsched.graph.border import Border
from memsched.report.relay_runner import runner_files
from memsched.runtimes import borders
from memsched.runtimes.tflm import relay as tflm_relay
from tests.bordered_nets import bordered, bordered_net, two_inputs
from tests.failures import fails
from tests.runtimes.tflm.interpreter import needs_tflm

ALLOW = ("reorder", "inplace", "io")
_REFUSED = 2
"""Its TRANSPOSE of uint8 is one that the runtime does not take."""

_SLIGHT = 6
"""Another border saves less than 1% of what it needs, for which no file is changed."""

FLOATS = bordered(two_inputs(), [["quantize"], ["transpose", "quantize"]], [["quantize"], []])


@needs_tflm
@pytest.mark.parametrize("seed", [seed for seed in (*range(10), 11) if seed not in {_REFUSED, _SLIGHT}])
def test_stages_with_another_border_compute_the_same_in_no_more(seed: int) -> None:
    data = bordered_net(seed)
    found = relay(data, RelayOptions(allow=ALLOW, effort=1, seed=seed))
    plain = relay(data, RelayOptions(effort=1, seed=seed, verify=False))
    assert found.io is not None
    assert found.needed <= plain.needed
    assert found.given == plain.given
    assert found.verification is not None
    assert found.verification.verification.outputs_equal
    assert found.verification.twice_equal
    assert all(as_predicted for _, as_predicted in found.verification.arenas)


@needs_tflm
def test_a_border_that_saves_less_than_one_percent_stays() -> None:
    found = relay(bordered_net(_SLIGHT), RelayOptions(allow=ALLOW, effort=1, seed=_SLIGHT))
    assert found.io is not None
    assert not found.io.applied
    assert found.io.kept
    assert found.module is found.source
    assert found.needed == relay(bordered_net(_SLIGHT), RelayOptions(effort=1, seed=_SLIGHT, verify=False)).needed


@needs_tflm
def test_the_caller_is_told_what_to_give() -> None:
    found = relay(FLOATS, RelayOptions(allow=ALLOW, effort=1))
    assert found.needed < relay(FLOATS, RelayOptions(effort=1, verify=False)).needed
    assert found.verification is not None
    assert found.verification.verification.outputs_equal
    report = relay_report(found, relay_names("net.tflite", None, None)).values
    assert report.io is not None
    assert [(row.side, row.index) for row in report.io.changed] == [("input", 0), ("input", 1), ("output", 0)]
    assert [one.size_bytes for one in report.runner.inputs] == [256, 256]
    assert report.model.ops == 6
    header = runner_files(report, [stage.data for stage in found.stages]).header
    assert "kInputBytes[] = {256, 256};" in header
    about = ("int8 [1, 8, 8, 4]", " 0.1,", " 5,", "float32 [1, 4, 8, 8]")
    assert any(all(one in line for one in about) for line in header.splitlines())
    assert all(f"  //   {row.formula}, " in header for row in report.io.changed)


@needs_tflm
def test_a_wrong_formula_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(given: Sequence[Border]) -> list[dict[str, Any]]:
        if not given:
            return []
        steps = [dataclasses.replace(step, zero_point=step.zero_point + 1) for step in given[0].steps]
        return borders.told([dataclasses.replace(given[0], steps=tuple(steps)), *given[1:]])

    monkeypatch.setattr(tflm_relay, "told", told)
    with fails("outputs-differ"):
        relay(FLOATS, RelayOptions(allow=ALLOW, effort=1))
    # For a user, stages with the border as given take their place.
    monkeypatch.delenv(DEFECTS)
    found = relay(FLOATS, RelayOptions(allow=ALLOW, effort=1))
    assert found.io is None
    assert found.verification is not None
    assert found.verification.verification.outputs_equal
    assert any(REPORT_IT in note for note in found.notes)


def test_it_has_to_be_permitted_by_name() -> None:
    found = relay(FLOATS, RelayOptions(allow=("reorder", "inplace", "tile", "remat"), effort=1, verify=False))
    assert found.io is None
    assert [found.module.graphs[0].tensors[tensor].dtype for tensor in found.module.graphs[0].inputs] == ["float32"] * 2


def test_where_nothing_can_be_changed_the_model_is_cut_as_it_is() -> None:
    data = two_inputs()
    found = relay(data, RelayOptions(allow=ALLOW, effort=1, verify=False))
    assert found.io is not None
    assert not found.io.applied
    assert found.module is found.source
