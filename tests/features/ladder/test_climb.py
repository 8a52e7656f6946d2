"""Budgets that one file misses: several files or C take its place where that is permitted, and are named where not."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path

import jsonschema
import pytest

from memsched.commands.optimize.emit import StreamedModel
from memsched.commands.options import Options
from memsched.commands.results import OptimizeResult
from memsched.features.ladder.climb import climb
from memsched.features.relay.relay import RelayModel
from memsched.report.schema import json_schema
from tests.cli.conftest import Run
from tests.codegen.harness import COMPILER
from tests.codegen.networks import quantised_net
from tests.features.relay.nets import random_net
from tests.runtimes.tflm.interpreter import needs_tflm

pytestmark = [needs_tflm, pytest.mark.skipif(COMPILER is None, reason="no C compiler")]

STAGES, C = 1_600, 800
"""Bytes that the model takes in files that run one after the other, and not as one file; and as C alone."""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "net.tflite"
    path.write_bytes(random_net(3))
    return str(path)


def _options(budget: int, *changes: str, keep_best: bool = False) -> Options:
    # What takes long on a machine that is busy fits all the same.
    return Options(target="tflm", budget=budget, effort=0.3, may_change=changes, max_slowdown=None, keep_best=keep_best)


def test_what_changes_least_comes_first(model: str) -> None:
    one = climb(model, _options(4_000, "opening"))
    several, c = (climb(model, _options(budget, "opening")) for budget in (STAGES, C))
    assert not one.rows
    assert isinstance(several.best, RelayModel)
    assert [row.what for row in several.rows] == ["file", "stages"]
    assert isinstance(c.best, StreamedModel)
    assert [(row.what, row.fits, row.written) for row in c.rows] == [
        ("file", False, False),
        ("stages", False, False),
        ("c", True, True),
    ]
    for climbed in (several, c):
        assert all(row.outputs == "bit_equal" for row in climbed.rows)
        assert all(row.flash_bytes and row.time_ratio for row in climbed.rows)
        assert [row.changes for row in climbed.rows] == [(), *[("opening",)] * (len(climbed.rows) - 1)]


def test_what_is_not_permitted_is_named_and_its_command_meets_the_budget(tmp_path: Path, model: str, run: Run) -> None:
    out = tmp_path / "out.tflite"
    done = run("optimize", model, "--target", "tflm", "--budget", STAGES, "--effort", "0.3", "-o", out, "--json")
    assert done.code == 3
    report = json.loads(done.out)
    assert not list(tmp_path.glob("out*"))
    assert [(row["what"], row["permitted"]) for row in report["sections"]["ladder"]] == [
        ("file", True),
        ("stages", False),
    ]
    first = report["alternatives"][0]
    assert first["changes"] == ["opening"]
    assert first["bytes"] <= STAGES
    again = run(*shlex.split(first["command"])[1:])
    assert again.code == 0, again.err
    made = json.loads(again.out)
    jsonschema.Draft202012Validator(json_schema("relay")).validate(made)
    assert made["budget"]["met"]
    assert len(list((tmp_path / "out").glob("*.tflite"))) == len(made["stages"]) > 1
    assert not out.exists()


def test_c_takes_the_place_of_a_file(tmp_path: Path, model: str, run: Run) -> None:
    words = ("--target", "tflm", "--budget", C, "--effort", "0.3", "--may-change", "opening")
    done = run("optimize", model, *words, "-o", tmp_path / "out.tflite")
    assert done.code == 0, done.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["model.c", "model.h"]
    report = json.loads((tmp_path / "out.json").read_text())
    jsonschema.Draft202012Validator(json_schema("stream")).validate(report)
    assert report["budget"]["met"]
    assert report["result"]["ram_bytes"] == report["ladder"][-1]["bytes"] <= C
    assert "files in one arena" in done.out


def test_a_page_is_of_one_file(tmp_path: Path, model: str, run: Run) -> None:
    words = ("--target", "tflm", "--budget", C, "--effort", "0.3", "--may-change", "opening")
    done = run("optimize", model, *words, "-o", tmp_path / "out.tflite", "--header", tmp_path / "out.h")
    assert done.code == 3
    assert not list(tmp_path.glob("out*"))


def test_nothing_fits(model: str) -> None:
    climbed = climb(model, _options(16, "inputs", "opening"))
    assert not any(row.fits or row.written for row in climbed.rows)
    assert {row.what for row in climbed.rows} == {"file", "stages", "c"}
    kept = climb(model, _options(16, "opening", keep_best=True))
    assert [row.what for row in kept.rows if row.written] == ["c"]


def test_what_is_refused_says_why(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(random_net(5))
    rows = climb(str(path), _options(16, "opening")).rows
    refused = [row for row in rows if row.bytes is None]
    assert [(row.what, row.fits, row.written) for row in refused] == [("c", False, False)]
    assert "2 inputs" in refused[0].reason


@pytest.mark.parametrize("seed", range(2))
def test_a_larger_budget_changes_no_more(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(quantised_net(seed, 4))
    kinds = {OptimizeResult: 0, RelayModel: 1, StreamedModel: 2}
    changed = []
    for percent in (80, 40, 20):
        climbed = climb(str(path), dataclasses.replace(_options(0, "opening"), budget=f"{percent}%"))
        if climbed.rows and not any(row.written for row in climbed.rows):
            break
        changed.append(kinds[type(climbed.best)])
    assert changed == sorted(changed)
