"""What users get wrong: one line on standard error, the documented exit code, nothing written, nothing left behind."""

from __future__ import annotations

import errno
import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from memsched.base.errors import ModelError
from memsched.cli.main import INTERNAL
from memsched.formats.staging import describe
from tests import small_models
from tests.cli.conftest import Outcome, Run
from tests.formats import tflite_builder
from tests.formats.tflite_builder import O, Sub, T
from tests.outcomes import refused
from tests.small_models import branches, chain, floats, model_of

TFLITE = tflite_builder.build(tflite_builder.branches(size=64))
CLI = [sys.executable, "-m", "memsched"]


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def refused_model(done: Outcome, *about: str) -> None:
    """One line on what is wrong with a model, which names what it is about; whatever that is."""
    assert isinstance(done.error, ModelError), (done.code, done.err)
    refused(done, done.error.code, *about)


def refused_by_process(done: subprocess.CompletedProcess[str], *about: str) -> None:
    """The same, of a command in another process, whose error is not at hand."""
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith("memsched: error: ")
    assert INTERNAL not in done.stderr
    assert [one for one in about if one not in done.stderr] == []


def onnx_graph(*nodes: tuple[str, list[str], list[str]], shape: tuple[int | str | None, ...] = (1, 8)) -> bytes:
    """A model of (type, inputs, outputs) from x to y."""
    made = [helper.make_node(kind, inputs, outputs) for kind, inputs, outputs in nodes]
    return model_of(made, [floats("x", shape)], [floats("y", shape)])


def tflite_graph(*ops: O, tensors: int = 4, **more: object) -> bytes:
    return tflite_builder.build(Sub([T(f"t{i}") for i in range(tensors)], ops, [0], [tensors - 1], **more))  # type: ignore[arg-type]


def without_shapes() -> bytes:
    """The output shape of an unknown domain's op, which no inference gives."""
    nodes = [helper.make_node("Mystery", ["x"], ["a"], domain="com.example"), helper.make_node("Relu", ["a"], ["y"])]
    graph = helper.make_graph(nodes, "main", [floats("x", [1, 8])], [floats("y", None)])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    return bytes(helper.make_model(graph, opset_imports=imports, ir_version=9).SerializeToString())


def escaping_external_data() -> bytes:
    weight = numpy_helper.from_array(np.zeros((1, 8), np.float32), "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "../secret.bin"), ("offset", "0"), ("length", "32")):
        weight.external_data.add(key=key, value=value)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    return model_of([node], [floats("x", [1, 8])], [floats("y", [1, 8])], [weight])


MODELS: dict[str, tuple[Callable[[], bytes], str, tuple[str, ...]]] = {
    "an empty file": (lambda: b"", "empty-file", ()),
    "text": (lambda: b"this is not a model, whatever its name says\n" * 20, "not-a-model", ()),
    "a picture": (lambda: b"\x89PNG\r\n\x1a\n" + bytes(200), "not-a-model", ()),
    "zeros": (lambda: bytes(4096), "not-a-model", ()),
    "only the identifier of TFLite": (lambda: b"\x1c\x00\x00\x00TFL3", "damaged", ()),
    "ONNX cut in half": (lambda: branches()[: len(branches()) // 2], "not-onnx", ()),
    "ONNX without its last byte": (lambda: branches()[:-1], "not-onnx", ()),
    "TFLite cut in half": (lambda: TFLITE[: len(TFLITE) // 2], "damaged", ()),
    "TFLite cut after its root": (lambda: TFLITE[:40], "damaged", ()),
    "ONNX without a graph": (lambda: bytes(onnx.ModelProto(ir_version=9).SerializeToString()), "not-onnx", ()),
    "ONNX cyclic": (
        lambda: onnx_graph(("Add", ["x", "b"], ["a"]), ("Relu", ["a"], ["b"]), ("Neg", ["b"], ["y"])),
        "read-too-early",
        ("'b'",),
    ),
    "ONNX reading itself": (lambda: onnx_graph(("Add", ["x", "y"], ["y"])), "read-too-early", ()),
    "ONNX missing tensor": (lambda: onnx_graph(("Add", ["x", "nowhere"], ["y"])), "no-producer", ("nowhere",)),
    "ONNX missing output": (lambda: onnx_graph(("Relu", ["x"], ["a"])), "no-producer", ("y",)),
    "ONNX two producers": (lambda: onnx_graph(("Relu", ["x"], ["y"]), ("Neg", ["x"], ["y"])), "two-producers", ("y",)),
    "ONNX producing its input": (
        lambda: onnx_graph(("Relu", ["x"], ["x"]), ("Neg", ["x"], ["y"])),
        "two-producers",
        ("x",),
    ),
    "ONNX unknown domain without shapes": (without_shapes, "unknown-shape", ("'a'",)),
    "ONNX negative dimension": (
        lambda: onnx_graph(("Relu", ["x"], ["y"]), shape=(-4, 8)),
        "negative-dimension",
        ("-4",),
    ),
    "ONNX absurd shape": (lambda: onnx_graph(("Relu", ["x"], ["y"]), shape=(2**62, 2**62)), "absurd-size", ("x",)),
    "ONNX external data outside its folder": (escaping_external_data, "external-data", ("../secret.bin",)),
    "TFLite out of order": (
        lambda: tflite_graph(O("EXP", [1], [2]), O("EXP", [0], [1]), O("EXP", [2], [3])),
        "read-too-early",
        ("t1",),
    ),
    "TFLite cyclic": (
        lambda: tflite_graph(O("ADD", [0, 2], [1]), O("EXP", [1], [2]), O("EXP", [2], [3])),
        "read-too-early",
        (),
    ),
    "TFLite tensor that does not exist": (lambda: tflite_graph(O("EXP", [77], [3])), "stored-tensor-index", ("77",)),
    "TFLite two producers": (lambda: tflite_graph(O("EXP", [0], [3]), O("ABS", [0], [3])), "stored-twice", ("t3",)),
    "TFLite without subgraphs": (tflite_builder.build, "no-subgraph", ()),
    "TFLite negative dimension": (
        lambda: tflite_builder.build(Sub([T("a", (1, -8)), T("b", (1, -8))], [O("EXP", [0], [1])], [0], [1])),
        "open-size",
        ("'a'",),
    ),
    "TFLite absurd shape": (
        lambda: tflite_builder.build(Sub([T("a", [2**31 - 1] * 4), T("b")], [O("EXP", [0], [1])], [0], [1])),
        "absurd-size",
        (),
    ),
}


@pytest.mark.parametrize("command", ["optimize", "analyze"])
@pytest.mark.parametrize("case", MODELS)
def test_bad_models(run: Run, tmp_path: Path, case: str, command: str) -> None:
    make, code, about = MODELS[case]
    path = tmp_path / "model.bin"
    path.write_bytes(make())
    before = snapshot(tmp_path)
    done = run(command, path)
    refused(done, code, *about)
    assert isinstance(done.error, ModelError)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("suffix", [".onnx", ".tflite"])
def test_bit_flips_never_end_in_a_traceback(run: Run, tmp_path: Path, suffix: str) -> None:
    """A damaged file is refused in one line, or it still is a model; nothing else."""
    good = branches() if suffix == ".onnx" else TFLITE
    rng = random.Random(7)
    path, out = tmp_path / f"model{suffix}", tmp_path / f"out{suffix}"
    refusals = 0
    for _ in range(150):
        damaged = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(damaged))
            damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        done = run("optimize", path, "-o", out, "--no-verify", "-q", "--time-limit", "5")
        if done.code:
            refused_model(done)
            assert list(snapshot(tmp_path)) == [path.name], bytes(damaged)
            refusals += 1
        else:
            out.unlink()
            out.with_suffix(".json").unlink()
    assert refusals > 20


@pytest.mark.parametrize("suffix", [".onnx", ".tflite"])
def test_every_truncation_is_refused(run: Run, tmp_path: Path, suffix: str) -> None:
    good = branches() if suffix == ".onnx" else TFLITE
    path = tmp_path / f"model{suffix}"
    for length in range(0, len(good), 31):
        path.write_bytes(good[:length])
        done = run("optimize", path, "--no-verify", "-q")
        if done.code or suffix == ".tflite":
            refused_model(done)
            assert list(snapshot(tmp_path)) == [path.name]
        else:
            # A cut between two fields of a protobuf message leaves a valid, shorter one.
            for written in tmp_path.glob("model_memsched*"):
                written.unlink()


@pytest.mark.parametrize("command", ["optimize", "analyze"])
def test_no_such_file(run: Run, tmp_path: Path, command: str) -> None:
    refused(run(command, tmp_path / "none.onnx"), "no-such-file", "none.onnx")
    assert not snapshot(tmp_path)


@pytest.mark.parametrize("command", ["optimize", "analyze"])
def test_a_folder_as_model(run: Run, tmp_path: Path, command: str) -> None:
    refused(run(command, tmp_path), "is-a-folder", str(tmp_path))
    refused(run(command, "/"), "is-a-folder", "'/'")
    assert not snapshot(tmp_path)


def test_a_file_as_folder(run: Run, model: Path) -> None:
    refused(run("optimize", model / "net.onnx"), "not-a-folder")


def test_a_name_with_a_zero_byte_or_far_too_long(run: Run, tmp_path: Path) -> None:
    refused(run("analyze", "a\0b.onnx"), "unreadable", "b.onnx")
    refused(run("analyze", tmp_path / ("a" * 5000)), "unreadable")


def test_no_read_permission(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(self: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(self))

    monkeypatch.setattr(Path, "read_bytes", denied)
    refused(run("optimize", model), "unreadable", "net.onnx", os.strerror(errno.EACCES))
    monkeypatch.undo()
    assert list(snapshot(model.parent)) == ["net.onnx"]


def test_missing_external_data_is_said_not_refused(run: Run, tmp_path: Path) -> None:
    path = small_models.external_branches(tmp_path)
    (tmp_path / "weights.bin").unlink()
    done = run("optimize", path, "--no-verify", "-v")
    assert done.code == 0
    assert "weights.bin" in done.out


OUTPUTS: dict[str, tuple[list[str], str, tuple[str, ...]]] = {
    "a folder that does not exist": (["-o", "fodler/out.onnx"], "no-such-folder", ("fodler",)),
    "a report's folder that does not exist": (
        ["-o", "out.onnx", "--report", "fodler/out.json"],
        "no-such-folder",
        ("fodler/out.json",),
    ),
    "a level that is none": (["-o3"], "level-or-output", ("-O3", "./3")),
    "an output without an ending": (["-o", "out"], "file-ending", (".onnx",)),
    "a budget of half a byte": (["--budget", "0.5"], "fraction-of-byte", ("--budget", "0.5M")),
    "a target of another format": (["--target", "tflm"], "other-format", ("TFLite", "--target onnxruntime")),
    "output is a folder": (["-o", "folder"], "output-is-folder", ("'folder'",)),
    "report is a folder": (["--report", "folder"], "output-is-folder", ("'folder'",)),
    "output below a file": (["-o", "net.onnx/out.onnx"], "not-a-folder", ("net.onnx'",)),
    "output far below a file": (["-o", "net.onnx/new/out.onnx"], "not-a-folder", ("net.onnx'",)),
    "output is the input": (["-o", "net.onnx"], "would-overwrite", ("--force",)),
    "output in another format": (["-o", "out.tflite"], "other-format", ("out.tflite", ".onnx")),
    "output is the input by another name": (["-o", "folder/../net.onnx"], "would-overwrite", ("--force",)),
    "report is the input": (["--report", "net.onnx", "--force"], "same-file", ("net.onnx",)),
    "report is the output": (["-o", "a.onnx", "--report", "a.onnx"], "same-file", ("a.onnx",)),
    "both to standard output": (["-o", "-", "--json"], "stdout-twice", ("-o", "--report")),
    "both to standard output by name": (["-o", "-", "--report", "-"], "stdout-twice", ("-o", "--report")),
    "output name too long": (["-o", "a" * 300], "unwritable", ()),
    "output in a device": (["-o", "/dev/null/out.onnx"], "not-a-folder", ("/dev/null'",)),
    "a full device": (["-o", "/dev/full", "--report", "out.json"], "disk-full", ("/dev/full",)),
    "a full device for the report": (["-o", "out.onnx", "--report", "/dev/full"], "disk-full", ("/dev/full",)),
}


@pytest.mark.parametrize("case", OUTPUTS)
def test_bad_outputs(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    arguments, code, words = OUTPUTS[case]
    monkeypatch.chdir(model.parent)
    Path("folder").mkdir()
    before = snapshot(model.parent)
    refused(run("optimize", "net.onnx", "--no-verify", *arguments), code, *words)
    assert snapshot(model.parent) == before


SHAPE = "NAME=1,3,224,224"
OPTIONS: dict[str, tuple[list[str], str, tuple[str, ...]]] = {
    "no model": ([], "missing-parameter", ("MODEL",)),
    "two models": (["net.onnx", "net.onnx"], "usage-error", ("net.onnx",)),
    "unknown option": (["net.onnx", "--bugdet", "1"], "no-such-option", ("--bugdet", "--budget")),
    "unknown solver": (["net.onnx", "--solver", "magic"], "bad-parameter", ("--solver", "magic", "cpsat")),
    "unknown target": (["net.onnx", "--target", "onnxruntme"], "no-such-target", ("'onnxruntme'", "'onnxruntime'?")),
    "target file missing": (["net.onnx", "--target", "none.toml"], "no-such-target-file", ("none.toml",)),
    "target file broken": (["net.onnx", "--target", "broken.toml"], "target-not-toml", ("broken.toml",)),
    "budget no size": (["net.onnx", "--budget", "lots"], "bad-budget", ("--budget", "'lots'", "256KB", "50%")),
    "budget negative": (["net.onnx", "--budget", "-5"], "bad-budget", ("--budget", "'-5'", "256KB")),
    "time limit negative": (["net.onnx", "--time-limit", "-1"], "option-range", ("--time-limit",)),
    "time limit no number": (["net.onnx", "--time-limit", "soon"], "bad-parameter", ("--time-limit", "soon")),
    "time limit nan": (["net.onnx", "--time-limit", "nan"], "option-range", ("--time-limit",)),
    "seed negative": (["net.onnx", "--seed", "-1"], "option-range", ("--seed",)),
    "seed too large": (["net.onnx", "--seed", str(2**40)], "option-range", ("--seed",)),
    "no worker": (["net.onnx", "--workers", "0"], "option-range", ("--workers",)),
    "input shape without a name": (["net.onnx", "--shape", "1,2"], "option-unparsable", ("'1,2'", SHAPE)),
    "input shape without numbers": (["net.onnx", "--shape", "x=a,b"], "option-unparsable", ("'x=a,b'", SHAPE)),
    "input shape negative": (["net.onnx", "--shape", "x=1,-2"], "option-unparsable", ("--shape",)),
    "input shape twice": (["net.onnx", "--shape", "x=1", "--shape", "x=2"], "named-twice", ("'x'",)),
    "input shape of no input": (["net.onnx", "--shape", "z=1,16,16"], "no-such-tensor", ("--shape z",)),
    "dim without a value": (["net.onnx", "--dim", "height"], "option-unparsable", ("'height'", "NAME=8")),
    "dim twice": (["net.onnx", "--dim", "h=1", "--dim", "h=2"], "named-twice", ("--dim", "'h'")),
    "dim that the model has not": (["net.onnx", "--dim", "height=8"], "no-such-dimension", ("--dim height",)),
    "allow what is not there": (["net.onnx", "--allow", "reorder,magic"], "bad-parameter", ("magic", "remat")),
    "pins for TFLite": (["net.tflite", "--order-guarantee", "pins"], "other-format", ("--order-guarantee", "ONNX")),
    "control dependencies for ONNX": (["net.onnx", "--control-dependencies"], "other-format", ("TFLite",)),
    "input shape for TFLite of another rank": (
        ["net.tflite", "--shape", "x=9,9,9"],
        "other-rank",
        ("--shape x", "2"),
    ),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    arguments, code, words = OPTIONS[case]
    monkeypatch.chdir(model.parent)
    Path("net.tflite").write_bytes(TFLITE)
    Path("broken.toml").write_text("alignment_bytes = [")
    before = snapshot(model.parent)
    refused(run("optimize", "--no-verify", *arguments), code, *words)
    assert snapshot(model.parent) == before


def test_standard_input_without_an_output_name(run: Run) -> None:
    refused(run("optimize", "-"), "no-output-name", "-o")


@pytest.mark.parametrize("data", [b"", b"no model", branches()[:100]])
def test_bad_standard_input(tmp_path: Path, data: bytes) -> None:
    done = subprocess.run(
        [*CLI, "optimize", "-", "-o", "out.onnx"], input=data, capture_output=True, cwd=tmp_path, check=False
    )
    texts = (done.stdout.decode(), done.stderr.decode())
    refused_by_process(subprocess.CompletedProcess(done.args, done.returncode, *texts), describe("-"))
    assert not snapshot(tmp_path)


def test_a_terminal_as_standard_input(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    refused(run("analyze", "-"), "terminal", "< model.onnx")


def test_a_full_disk(model: Path) -> None:
    """The limit on file sizes stands for a disk with room for nothing: it fails in the same system call."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    command = [*CLI, "optimize", str(model), "--no-verify"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit, check=False)
    refused_by_process(done, "net_memsched.onnx", os.strerror(errno.EFBIG))
    assert list(snapshot(model.parent)) == ["net.onnx"]


@pytest.mark.parametrize("call", ["fsync", "write"])
def test_a_disk_that_fails_while_writing(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    def failing(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    if call == "fsync":
        monkeypatch.setattr(os, "fsync", failing)
    else:
        monkeypatch.setattr("tempfile.mkstemp", failing)
    refused(run("optimize", model, "--no-verify"), "unwritable", os.strerror(errno.EIO))
    assert list(snapshot(model.parent)) == ["net.onnx"]


def test_a_write_protected_folder(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model.parent / "protected"
    folder.mkdir()
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(folder) and access(path, mode))
    refused(run("optimize", model, "-o", folder / "out.onnx"), "no-permission", "out.onnx")
    assert list(folder.iterdir()) == []


def test_a_write_protected_output(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = model.parent / "out.onnx"
    out.write_bytes(b"old")
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: str(path) != str(out) and access(path, mode))
    refused(run("optimize", model, "-o", out), "no-permission", "out.onnx")
    assert out.read_bytes() == b"old"


def test_verify_refuses_models_of_two_formats(run: Run, model: Path) -> None:
    other = model.parent / "net.tflite"
    other.write_bytes(TFLITE)
    refused(run("verify", model, other), "other-format", "ONNX", "TFLite")
    refused(run("verify", model, model.parent / "none.onnx"), "no-such-file", "none.onnx")
    refused(run("verify", other, other, "--rtol", "0.1"), "other-format", "--rtol", "--atol")


def test_names_that_a_terminal_would_act_on(run: Run, tmp_path: Path) -> None:
    """Names come from the model: escape sequences in them are shown, not sent."""
    path = tmp_path / "net.onnx"
    path.write_bytes(onnx_graph(("Add", ["x", "evil\x1b[2J\nname"], ["y"])))
    done = run("analyze", path)
    refused_model(done)
    assert "evil\\x1b[2J" in done.err
    assert "\x1b" not in done.err
    path.write_bytes(onnx_graph(("Relu", ["x"], ["a\x1b[31m"]), ("Neg", ["a\x1b[31m"], ["y"])))
    done = run("analyze", path)
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "a\\x1b[31m" in done.out


def test_chain_is_a_good_model(run: Run, tmp_path: Path) -> None:
    """The cases above fail for their own reason: the same model without the fault is taken."""
    path = tmp_path / "net.onnx"
    for good in (chain(), TFLITE, onnx_graph(("Relu", ["x"], ["a"]), ("Neg", ["a"], ["y"]))):
        path.write_bytes(good)
        assert run("optimize", path, "--no-verify").code == 0
