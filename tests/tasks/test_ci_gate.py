"""A gate in CI: the baseline is kept, and a model that needs more memory does not pass."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT, command_with, follow
from tests.formats import tflite_builder

PAGE = "docs/diff.md"
EXAMPLES = ROOT / "docs" / "examples"
BASELINE = command_with(PAGE, "make memory-baseline")
CHECK = command_with(PAGE, "make memory-check")


def commit(branches: int) -> None:
    """Write the model that a change brings; with more branches it needs more."""
    Path("models/net.tflite").write_bytes(tflite_builder.build(tflite_builder.branches(branches)))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a model, and memsched on the path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    Path("models").mkdir()
    commit(3)
    shutil.copy(EXAMPLES / "Makefile", tmp_path)
    return tmp_path


def make(command: str, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*shlex.split(command), *more], capture_output=True, text=True, check=False)


def test_two_reports_are_compared(tmp_path: Path) -> None:
    follow(PAGE, tmp_path, {"run"})


def test_the_makefile_and_the_workflow_catch_a_regression(project: Path) -> None:
    summary = project / "summary.md"
    environment = {**os.environ, "GITHUB_STEP_SUMMARY": str(summary)}

    def step(command: str) -> int:
        return subprocess.run(["bash", "-e", "-c", command], env=environment, check=False).returncode

    workflow = (EXAMPLES / "github-actions.yml").read_text()
    install, optimise, compare = re.findall(r"^ +run: (.+)$", workflow, re.MULTILINE)
    assert install.startswith("pip install")
    assert make(BASELINE).returncode == 0
    assert make(CHECK).returncode == 0
    assert [step(optimise), step(compare)] == [0, 0]
    assert "| model |" not in summary.read_text()
    commit(6)
    done = make(CHECK)
    assert done.returncode != 0
    assert "Error 3" in done.stderr
    assert re.search(r"required grew by \S+ ", done.stdout)
    assert [step(optimise), step(compare)] == [0, 3]
    assert "| <code>models/net.tflite</code> | larger |" in summary.read_text()


def test_a_missed_budget_is_a_baseline_and_no_regression(project: Path) -> None:
    assert make(BASELINE, "BUDGET=1KB").returncode == 0
    assert json.loads(Path("memory_baseline.json").read_text())["models"][0]["status"] == "budget_missed"
    assert make(CHECK, "BUDGET=1KB").returncode == 0
    met = Path("memory_baseline.json").read_text().replace('"budget_met": false', '"budget_met": true')
    Path("memory_baseline.json").write_text(met)
    assert make(CHECK, "BUDGET=1KB").returncode != 0
    # A batch that could not be run at all leaves nothing of an earlier one to be judged.
    assert make(CHECK, "BUDGET=1KB", "TARGET=none").returncode != 0
    assert not Path("build/memory/batch.json").exists()
