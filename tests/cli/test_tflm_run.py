"""What the command line shows of models that ran in TensorFlow Lite Micro itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsched.runtimes.tflm import verification
from tests.cli.conftest import Run
from tests.formats.tflite_builder import MODELS
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
    assert "otherwise than predicted: measured head 32 + tail 1,472 = 1,504 B" in " ".join(done.out.split())
    done = run("verify", path, path, "--runtime", "tflm")
    assert "please report it" in " ".join(done.out.split())


def test_verify_runs_where_it_is_told_to(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes((MODELS / "person_detect.tflite").read_bytes())
    done = run("verify", path, path, "--runtime", "tflm")
    assert done.code == 0, done.err
    assert "arena of B: measured 55,296 B head + 29,968 B tail, as predicted" in done.out
    assert "bit-equal on 3 random inputs in tflite-micro" in done.out
    # LiteRT does not load it.
    assert run("verify", path, path).code == 1
    done = run("verify", path, path, "--runtime", "onnxruntime")
    assert done.code == 2
    assert "onnxruntime runs no TFLite models" in done.err
