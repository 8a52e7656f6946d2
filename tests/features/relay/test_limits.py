"""Limits of a relay: of time, for the whole command, and of work."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from memsched.commands.calls import Hooks, limits_of
from memsched.commands.optimize.optimize import optimize
from memsched.commands.optimize.place import prepare
from memsched.commands.options import Options, RelayOptions
from memsched.features.relay import relay as relays
from memsched.features.relay import stages
from memsched.features.relay.cuts import RelayCuts
from memsched.features.relay.relay import RelayModel, relay
from memsched.features.relay.report import relay_names, relay_report
from memsched.features.relay.stages import RelayStageCosts
from memsched.formats.capabilities import Stages
from memsched.formats.files import load_module
from memsched.formats.known import capability
from memsched.formats.module import LoadOptions
from memsched.report.relay import print_relay
from memsched.runtimes.known import relay_rules_of
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.features.relay.nets import random_net
from tests.runtimes.tflm.interpreter import needs_tflm

MODELS = Path(__file__).resolve().parents[3] / "models"
TILE = ("reorder", "inplace", "tile")


class EndedError(Exception):
    """Raised in place of a search."""


def costs_of(data: bytes, run: Run) -> RelayStageCosts:
    module = load_module(data, "net.tflite", LoadOptions())
    target = load_target("tflm")
    rules = relay_rules_of(module, target)
    assert rules is not None
    lowered = prepare(module, target, in_place=True).lowered[0].graph
    cuts = RelayCuts.of(module.graphs[0], range(len(module.graphs[0].ops)))
    return RelayStageCosts(module, lowered, cuts, rules, RelayOptions(), run, capability(module, Stages).cutter(module))


def test_a_stage_ends_soon_after_its_share_and_with_the_time_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    given: dict[str, Any] = {}

    def search(_: bytes, options: Options, hooks: Hooks) -> None:
        given.update(time_limit=options.time_limit, stop=hooks.stop)
        raise EndedError

    monkeypatch.setattr(stages, "optimize", search)
    costs = costs_of(random_net(4), Run(Limits(100.0), 0.0, clock=lambda: now))
    stage = (0, len(costs.cuts.order))
    costs.find_out(stage)
    with pytest.raises(EndedError):
        costs.find_out(stage)
    assert given["time_limit"] == pytest.approx(4.0)
    now = 11.0
    assert not given["stop"]()
    now = 13.0
    assert given["stop"]()
    now = 99.0
    with pytest.raises(EndedError):
        costs.find_out(stage)
    assert not given["stop"]()
    now = 100.0
    assert given["stop"]()


def test_no_more_work_is_given_out_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def counted(source: bytes, options: Options, hooks: Hooks) -> Any:
        assert options.effort is not None
        given.append(options.effort)
        return optimize(source, options, hooks)

    monkeypatch.setattr(stages, "optimize", counted)
    relay(random_net(4, side=16), RelayOptions(effort=2, allow=TILE, verify=False))
    assert given
    assert sum(given) <= 0.9 * 2


def test_verification_is_foreseen() -> None:
    def share(dtype: str = "int8", **options: Any) -> float:
        graph = SimpleNamespace(
            ops=[SimpleNamespace(macs=10**7)], inputs=[0], tensors=[SimpleNamespace(dtype=dtype, shape=(1, 4))]
        )
        asked = RelayOptions(**options)
        return relays._share_to_end(SimpleNamespace(graphs=[graph]), asked, limits_of(asked).time_limit)  # type: ignore[arg-type]

    # Floats have three kinds of special values, bytes one.
    assert share(time_limit=100.0) == pytest.approx((1 + 17.5 / 5) / 100)
    assert share("float32", time_limit=100.0) == pytest.approx((1 + 22.5 / 5) / 100)
    assert share(time_limit=100.0, verify=False) == pytest.approx(0.01)
    assert share(time_limit=1.0) == pytest.approx(0.4)
    assert share(time_limit=100.0, effort=1.0) == share(time_limit=None) == 0


@needs_tflm
def test_without_time_one_input_is_run_and_said() -> None:
    found = relay(str(MODELS / "micro_speech_quantized.tflite"), RelayOptions(time_limit=0))
    assert found.verification is not None
    assert found.verification.verification.outputs_equal
    assert found.verification.twice_equal
    assert found.verification.verification.runs == 1
    assert found.verification.verification.special_values == ()
    assert any("1 of 3 inputs" in note for note in found.notes)


def said(found: RelayModel, capsys: pytest.CaptureFixture[str]) -> str:
    from rich.console import Console

    values = relay_report(found, relay_names("net.tflite", None, "-")).values
    print_relay(Console(width=200), values, report_path=None, verbose=False)
    return capsys.readouterr().out


def test_it_is_said_what_is_proven(capsys: pytest.CaptureFixture[str]) -> None:
    data = (MODELS / "micro_speech_quantized.tflite").read_bytes()
    whole = relay(data, RelayOptions(verify=False))
    assert whole.finished
    assert whole.least == whole.needed
    assert "proven" in said(whole, capsys)
    ended = relay(data, RelayOptions(verify=False, time_limit=0))
    assert not ended.finished
    assert ended.least is not None
    assert ended.least <= whole.needed <= ended.needed
    assert f"{ended.least:,} B" in said(ended, capsys)


@pytest.mark.parametrize(("most", "count"), [(1, "single"), (2, "2 stages")])
def test_what_is_proven_is_of_as_many_stages_as_were_permitted(
    most: int, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = relay((MODELS / "micro_speech_quantized.tflite").read_bytes(), RelayOptions(stages=most, verify=False))
    assert found.least == found.needed
    (line,) = [line for line in said(found, capsys).splitlines() if "proven" in line]
    assert count in line


def test_nothing_is_proven_where_layers_may_be_rewritten(capsys: pytest.CaptureFixture[str]) -> None:
    found = relay(random_net(4), RelayOptions(effort=1, allow=TILE, verify=False))
    assert found.least is None
    bound = relay_report(found, relay_names("net.tflite", None, "-")).values.result.estimated_bound_bytes
    assert f"about {bound:,} B" in said(found, capsys)
