"""What TensorFlow Lite Micro refuses is said, first and last, and nothing that it refuses is added by a rewrite."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest

import memsched
from memsched.formats.module import LoadOptions
from memsched.plan.rewrite import read_back
from memsched.report.console import findings
from memsched.report.header import arena_header
from memsched.report.schema import json_schema
from memsched.runtimes.arena_facts import OperatorRefusal
from memsched.runtimes.tflm import arena
from memsched.runtimes.tflm.sources import Sources
from memsched.targets.load import load_target
from tests.failures import fails
from tests.formats.tflite_builder import MODELS
from tests.report.plain import typed
from tests.rewrites.tile.test_unwritable import network
from tests.runtimes.tflm.kernel_models import CASES, model, of_axes
from tests.runtimes.tflm.test_limits import join, softmax

SAID = "operator 0, SOFTMAX 'y'"


def test_analyze_says_it_first_and_goes_on() -> None:
    report = dict(memsched.analyze(softmax("INT8", 7.8e-9), target="tflm").report.data)
    jsonschema.validate(report, json_schema("report"))
    assert SAID in findings(typed(report), 100, verbose=False)[0][0]
    (refused,) = report["sections"]["tflm"]["refused"]
    assert (refused["operator"], refused["type"], refused["name"]) == (0, "SOFTMAX", "y")


def test_optimize_says_it_first_and_last_and_in_the_header() -> None:
    result = memsched.optimize(softmax("INT8", 7.8e-9), target="tflm", verify=False)
    report = dict(result.report.data)
    jsonschema.validate(report, json_schema("report"))
    lines = [text for text, _ in findings(typed(report), 100, verbose=False)]
    assert SAID in lines[0]
    assert lines[-1] == lines[0]


def test_the_header_of_what_is_refused_states_nothing_but_an_error() -> None:
    report = dict(memsched.optimize(softmax("INT8", 7.8e-9), target="tflm", verify=False).report.data)
    text = arena_header(typed(report), "m.h")
    (error,) = [line for line in text.splitlines() if line.startswith("#error")]
    assert "refuses" in error
    assert "7.8e-09" in error
    assert "_BYTES" not in text
    if shutil.which("gcc") is not None:
        done = subprocess.run(
            ["gcc", "-x", "c", "-fsyntax-only", "-"], input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert "refuses" in done.stderr


def test_a_hybrid_layer_and_too_many_axes_are_told_with_the_reason() -> None:
    hybrid = model("TRANSPOSE_CONV", CASES["TRANSPOSE_CONV"], ("float32", "int8", "none", "float32"))
    for data, about in (
        (hybrid, ("float32", "int8")),
        (of_axes("PAD", 6, "float32"), ("5 axes", "6")),
        (of_axes("BATCH_MATMUL", 1, "float32"), ("2 axes", "1")),
    ):
        (refused,) = memsched.analyze(data, target="tflm").report.data["sections"]["tflm"]["refused"]
        assert all(one in refused["reason"] for one in about), refused["reason"]


def test_other_targets_say_nothing() -> None:
    assert memsched.analyze(softmax("INT8", 7.8e-9), target="litert").report.data["sections"]["tflm"] is None


def test_uint8_layers_are_refused() -> None:
    data = model("CONV_2D", CASES["CONV_2D"], ("uint8", "uint8", "int32", "uint8"))
    (refused,) = memsched.analyze(data, target="tflm").report.data["sections"]["tflm"]["refused"]
    assert all(one in refused["reason"] for one in ("uint8 data", "uint8 weights", "int32"))


def test_a_rewrite_must_not_add_what_is_refused() -> None:
    given, written = memsched.load(join(10)), memsched.load(join(12))
    with fails("operator-refused", "CONCATENATION 'y'", "10", "12"):
        arena.check_kernels(given, written)
    arena.check_kernels(written, written)


def test_groups_that_would_be_refused_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    target = tmp_path / "old_firmware.toml"
    target.write_text('extends = "tflm"\nname = "old_firmware"\ndescription = "without loops"\nloops = ""\n')
    monkeypatch.setattr(Sources, "MOST_JOINED", 1)
    report = memsched.optimize(network(), level=2, target=str(target), max_extra_macs=0.0, effort=3).report.data
    assert not report["sections"]["tile"]["applied"]
    assert any("refuse CONCAT" in one["reason"] for one in report["sections"]["tile"]["refusals"])
    assert report["sections"]["tflm"]["refused"] == []


def test_repetitions_that_would_be_refused_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is added by any rewrite goes through the same check, of the file read back."""
    data = (MODELS / "person_detect.tflite").read_bytes()
    module = memsched.load(data)
    target = load_target("tflm")
    assert read_back(module, module.graphs[0], LoadOptions(), target)[1]
    monkeypatch.setattr(
        arena, "new_refusals", lambda given, written: (OperatorRefusal(0, 1, "CONV_2D", "a", "so it is"),)
    )
    with fails("operator-refused", "CONV_2D 'a'", "so it is"):
        read_back(module, module.graphs[0], LoadOptions(), target)
    read_back(module, module.graphs[0], LoadOptions(), load_target("litert"))
