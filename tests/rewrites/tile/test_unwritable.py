"""Groups whose pieces cannot be written: they are left out, with the reason, and the others are made all the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import memsched
from memsched.base.errors import InternalError, MemschedError, ModelError
from memsched.commands.optimize import rewrite
from memsched.graph.model import Graph
from memsched.plan.rewrite import read_back
from tests.formats.tflite_builder import O, Sub, T, build, options

ROWS = 8
WITHOUT_LOOPS = Path(__file__).parent / "without_loops.toml"
Fault = Callable[[str], MemschedError]


def network() -> bytes:
    """Two wide places, each between narrow ones: one group of layers in pieces for each."""
    channels = (1, 6, 6, 1, 4, 4, 1)
    tensors = [T(f"t{number}", (1, ROWS, 8, count)) for number, count in enumerate(channels)]
    ops = []
    convolution = options("Conv2DOptions", padding=1, strideH=1, strideW=1)
    for number, (before, after) in enumerate(itertools.pairwise(channels)):
        if before == after:
            ops.append(O("TANH", [number], [number + 1]))
            continue
        first = len(tensors)
        weights = (number + 1).to_bytes(1, "little") + b"\x00\x80\x3f"
        tensors += [
            T(f"w{number}", (after, 1, 1, before), data=weights * (after * before)),
            T(f"b{number}", (after,), data=bytes(4 * after)),
        ]
        ops.append(O("CONV_2D", [number, first, first + 1], [number + 1], convolution))
    return build(Sub(tensors, ops, [0], [len(channels) - 1]))


def optimized(monkeypatch: pytest.MonkeyPatch, fault: Fault | None, bad: str) -> dict[str, Any]:
    """Optimise in pieces where no file can hold a piece of the op that makes ``bad``."""
    write = read_back

    def failing(module: Any, graph: Graph, *rest: Any, **more: Any) -> Any:
        made = {(op.origin or "").partition("#")[0] for op in graph.ops if op.region is not None}
        if fault is not None and any(bad in name for name in made):
            raise fault(f"RESHAPE 2304 != 2295 at '{bad}'")
        return write(module, graph, *rest, **more)

    monkeypatch.setattr(rewrite, "read_back", failing)
    result = memsched.optimize(
        network(), level=2, target=str(WITHOUT_LOOPS), budget_for="activations", max_extra_macs=0.0, time_limit=30
    )
    assert result.verification is None or result.verification.outputs_equal
    return dict(result.report.data)


@pytest.mark.parametrize("fault", [InternalError, ModelError])
def test_the_other_groups_are_made(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    whole = optimized(monkeypatch, None, "")["sections"]["tile"]
    second = whole["groups"][1]["ops"][1]
    assert len(whole["groups"]) == 2
    monkeypatch.undo()
    report = optimized(monkeypatch, fault, second)
    tiling = report["sections"]["tile"]
    assert tiling["applied"]
    assert not any(second in group["ops"] for group in tiling["groups"])
    reasons = [refusal["reason"] for refusal in tiling["refusals"]]
    said = "a defect of memsched, please report it: " if fault is InternalError else ""
    assert any(f"{said}RESHAPE 2304 != 2295" in reason for reason in reasons)
    assert report["written"]["schedule"]["peak_bytes"] < report["original"]["schedule"]["peak_bytes"]


def test_where_nothing_can_be_written_the_model_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    report = optimized(monkeypatch, InternalError, "")
    assert not report["sections"]["tile"]["applied"]
    assert report["written"]["schedule"]["peak_bytes"] == report["original"]["schedule"]["peak_bytes"]
    assert any(refusal["found"] for refusal in report["sections"]["tile"]["refusals"])
