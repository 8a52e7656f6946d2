"""Open sizes stop no command: what is assumed is said, and a file that is written is right, or refused, at others."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from memsched.commands.optimize.analysis import analyze
from memsched.commands.optimize.optimize import load, optimize, verify
from memsched.commands.options import DoctorOptions
from memsched.features.doctor.doctor import diagnose
from tests.cli.conftest import Run
from tests.cli.test_open_dimensions import model_of, weight
from tests.formats.onnx.test_assumed_sizes import convolutions, decoder, tokens
from tests.needs import recent_onnxruntime
from tests.small_models import branches
from tests.small_models import model_of as small

pytestmark = recent_onnxruntime

PLACEHOLDER = re.compile(r"<[a-z. ]+>")


def assumed(report: Any) -> dict[str, tuple[int, ...]]:
    return {one["dimension"]: tuple(one["sizes"]) for one in report["assumed"] if one["reason"]}


def picked(rows: Any = "rows") -> bytes:
    """Return a net whose sizes depend on data."""
    nodes = [
        helper.make_node("NonZero", ["x"], ["found"], "found"),
        helper.make_node("Cast", ["found"], ["f"], "f", to=TensorProto.FLOAT),
        helper.make_node("Transpose", ["f"], ["t"], "t", perm=[1, 0]),
        helper.make_node("MatMul", ["t", "up"], ["h"], "up"),
        helper.make_node("Relu", ["h"], ["y"], "act"),
    ]
    return model_of(nodes, [rows, 16], ["K", 8], [weight("up", (2, 8))])


def unlucky(side: Any) -> bytes:
    """Return a net whose operators are stored in a bad order: for a batch of any size."""
    nodes = [helper.make_node("Exp", ["x"], [f"wide{one}"], f"exp{one}") for one in range(4)]
    nodes += [
        helper.make_node("ReduceMean", [f"wide{one}"], [f"mean{one}"], f"mean{one}", axes=[1]) for one in range(4)
    ]
    nodes.append(helper.make_node("Sum", [f"mean{one}" for one in range(4)], ["y"], "sum"))
    return model_of(nodes, [side, 512], [side, 1], [])


def same_or_refused(given: bytes, written: bytes, **feed: Any) -> None:
    wanted = onnxruntime.InferenceSession(given).run(None, feed)
    try:
        found = onnxruntime.InferenceSession(written).run(None, feed)
    except Exception as error:  # the runtime raises classes of its own
        assert "invalid dimensions" in str(error)  # noqa: PT017 - it may also run
        return
    assert all(one.tobytes() == other.tobytes() for one, other in zip(wanted, found, strict=True))


CASES: dict[str, tuple[Callable[[], bytes], dict[str, tuple[int, ...]], dict[str, Any]]] = {
    "an open batch": (lambda: unlucky("n"), {"n": (1,)}, {"x": np.ones((5, 512), np.float32)}),
    "an open batch and image": (
        lambda: convolutions(["n", 3, "h", "w"]),
        {"n": (1,), "h": (224,), "w": (224,)},
        {"x": np.ones((2, 3, 40, 60), np.float32)},
    ),
    "a table of positions": (
        lambda: tokens(48),
        {"batch": (1,), "sequence": (48,)},
        {"ids": np.ones((2, 7), np.int64)},
    ),
    "no table of positions": (tokens, {"batch": (1,), "sequence": (128,)}, {"ids": np.ones((2, 300), np.int64)}),
    "sizes that depend on data": (picked, {"rows": (1,), "found[1]": (16,)}, {"x": np.eye(3, 16, dtype=np.float32)}),
    "a decoder": (
        decoder,
        {"batch": (1,), "sequence": (1,), "past": (128,)},
        {
            "input_ids": np.ones((1, 3), np.int64),
            **{f"past_key_values.0.{one}": np.ones((1, 2, 9, 8), np.float32) for one in ("key", "value")},
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_model_with_open_sizes_is_optimised(case: str) -> None:
    make, sizes, other = CASES[case]
    given = make()
    result = optimize(given, order_guarantee="session", effort=0.1)
    assert assumed(result.report.data) == sizes
    same_or_refused(given, result.model, **other)


@pytest.mark.parametrize("case", CASES)
def test_the_console_names_what_is_assumed_and_no_placeholder(run: Run, tmp_path: Path, case: str) -> None:
    make, sizes, _ = CASES[case]
    path = tmp_path / "net.onnx"
    path.write_bytes(make())
    done = run("analyze", path)
    assert done.code == 0
    (line,) = [line for line in done.out.splitlines() if line.startswith("assumed: ")]
    assert all(f"{name} = {size[0]}" in line for name, size in sizes.items())
    assert not PLACEHOLDER.search(done.out + done.err)
    assert ("memsched decoder" in done.out) == (case == "a decoder")


def test_the_overview_names_what_is_assumed(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(unlucky("n"))
    assert "assumed: n = 1 (open)" in run(path, "--time-limit", 1, "--target", "ideal").out
    values = json.loads(run(path, "--time-limit", 1, "--target", "ideal", "--json").out)
    assert assumed(values) == {"n": (1,)}


def test_layers_are_not_cut_for_a_size_that_is_a_guess() -> None:
    given = convolutions(["n", 3, "h", "w"])
    found = optimize(given, level=2, effort=0.1)
    assert found.report.data["output"]["fixed_dimensions"] == []
    assert any("nobody stated it" in note for note in found.report.data["verdict"]["notes"])
    stated = optimize(given, level=2, input_shapes={"x": (1, 3, 224, 224)}, effort=0.5, verify=False)
    assert stated.report.data["sections"]["tile"]["applied"]


def test_a_model_that_runs_at_one_length_only_gets_that_length() -> None:
    """Inference does not see it: elements are looked up by numbers that follow from the length."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], "s"),
        helper.make_node("Gather", ["s", "at"], ["n"], "n"),
        helper.make_node("Gather", ["table", "n"], ["row"], "row"),
        helper.make_node("Mul", ["x", "row"], ["y"], "y"),
    ]
    weights = [weight("table", (65,)), helper.make_tensor("at", TensorProto.INT64, [], [1])]
    report = analyze(model_of(nodes, ["n", "samples"], ["n", "samples"], weights)).report.data
    assert assumed(report) == {"n": (1,), "samples": (64,)}


def test_python_functions_assume_as_well(tmp_path: Path) -> None:
    given = tmp_path / "net.onnx"
    given.write_bytes(branches(side="height"))
    graph = load(given).graph
    assert graph.tensors[graph.inputs[0]].shape == (1, 224, 16)
    compared = verify(given, given, runs=1)
    assert compared.same
    assert any("height = 224" in note for note in compared.verification.notes)


def test_doctor_assumes_as_well(tmp_path: Path) -> None:
    given = tmp_path / "net.onnx"
    given.write_bytes(unlucky("n"))
    assert assumed(diagnose(str(given), options=DoctorOptions(effort=1)).data) == {"n": (1,)}


def test_a_batch_of_models_needs_no_sizes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "net.onnx").write_bytes(unlucky("n"))
    done = run("batch", tmp_path / "zoo", "-o", tmp_path / "out", "--no-verify", "--effort", 0.1)
    assert done.code == 0, done.err
    report = json.loads((tmp_path / "out" / "net_memsched.json").read_text())
    assert assumed(report) == {"n": (1,)}


def test_a_size_that_no_run_tells_is_refused_with_a_command(run: Run, tmp_path: Path) -> None:
    nodes = [helper.make_node("Mystery", ["x"], ["a"], domain="com.example"), helper.make_node("Relu", ["a"], ["y"])]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    path = tmp_path / "net.onnx"
    path.write_bytes(small(nodes, [x], [y]))
    done = run("analyze", path)
    done.failed("unknown-shape", "com.example.Mystery")
    assert f"memsched analyze {path} --shapes-from-run feeds.npz" in done.err
    assert not PLACEHOLDER.search(done.err)
