"""``--dim NAME=1..N``: files that hold for every size, chosen by measurement."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import signal
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

import memsched
from memsched.cli.main import main
from memsched.cli.terminal import ACKNOWLEDGED
from memsched.commands.failures import DEFECTS, Failures
from memsched.commands.optimize import ranged_trials
from memsched.commands.optimize.measured_sizes import RangedSizes
from memsched.commands.optimize.ranged_trials import BlockFile, GivenFile, try_points
from memsched.formats.blocks import BlockPoint, OpenModel, Range
from memsched.formats.onnx.blocks.reserve import WITH_ROOM
from memsched.formats.onnx.capabilities import OnnxDimensions, OnnxWeightPlacement
from memsched.formats.onnx.format import OnnxFormat
from memsched.runtimes.measure import Measured
from memsched.runtimes.onnxruntime import ranged
from memsched.runtimes.onnxruntime.ranged import compare_at, draw_at, run_on
from memsched.runtimes.ranged import AtSize, RangedRace, TimeRatio
from memsched.runtimes.special import WORDS, judged
from memsched.search.limits import Limits
from memsched.search.run import Run
from tests import outcomes
from tests.failures import fails
from tests.formats.onnx.blocks.layers import Layers
from tests.formats.onnx.blocks.rows.compare import differences
from tests.formats.onnx.blocks.rows.images import Images
from tests.formats.onnx.decoders.nets import decoder
from tests.measured import took
from tests.small_models import floats, model_of

UNLIMITED = Run(Limits(None))


def _transformer() -> ModelProto:
    net = Layers(heads=8)
    x = net.op("Add", "x", net.attention("x"))
    return net.model(net.op("Add", x, net.feed_forward(x)))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a model for up to 2,048 tokens with the command line; return its folder."""
    folder = tmp_path_factory.mktemp("ranges")
    onnx.save(_transformer(), folder / "net.onnx")
    out = ["-o", str(folder / "out.onnx"), "--html", str(folder / "out.html")]
    words = [
        "optimize",
        str(folder / "net.onnx"),
        "--dim",
        "length=1..2048",
        "--max-slowdown",
        "none",
        "--budget",
        "1KB",
        "--keep-best",
        "--effort",
        "10",
        *out,
    ]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(words) == 3
    (folder / "printed.txt").write_text(printed.getvalue())
    return folder


def test_the_file_computes_the_same_at_every_length_and_refuses_others(written: Path) -> None:
    plain = onnxruntime.InferenceSession(written / "net.onnx")
    blocks = onnxruntime.InferenceSession(written / "out.onnx")
    for batch, length in ((1, 1), (2, 5), (1, 211), (3, 640), (1, 1999), (1, 2048)):
        x = np.random.default_rng(length).standard_normal((batch, length, 16)).astype(np.float32)
        expected = plain.run(None, {"x": x})[0]
        np.testing.assert_allclose(blocks.run(None, {"x": x})[0], expected, atol=1e-5 * np.abs(expected).max())
    with pytest.raises(Exception, match="length_must_be_1_to_2048"):
        blocks.run(None, {"x": np.zeros((1, 2049, 16), np.float32)})


def test_the_report_says_what_was_measured(written: Path) -> None:
    report = json.loads((written / "out.json").read_text())
    section, printed = report["sections"]["open_loops"], (written / "printed.txt").read_text()
    large = section["measured"][0]
    assert large["sizes"] == {"batch": 1, "length": 2048}
    assert large["process_bytes"] < large["given_process_bytes"]
    assert report["sections"]["requirement"]["bytes"] == report["budget"]["required_bytes"] == large["process_bytes"]
    assert [row["most"] for row in section["ranges"]] == [None, 2048]
    assert len(section["loops"]) == 2
    assert {one["length"] for one in section["compared"]} >= {1, 2, 97, 509, 2048}
    assert report["sections"]["verification"]["outputs_equal"] in {True, False}
    assert "2 loops" in printed
    assert "length = 1 to 2,048" in printed
    assert "batch = 1, length = 2,048" in printed


def test_kernels_for_attention_are_tried_where_they_are_permitted(written: Path) -> None:
    result = memsched.optimize(
        written / "net.onnx",
        dims={"length": (1, 1024)},
        max_slowdown=None,
        allow=("reorder", "inplace", "fuse"),
        effort=10,
    )
    section = result.report["sections"]["open_loops"]
    assert "kernel" in section["way"]
    assert [len(row["ops"]) for row in section["kernels"]] == [4]
    assert not any("--allow" in note for note in result.report["verdict"]["notes"])
    assert b"MultiHeadAttention" in result.model
    # Without being permitted, they are pointed out.
    report = json.loads((written / "out.json").read_text())
    assert not report["sections"]["open_loops"]["kernels"]
    assert any("--allow reorder,inplace,fuse" in note for note in report["verdict"]["notes"])


def test_a_budget_is_compared_with_the_process(written: Path) -> None:
    budget = json.loads((written / "out.json").read_text())["budget"]
    assert not budget["met"]
    required, available = (f" {budget[name]:,} B" for name in ("required_bytes", "budget_bytes"))
    assert "process" in outcomes.line_with((written / "printed.txt").read_text(), required, available)


@pytest.mark.quick
def test_weights_in_a_file_beside_the_model_are_found(tmp_path: Path) -> None:
    given, file, feeds = tmp_path / "net.onnx", tmp_path / "elsewhere" / "0.onnx", tmp_path / "feeds.npz"
    onnx.save(_transformer(), given, save_as_external_data=True, location="net.bin", size_threshold=256)
    opened = OnnxDimensions().open_model(given.read_bytes(), str(given), {}, {"length": Range(1, 1024)})
    file.parent.mkdir()
    file.write_bytes(opened.points()[0].build())
    draw_at(given, {"batch": 2, "length": 700}, feeds, seed=0)
    assert isinstance(run_on(file, feeds, folder=tmp_path), Measured)
    assert isinstance(run_on(file, feeds), str)
    found = compare_at([given, file], [{"batch": 2, "length": 700}], seed=0, folder=tmp_path)[1][0][0]
    assert found.equal or (found.error is not None and found.error < 1e-5)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An image that is halved, normalised and enlarged to what it was, written for multiples of two."""
    folder = tmp_path_factory.mktemp("images")
    net = Images()
    first = net.op("Relu", net.conv("x", 16))
    half = net.op("MaxPool", net.group_norm(net.conv(first, 16), 4), kernel_shape=[2, 2], strides=[2, 2])
    like = net.op("Concat", net.op("Slice", net.op("Shape", half), *_ends(net, 0, 2)), _places(net, first), axis=0)
    raised = net.op("Resize", half, "", "", like, mode="nearest", coordinate_transformation_mode="asymmetric")
    last = net.op("Add", net.op("Relu", net.conv(raised, 16)), first)
    onnx.save(net.model(net.conv(last, 1)), folder / "net.onnx")
    ranges = {"height": (32, 640, 2), "width": (32, 640, 2)}
    result = memsched.optimize(folder / "net.onnx", dims=ranges, max_slowdown=900, effort=10)
    (folder / "out.onnx").write_bytes(result.model)
    (folder / "out.json").write_text(result.report.to_json())
    return folder


def _ends(net: Images, start: int, end: int) -> tuple[str, str, str]:
    return tuple(net.constant(np.array([number], np.int64)) for number in (start, end, 0))  # type: ignore[return-value]


def _places(net: Images, image: str) -> str:
    return net.op("Slice", net.op("Shape", image), *_ends(net, 2, 4))


def test_images_of_every_size_come_from_one_file(images: Path) -> None:
    section = json.loads((images / "out.json").read_text())["sections"]["open_loops"]
    assert section["way"].startswith("by rows")
    assert [row["multiple"] for row in section["ranges"]] == [1, 2, 2]
    assert section["measured"][0]["process_bytes"] < 0.7 * section["measured"][0]["given_process_bytes"]
    given, written = onnx.load(images / "net.onnx"), onnx.load(images / "out.onnx")
    assert max(differences(given, written, [(1, 32, 34), (2, 262, 74), (1, 514, 640)])) <= 1e-5


def test_room_in_the_arena_is_not_written_where_it_takes_more_when_sizes_take_turns(
    images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memsched.formats.onnx.blocks.model.row_points", lambda *_: ())
    monkeypatch.setattr("memsched.formats.onnx.blocks.model.token_points", lambda *_: ())
    ranges = {"height": (32, 640, 2), "width": (32, 640, 2)}
    result = memsched.optimize(images / "net.onnx", dims=ranges, max_slowdown=None, solver="file")
    report = result.report.values
    assert report.output is not None
    assert report.output.unchanged
    assert any(WITH_ROOM in note for note in report.verdict.notes)


def test_no_file_for_every_size_is_written_that_makes_something_else_of_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def net(zeroes: bool) -> bytes:
        nodes = [helper.make_node("Softmax", ["x"], ["s"])]
        if zeroes:
            nodes += [helper.make_node("IsNaN", ["s"], ["n"]), helper.make_node("Where", ["n", "z", "s"], ["y"])]
        else:
            nodes.append(helper.make_node("Abs", ["s"], ["y"]))
        zero = helper.make_tensor("z", TensorProto.FLOAT, [], [0.0])
        return model_of(nodes, [floats("x", [1, "n", 4])], [floats("y", [1, "n", 4])], [zero])

    def ran(path: Path, *_: Any, **__: Any) -> Measured:
        return took((100 if path.read_bytes() == given else 20) << 20)

    given = net(zeroes=False)
    (path := tmp_path / "given.onnx").write_bytes(given)
    quick = RangedRace(TimeRatio(1, 1, 1.0), TimeRatio(1, 1, 1.0), 1.0)
    monkeypatch.setattr(ranged, "run_on", ran)
    monkeypatch.setattr(ranged, "race", lambda *_, **__: quick)
    points = [BlockPoint("first", (), lambda: net(zeroes=True)), BlockPoint("second", (), lambda: _described(given))]
    sizes = RangedSizes({"n": 9}, {"n": 5}, {"n": 5}, ({"n": 9},))
    opened = OnnxDimensions().open_model(given, "net.onnx", {}, {"n": Range(1, 9)})
    found = try_points(
        opened, GivenFile(path, None, OnnxFormat()), points, sizes, 0, 10, UNLIMITED, UNLIMITED, Failures()
    )
    assert found.best is not None
    assert found.best.point is not None
    assert found.best.point.name == "second"
    assert found.best.special["tried"] == list(WORDS)
    (note,) = found.notes
    assert [one for one in (" first:", "NaN", "n = 9") if one not in note] == []


def _described(data: bytes) -> bytes:
    """Return the same model in other bytes."""
    model = onnx.load_model_from_string(data)
    model.doc_string = "another"
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(("steady", "mixed", "written"), [(40, 40, "file"), (120, 40, None), (40, 120, None)])
def test_files_are_judged_by_what_a_process_takes_in_the_end(
    steady: int, mixed: int, written: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(path: Path, _: Path, *, least: int | None = None, beside: tuple[Path, ...] = (), **__: object) -> Measured:
        if path.read_text() == "given":
            return took(100 << 20)
        # Its first runs take less.
        return took((20 if least else mixed if beside else steady) << 20)

    quick = RangedRace(TimeRatio(1, 1, 1.0), TimeRatio(1, 1, 1.0), 1.0)
    monkeypatch.setattr(ranged, "draw_at", lambda *_, **__: None)
    monkeypatch.setattr(ranged, "run_on", run)
    monkeypatch.setattr(ranged, "race", lambda *_, **__: quick)
    monkeypatch.setattr(ranged, "special_at", lambda *_, **__: None)
    monkeypatch.setattr(ranged, "compare_at", lambda *_, **__: ("runtime", [[AtSize(True, 0.0, None)]]))
    path = tmp_path / "given.onnx"
    path.write_text("given")
    opened = _opened()
    _with_first(monkeypatch)
    sizes = RangedSizes({"n": 9}, {"n": 5}, {"n": 5}, ({"n": 9},))
    found = try_points(
        opened, GivenFile(path, None, OnnxFormat()), _points("file"), sizes, 0, 10, UNLIMITED, UNLIMITED, Failures()
    )
    assert (found.best and found.best.point and found.best.point.name) == written
    assert found.best is None or found.best.large.peak == 40 << 20


def test_a_coarser_range_is_pointed_out(images: Path) -> None:
    ranges = {"height": Range(32, 640, named=True), "width": Range(32, 640, named=True)}
    opened = OnnxDimensions().open_model((images / "net.onnx").read_bytes(), "net.onnx", {}, ranges)
    assert opened.coarser() == 2
    assert not any(point.rows for point in opened.points())
    finer = {name: Range(32, 640, 2, named=True) for name in ranges}
    assert OnnxDimensions().open_model((images / "net.onnx").read_bytes(), "net.onnx", {}, finer).coarser() == 1


def _grows_nowhere() -> ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], name="relu")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_model_in_which_nothing_grows_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(_grows_nowhere(), path)
    result = memsched.optimize(path, dims={"n": (1, 4096)}, effort=10)
    assert result.model == path.read_bytes()
    assert result.report["output"]["unchanged"]
    assert any("nothing grows" in note for note in result.report["verdict"]["notes"])
    with fails("needs-one-shape"):
        result.report.to_header("sizes.h")


@pytest.mark.parametrize(
    ("arguments", "code", "about"),
    [
        (["--dim", "length=5..2"], "bad-range", "length=5..2"),
        (["--dim", "length=0..0"], "bad-range", "length=0..0"),
        (["--dim", "length=1..2..3"], "option-unparsable", "length=1..2..3"),
        (["--dim", "length=8:2"], "option-unparsable", "length=8:2"),
        (["--dim", "length=1..8:16"], "bad-range", "16"),
        (["--dim", "size=1..8"], "no-such-dimension", "'batch', 'length'"),
        (["--dim", "length=1..8", "--no-verify"], "option-conflict", "--no-verify"),
        (["--dim", "length=1..8", "--session", "default"], "option-conflict", "--session default"),
        (["--dim", "length=1..8", "--order-guarantee", "session"], "option-conflict", "--order-guarantee session"),
        (["--dim", "length=1..8", "--shapes-from-run", "random"], "option-conflict", "--shapes-from-run"),
        (["--dim", "length=1..8", "--budget-for", "arena"], "option-conflict", "--budget-for arena"),
        (["--dim", "length=1..8", "--tflm-plan"], "option-conflict", "--tflm-plan"),
        (["--dim", "length=1..8", "--control-dependencies"], "option-conflict", "--control-dependencies"),
        (["--dim", "length=1..8", "--target", "ideal"], "other-target", "--target onnxruntime"),
        (["--dim", "length=1..8", "--target", "tflm"], "other-format", "--target onnxruntime"),
        (["--dim", "length=1..8", "--allow", "reorder,inplace,tile"], "option-conflict", "--allow tile"),
        (["--dim", "length=1..8", "--allow", "reorder,inplace,remat"], "option-conflict", "--allow remat"),
        (["--dim", "length=1..8", "--allow", "reorder,inplace,io"], "option-conflict", "--allow io"),
        (["--dim", "length=1..8", "-O2", "--max-extra-macs", "50"], "option-conflict", "--max-extra-macs"),
        (["--dim", "length=1..8", "--max-extra-macs", "15"], "option-conflict", "--max-extra-macs"),
        (["--dim", "length=1..8", "--header", "sizes.h"], "option-conflict", "--header"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(
    run: outcomes.Run, written: Path, tmp_path: Path, arguments: list[str], code: str, about: str
) -> None:
    out = tmp_path / "out.onnx"
    run("optimize", written / "net.onnx", *arguments, "-o", out).failed(code, about)
    assert not out.exists()


def test_past_tokens_may_be_none_and_a_mask_is_as_long_as_both() -> None:
    model = decoder(mask="past + length")
    opened = OnnxDimensions().open_model(
        model.SerializeToString(),
        "net.onnx",
        {},
        {"past": Range(0, 64, named=True), "length": Range(1, 64, named=True)},
    )
    assert list(opened.ranges) == ["batch", "length", "past"]
    assert opened.largest({"batch": 1, "length": 64, "past": 0}) == 4 * 2 * 64 * 64
    assert opened.largest({"batch": 1, "length": 64, "past": 64}) == 4 * 2 * 64 * 128


def test_python_takes_a_pair(written: Path) -> None:
    with fails("bad-range", "length"):
        memsched.optimize(written / "net.onnx", dims={"length": (0, 0)})
    for target in ("litert", "ideal", None):
        with fails("no-such-dimension"):
            memsched.optimize("models/person_detect.tflite", dims={"n": (1, 5)}, target=target)
    wrong: list[dict[str, Any]] = [{"allow": ("reorder", name)} for name in ("tile", "remat", "io")]
    wrong += [{"max_extra_macs": 50.0}, {"budget_for": "arena"}, {"tflm_plan": True}, {"session": "default"}]
    for values in wrong:
        with fails("option-conflict", "--dim"):
            memsched.optimize(written / "net.onnx", dims={"length": (1, 8)}, **values)


@pytest.mark.parametrize("more", [("-O2",), ("-O3",), ("--allow", "reorder,inplace,fuse", "--max-slowdown", "60")])
def test_a_level_and_a_limit_of_time_may_be_named_with_a_range(tmp_path: Path, more: tuple[str, ...]) -> None:
    model = tmp_path / "net.onnx"
    onnx.save(_grows_nowhere(), model)
    words = ["optimize", str(model), "--dim", "n=1..4096", *more, "-q", "-o", str(tmp_path / "out.onnx")]
    assert main(words) == 0
    assert (tmp_path / "out.onnx").exists()


def test_dimensions_without_names_stay_open_too(tmp_path: Path) -> None:
    model, path = _transformer(), tmp_path / "net.onnx"
    for dim in model.graph.input[0].type.tensor_type.shape.dim[:2]:
        dim.ClearField("dim_param")
    onnx.save(model, path)
    result = memsched.optimize(path, dims={"x[1]": (2, 1024)}, max_slowdown=None, effort=10)
    section = result.report["sections"]["open_loops"]
    assert section["measured"][0]["sizes"] == {"x[0]": 1, "x[1]": 1024}
    assert section["way"] is not None
    plain, blocks = (onnxruntime.InferenceSession(one) for one in (path.read_bytes(), result.model))
    x = np.random.default_rng(0).standard_normal((2, 211, 16)).astype(np.float32)
    np.testing.assert_allclose(blocks.run(None, {"x": x})[0], plain.run(None, {"x": x})[0], atol=1e-4)
    with pytest.raises(Exception, match="must_be_2_to_1024"):
        blocks.run(None, {"x": np.zeros((1, 1025, 16), np.float32)})


def _opened() -> OpenModel:
    return OnnxDimensions().open_model(_transformer().SerializeToString(), "net.onnx", {}, {"length": Range(1, 9)})


def _with_first(monkeypatch: pytest.MonkeyPatch, first: bytes = b"") -> None:
    """Have all files stay as they are, but "file" where ``first`` is the same with large weights first."""
    monkeypatch.setattr(
        OnnxWeightPlacement, "weights_first", lambda _, model: first if first and model == b"file" else model
    )


def _points(*names: str) -> list[BlockPoint]:
    return [BlockPoint(name, (), name.encode) for name in names]


@pytest.mark.parametrize(("busy", "ratio", "written"), [(1.0, 1.3, None), (1.5, 1.3, "least"), (1.0, 1.05, "least")])
def test_on_a_busy_machine_times_are_what_a_thread_computes(
    busy: float, ratio: float, written: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = {"given": 100 << 20, "most": 80 << 20, "least": 20 << 20, "more": 120 << 20}
    raced: list[str] = []

    def race(_: Path, file: Path, *__: object, threads: int | None = None, **___: object) -> RangedRace:
        raced.append(file.read_text())
        return RangedRace(TimeRatio(3, 3, ratio), TimeRatio(3, 3, 1.02), busy)

    monkeypatch.setattr(ranged, "draw_at", lambda *_, **__: None)
    monkeypatch.setattr(ranged, "run_on", lambda path, *_, **__: took(taken[path.read_text()]))
    monkeypatch.setattr(ranged, "race", race)
    monkeypatch.setattr(ranged, "special_at", lambda *_, **__: None)
    monkeypatch.setattr(ranged, "compare_at", lambda *_, **__: ("runtime", [[AtSize(True, 0.0, None)]]))
    path = tmp_path / "given.onnx"
    path.write_text("given")
    opened = _opened()
    _with_first(monkeypatch)
    at = {"n": 9}
    sizes = RangedSizes(at, at, at, (at,))
    found = try_points(
        opened,
        GivenFile(path, None, OnnxFormat()),
        _points("most", "least", "more"),
        sizes,
        0,
        10,
        UNLIMITED,
        UNLIMITED,
        Failures(),
    )
    assert (found.best and found.best.point and found.best.point.name) == written
    assert any("other programs" in note for note in found.notes) == (busy > 1.1)
    # The others are not timed where the one that takes least is good.
    assert set(raced) == ({"least"} if written else {"most", "least"})
    assert any("more: " in note and "126 MB" in note for note in found.notes)


@pytest.mark.parametrize(("most", "even", "written"), [(118, 130, "least"), (130, 118, "least"), (130, 130, "most")])
def test_a_file_takes_no_more_at_a_short_length(
    most: int, even: int, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small, short = {"n": 900}, {"n": 500}, {"n": 60}
    taken = {
        "given": {900: 900, 500: 200, 60: 100},
        "least": {900: 300, 500: 200, 60: most},
        "most": {900: 400, 500: 200, 60: 100},
    }

    def draw(_: Path, sizes: dict[str, int], file: Path, **__: object) -> None:
        file.write_text(str(sizes["n"]))

    def run(path: Path, feeds: Path, **options: object) -> Measured:
        name, length = path.read_text(), int(feeds.read_text())
        chosen = even if options.get("even") and name == "least" else taken[name][length]
        return took(chosen << 20)

    quick = RangedRace(TimeRatio(1, 1, 1.0), TimeRatio(1, 1, 1.0), 1.0)
    monkeypatch.setattr(ranged, "draw_at", draw)
    monkeypatch.setattr(ranged, "run_on", run)
    monkeypatch.setattr(ranged, "race", lambda *_, **__: quick)
    monkeypatch.setattr(ranged, "special_at", lambda *_, **__: None)
    monkeypatch.setattr(ranged, "compare_at", lambda *_, **__: ("runtime", [[AtSize(True, 0.0, None)]]))
    path = tmp_path / "given.onnx"
    path.write_text("given")
    opened = _opened()
    _with_first(monkeypatch)
    sizes = RangedSizes(large, small, short, (large,))
    found = try_points(
        opened,
        GivenFile(path, None, OnnxFormat()),
        _points("least", "most"),
        sizes,
        0,
        10,
        UNLIMITED,
        UNLIMITED,
        Failures(),
    )
    assert (found.best and found.best.point and found.best.point.name) == written
    assert any("136 MB" in note for note in found.notes) == (written == "most")


@pytest.mark.parametrize(
    ("large", "short", "written"),
    [(300, (94, 94, 94), "file, weights first"), (300, (94, 129, 94), "file"), (320, (94, 94, 94), "file")],
)
def test_large_weights_come_first_where_no_process_takes_more_so(
    large: int, short: tuple[int, ...], written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = {
        "given": {900: cycle([900]), 60: cycle([94, 126, 94])},
        "file": {900: cycle([300]), 60: cycle([97, 129, 129])},
        "file, weights first": {900: cycle([large]), 60: cycle(short)},
    }

    def run(path: Path, feeds: Path, **_: object) -> Measured:
        return took(next(taken[path.read_text()][int(feeds.read_text())]) << 20)

    quick = RangedRace(TimeRatio(1, 1, 1.0), TimeRatio(1, 1, 1.0), 1.0)
    monkeypatch.setattr(ranged, "draw_at", lambda _, sizes, file, **__: file.write_text(str(sizes["n"])))
    monkeypatch.setattr(ranged, "run_on", run)
    monkeypatch.setattr(ranged, "race", lambda *_, **__: quick)
    monkeypatch.setattr(ranged, "special_at", lambda *_, **__: None)
    monkeypatch.setattr(ranged, "compare_at", lambda *_, **__: ("runtime", [[AtSize(True, 0.0, None)]]))
    path = tmp_path / "given.onnx"
    path.write_text("given")
    opened = _opened()
    _with_first(monkeypatch, b"file, weights first")
    sizes = RangedSizes({"n": 900}, {"n": 60}, {"n": 60}, ({"n": 900},))
    found = try_points(
        opened, GivenFile(path, None, OnnxFormat()), _points("file"), sizes, 0, 10, UNLIMITED, UNLIMITED, Failures()
    )
    assert found.best is not None
    assert found.best.model.decode() == written
    assert found.best.large.peak == (large if "," in written else 300) << 20


@pytest.mark.parametrize("asked", [0, 1])
def test_trials_end_with_what_is_known_when_the_run_is_over(
    asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def run(path: Path, *_: object, **__: object) -> Measured:
        if path.read_text() != "given":
            tried.append(path.read_text())
        return took(100 << 20 if path.read_text() == "given" else 50 << 20)

    monkeypatch.setattr(ranged, "draw_at", lambda *_, **__: None)
    monkeypatch.setattr(ranged, "run_on", run)
    path = tmp_path / "given.onnx"
    path.write_text("given")
    at = {"n": 9}
    _with_first(monkeypatch)
    run_over = dataclasses.replace(UNLIMITED, stop=lambda: len(tried) >= asked)
    sizes = RangedSizes(at, at, at, (at,))
    given = GivenFile(path, None, OnnxFormat())
    found = try_points(_opened(), given, _points("most", "least"), sizes, 0, 10, run_over, run_over, Failures())
    assert (found.best, found.large.peak) == (None, 100 << 20)
    assert len(tried) == asked
    assert any(ranged_trials.ENDED in note for note in found.notes)


def test_a_file_that_fails_makes_way_for_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is not made, one cannot be compared; the third is the result, and both reasons are known."""
    monkeypatch.delenv(DEFECTS)
    path = tmp_path / "net.onnx"
    path.write_bytes(b"given")
    sizes = RangedSizes({"n": 512}, {"n": 128}, {"n": 128}, ())
    process = {"given": 300, "wrong": 100, "right": 200}

    def ran(path: Path, *_: Any, **__: Any) -> Measured:
        return took(process[path.read_bytes().decode()] << 20)

    def lightest(_: object, file: Any) -> Any:
        if file.point.name == "wrong":
            raise IndexError("an axis that is not there")
        return file

    def tried(_: object, file: Any) -> BlockFile:
        run = ran(file.path)
        times = TimeRatio(1.0, 1.0, 1.0), TimeRatio(1.0, 1.0, 1.0)
        return BlockFile(file.point, file.path.read_bytes(), run, run, times, (), "onnxruntime", judged(()))

    monkeypatch.setattr(ranged, "run_on", ran)
    monkeypatch.setattr(ranged, "draw_at", lambda *_, **__: None)
    monkeypatch.setattr(ranged_trials, "_lightest", lightest)
    monkeypatch.setattr(ranged_trials, "_tried", tried)
    points = list(_points("broken", "wrong", "right"))
    points[0] = dataclasses.replace(points[0], build=lambda: bytes(1 // 0))
    failures = Failures()
    found = try_points(
        _opened(), GivenFile(path, None, OnnxFormat()), points, sizes, 0, None, UNLIMITED, UNLIMITED, failures
    )
    assert found.best is not None
    assert found.best.model == b"right"
    assert [(one.what, one.defect) for one in failures.found] == [("broken", True), ("wrong", True)]


TRYING = """
import sys
import memsched.commands.optimize.ranged_trials as trials
from memsched.runtimes.child import ChildEndedError, children_until, run_in_child

def waits(trial, points, folder, notes, until, failures):
    until.over()
    print("trying", file=sys.stderr, flush=True)
    with children_until(until.over):
        run_in_child("time:sleep", 600)

trials._by_memory = waits
from memsched.cli.main import main
sys.exit(main())
"""


def test_ctrl_c_ends_the_trials_over_a_range_and_keeps_what_there_is(tmp_path: Path) -> None:
    onnx.save(_transformer(), tmp_path / "net.onnx")
    command = [sys.executable, "-c", TRYING, "optimize", str(tmp_path / "net.onnx"), "--dim", "length=1..64"]
    command += ["--effort", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "trying\n"
        process.send_signal(signal.SIGINT)
        assert process.stderr.readline() == ACKNOWLEDGED.decode()
        process.communicate(timeout=100)
    assert process.returncode == 130
    assert (tmp_path / "net_memsched.onnx").read_bytes() == (tmp_path / "net.onnx").read_bytes()
    assert json.loads((tmp_path / "net_memsched.json").read_text())["verdict"]["interrupted"] is True
