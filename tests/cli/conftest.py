"""Runs commands in this process and keeps what they said; a small model to run them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from memsched.cli import main as command_line
from memsched.errors import MemschedError
from tests import small_models
from tests.failures import check_failure


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str
    error: MemschedError | None = None

    def failed(self, code: str, *about: str) -> None:
        """Check that it ended with an error of this code, in one line that names what it is about."""
        check_failure(self.error, code, *about)
        assert self.error is not None
        assert self.code == self.error.exit_code
        assert self.err.splitlines()[-1].startswith("memsched: error: ")


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call the command line with arguments; returns exit code, standard output, standard error, and the error."""
    errors: list[MemschedError] = []
    said = command_line.said

    def noted(error: MemschedError, words: Sequence[str]) -> str:
        errors.append(error)
        return said(error, words)

    monkeypatch.setattr(command_line, "said", noted)

    def call(*arguments: object) -> Outcome:
        capsys.readouterr()
        errors.clear()
        code = command_line.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err, errors[-1] if errors else None)

    return call


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    path.write_bytes(small_models.branches())
    return path
