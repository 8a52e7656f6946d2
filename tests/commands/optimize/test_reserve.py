"""How much time is left for verification."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from memsched.base.errors import UsageError
from memsched.commands.optimize import reserve
from memsched.formats.module import LoadOptions
from memsched.search.limits import Limits
from memsched.search.progress import Progress
from memsched.search.run import Run

PREPARED: Any = SimpleNamespace(
    target=None, baselines={"file_order": SimpleNamespace(schedule=SimpleNamespace(peak=7))}
)


def _model(macs: int, form: str = "tflite") -> Any:
    return SimpleNamespace(graphs=[SimpleNamespace(ops=[SimpleNamespace(macs=macs)])], path="model", format=form)


@pytest.mark.parametrize(
    ("form", "seconds", "interpreter", "kept"),
    [
        ("tflite", 3.0, None, 12.0),
        ("tflite", 3.0, object(), 24.0),
        ("onnx", 1.0, None, 16.0),
        ("tflite", 50.0, None, 36.0),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_as_much_time_is_kept_as_runs_of_the_model_tell_and_said_before_the_search(
    form: str, seconds: float, interpreter: object, kept: float, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, told = [0.0], list[Progress]()
    monkeypatch.setattr(reserve, "default_interpreter_of", lambda *_: interpreter)

    def compare(*asked: Any) -> None:
        assert asked[-1] == pytest.approx(6.0)
        now[0] += seconds
        if fails:
            raise UsageError("it does not run")

    monkeypatch.setattr(reserve, "_compare", compare)
    run = Run(Limits(60.0), 0.0, on_progress=told.append, clock=lambda: now[0])
    within = reserve.search_until_verification(run, _model(10**9, form), b"", LoadOptions(), PREPARED)
    assert within.limits.time_limit == 60.0 - kept
    assert [one.stage for one in told] == [f"{kept} s, {100 * kept / 60:.0f} %, {reserve.KEPT}"]


@pytest.mark.parametrize(
    ("limits", "macs"), [(Limits(60.0), 10**6), (Limits(None, effort=5.0), 10**9), (Limits(0.0), 10**9)]
)
def test_nothing_is_run_where_verification_is_short_or_time_is_no_limit(
    limits: Limits, macs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserve, "_compare", lambda *_: pytest.fail("it was run"))
    run = Run(limits, 0.0, clock=lambda: 0.0)
    within = reserve.search_until_verification(run, _model(macs), b"", LoadOptions(), PREPARED)
    assert within.limits == limits
