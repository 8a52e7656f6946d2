"""``--allow tile`` on the command line: files, budgets, limits of work and time, Ctrl-C, and what people read."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from memsched.cli.terminal import ProgressDisplay
from memsched.report.schema import json_schema
from tests.cli.conftest import Run
from tests.cli.written import report_of
from tests.formats.tflite_builder import O, Sub, T, build, options
from tests.outcomes import line_with
from tests.small_models import chain, floats, model_of

SCHEMA = jsonschema.Draft202012Validator(json_schema("report"))
ALL = "reorder,inplace,tile"

NAMED = ("--order-guarantee", "session")
"""Names the session: chance has a part in what one without options takes, and in what is written for any."""
UNCUT = 36_864
"""Bytes of the two tensors between the convolutions of `net`."""


def net(folder: Path) -> Path:
    """x (1, 3, 24, 24) -> four layers whose insides are wide -> y (1, 4, 6, 6): a plain chain, no order helps."""
    values = np.random.default_rng(0)
    nodes, weights, current, channels = [], [], "x", 3
    for layer, (made, stride) in enumerate([(8, 1), (8, 1), (4, 2), (4, 2)]):
        weight = values.normal(size=(made, channels, 3, 3)).astype(np.float32) / 4
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        name = f"layer{layer}"
        attributes: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [1] * 4}
        nodes.append(helper.make_node("Conv", [current, f"w{layer}"], [name], name, **attributes))
        current, channels = name, made
    nodes.append(helper.make_node("Tanh", [current], ["y"], "y"))
    path = folder / "net.onnx"
    path.write_bytes(model_of(nodes, [floats("x", [1, 3, 24, 24])], [floats("y", [1, 4, 6, 6])], weights))
    return path


def lite_net(folder: Path) -> Path:
    """x (1, 24, 24, 3) -> convolutions with float weights -> (1, 12, 12, 4)."""
    values = np.random.default_rng(0)
    tensors, channels, side = [T("x", (1, 24, 24, 3))], 3, 24
    ops: list[O] = []
    for made, stride in [(8, 1), (8, 1), (4, 2)]:
        weight, bias = values.normal(size=(made, 3, 3, channels)) / 4, np.zeros(made)
        side //= stride
        tensors += [
            T(f"w{len(tensors)}", weight.shape, data=weight.astype("<f4").tobytes()),
            T(f"b{len(tensors)}", bias.shape, data=bias.astype("<f4").tobytes()),
            T(f"t{len(tensors)}", (1, side, side, made)),
        ]
        table = options(
            "Conv2DOptions", padding=0, strideH=stride, strideW=stride, dilationHFactor=1, dilationWFactor=1
        )
        last = len(tensors) - 1
        ops.append(O("CONV_2D", [last - 3 if ops else 0, last - 2, last - 1], [last], table))
        channels = made
    path = folder / "net.tflite"
    path.write_bytes(build(Sub(tensors, ops, outputs=[len(tensors) - 1])))
    return path


def test_an_ordinary_file_and_where_each_piece_lies(run: Run, tmp_path: Path) -> None:
    done = run("optimize", net(tmp_path), "--allow", ALL, "--effort", 2, *NAMED)
    assert (done.code, done.err) == (0, "")
    report = report_of(tmp_path / "net_memsched.json")
    tiling = report["sections"]["tile"]
    assert tiling["applied"]
    assert not report["output"]["unchanged"]
    assert report["verdict"]["extra_macs_percent"] == tiling["extra_macs_percent"] <= 15
    assert report["written"]["schedule"]["arena_bytes"] < tiling["untiled"]["arena_bytes"]
    made = onnx.load(tmp_path / "net_memsched.onnx")
    onnx.checker.check_model(made, full_check=True)
    assert {node.domain for node in made.graph.node} == {""}
    given = {node.name: node for node in onnx.load(tmp_path / "net.onnx").graph.node}
    assert {step["op"] for step in report["written"]["steps"]} == {node.name for node in made.graph.node}
    for group in tiling["groups"]:
        assert set(group["ops"]) <= set(given)
        assert group["axis_names"] == [("batch", "channels", "rows", "columns")[axis] for axis in group["axes"]]
        assert group["peak_bytes"] <= report["written"]["schedule"]["peak_bytes"]
        # The pieces of the last layer are its whole output, each part once.
        regions = [step["region"] for step in report["written"]["steps"] if step["origin"] == group["ops"][-1]]
        edges = sorted({tuple(region[axis]) for region in regions for axis in group["axes"][:1]})
        assert len(edges) == group["pieces"][0]
        assert edges[0][0] == 0
        assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(edges))


def test_the_work_in_the_report_is_that_of_the_file(run: Run, tmp_path: Path) -> None:
    """Extra multiply-accumulates are what the written file has beside the given one, read again by itself."""
    path = net(tmp_path)
    assert run("optimize", path, "--allow", "tile", "--effort", 2, "--no-verify").code == 0
    tiled = report_of(tmp_path / "net_memsched.json")
    assert run("analyze", tmp_path / "net_memsched.onnx", "--report", tmp_path / "again.json").code == 0
    again = report_of(tmp_path / "again.json")
    extra = again["model"]["macs"] - tiled["model"]["macs"]
    assert (
        extra
        == tiled["sections"]["tile"]["extra_macs"]
        == sum(group["extra_macs"] for group in tiled["sections"]["tile"]["groups"])
    )
    assert tiled["verdict"]["extra_macs_percent"] == round(100 * extra / tiled["model"]["macs"], 3)
    assert again["written"]["schedule"]["peak_bytes"] == tiled["written"]["schedule"]["peak_bytes"]


def test_no_extra_work_permitted(run: Run, tmp_path: Path) -> None:
    path = net(tmp_path)
    assert run("optimize", path, "--allow", ALL, "--max-extra-macs", "0%", "--effort", 2, *NAMED).code == 0
    report = report_of(tmp_path / "net_memsched.json")
    assert report["verdict"]["extra_macs_percent"] <= 0
    assert report["sections"]["tile"]["max_extra_macs_percent"] == 0


@pytest.mark.parametrize("number", ["-1", "nan", "inf", "1e308", "10001", "much", ""])
def test_a_limit_of_work_that_is_no_percentage(run: Run, tmp_path: Path, number: str) -> None:
    done = run("optimize", net(tmp_path), "--allow", ALL, "--max-extra-macs", number)
    assert done.error is not None
    done.failed(done.error.code, "--max-extra-macs")
    assert done.code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]


@pytest.mark.parametrize("allowed", ["", "reorder,inplace"])
def test_a_limit_of_work_that_nothing_does(run: Run, tmp_path: Path, allowed: str) -> None:
    done = run("optimize", net(tmp_path), "--allow", allowed, "--max-extra-macs", "5")
    done.failed("no-effect", "--max-extra-macs", "--allow all")
    run("optimize", net(tmp_path), "--allow", "tiles").failed("bad-parameter", "--allow", "'tiles'", "tile, ")


def test_nothing_is_cut_where_the_order_alone_fits(run: Run, tmp_path: Path) -> None:
    path = net(tmp_path)
    done = run("optimize", path, "--allow", ALL, "--budget", "40KB")
    assert done.code == 0
    report = report_of(tmp_path / "net_memsched.json")
    assert report["sections"]["tile"] is None
    assert (tmp_path / "net_memsched.onnx").read_bytes() == path.read_bytes()


def test_a_budget_that_pieces_meet_and_one_that_they_miss(run: Run, tmp_path: Path) -> None:
    path = net(tmp_path)
    alone = run("optimize", path, "--budget", "24KB", "--no-verify")
    assert alone.code == 3
    assert line_with(alone.out, " -> 24,576 B")
    assert alone.out.rstrip().endswith("--budget 24KB --no-verify --allow reorder,inplace,tile")
    met = run("optimize", path, "--allow", ALL, "--budget", "24KB", "--effort", 2, *NAMED)
    assert met.code == 0
    assert report_of(tmp_path / "net_memsched.json")["budget"]["met"]
    missed = run("optimize", path, "--allow", ALL, "--budget", "1KB", "--keep-best", "--effort", 2, *NAMED)
    assert missed.code == 3
    report = report_of(tmp_path / "net_memsched.json")
    assert "rewrite" in line_with(missed.out, " 1,024 B ", f" {report['budget']['required_bytes']:,} B")
    assert report["sections"]["tile"]["applied"]
    assert report["budget"]["required_bytes"] == report["verdict"]["bytes"] < 24576
    assert onnx.load(tmp_path / "net_memsched.onnx").graph.node[-1].op_type == "Tanh"


def test_a_model_that_is_no_smaller_in_pieces_stays_as_it_is(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(chain((1, 3, 16, 16)))
    done = run("optimize", path, "--allow", ALL, "--effort", 2, "-v", *NAMED)
    assert done.code == 0
    assert line_with(done.out, "nothing", "(15 % ")
    assert "proven optimal" in done.out
    assert (tmp_path / "net_memsched.onnx").read_bytes() == path.read_bytes()
    report = report_of(tmp_path / "net_memsched.json")
    assert report["output"]["unchanged"]
    assert (report["sections"]["tile"]["applied"], report["sections"]["tile"]["groups"]) == (False, [])


@pytest.mark.parametrize("columns", [60, 120])
def test_the_summary(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    done = run("optimize", net(tmp_path), "--allow", ALL, "--effort", 2, "-v", *NAMED)
    details = done.out.partition("\n\n")[2]
    lines = details.splitlines()
    report = report_of(tmp_path / "net_memsched.json")
    tiling = report["sections"]["tile"]
    group = tiling["groups"][0]
    number = lines.index(line_with(details, f" {tiling['extra_macs_percent']:.1f} % ", "(15 % "))
    counts, axes = (" x ".join(str(value) for value in group[key]) for key in ("pieces", "axis_names"))
    shown = (f"  {len(group['ops'])} layers ", f" {counts} pieces ", f" {axes}, ", f" {group['peak_bytes']:,} B, ")
    assert [one for one in shown if one not in lines[number + 1]] == []
    assert report["proof"]["scope"] == "written"
    assert line_with(details, "rewritten", f" {report['proof']['bound_bytes']:,} B")
    assert "proven optimal:" not in done.out
    assert line_with(done.out, "tile: ")
    assert max(len(line) for line in lines[1:5]) <= 60


def test_outputs_that_differ_in_their_last_bits(run: Run, tmp_path: Path) -> None:
    done = run("optimize", lite_net(tmp_path), "--allow", ALL, "--target", "tflm", "--effort", 2, "--json", "-v")
    assert done.code == 0
    report, details = json.loads(done.out), done.err.partition("\n\n")[2]
    SCHEMA.validate(report)
    verification = report["sections"]["verification"]
    assert report["sections"]["tile"]["groups"][0]["axis_names"][0] == "rows"
    if verification["outputs_equal"]:
        assert line_with(details, "bit-equal", " 3 ")
    else:
        assert 0 < verification["relative_error"] <= 1e-5
        assert line_with(details, " 1e-05 ", f" {verification['relative_error']:.1e})")


def test_a_firmware_is_told_what_the_pieces_need(run: Run, tmp_path: Path) -> None:
    """The written model has operators that the given one has not, and each of them costs memory that stays."""
    done = run("optimize", lite_net(tmp_path), "--allow", ALL, "--target", "tflm", "--effort", 2, "--no-verify")
    assert done.code == 0
    firmware = report_of(tmp_path / "net_memsched.json")["sections"]["firmware"]
    assert (
        run("analyze", tmp_path / "net_memsched.tflite", "--target", "tflm", "--report", tmp_path / "a.json").code == 0
    )
    again = report_of(tmp_path / "a.json")["sections"]["firmware"]
    assert firmware["resolver_calls"] == again["resolver_calls"]
    assert "AddSlice()" in firmware["resolver_calls"]
    # The estimates round up what each tensor has, in whatever order.
    kept, kept_again, given = (
        one["persistent_bytes_estimate"]["32"] if which is None else one[which]["32"]
        for one, which in ((firmware, None), (again, None), (firmware, "file_persistent_bytes_estimate"))
    )
    assert abs(kept - kept_again) < 64
    assert kept > given
    needed = report_of(tmp_path / "net_memsched.json")["sections"]["requirement"]
    assert needed["parts"]["persistent_bytes"] == kept
    assert sum(needed["parts"].values()) == needed["bytes"] < needed["given_bytes"]
    assert line_with(done.out, f" {needed['given_bytes']:,} -> {needed['bytes']:,} B ")


def test_ctrl_c_while_pieces_are_sought_keeps_the_best(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tell(_: ProgressDisplay, news: Any) -> None:
        if news.stage == "tiling" and news.best_peak < UNCUT:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(ProgressDisplay, "tell", tell)
    done = run("optimize", net(tmp_path), "--allow", ALL, "--no-verify")
    assert done.code == 130
    report = report_of(tmp_path / "net_memsched.json")
    assert report["verdict"]["interrupted"]
    assert report["sections"]["tile"]["applied"]
    assert not report["sections"]["tile"]["exhausted"]
    assert report["written"]["schedule"]["arena_bytes"] < report["sections"]["tile"]["untiled"]["arena_bytes"]
    assert onnx.load(tmp_path / "net_memsched.onnx").graph.name == "main"
