"""Inputs and outputs in another form: what is printed, suggested, written beside the model, and compared."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.bordered_nets import bordered
from tests.cli.conftest import Run
from tests.commands.optimize.test_border import BOTH, onnx_net, plain_net
from tests.outcomes import line_with

GIVE = "clamp(round(transpose(x, [0, 2, 3, 1]) / 0.05) - 1, -128, 127)"
WAS = "(q - 3) * 0.06"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.tflite"
    path.write_bytes(bordered(plain_net(), [BOTH], [["quantize"]], signature=True))
    return path


def test_the_caller_is_told_all(run: Run, model: Path) -> None:
    header = model.with_name("net.h")
    done = run("optimize", model, "--target", "tflm", "--allow", "reorder,inplace,io", "--header", header)
    assert done.code == 0
    section = json.loads(model.with_name("net_memsched.json").read_text())["sections"]["border"]
    lines = done.out.splitlines()
    told = [
        (
            "input 0",
            "float32 [1, 3, 16, 16] -> int8 [1, 16, 16, 3]",
            " 0.05,",
            " -1",
            GIVE,
            section["changed"][0]["halves"],
        ),
        ("output 0", "float32 [1, 16, 16, 8] -> int8 [1, 16, 16, 8]", " 0.06,", " 3", WAS),
    ]
    places = [lines.index(line_with(done.out, *about)) for about in told]
    assert places == sorted(places)
    text = header.read_text()
    assert line_with(text, GIVE, section["changed"][0]["halves"])
    assert line_with(text, WAS)
    assert "#define NET_INPUT_0_BYTES ((size_t)768u) /* int8[1][16][16][3] x */" in text
    assert "#define NET_INPUT_0_SCALE 0.05f\n#define NET_INPUT_0_ZERO_POINT (-1)" in text
    assert "#define NET_OUTPUT_0_SCALE 0.06f\n#define NET_OUTPUT_0_ZERO_POINT (3)" in text
    assert "Quantize()" not in text


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_the_header_is_c(run: Run, model: Path) -> None:
    header, source = model.with_name("net.h"), model.with_name("use.c")
    run("optimize", model, "--target", "tflm", "--allow", "io", "--header", header, "--no-verify")
    source.write_text(
        '#include "net.h"\n'
        "static signed char input[NET_INPUT_0_BYTES];\n"
        "float meaning(void) { return NET_INPUT_0_SCALE * (float)(input[0] - NET_INPUT_0_ZERO_POINT); }\n"
    )
    flags = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-c"]
    done = subprocess.run(
        ["gcc", *flags, str(source), "-o", str(model.with_name("use.o"))], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.parametrize("allow", [None, "reorder,inplace", "all"])
def test_it_is_offered_with_what_it_gives_and_not_done_unasked(run: Run, model: Path, allow: str | None) -> None:
    words = ["optimize", model, "--target", "tflm", "--effort", 2, *(["--allow", allow] if allow else [])]
    done = run(*words, "--no-verify")
    report = json.loads(model.with_name("net_memsched.json").read_text())
    assert report["sections"]["border"] is None
    assert [end["dtype"] for end in report["written"]["interface"]["inputs"]] == ["float32"]
    first = next(one for one in report["alternatives"] if one["changes"] == ["inputs"])
    assert first["bytes"] + first["saving_bytes"] == report["sections"]["requirement"]["bytes"]
    if allow == "all":
        assert [one["what"] for one in report["alternatives"]] == [first["what"]]
    assert f"{first['what']}, " in done.out
    program, *command = shlex.split(first["command"])
    assert program == "memsched"
    assert command[command.index("--allow") + 1].endswith(",io")
    assert run(*command, "--no-verify", "--force").code == 0
    after = json.loads(model.with_name("net_memsched.json").read_text())
    assert after["sections"]["border"]["applied"]
    assert after["sections"]["requirement"]["bytes"] <= first["bytes"]
    assert after["alternatives"] == []


def test_analyze_offers_it_and_cannot_do_it(run: Run, model: Path) -> None:
    done = run("analyze", model, "--target", "tflm")
    assert done.out.splitlines()[-1].endswith("--allow reorder,inplace,io")
    run("analyze", model, "--target", "tflm", "--allow", "reorder,io").failed("bad-parameter", "--allow", "'io'")


def test_no_offer_where_a_budget_is_met(run: Run, model: Path) -> None:
    assert "--allow" not in run("optimize", model, "--target", "tflm", "--budget", "100%", "--no-verify").out
    missed = run("optimize", model, "--target", "tflm", "--budget", "6KB", "--no-verify")
    assert missed.code == 3
    assert any(line.endswith("--allow reorder,inplace,io") for line in missed.out.splitlines())


@pytest.mark.parametrize("runtime", ["tflm", "litert"])
def test_both_models_are_compared_through_the_border(run: Run, model: Path, runtime: str) -> None:
    if runtime == "tflm":
        pytest.importorskip("tflite_micro")
    run("optimize", model, "--target", "tflm", "--allow", "io", "--no-verify")
    written = model.with_name("net_memsched.tflite")
    done = run("verify", model, written, "--runtime", runtime)
    assert done.code == 0
    assert line_with(done.out, GIVE, " A")
    assert line_with(done.out, WAS, " B")
    assert "PASSED" in done.out
    turned = run("verify", written, model, "--runtime", runtime)
    turned.failed("wrong-way-round", str(written))
    assert turned.err.count("\n") == 1


def test_onnx_models_are_compared_through_the_border(run: Run, tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(onnx_net())
    assert run("optimize", model, "--allow", "io").code == 0
    done = run("verify", model, tmp_path / "net_memsched.onnx")
    assert done.code == 0
    assert "PASSED" in done.out


def test_max_extra_macs_needs_extra_work(run: Run, model: Path) -> None:
    assert run("optimize", model, "--allow", "io", "--max-extra-macs", 5).code == 2
