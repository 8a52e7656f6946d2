"""``--allow remat`` and ``analyze --frontier`` on the command line: files, budgets, limits, Ctrl-C, pictures."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import onnx
import pytest

from memsched.cli.terminal import ProgressDisplay
from memsched.report.frontier import _LABELS
from tests.cli.conftest import Run
from tests.cli.written import report_of
from tests.commands.optimize.test_choose import UNIT, convolutions, skip_connection
from tests.needs import recent_onnxruntime
from tests.outcomes import line_with
from tests.small_models import branches, chain

ALLOWED = "reorder,inplace,remat"

NAMED = ("--order-guarantee", "session")
"""Names the session: chance has a part in what one without options takes, and in what is written for any."""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A skip connection whose first value is cheap to compute again."""
    path = tmp_path / "net.onnx"
    path.write_bytes(skip_connection())
    return path


def optimized(run: Run, net: Path, *more: object, work: object = 50) -> tuple[Any, dict[str, Any]]:
    arguments = ("--allow", ALLOWED, "--max-extra-macs", work, "--effort", 2, *NAMED, *more)
    done = run("optimize", net, *arguments)
    return done, report_of(net.with_name("net_memsched.json"))


def test_an_ordinary_file_in_which_an_op_runs_twice(run: Run, net: Path) -> None:
    done, report = optimized(run, net)
    assert (done.code, done.err) == (0, "")
    done, report = optimized(run, net, "-v")
    remat = report["sections"]["recompute"]
    assert remat["applied"]
    assert remat["copies"] == [
        {"op": "a", "type": "Exp", "times": 1, "extra_macs": 0, "extra_bytes_moved": 2 * UNIT},
    ]
    assert remat["extra_bytes_moved"] == 2 * UNIT
    assert 0 < remat["extra_work_percent"] <= remat["max_extra_work_percent"] == 50
    assert (
        report["written"]["schedule"]["peak_bytes"]
        < remat["without"]["peak_bytes"]
        == remat["frontier"][0]["peak_bytes"]
    )
    assert remat["lower_bound_bytes"] <= report["written"]["schedule"]["peak_bytes"]
    assert remat["judged"] > 0
    made = onnx.load(net.with_name("net_memsched.onnx"))
    onnx.checker.check_model(made, full_check=True)
    assert [node.op_type for node in made.graph.node].count("Exp") == 2
    assert [step["origin"] for step in report["written"]["steps"] if step["origin"]] == ["a"]
    assert line_with(done.out, "file order ", f" {remat['without']['peak_bytes']:,} ")
    assert line_with(done.out, "1 operator", "1 time ", f" {remat['extra_work_percent']:.1f} %", "50 %")
    assert line_with(done.out, "1 x Exp", "8,192 B").endswith(" a")


@recent_onnxruntime
def test_outputs_are_bit_equal_and_the_measured_peak_falls(run: Run, net: Path) -> None:
    done, report = optimized(run, net)
    verification = report["sections"]["verification"]
    assert verification["outputs_equal"]
    assert verification["measured_peak_after_bytes"] < verification["measured_peak_before_bytes"]
    assert "outputs bit-equal" in done.out
    checked = run("verify", net, net.with_name("net_memsched.onnx"))
    assert checked.code == 0


def test_budgets_that_need_no_repetition_some_and_more_than_helps(run: Run, net: Path) -> None:
    done, report = optimized(run, net, "--budget", "16KB")
    assert (done.code, report["sections"]["recompute"]) == (0, None)
    done, report = optimized(run, net, "--budget", "9KB")
    assert done.code == 0
    assert report["sections"]["recompute"]["applied"]
    assert report["budget"]["met"]
    done, report = optimized(run, net, "--budget", "1KB", "--keep-best")
    assert done.code == 3
    assert "rewrite" in line_with(done.out, " 1,024 B ", f" {report['budget']['required_bytes']:,} B")
    assert report["sections"]["recompute"]["applied"]


def test_no_more_work_than_permitted(run: Run, net: Path) -> None:
    done, report = optimized(run, net, "-v", work="1%")
    assert done.code == 0
    assert not report["sections"]["recompute"]["applied"]
    assert (report["sections"]["recompute"]["copies"], report["sections"]["recompute"]["extra_work_percent"]) == ([], 0)
    assert report["sections"]["recompute"]["settled"]
    assert line_with(done.out, "proven", "(1 % ")


def test_with_pieces_as_well(run: Run, net: Path) -> None:
    done = run("optimize", net, "--allow", "tile,remat", "--max-extra-macs", 50, "--effort", 2, *NAMED)
    assert done.code == 0
    report = report_of(net.with_name("net_memsched.json"))
    assert None not in {report["sections"]["tile"] and "tried", report["sections"]["recompute"] and "tried"}
    assert report["sections"]["recompute"]["applied"]


def test_where_nothing_helps_the_model_stays(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(chain((1, 3, 16, 16)))
    done, report = optimized(run, path)
    assert done.code == 0
    assert report["output"]["unchanged"]
    assert (tmp_path / "net_memsched.onnx").read_bytes() == path.read_bytes()


def interrupted_at(monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    def tell(_: ProgressDisplay, news: Any) -> None:
        if news.stage == stage:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ProgressDisplay, "tell", tell)


def test_ctrl_c_while_repetitions_are_sought_keeps_the_best(
    run: Run, net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupted_at(monkeypatch, "rematerialisation")
    done, report = optimized(run, net, "--no-verify")
    assert done.code == 130
    assert report["verdict"]["interrupted"]
    assert report["sections"]["recompute"]["applied"]
    assert report["written"]["schedule"]["peak_bytes"] < report["sections"]["recompute"]["without"]["peak_bytes"]
    assert onnx.load(net.with_name("net_memsched.onnx")).graph.name == "main"


def test_the_time_limit_holds(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(branches(40))
    for command in (("optimize", "--allow", "tile,remat", "--no-verify"), ("analyze", "--frontier")):
        # Of the processor: what others do meanwhile is not counted, and one process cannot spend more than passes.
        started = time.process_time()
        assert run(command[0], path, *command[1:], "--time-limit", 1).code == 0
        assert time.process_time() - started < 6


def test_the_frontier_as_table_report_and_picture(run: Run, net: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "frontier.svg"
    arguments = ("--frontier", "--effort", 2, "--report", tmp_path / "r.json", "--plot", picture)
    done = run("analyze", net, *arguments)
    assert done.code == 0
    steps = report_of(tmp_path / "r.json")["sections"]["frontier"]
    assert [step["how"] for step in steps][:1] == ["order"]
    assert "remat" in {step["how"] for step in steps}
    first, last = (f"{step['peak_bytes']:,}" for step in (steps[0], steps[-1]))
    head = [first, "100.0", "0.00", "0.00", "order"]
    rows = [line.split() for line in done.out.splitlines()]
    assert head in rows
    assert last in {row[0] for row in rows if row}
    assert _LABELS["remat"].encode() in picture.read_bytes()
    only = run("analyze", net, "--frontier", "--allow", "inplace", "--json")
    (step,) = json.loads(only.out)["sections"]["frontier"]
    assert step["how"] == "order"
    assert [f"{step['peak_bytes']:,}", *head[1:]] in [line.split() for line in only.err.splitlines()]
    assert not [line for line in run("analyze", net).out.splitlines() if line.split()[1:] == head[1:]]


def test_ctrl_c_shows_the_frontier_so_far(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(convolutions())
    interrupted_at(monkeypatch, "tiling")
    done = run("analyze", path, "--frontier", "--report", tmp_path / "r.json")
    assert done.code == 130
    report = report_of(tmp_path / "r.json")
    assert report["verdict"]["interrupted"]
    assert len(report["sections"]["frontier"]) > 1
    assert "ended early" in done.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--plot", "a.svg"), ("no-effect", "--plot", "--frontier")),
        (("--time-limit", "3"), ("no-effect", "--time-limit", "--frontier")),
        (("--max-extra-macs", "3"), ("no-effect", "--max-extra-macs", "--frontier")),
        (("--frontier", "--plot", "a.pdf"), ("file-ending", "a.pdf", ".svg", ".png")),
        (("--frontier", "--plot", "a.svg", "--report", "a.svg"), ("same-file", "a.svg")),
        (("--frontier", "--time-limit", "-1"), ("option-range", "--time-limit")),
        (("--frontier", "--max-extra-macs", "x"), ("bad-parameter", "--max-extra-macs", "'x'")),
        (("--frontier", "--allow", "order"), ("bad-parameter", "--allow", "'order'", "remat")),
    ],
)
def test_wrong_usage(
    run: Run, net: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: tuple[str, ...]
) -> None:
    monkeypatch.chdir(net.parent)
    done = run("analyze", net, *arguments)
    done.failed(*told)
    assert len(done.err.splitlines()) == 1
    assert [path.name for path in net.parent.iterdir()] == ["net.onnx"]


def test_a_picture_without_matplotlib_or_a_folder(run: Run, net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    done = run("analyze", net, "--frontier", "--plot", net / "a.svg")
    done.failed("not-a-folder", "a.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run("analyze", net, "--frontier", "--plot", net.parent / "a.svg")
    done.failed("not-installed", "--plot", "pip install matplotlib")
