"""``memsched relay`` on the command line: files, the report, refusals, and what people read."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from memsched.features.relay.report import ENDED_EARLY
from memsched.report.schema import json_schema
from tests.cli.conftest import Run
from tests.cli.written import names
from tests.outcomes import line_with

SCHEMA = jsonschema.Draft202012Validator(json_schema("relay"))
MODELS = Path(__file__).resolve().parents[2] / "models"
SPEECH = MODELS / "micro_speech_quantized.tflite"
PERSON = MODELS / "person_detect.tflite"


def report_in(folder: Path, stem: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / f"{stem}_relay.json").read_text())
    SCHEMA.validate(report)
    return report


def test_stages_runner_and_report(run: Run, tmp_path: Path) -> None:
    result = run("relay", SPEECH, "-o", tmp_path)
    assert result.code == 0, result.err
    assert names(tmp_path) == [
        "micro_speech_quantized_relay.cc",
        "micro_speech_quantized_relay.h",
        "micro_speech_quantized_relay.json",
        "micro_speech_quantized_stage_1_of_2.tflite",
        "micro_speech_quantized_stage_2_of_2.tflite",
    ]
    report = report_in(tmp_path, "micro_speech_quantized")
    block, stages = report["result"]["block_bytes"], report["stages"]
    assert block == max(-(-one["arena"]["bytes"] // 16) * 16 + one["hand_over_bytes"] for one in stages)
    assert block == report["result"]["block_bytes_by_pointer"]["32"] < report["result"]["given_bytes"]
    assert [one["path"] for one in stages] == [str(tmp_path / name) for name in names(tmp_path)[3:]]
    assert [len(Path(one["path"]).read_bytes()) for one in stages] == [one["file_bytes"] for one in stages]
    assert line_with(result.out, f" {block:,} B (32 bit)")
    assert "bit-equal" in result.out
    assert report["verification"]["outputs_equal"]
    for number, one in enumerate(stages):
        data = Path(one["path"]).read_bytes()
        assert f"kModel{number}[{len(data)}]" in (tmp_path / "micro_speech_quantized_relay.cc").read_text()


def test_the_report_alone_to_a_program(run: Run, tmp_path: Path) -> None:
    result = run("relay", SPEECH, "-o", tmp_path, "--no-verify", "--json", "-q")
    SCHEMA.validate(json.loads(result.out))
    assert result.err == ""
    result = run("relay", SPEECH, "-o", tmp_path, "--no-verify", "--report", "-", "-v")
    SCHEMA.validate(json.loads(result.out))
    assert re.search("stage 1 .*stage 2", result.err)


def test_a_missed_budget_leaves_no_file_unless_the_best_is_kept(run: Run, tmp_path: Path) -> None:
    result = run("relay", SPEECH, "-o", tmp_path, "--no-verify", "--budget", "4KB", "-q")
    assert result.code == 3
    assert (result.err.count("\n"), re.findall(r"[\d,]{5} B", result.err)) == (1, ["6,704 B", "4,096 B"])
    assert list(tmp_path.iterdir()) == []
    missed = {"budget_bytes": 4_096, "required_bytes": 6_704, "exceeded_bytes": 2_608, "met": False}
    result = run("relay", SPEECH, "-o", tmp_path, "--no-verify", "--budget", "4KB", "--json")
    assert (result.code, json.loads(result.out)["budget"]) == (3, missed | {"withheld": True})
    assert "--keep-best" in result.err
    assert list(tmp_path.iterdir()) == []
    assert run("relay", SPEECH, "-o", tmp_path, "--no-verify", "--budget", "4KB", "--keep-best", "-q").code == 3
    assert report_in(tmp_path, "micro_speech_quantized")["budget"] == missed | {"withheld": False}
    assert run("relay", SPEECH, "-o", tmp_path, "--no-verify", "--budget", "101%").code == 0
    assert len(report_in(tmp_path, "micro_speech_quantized")["stages"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "about"),
    [
        ((SPEECH, "-o", SPEECH), "needs-folder", "-o"),
        (("-",), "no-output-name", "-o"),
        ((SPEECH, "--stages", "0"), "bad-parameter", "--stages"),
        ((SPEECH, "--effort", "1", "--time-limit", "1"), "option-conflict", "--effort"),
        ((SPEECH, "--max-extra-macs", "5"), "no-effect", "--max-extra-macs"),
        ((SPEECH, "--target", "litert"), "no-block", "litert"),
        ((MODELS / "missing.tflite",), "no-such-file", "missing.tflite"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[object, ...], code: str, about: str
) -> None:
    monkeypatch.chdir(tmp_path)
    more = () if "-o" in arguments or "-" in arguments else ("-o", tmp_path)
    run("relay", *arguments, *more).failed(code, about)
    assert names(tmp_path) == []


def test_no_file_is_the_model(run: Run, tmp_path: Path) -> None:
    model = tmp_path / "net_relay.h"
    model.write_bytes(SPEECH.read_bytes())
    (tmp_path / "net.tflite").symlink_to(model)
    run("relay", tmp_path / "net.tflite", "--no-verify").failed("would-overwrite", "net_relay.h")


SLOW = """
import sys, time
import memsched.features.relay.relay as relay

search = relay.search

def slow(*arguments, **more):
    print("searching", file=sys.stderr, flush=True)
    while not arguments[2].stop():
        time.sleep(0.01)
    return search(*arguments, **more)

relay.search = slow
from memsched.cli.main import main
sys.exit(main())
"""


def test_ctrl_c_keeps_the_best_so_far(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SLOW, "relay", str(PERSON), "-o", str(tmp_path), "--no-verify"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "searching\n" in iter(process.stderr.readline, "")
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    report = report_in(tmp_path, "person_detect")
    assert ENDED_EARLY in report["notes"]
    assert line_with(out, ENDED_EARLY)
    assert len(report["stages"]) == 1


def test_outputs_that_differ_are_not_written(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tflite_micro")
    from memsched.runtimes.child import ChildResult
    from memsched.runtimes.tflm import relay as rules

    def wrong(*_: object, **__: object) -> object:
        return ChildResult(
            "ok",
            {"runs": 3, "equal": False, "twice_equal": True, "max_abs_error": 3.0, "relative_error": 1.0, "vary": True}
            | {"arenas": [(1, 1), (1, 1), (1, 1)], "time_ratio": 1.0},
        )

    monkeypatch.setattr(rules, "run_in_child", wrong)
    result = run("relay", SPEECH, "-o", tmp_path)
    result.failed("outputs-differ")
    assert names(tmp_path) == []
