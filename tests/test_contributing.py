"""The examples in CONTRIBUTING.md apply to the package as it is, and what they add passes its tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DIFFS = re.findall(
    r"^```diff\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


def test_there_is_an_example_of_a_solver_and_of_an_operator() -> None:
    assert len(DIFFS) == 2


@pytest.mark.parametrize("number", range(len(DIFFS)))
def test_an_example_applies_and_passes_its_tests(number: int, tmp_path: Path) -> None:
    leave = shutil.ignore_patterns("__pycache__", "data")
    for folder in ("memsched", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    diff = DIFFS[number]
    done = subprocess.run(["git", "apply", "-"], input=diff, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    added = re.findall(r"^\+\+\+ b/(tests/\S+)", diff, re.MULTILINE)
    assert added
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *added]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
