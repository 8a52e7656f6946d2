"""What the command line shows of models that ran in TensorFlow Lite Micro itself."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from memsched.base.errors import ModelError
from memsched.runtimes.tflm import verification
from tests.cli.conftest import Run
from tests.formats.tflite_builder import MODELS, O, Sub, T, build
from tests.outcomes import line_with
from tests.runtimes.tflm.interpreter import needs_tflm

pytestmark = needs_tflm


def test_an_arena_that_is_not_the_one_predicted_is_a_warning(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "predicted", lambda _: (16, 1472))
    path = tmp_path / "net.tflite"
    path.write_bytes((MODELS / "hello_world_int8.tflite").read_bytes())
    done = run("optimize", path, "--target", "tflm", "--effort", "1")
    assert done.code == 0
    assert re.search(r"\b32 .*1,472 .*1,504 B", " ".join(done.out.split()))
    done = run("verify", path, path, "--runtime", "tflm")
    for name in "AB":
        assert line_with(done.out, f" of {name}: ", " 32 B ", " 16 + 1,472 B", "report it")


def test_verify_runs_where_it_is_told_to(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes((MODELS / "person_detect.tflite").read_bytes())
    done = run("verify", path, path, "--runtime", "tflm")
    assert done.code == 0, done.err
    for figure in ("85,264 B", "55,296 B", "29,968 B", "tflite-micro"):
        assert figure in done.out
    # LiteRT does not load it.
    other = tmp_path / "other.tflite"
    other.write_bytes((MODELS / "hello_world_int8.tflite").read_bytes())
    for letter, models in (("A", (path, path)), ("B", (other, path))):
        done = run("verify", *models)
        done.failed("not-compared", f"{letter} ('{path}')", "Was 3. Tensor 33", "--runtime tflm")
        assert done.out == ""
        assert "as given" not in done.err
    run("verify", path, path, "--runtime", "onnxruntime").failed("other-format", "onnxruntime", "TFLite")


@pytest.mark.parametrize("runtime", ["litert", "tflm"])
def test_a_truncated_file_is_named_and_nothing_failed(run: Run, tmp_path: Path, runtime: str) -> None:
    sound, cut = tmp_path / "sound.tflite", tmp_path / "cut.tflite"
    sound.write_bytes((MODELS / "hello_world_int8.tflite").read_bytes())
    cut.write_bytes(sound.read_bytes()[:1000])
    for letter, models in (("A", (cut, sound)), ("B", (sound, cut))):
        done = run("verify", *models, "--runtime", runtime)
        assert isinstance(done.error, ModelError)
        done.failed(done.error.code, f"{letter} ('{cut}')")
        assert done.out == ""


def test_with_unknown_kernels_there_is_no_size_of_an_arena_unless_theirs_is_told(run: Run, tmp_path: Path) -> None:
    path, header = tmp_path / "net.tflite", tmp_path / "net.h"
    path.write_bytes(build(Sub([T("x"), T("y")], [O("CUSTOM:unheard-of", [0], [1])], [0], [1])))
    done = run("optimize", path, "--target", "tflm", "--header", header)
    assert done.code == 0, done.err
    assert "CUSTOM:unheard-of" in " ".join(done.out.split())
    if shutil.which("gcc") is None:
        pytest.skip("there is no C compiler")
    for flags, code in (([], 1), (["-DNET_KERNEL_BYTES=100u"], 0)):
        words = ["gcc", "-fsyntax-only", "-x", "c", *flags, str(header)]
        assert subprocess.run(words, capture_output=True, check=False).returncode == code
