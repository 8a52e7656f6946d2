"""The commands that docs/batch.md and docs/diff.md show do what the pages say."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests import small_models
from tests.cli.conftest import Run
from tests.formats import tflite_builder

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def shown(page: str) -> list[list[str]]:
    """Return the words of each memsched command that a page shows."""
    lines = re.findall(r"^\$ memsched (.+)$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)
    return [shlex.split(line.partition(" > ")[0]) for line in lines]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the pages take for granted: models, a list of them, and two reports of one model."""
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/net.tflite").write_bytes(tflite_builder.build(tflite_builder.branches()))
    Path("models.txt").write_text("models/net.tflite\n")
    Path("net.onnx").write_bytes(small_models.branches())
    return tmp_path


def test_batches(run: Run, folder: Path) -> None:
    commands = [words for words in shown("batch.md") if "--dask" not in words]
    assert len(commands) == 2
    for words in commands:
        assert run(*words).code == 0
    assert {"batch.json", "batch.csv", "batch.html"} < {path.name for path in Path("optimized").iterdir()}


def test_diffs(run: Run, folder: Path) -> None:
    run("optimize", "net.onnx", "--report", "old.json", "--no-verify")
    run("optimize", "net.onnx", "--report", "new.json", "--no-verify", "--solver", "file")
    commands = shown("diff.md")
    assert commands
    for words in commands:
        assert run(*words).code == 3


def test_links_lead_somewhere() -> None:
    for page in ("batch.md", "diff.md", "terminal.md"):
        for link in re.findall(r"\]\(([^)#]+)\)", (DOCS / page).read_text(encoding="utf-8")):
            assert link.startswith("https://") or (DOCS / link).exists(), f"{page}: {link}"
