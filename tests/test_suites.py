"""Which tests `make test` leaves to `make test-all`, and what .ci/run says of those that it has no time for."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import suites
from tests.suites import ALLOWANCE, cheapest_first, quick_of

ROOT = Path(__file__).parents[1]

_SHARES = {
    "a.py::many[1]": 0.45,
    "a.py::many[2]": 0.3,
    "a.py::partly[dear]": 0.35,
    "a.py::one": 0.6,
    "a.py::two": 0.65,
    "a.py::three": 0.7,
    "b.py::only": 40.0,
    "b.py::dearer": 41.0,
}
SECONDS = {name: share * ALLOWANCE for name, share in _SHARES.items()}
IDS = ("a.py::cheap", "a.py::partly[cheap]", *SECONDS)


def test_cheap_tests_are_all_run_and_of_dear_ones_one_case_each_within_the_allowance() -> None:
    quick = quick_of(IDS, SECONDS)
    assert quick == {"a.py::cheap", "a.py::partly[cheap]", "a.py::many[2]", "a.py::one", "b.py::only"}
    dear = sum(SECONDS[one] for one in quick if one in SECONDS and one.startswith("a"))
    assert dear <= ALLOWANCE < dear + SECONDS["a.py::two"]


def test_what_is_dear_does_not_depend_on_the_order_of_the_tests() -> None:
    assert quick_of(IDS[::-1], SECONDS) == quick_of(IDS, SECONDS)
    assert cheapest_first(IDS[::-1], SECONDS) == cheapest_first(IDS, SECONDS)


def test_what_is_wanted_whatever_it_takes_is_run_and_costs_no_allowance() -> None:
    assert quick_of(IDS, SECONDS, {"b.py::dearer"}) - quick_of(IDS, SECONDS) == {"b.py::dearer"}
    assert "b.py::only" not in quick_of(IDS, SECONDS, {"b.py::dearer"})


def test_no_file_is_left_out_as_a_whole() -> None:
    names = set(suites.known_seconds())
    assert {one.partition("::")[0] for one in quick_of(sorted(names), suites.known_seconds())} == {
        one.partition("::")[0] for one in names
    }


TESTS = """
import pytest

def test_cheap(draws): assert draws(2, 5) == {draws}

@pytest.mark.parametrize("case", [0, 1, 2, pytest.param(3, marks=pytest.mark.quick)])
def test_dear(case): pass

def test_other(): pass
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Tests of which most are dear."""
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = .\n")
    (tmp_path / "conftest.py").write_text(
        "from tests import suites\n"
        "pytest_plugins = ['tests.suites']\n"
        "seconds = {f'test_some.py::test_dear[{n}]': (1.5 - n / 2) * suites.ALLOWANCE for n in range(3)}\n"
        "seconds |= {'test_some.py::test_dear[3]': 9.0, 'test_some.py::test_other': suites.ALLOWANCE * 3 / 4}\n"
        "suites.known_seconds = lambda: seconds\n"
    )
    return tmp_path


def run(project: Path, *options: object, draws: int) -> tuple[int, str, list[str]]:
    """Return the exit code of pytest, what it printed, and the tests that passed, in this order."""
    (project / "test_some.py").write_text(TESTS.replace("{draws}", str(draws)))
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *map(str, options)]
    done = subprocess.run(
        command, cwd=project, env={"PYTHONPATH": str(ROOT), "PATH": ""}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, re.findall(r"::(\S+) PASSED", done.stdout)


def test_the_quick_suite_and_the_rest_are_all(project: Path) -> None:
    assert run(project, draws=2)[2] == ["test_cheap", "test_dear[3]", "test_other"]
    rest = ["test_cheap", "test_dear[2]", "test_dear[1]", "test_dear[0]"]
    assert run(project, "--suite", "rest", draws=5)[2] == rest
    every = ["test_cheap", *(f"test_dear[{number}]" for number in range(4)), "test_other"]
    assert run(project, "--suite", "all", draws=5)[2] == every
    assert run(project, "test_some.py", draws=5)[2] == every, "named files are run in full"


def test_what_there_is_no_time_for_is_listed_and_no_failure(project: Path) -> None:
    code, printed, passed = run(project, "--suite", "rest", "--until", time.time() - 1, draws=5)
    assert (code, passed) == (0, [])
    assert re.search(r"\b4 tests", printed)
    assert re.findall(r"(?m)^test_some.py::\w+(?: \(\d+\))?$", printed) == [
        "test_some.py::test_cheap",
        "test_some.py::test_dear (3)",
    ]
    code, printed, passed = run(project, "--suite", "rest", "--until", time.time() + 1000, draws=5)
    assert (code, len(passed), re.findall(r"(?m)^test_some.py::\w+(?: \(\d+\))?$", printed)) == (0, 4, [])


def test_a_failure_is_one_whatever_was_left_out(project: Path) -> None:
    assert run(project, "--suite", "rest", "--until", time.time() + 1000, draws=6)[0] == 1
