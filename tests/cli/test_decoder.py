"""``memsched decoder`` on the command line: the file, the report, what fits, and refusals."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import onnx
import pytest

from memsched.base.errors import ModelError
from memsched.report.schema import json_schema
from tests.cli.conftest import Run
from tests.cli.written import names
from tests.formats.onnx.decoders.nets import decoder

SCHEMA = jsonschema.Draft202012Validator(json_schema("decoder"))
SHORT = ("--tokens", "24", "--chunk", "5")


@pytest.fixture
def words(tmp_path: Path) -> Path:
    path = tmp_path / "words.onnx"
    onnx.save(decoder(mask="past + length"), path)
    return path


def test_model_report_and_code(run: Run, words: Path) -> None:
    done = run("decoder", words, *SHORT, "--budget", "1GB", "-v")
    assert done.code == 0, done.err
    assert names(words.parent) == ["words.onnx", "words_in_place.json", "words_in_place.onnx"]
    report = json.loads((words.parent / "words_in_place.json").read_text())
    SCHEMA.validate(report)
    assert [one["bytes_per_token"] for one in report["caches"]] == [32] * 4
    assert [(one["phase"], one["tokens"]) for one in report["phases"]] == [
        *(("prompt", count) for count in (4, 8, 16)),
        *(("token", count) for count in (4, 8, 16)),
    ]
    assert report["budget"]["met"]
    for line in report["code"]:
        assert line in done.out


def test_what_does_not_fit_is_exit_code_3(run: Run, words: Path) -> None:
    done = run("decoder", words, *SHORT, "--budget", "1KB", "-q")
    assert done.code == 3
    assert "24 tokens" in done.err
    assert run("decoder", words, *SHORT, "--budget", "1KB").code == 3
    assert names(words.parent) == ["words.onnx"]
    assert run("decoder", words, *SHORT, "--budget", "1KB", "--keep-best", "-q").code == 3
    assert names(words.parent) == ["words.onnx", "words_in_place.json", "words_in_place.onnx"]


def test_the_report_alone_to_a_program(run: Run, words: Path) -> None:
    done = run("decoder", words, *SHORT, "--json", "-q")
    SCHEMA.validate(json.loads(done.out))
    assert done.err == ""


@pytest.mark.parametrize(
    ("more", "code", "about"),
    [
        (("--length", "tokens_in"), "no-such-dimension", "'length'"),
        (("--tokens", "8"), "bad-parameter", "--tokens"),
        (("--dim", "batch"), "option-unparsable", "NAME=8"),
    ],
)
def test_refusals_write_nothing(run: Run, words: Path, more: tuple[str, ...], code: str, about: str) -> None:
    run("decoder", words, *SHORT, *more).failed(code, about)
    assert names(words.parent) == ["words.onnx"]


def test_a_model_without_caches_is_told_so(run: Run, model: Path) -> None:
    done = run("decoder", model)
    done.failed("no-decoder")
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [("decoder",), ("doctor",), ("optimize", "--dim", "n=1..4")])
def test_a_file_that_is_no_model_is_one_line(run: Run, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"this is no model")
    done = run(*arguments, junk)
    assert isinstance(done.error, ModelError)
    done.failed(done.error.code, str(junk))
    assert done.err.count("\n") == 1
    assert names(tmp_path) == ["junk.onnx"]
