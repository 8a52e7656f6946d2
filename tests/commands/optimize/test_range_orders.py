"""Orders for a range: which is written, that it runs, and what the report says of sizes where another is better."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from memsched.cli.main import main
from memsched.commands.optimize import range_orders, ranged_trials
from memsched.commands.optimize.place import Request, prepare, required_as_given
from memsched.commands.optimize.range_orders import OpenFile, order_over_range
from memsched.formats.blocks import Range
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.formats.onnx.blocks import model as blocks_model
from memsched.formats.onnx.capabilities import OnnxDimensions
from memsched.runtimes.runtime import Opening
from memsched.search.limits import Limits
from memsched.search.run import Run
from memsched.targets.load import load_target
from tests.commands.optimize.crossing import CROSSES_AT, crossing
from tests.needs import recent_onnxruntime

pytestmark = recent_onnxruntime

MOST = 400


def _request() -> Request:
    return Request(Run(Limits(None, effort=5.0)))


def _file(parts: str) -> OpenFile:
    data = crossing(parts).SerializeToString()
    opened = OnnxDimensions().open_model(data, "net.onnx", {}, {"n": Range(1, MOST, named=True)})
    return OpenFile(data, "net.onnx", opened, LoadOptions(), load_target("onnxruntime"), True, {"n": MOST})


def _requested(data: bytes, length: int) -> int:
    """Return what a session without options requests for a file, which is read anew."""
    module = load_module(data, "net.onnx", LoadOptions(dims={"n": length}))
    prepared = prepare(module, load_target("onnxruntime"), in_place=True)
    return required_as_given(module, prepared, Opening("default")).total


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the model, whose order is bad at every size, for up to 400 tokens; return its folder."""
    folder = tmp_path_factory.mktemp("orders")
    onnx.save(crossing("BCA"), folder / "net.onnx")
    # Times do not matter here, so that each is taken once; nor do loops, which some megabytes by chance might favour.
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(blocks_model, "_points", lambda *_: ())
    monkeypatch.setattr(ranged_trials, "PROCESSES", 1)
    words = [
        "optimize",
        str(folder / "net.onnx"),
        "--dim",
        f"n=1..{MOST}",
        "--effort",
        "5",
        "--max-slowdown",
        "none",
        "-v",
        "-o",
    ]
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main([*words, str(folder / "out.onnx")]) == 0
    monkeypatch.undo()
    (folder / "printed.txt").write_text(printed.getvalue())
    return folder


def test_the_order_is_written_and_computes_the_same_bits(written: Path) -> None:
    given, out = (written / name for name in ("net.onnx", "out.onnx"))
    assert {node.name for node in onnx.load(given).graph.node} == {node.name for node in onnx.load(out).graph.node}
    plain, ordered = (onnxruntime.InferenceSession(path) for path in (given, out))
    for length in (1, 2, 31, CROSSES_AT, CROSSES_AT + 1, 211, MOST, 2 * MOST):
        x = np.random.default_rng(length).standard_normal((length, 8)).astype(np.float32)
        assert np.array_equal(plain.run(None, {"x": x})[0], ordered.run(None, {"x": x})[0])


def test_the_report_says_where_each_order_is_best(written: Path) -> None:
    report = json.loads((written / "out.json").read_text())
    section, printed = (
        report["sections"]["open_loops"]["orders"],
        " ".join((written / "printed.txt").read_text().split()),
    )
    assert [one["found_at"] for one in section["orders"]] == [None, {"n": 1}, {"n": MOST}]
    (short, long) = section["spans"][0]
    assert (short["order"], short["first"], short["last"]) == (1, {"n": 1}, {"n": CROSSES_AT})
    assert (long["order"], long["first"], long["last"]) == (2, {"n": CROSSES_AT + 1}, {"n": MOST})
    # The second loses up to 48 % where the input is long, the third 20.6 % where it is short.
    assert section["chosen"] == 2
    assert (short["loss_percent"], long["loss_percent"]) == (20.62, 0.0)
    assert [section[name]["sizes"]["n"] for name in ("least", "typical", "worst")] == [1, 20, MOST]
    given, out = ((written / name).read_bytes() for name in ("net.onnx", "out.onnx"))
    for row in section["judged"]:
        assert row["given_bytes"] == _requested(given, row["sizes"]["n"])
        assert row["bytes"] == _requested(out, row["sizes"]["n"]) <= row["given_bytes"]
    assert report["sections"]["verification"]["outputs_equal"]
    assert report["sections"]["verification"]["runtime"].startswith("onnxruntime ")
    for told in ("298.4 KB", "31.8 %", "n = 400", f"n = 1 to {CROSSES_AT}", "20.62 %"):
        assert told in printed


def test_what_a_session_requests_was_measured(written: Path) -> None:
    measured = json.loads((written / "out.json").read_text())["sections"]["open_loops"]["measured"]
    assert measured[0]["sizes"] == {"n": MOST}
    assert measured[0]["process_bytes"] is not None


@pytest.mark.parametrize("parts", ["ABC", "CBA"])
def test_no_order_is_written_that_needs_more_anywhere(parts: str) -> None:
    file = _file(parts)
    found = order_over_range(file, _request())
    assert found.section is not None
    model = found.model or file.data
    for length in (1, 7, CROSSES_AT, CROSSES_AT + 1, 150, MOST):
        assert _requested(model, length) <= _requested(file.data, length)
    if found.model is None:
        # The order of the file is the best one where the input is short, so it stays, and what that loses is told.
        assert found.section.spans[0][-1].loss_percent == pytest.approx(47.98)


def test_an_order_whose_session_was_seen_to_need_more_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_orders, "_run", lambda *_: "more: 1.5 MB")
    found = order_over_range(_file("BCA"), _request())
    assert found.model is None
    (note,) = found.notes
    assert note.endswith("more: 1.5 MB")
    assert found.section is not None
    assert found.section.chosen == 0
    assert found.section.worst.bytes == found.section.worst.given_bytes > found.section.worst.least_bytes


def test_two_dimensions_rise_together_and_each_alone() -> None:
    model = crossing("BCA")
    model.graph.input.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, ["m", 4]))
    model.graph.node.append(onnx.helper.make_node("Relu", ["z"], ["w"], "beside"))
    model.graph.output.append(onnx.helper.make_tensor_value_info("w", onnx.TensorProto.FLOAT, ["m", 4]))
    data = model.SerializeToString()
    ranges = {"n": Range(1, MOST, named=True), "m": Range(1, 9, named=True)}
    opened = OnnxDimensions().open_model(data, "net.onnx", {}, ranges)
    file = OpenFile(data, "net.onnx", opened, LoadOptions(), load_target("onnxruntime"), True, {"n": MOST, "m": 9})
    found = order_over_range(file, _request())
    assert found.section is not None
    together, first, second = found.section.spans
    assert together[0].first == {"n": 1, "m": 1}
    assert together[-1].last == {"n": MOST, "m": 9}
    assert {row["m"] for row in (first[0].first, first[-1].last)} == {3}
    assert {row["n"] for row in (second[0].first, second[-1].last)} == {20}
    corners = [{"n": n, "m": m} for n in (1, MOST) for m in (1, 9)]
    assert all(any(row.sizes == corner for row in found.section.judged) for corner in corners)
