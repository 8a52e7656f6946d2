"""What is suggested where nothing was gained: tried, paste-able, and no promise that its command does not keep."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import memsched
from memsched.base.errors import InternalError
from memsched.commands.optimize import trials
from memsched.commands.optimize.choose import Permissions
from memsched.commands.optimize.rewrite import Rewrite
from memsched.commands.optimize.tile import TileRewrite
from memsched.search.limits import Limits
from tests import small_models
from tests.commands.optimize.test_choose import SIDE, convolutions, skip_connection
from tests.commands.optimize.test_fuse import gated
from tests.formats.tflite_builder import MODELS, O, Sub, T, build
from tests.outcomes import Run, line_with
from tests.small_models import floats


def plan_chain() -> bytes:
    """Convolutions in a row that TensorFlow Lite Micro's own planner lays into 1,408 B; the peak is 1,024 B."""
    channels = [9, 7, 6, 8, 2]
    tensors, ops = [T("x", (1, 8, 8, channels[0]), "INT8", scales=[0.5])], []
    for before, after in itertools.pairwise(channels):
        read = len(tensors) - 1
        tensors.append(T(f"w{read}", (after, 1, 1, before), "INT8", bytes(after * before), scales=[0.5]))
        tensors.append(T(f"t{read}", (1, 8, 8, after), "INT8", scales=[0.5]))
        ops.append(O("CONV_2D", [read, read + 1], [read + 2]))
    return build(Sub(tensors, ops, [0], [len(tensors) - 1]))


def long_skip() -> bytes:
    """A value over a long way, and much work elsewhere: computing it again saves a third for little."""
    model = onnx.load_from_string(skip_connection())
    values = np.random.default_rng(3)
    read = "y"
    for number, (before, after) in enumerate(itertools.pairwise((SIDE, 256, 256, 256, 256, 256, SIDE))):
        weights = values.normal(size=(before, after)).astype(np.float32) / after
        model.graph.initializer.append(numpy_helper.from_array(weights, f"w{number}"))
        if not number:
            model.graph.node.append(helper.make_node("ReduceMean", [read], ["r"], "r", axes=[1], keepdims=1))
            read = "r"
        model.graph.node.append(helper.make_node("MatMul", [read, f"w{number}"], [f"m{number}"], f"m{number}"))
        read = f"m{number}"
    del model.graph.output[:]
    model.graph.output.append(floats(read, [1, 1, SIDE]))
    return bytes(model.SerializeToString())


def required(report: Mapping[str, Any]) -> int:
    """Return the figure that budgets are compared with."""
    return int(report["verdict"]["bytes"])


SOURCES = {
    "convolutions.onnx": convolutions,
    "skip.onnx": long_skip,
    "gated.onnx": gated,
    "chain.tflite": plan_chain,
    "person detect.tflite": (MODELS / "person_detect.tflite").read_bytes,
}
CASES = [
    ("convolutions.onnx", [], ("tile", "pieces")),
    ("convolutions.onnx", ["--budget", "60%"], ("tile", "pieces")),
    ("skip.onnx", [], ("remat", "again")),
    ("gated.onnx", [], ("fuse", "ONNX Runtime")),
    ("person detect.tflite", ["--target", "litert-reference"], ("tile", "pieces")),
    ("person detect.tflite", ["--target", "tflm"], ("tile", "pieces")),
]
"""Models and options, with the rewrite that a suggestion permits, if any, and a word of what it says of that."""


PLANS = [
    ("chain.tflite", ["--target", "tflm"], ("", "plan")),
    ("chain.tflite", ["--target", "tflm", "--allow=reorder"], ("", "plan")),
    ("chain.tflite", ["--target", "tflm", "--budget", "99.5%"], ("", "plan")),
]
"""What ``optimize`` does by itself."""


def permitted(command: str) -> str:
    """Return the last rewrite that a suggested command permits; empty if it permits none by name."""
    words = shlex.split(command)
    return words[words.index("--allow") + 1].rpartition(",")[2] if "--allow" in words else ""


@pytest.mark.parametrize(
    ("command", "name", "options", "what"),
    [(command, *case) for case in CASES for command in ("optimize", "analyze")]
    + [("analyze", *case) for case in PLANS],
)
def test_the_printed_command_keeps_what_is_printed(
    run: Run, tmp_path: Path, command: str, name: str, options: list[str], what: tuple[str, str]
) -> None:
    path = tmp_path / name
    path.write_bytes(SOURCES[name]())
    # What misses a budget is kept for its report, which holds the suggestions.
    quick = ["--no-verify", "--keep-best"] if command == "optimize" else []
    first = run(command, path, *options, *quick, "--report", tmp_path / "first.json")
    before = json.loads((tmp_path / "first.json").read_text())
    found = before["alternatives"]
    rewrite, word = what
    assert any(rewrite in {"", permitted(one["command"])} and word in one["what"] for one in found)
    assert len(found) <= 3
    lines = first.out.splitlines()[-2 * len(found) :]
    for number, one in enumerate(found):
        said, printed = lines[2 * number : 2 * number + 2]
        assert f": {one['what']}, {required(before):,} -> " in said
        assert printed == f"  {one['command']}"
        assert one["bytes"] + one["saving_bytes"] == required(before)
        program, *words = shlex.split(one["command"])
        assert (program, words[0]) == ("memsched", "optimize")
        # Other interpreters are another target.
        assert set(options) - {"--allow=reorder", "litert"} <= set(words)
        report = tmp_path / f"then{number}.json"
        assert run(*words, "--no-verify", "--effort", 10, "--report", report).code in {0, 3}
        after = json.loads(report.read_text())
        assert required(after) <= one["bytes"] < required(before)
        assert after["verdict"]["extra_macs_percent"] <= one["extra_macs_percent"]


def test_only_where_nothing_was_gained(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(small_models.branches())
    report = tmp_path / "net_memsched.json"
    gained = run("optimize", path, "--no-verify")
    assert " B (-" in gained.out
    assert "try next" not in gained.out
    assert json.loads(report.read_text())["alternatives"] == []
    # As the file stands, an order helps.
    assert line_with(run("analyze", path).out, "try next", "order", " -> ")
    assert "try next" not in run("analyze", path, "--frontier", "--time-limit", 1).out
    path.write_bytes(convolutions())
    assert "try next" not in run("optimize", path, "--no-verify", "--budget", "100%").out
    assert "try next" not in run("optimize", path, "--no-verify", "--time-limit", 0).out
    assert run("optimize", path, "--no-verify", "--allow", "all", "--time-limit", 5).code == 0
    assert not any("pieces" in one["what"] for one in json.loads(report.read_text())["alternatives"])


def test_scripts_get_the_report_and_nothing_else(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(convolutions())
    for command in ("optimize", "analyze"):
        done = run(command, path, "--json", *(["--no-verify"] if command == "optimize" else []))
        assert json.loads(done.out)["alternatives"]
        assert done.err.rstrip().endswith(json.loads(done.out)["alternatives"][-1]["command"])
        assert run(command, path, "-q", *(["--no-verify"] if command == "optimize" else [])).out == ""
    # Programs that ask for no command line wait for no trial.
    assert memsched.optimize(convolutions(), verify=False).report["alternatives"] == []
    words = ("optimize", "net.onnx", "-o", "small.onnx")
    (first, *_) = memsched.optimize(convolutions(), verify=False, hooks=memsched.Hooks(words=words)).report[
        "alternatives"
    ]
    assert shlex.split(first["command"])[:6] == ["memsched", *words, "--allow"]


def test_what_cannot_be_written_is_not_suggested(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(convolutions())

    def refused(*_: Any, **__: Any) -> None:
        raise InternalError("the file does not hold the graph")

    monkeypatch.setattr(trials, "attempt", refused)
    done = run("optimize", path, "--no-verify")
    assert done.code == 0
    assert "pieces" not in done.out


def test_large_graphs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    monkeypatch.setattr(trials, "attempt", lambda rewrite, *_: tried.append(type(rewrite).__name__))
    monkeypatch.setattr(trials, "_PIECES_OPS", 1)
    assert memsched.analyze(convolutions(), hooks=memsched.Hooks(words=("analyze", "-"))).report["alternatives"] == []
    assert "TileRewrite" not in tried
    assert "RematRewrite" in tried
    monkeypatch.setattr(trials, "_PIECES_OPS", 2)
    memsched.analyze(convolutions(), hooks=memsched.Hooks(words=("analyze", "-")))
    assert tried.count("TileRewrite") == 2


def test_extra_work_is_tried_where_pieces_without_it_save_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[float] = []
    known = trials.attempt

    def noted(rewrite: Rewrite, given: Any, request: Any, percent: float, effort: float) -> Any:
        if rewrite == TileRewrite():
            tried.append(percent)
        return known(rewrite, given, request, percent, effort)

    monkeypatch.setattr(trials, "attempt", noted)
    first, *_ = memsched.analyze(convolutions(), hooks=memsched.Hooks(words=("analyze", "-"))).report["alternatives"]
    assert tried == [0.0]
    assert "--max-extra-macs 0" in first["command"]
    tried.clear()
    monkeypatch.setattr(trials, "_WORTH_NAMING", 0.0)
    memsched.analyze(convolutions(), hooks=memsched.Hooks(words=("analyze", "-")))
    assert tried == [0.0, 15.0]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("optimize m.onnx", "memsched optimize m.onnx --allow reorder,inplace,tile"),
        ("optimize 'm n' -o x --allow=inplace -q", "memsched optimize 'm n' -o x -q --allow reorder,inplace,tile"),
        ("analyze m --json --html p.html --dim N=1", "memsched optimize m --dim N=1 --allow reorder,inplace,tile"),
        ("optimize --allow reorder -- -m.onnx", "memsched optimize --allow reorder,inplace,tile -- -m.onnx"),
    ],
)
def test_the_user_s_own_options_are_kept(words: str, expected: str) -> None:
    asked = trials.TrialRequest(("reorder", "inplace"), tuple(shlex.split(words)), Permissions())
    assert asked.command(add=("tile",)) == expected


@pytest.mark.parametrize(
    ("limits", "given", "expected"),
    [
        (Limits(None, effort=0.5), "--effort=0.5 -q", "-q --allow reorder,inplace,tile --effort 5"),
        (Limits(None, effort=8.0), "--effort 8", "--effort 8 --allow reorder,inplace,tile"),
        (Limits(2.0), "--time-limit 2", "--allow reorder,inplace,tile --time-limit 5"),
        (Limits(60.0), "--time-limit 60", "--time-limit 60 --allow reorder,inplace,tile"),
    ],
)
def test_the_command_has_a_limit_that_suffices(limits: Limits, given: str, expected: str) -> None:
    words = ("optimize", "m.onnx", *given.split())
    asked = trials.TrialRequest(("reorder", "inplace"), words, Permissions(), limits=limits)
    assert asked.command(add=("tile",)) == f"memsched optimize m.onnx {expected}"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("person detect.tflite", "tflm-reference"),
        ("skip.onnx", "onnxruntime"),
        ("convolutions.onnx", "onnxruntime"),
    ],
)
def test_with_little_effort_the_printed_command_keeps_what_is_printed(
    run: Run, tmp_path: Path, name: str, target: str
) -> None:
    path, report = tmp_path / name, tmp_path / "r.json"
    path.write_bytes(SOURCES[name]())
    kept: dict[str, int] = {}
    for effort in (0, 0.5, 1, 2):
        words = ("optimize", path, "--target", target, "--effort", effort, "--no-verify", "--report", report)
        assert run(*words).code == 0
        found = json.loads(report.read_text())["alternatives"]
        assert found
        for one in found:
            if one["command"] not in kept:
                assert run(*shlex.split(one["command"])[1:]).code == 0
                kept[one["command"]] = required(json.loads(report.read_text()))
            assert kept[one["command"]] <= one["bytes"]
