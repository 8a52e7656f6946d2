"""The whole of TensorFlow Lite Micro's arena decides: never more than as given, budgets in order, parts that add up."""

from __future__ import annotations

from typing import Any

import pytest

import memsched
from tests.formats.tflite_builder import MODELS
from tests.rewrites.tile.random_nets import tflite_net
from tests.runtimes.tflm.test_arena import random_model

STEPS = 12


def report(data: bytes, **options: Any) -> Any:
    return memsched.optimize(data, target="tflm", verify=False, effort=0.5, **options).report


def sums_up(needed: Any) -> bool:
    return all(
        sum(needed[parts].values()) == needed[total]
        for parts, total in (("parts", "bytes"), ("given_parts", "given_bytes"))
    )


@pytest.mark.parametrize("name", ["hello_world_int8", "micro_speech_quantized", "person_detect"])
@pytest.mark.parametrize("names", [(), ("tile",), ("remat",), ("tile", "remat")])
def test_no_model_ends_with_a_larger_arena(name: str, names: tuple[str, ...]) -> None:
    found = report((MODELS / f"{name}.tflite").read_bytes(), allow=("reorder", "inplace", *names))
    needed = found["sections"]["requirement"]
    assert sums_up(needed)
    assert needed["bytes"] == found["verdict"]["bytes"] <= needed["given_bytes"]


@pytest.mark.parametrize("data", [tflite_net(0), tflite_net(20), random_model(22)], ids=["net 0", "net 20", "branches"])
def test_a_larger_budget_never_fails_where_a_smaller_one_succeeds(data: bytes) -> None:
    given = report(data)["sections"]["requirement"]["given_bytes"]
    rows = [report(data, budget=given * step // STEPS, level=2)["budget"] for step in range(1, STEPS + 1)]
    met = [row["met"] for row in rows]
    assert met == sorted(met)
    assert met[-1]
    assert max(row["required_bytes"] for row in rows) <= given


def test_pieces_are_chosen_by_what_they_keep() -> None:
    """Those of the least peak need 69,644 B."""
    found = report((MODELS / "person_detect.tflite").read_bytes(), level=2, max_extra_macs=0)
    assert found["sections"]["requirement"]["bytes"] < 66_000


def test_the_planned_part_alone_may_be_asked_for() -> None:
    data = tflite_net(20)
    whole, head = report(data, level=2), report(data, level=2, budget_for="activations")
    assert (
        head["sections"]["requirement"]["bytes"]
        == head["sections"]["tflm"]["head_bytes"]
        <= whole["sections"]["tflm"]["head_bytes"]
    )
    assert "persistent_bytes" not in head["sections"]["requirement"]["parts"]
    assert sums_up(head["sections"]["requirement"])


def test_what_stays_is_named_by_operator() -> None:
    """MobileNetV2's last convolution keeps a multiplier and a shift for each of its 1,280 channels."""
    data = (MODELS / "mobilenetv2_035_96_int8.tflite").read_bytes()
    firmware = memsched.analyze(data, target="tflm").report["sections"]["firmware"]
    rows, persistent = firmware["kept"], firmware["persistent_bytes_estimate"]["32"]
    assert len(rows) == 65
    most = max(rows, key=lambda row: row["bytes"])
    assert (most["operator"], most["type"], most["bytes"] - 2 * 4 * 1280) == (61, "CONV_2D", 140)
    assert 0.9 * persistent < sum(row["bytes"] for row in rows) < persistent
