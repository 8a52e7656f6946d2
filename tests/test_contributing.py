"""The examples in CONTRIBUTING.md apply to the package as it is, and what they add passes its tests."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIFFS = re.findall(
    r"^```diff\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
SOLVER, OPERATOR, OPTION = range(3)
"""Which of them is which; the solver is a task of tests/tasks."""


def test_there_is_an_example_of_a_solver_of_an_operator_and_of_an_option() -> None:
    assert len(DIFFS) == 3
    assert "+++ b/memsched/solve/schedule/" in DIFFS[SOLVER]
    assert "+++ b/memsched/ops/" in DIFFS[OPERATOR]


def extend(number: int, folder: Path) -> None:
    """Apply an example to a copy of the repository in ``folder``, and run the tests that it adds."""
    leave = shutil.ignore_patterns("__pycache__", "data")
    for name in ("memsched", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=leave)
    shutil.copy(ROOT / "pyproject.toml", folder)
    diff = DIFFS[number]
    done = subprocess.run(["git", "apply", "-"], input=diff, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    added = re.findall(r"^\+\+\+ b/(tests/\S+)", diff, re.MULTILINE)
    assert added
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *added]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_operator_applies_and_passes_its_tests(tmp_path: Path) -> None:
    extend(OPERATOR, tmp_path)


def test_the_option_reaches_its_code_through_three_files(tmp_path: Path) -> None:
    assert len(re.findall(r"^\+\+\+ b/memsched/", DIFFS[OPTION], re.MULTILINE)) <= 3
    extend(OPTION, tmp_path)
