"""The extra work that is permitted is that of all rewrites together, by multiply-accumulates as well."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import memsched
from memsched.cli.main import main
from memsched.commands.levels import CHANGES, FREE
from memsched.commands.optimize.permissions import percent_left
from memsched.commands.options import Options
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from tests.formats.tflite_builder import O, Sub, T, build
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


@pytest.mark.parametrize("change", CHANGES)
def test_what_callers_accept_permits_what_it_stands_for(change: str) -> None:
    """Once, all that was accepted was lost, but for what had the name of a rewrite."""
    options = Options(may_change=(change,))
    assert options.may_change == (change,)
    assert {*FREE, *CHANGES[change]} <= set(options.permitted)


def test_accepting_another_type_of_inputs_lets_it_change(tmp_path: Path) -> None:
    """The command line, with the model's own conversion of its input left to the caller."""
    values = 64 * 64 * 3
    tensors = [
        T("x", (1, 64, 64, 3)),
        T("q", (1, 64, 64, 3), "INT8", scales=(0.1,)),
        T("y", (1, values), "INT8", scales=(0.1,)),
    ]
    given = tmp_path / "model.tflite"
    given.write_bytes(build(Sub(tensors, [O("QUANTIZE", [0], [1]), O("RESHAPE", [1], [2])], [0], [2])))
    written = tmp_path / "written.tflite"
    words = ("optimize", given, "-o", written, "--target", "tflm", "--effort", 0.1, "--no-verify")
    types = []
    for more in ((), ("--may-change", "inputs")):
        written.unlink(missing_ok=True)
        assert main([str(word) for word in (*words, *more, "--force")]) == 0
        types.append(load_module(written.read_bytes(), "", LoadOptions()).graph.tensors[0].dtype)
    assert types == ["float32", "int8"]
