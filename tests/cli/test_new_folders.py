"""Only a folder for several files is made, where the one above it is there: a path that was mistyped makes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsched.formats.staging import StagedFiles, check_writable, staged_files
from tests import small_models
from tests.cli.conftest import Run
from tests.failures import fails
from tests.formats.onnx.decoders.nets import decoder

ROOT = Path(__file__).resolve().parent.parent.parent
SPEECH = ROOT / "models" / "micro_speech_quantized.tflite"
CSV = "id,lower,upper,size\na,0,2,64\nb,1,3,64\n"

FILES = {
    "optimize": ("optimize net.tflite --no-verify --target tflm -o a/net.tflite --report b/net.json --header c/net.h"),
    "optimize as C": (
        "optimize net.tflite --no-verify --target tflm -o a/n.tflite --html b/net.html --c-array c/net.c"
    ),
    "analyze": ("analyze net.onnx --report a/net.json --html b/net.html --frontier --effort 0.1 --plot c/frontier.svg"),
    "allocate": "allocate a.csv -o a/out.csv --report b/out.json",
    "decoder": "decoder words.onnx --tokens 20 --chunk 5 -o a/net.onnx --report b/out.json",
    "doctor": "doctor net.onnx --effort 1 --report a/out.json --html b/out.html",
    "report": "report r.json -o a/page.html",
}
"""Command to its arguments, which name files in folders a, b and c."""

FOLDERS = {
    "pipeline": (
        "pipeline net.tflite --stages 2 --no-verify",
        "net_segment_1_of_2.tflite net_segment_2_of_2.tflite net_pipeline.json",
    ),
    "relay": ("relay net.tflite --target tflm-reference --no-verify", "net_relay.h net_relay.cc net_relay.json"),
    "distribute": ("distribute net.onnx --cluster pi4x4 --effort 0.1 --no-run", "plan.json"),
    "batch": ("batch net.onnx --no-verify", "batch.json"),
}
"""Command to its arguments but for the folder, and files that it is to write there."""


@pytest.fixture
def place(model: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(model.parent)
    Path("a.csv").write_text(CSV)
    Path("net.tflite").write_bytes(SPEECH.read_bytes())
    Path("words.onnx").write_bytes(decoder().SerializeToString())
    return model.parent


@pytest.mark.parametrize("command", FILES)
def test_a_file_makes_no_folder(run: Run, place: Path, command: str) -> None:
    if command == "report":
        assert run("analyze", "net.onnx", "--report", "r.json", "-q").code == 0
    before = sorted(place.rglob("*"))
    words = FILES[command].split()
    folders = [folder for folder in "abc" if any(word.startswith(f"{folder}/") for word in words)]
    for missing in folders:
        for folder in folders:
            Path(folder).mkdir()
        Path(missing).rmdir()
        done = run(*words, "-q")
        done.failed("no-such-folder", f"{missing}'")
        assert done.err.count("\n") == 1
        for folder in folders:
            Path(folder).rmdir() if folder != missing else None
        assert sorted(place.rglob("*")) == before


@pytest.mark.parametrize("command", FOLDERS)
def test_a_folder_for_several_files_is_made(run: Run, place: Path, command: str) -> None:
    arguments, files = FOLDERS[command]
    run(*arguments.split(), "-o", "new/deep", "-q").failed("no-such-folder", "new'")
    assert not Path("new").exists()
    done = run(*arguments.split(), "-o", "new", "-q")
    assert (done.code, done.err) == (0, "")
    for file in files.split():
        assert Path("new", file).stat().st_size > 0


def test_weights_are_put_beside_the_model(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = small_models.external_branches(tmp_path)
    Path("a").mkdir()
    before = sorted(tmp_path.rglob("*"))
    full = run("optimize", path, "--no-verify", "-o", "a/net.onnx", "--report", "/dev/full")
    assert full.code == 1
    assert sorted(tmp_path.rglob("*")) == before
    assert run("optimize", path, "--no-verify", "-o", "a/net.onnx", "-q").code == 0
    assert sorted(one.name for one in Path("a").iterdir()) == ["net.json", "net.onnx", "weights.bin"]


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
    targets = {"not-a-folder": tmp_path / "file" / "new" / "a", "unwritable": tmp_path / ("a" * 300) / "b"}
    for code, target in targets.items():
        with fails(code, str(target)):
            check_writable(str(target))
    check_writable(str(tmp_path / "new" / "deep" / "a"), within=str(tmp_path / "new"))
    for name, within in (("new/a", None), ("new/deep/a", "new/deep"), ("new/a", "other")):
        with fails("no-such-folder", name):
            check_writable(str(tmp_path / name), within=None if within is None else str(tmp_path / within))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
