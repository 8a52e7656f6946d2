"""Property tests draw the same cases in every run; `make test-random` draws others. No measured time decides."""

import math
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import settings

from memsched.base.errors import MemschedError
from memsched.cli import main as command_line
from memsched.commands.optimize import branch, finish, named_sessions, opening, session
from memsched.runtimes.onnxruntime import session_memory
from memsched.runtimes.process_memory import ProcessComparison
from memsched.runtimes.race import RaceRule, most_times
from tests.outcomes import Outcome, Run

pytest_plugins = ["tests.suites"]

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# A defect in one candidate must not be hidden by the next best one.
os.environ.setdefault("MEMSCHED_DEFECTS", "raise")

# Tests start hundreds of Pythons. Where the environment forbids to keep bytecode, each would compile every module anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


def _in_one_round(**rule: Any) -> RaceRule:
    """Time sessions in one round, not nine, where no time decides."""
    return RaceRule(**{**rule, "rounds": 1, "most": 1})


_JUDGES = (branch, finish, named_sessions, opening, session)
"""Modules in which a measured time decides."""

_TAKES_LONGER = ProcessComparison.takes_longer


@pytest.fixture(scope="session", autouse=True)
def _untimed() -> Iterator[None]:
    """Let any slowdown pass: on a busy machine two runs of one file differ by more than is permitted by default."""
    with pytest.MonkeyPatch.context() as patch:
        for judge in _JUDGES:
            patch.setattr(judge, "most_times", lambda _: math.inf)
        patch.setattr(ProcessComparison, "takes_longer", False)
        patch.setattr(session_memory, "RaceRule", _in_one_round)
        yield


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge times as users have it; the times are the test's own."""
    for judge in _JUDGES:
        monkeypatch.setattr(judge, "most_times", most_times)
    monkeypatch.setattr(ProcessComparison, "takes_longer", _TAKES_LONGER)
    monkeypatch.setattr(session_memory, "RaceRule", RaceRule)


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
