"""Folders that do not exist are made by every command that writes, and none is left where nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsched.errors import OutputError
from memsched.formats.staging import StagedFiles, check_writable, staged_files
from tests import small_models
from tests.cli.conftest import Run
from tests.formats.onnx.decoders.nets import decoder

ROOT = Path(__file__).resolve().parent.parent.parent
SPEECH = ROOT / "models" / "micro_speech_quantized.tflite"
CSV = "id,lower,upper,size\na,0,2,64\nb,1,3,64\n"

COMMANDS = {
    "optimize": (
        "optimize net.tflite --no-verify --target tflm -o a/b/net.tflite --report c/d/net.json --header e/f/net.h",
        "a/b/net.tflite c/d/net.json e/f/net.h",
    ),
    "optimize as C": (
        "optimize net.tflite --no-verify --target tflm -o a/b/net.tflite --html c/d/net.html --c-array e/f/net.c",
        "a/b/net.tflite a/b/net.json c/d/net.html e/f/net.c",
    ),
    "analyze": (
        "analyze net.onnx --report a/b/net.json --html c/d/net.html --frontier --effort 0.1 --plot e/f/frontier.svg",
        "a/b/net.json c/d/net.html e/f/frontier.svg",
    ),
    "allocate": ("allocate a.csv -o a/b/out.csv --report c/d/out.json", "a/b/out.csv c/d/out.json"),
    "pipeline": (
        "pipeline net.tflite --stages 2 --no-verify -o a/b --report c/d/out.json",
        "a/b/net_segment_1_of_2.tflite a/b/net_segment_2_of_2.tflite c/d/out.json",
    ),
    "relay": (
        "relay net.tflite --target tflm-reference --no-verify -o a/b --report c/d/out.json",
        "a/b/net_relay.h a/b/net_relay.cc c/d/out.json",
    ),
    "decoder": (
        "decoder words.onnx --tokens 20 --chunk 5 -o a/b/net.onnx --report c/d/out.json",
        "a/b/net.onnx c/d/out.json",
    ),
    "distribute": ("distribute net.onnx --cluster pi4x4 --effort 0.1 --no-run -o a/b", "a/b/plan.json"),
    "batch": ("batch net.onnx --no-verify -o a/b", "a/b/batch.json"),
    "doctor": ("doctor net.onnx --effort 1 --report a/b/out.json", "a/b/out.json"),
}
"""Command to its arguments and the files that it is to write."""


@pytest.mark.parametrize("command", COMMANDS)
def test_they_are_made(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.chdir(model.parent)
    Path("a.csv").write_text(CSV)
    Path("net.tflite").write_bytes(SPEECH.read_bytes())
    Path("words.onnx").write_bytes(decoder().SerializeToString())
    arguments, files = COMMANDS[command]
    done = run(*arguments.split(), "-q")
    assert (done.code, done.err) == (0, "")
    for file in files.split():
        assert Path(file).stat().st_size > 0


def test_a_page_gets_its_folder(run: Run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(model.parent)
    assert run("analyze", model, "--report", "r.json", "-q").code == 0
    assert run("report", "r.json", "-o", "a/b/page.html").code == 0
    assert Path("a/b/page.html").is_file()


def test_weights_beside_the_model_get_theirs(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = small_models.external_branches(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    full = run("optimize", path, "--no-verify", "-o", "a/b/net.onnx", "--report", "/dev/full")
    assert full.code == 1
    assert sorted(tmp_path.rglob("*")) == before
    assert run("optimize", path, "--no-verify", "-o", "a/b/net.onnx", "-q").code == 0
    assert sorted(one.name for one in Path("a/b").iterdir()) == ["net.json", "net.onnx", "weights.bin"]


def test_nothing_is_left_of_what_was_not_committed(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with staged_files() as files:
        files.add(tmp_path / "there" / "new" / "a", b"a")
        files.add(tmp_path / "other" / "deep" / "b", b"b")
        assert (tmp_path / "other" / "deep").is_dir()
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


def test_what_another_put_there_stays(tmp_path: Path) -> None:
    files = StagedFiles()
    files.add(tmp_path / "a" / "b" / "c", b"c")
    (tmp_path / "a" / "mine").write_bytes(b"mine")
    files.discard()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["mine"]


def test_a_folder_that_cannot_be_made_is_refused_before_any_time_is_spent(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for target in (tmp_path / "file" / "new" / "a", tmp_path / ("a" * 300) / "b"):
        with pytest.raises(OutputError, match="cannot be written"):
            check_writable(str(target))
    check_writable(str(tmp_path / "new" / "deep" / "a"))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
