"""The arena that LiteRT really allocates, beside the predicted one, and what its delegate does to a good order."""

from __future__ import annotations

from typing import Any

import pytest

import memsched
from memsched.runtimes import litert_session
from memsched.runtimes.child import run_in_child
from memsched.runtimes.litert_probe import probe
from scripts import bench_litert_delegation as bench
from tests.formats.tflite_builder import MODELS, best_order, branches, build
from tests.runtimes.test_litert import reordered

ALIGNMENT = 64
SCRATCH = 3 * ALIGNMENT
"""SUM has temporary tensors of its own, of a few bytes each, which no file shows."""


def arenas(model: bytes) -> tuple[int, int]:
    """Return the predicted arena and LiteRT's."""
    predicted = memsched.analyze(model, target="litert").report["result"]["arena_bytes"]
    found = probe(*litert_session._load(model, "plain")).arena_bytes
    assert found is not None
    return predicted, found


@pytest.mark.parametrize(
    "name", ["hello_world_int8", "micro_speech_quantized", "mobilenetv2_035_96_int8", "nasnetmobile_int8"]
)
def test_the_predicted_arena_is_litert_s(name: str) -> None:
    given = (MODELS / f"{name}.tflite").read_bytes()
    orders = [given, memsched.optimize(given, target="litert", verify=False).model]
    for model in (*orders, reordered(given)) if name.startswith("nasnet") else orders:
        predicted, found = arenas(model)
        # LiteRT's last tensor is not rounded up.
        assert predicted - ALIGNMENT < found <= predicted


@pytest.mark.parametrize(("count", "size"), [(4, 64), (4, 4096), (7, 1000), (5, 333)])
def test_the_predicted_arena_of_branches_lacks_scratch_only(count: int, size: int) -> None:
    given = build(branches(count, size))
    for model in (given, reordered(given, best_order(count))):
        predicted, found = arenas(model)
        assert predicted - ALIGNMENT < found <= predicted + SCRATCH


@pytest.fixture(scope="module")
def files() -> dict[str, dict[str, bytes]]:
    return {"large": bench.files(6, 1 << 20), "small": bench.files(6, 16)}


def measured(files: dict[str, dict[str, bytes]], name: str, delegate: str = "default") -> dict[str, Any]:
    request = {"model": files["large"][name], "small": files["small"][name], "delegate": delegate}
    result = run_in_child("scripts.bench_litert_delegation:measure", request, 120)
    assert result.ok, result.reason
    found: dict[str, Any] = result.value
    return found


def test_a_delegate_that_takes_parts_spoils_an_order_unless_metadata_states_it(
    files: dict[str, dict[str, bytes]],
) -> None:
    given = measured(files, "as given")
    alone = measured(files, "memsched")
    stated = measured(files, "memsched --control-dependencies")
    assert (alone["kept"], stated["kept"]) == (False, True)
    mib = bench.MIB
    # Eight tensors of 4 MiB against three; what the delegate needs of its own comes on top of both.
    assert alone["arena_bytes"] >= 32 * mib
    assert stated["arena_bytes"] < 13 * mib
    # Peaks that were seen: 56, 36 and 20 MiB.
    assert stated["peak_bytes"] < 28 * mib < 32 * mib < alone["peak_bytes"] < 46 * mib < given["peak_bytes"]


def test_the_table_names_every_file_and_delegate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "DELEGATES", {"unclustered": "XNNPACK, clustering off"})
    lines = list(bench.table(2, 4096))
    assert len(lines) == 4 + 3
    assert lines[-1].startswith("| memsched --control-dependencies | XNNPACK, clustering off | yes |")
