"""Which tests `make test` runs, and in which order the others follow: hooks of pytest.

The quick suite runs whatever takes less than half a second of processor time, and of each file some dearer tests: one
case of a function, the cheapest functions first, until the allowance of the file is spent. What takes long is in
seconds.tsv, which `make seconds` measures; a test that is not there is cheap, or new. All others are the rest. Files
that are named on the command line are run in full.
"""

from __future__ import annotations

import gc
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

__all__ = ["Draws", "cheapest_first", "known_seconds", "quick_of"]

TABLE = Path(__file__).with_name("seconds.tsv")

DEAR = 0.5
"""Processor seconds from which a test is dear."""

ALLOWANCE = 1.0
"""Processor seconds of dear tests per file."""

Draws: TypeAlias = Callable[[int, int], int]
"""Chooses between a few draws and all."""

LATE = "no time was left"
SPENT = "processor seconds"
_BEGUN = pytest.StashKey[float]()
_SHARED = pytest.StashKey[dict[tuple[str, str], float]]()


def quick_of(ids: Sequence[str], seconds: Mapping[str, float], always: Collection[str] = ()) -> set[str]:
    """Return the tests of the quick suite.

    Args:
        seconds: Of the dear tests.
        always: Tests that are in it whatever they take.
    """
    quick = {one for one in ids if one not in seconds or one in always}
    tested = {_function(one) for one in quick}
    dear: dict[str, list[str]] = defaultdict(list)
    for one in cheapest_first(set(ids) - quick, seconds):
        dear[_file(one)].append(one)
    files = {_file(one) for one in quick}
    for file, ordered in dear.items():
        spent = 0.0
        for one in ordered:
            function = _function(one)
            if function not in tested and (spent + seconds[one] <= ALLOWANCE or file not in files):
                quick.add(one)
                tested.add(function)
                files.add(file)
                spent += seconds[one]
    return quick


def cheapest_first(ids: Collection[str], seconds: Mapping[str, float]) -> list[str]:
    """Return tests in the order of what they take, by their names where they take the same."""
    return sorted(ids, key=lambda one: (seconds.get(one, 0.0), one))


def _function(one: str) -> str:
    return one.partition("[")[0]


def _file(one: str) -> str:
    return one.partition("::")[0]


def known_seconds() -> dict[str, float]:
    """Return the processor seconds of the dear tests, as they were measured."""
    rows = [line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()]
    return {name: float(seconds) for name, seconds in rows}


# Hooks of pytest -----------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("suites")
    group.addoption("--suite", choices=("quick", "rest", "all"), help="which tests; default: quick, all of named files")
    group.addoption("--until", type=float, help="start no test after this time, seconds since 1970, and list these")
    group.addoption("--seconds", action="store_true", help=f"measure processor times for {TABLE.name}")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "quick: the test, or the case, is in the quick suite whatever it takes")
    if config.option.suite is None:
        config.option.suite = "all" if _files_are_named(config) else "quick"


def _files_are_named(config: pytest.Config) -> bool:
    return config.args_source is pytest.Config.ArgsSource.ARGS


@pytest.fixture
def draws(request: pytest.FixtureRequest) -> Draws:
    """Choose between a few draws, for the quick suite, and all: ``draws(few, all)``. The test is in both suites."""
    quick = request.config.option.suite == "quick"
    return lambda few, every: few if quick else every


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    suite = config.option.suite
    if suite == "all":
        return
    seconds = known_seconds()
    by_id = {one.nodeid: one for one in items}
    both = {name for name, one in by_id.items() if "draws" in getattr(one, "fixturenames", ())}
    marked = {name for name, one in by_id.items() if one.get_closest_marker("quick")}
    quick = quick_of(list(by_id), seconds, both | marked)
    if suite == "quick":
        left = [one for one in items if one.nodeid not in quick]
        items[:] = [one for one in items if one.nodeid in quick]
    else:
        left = [one for one in items if one.nodeid in quick - both]
        items[:] = [by_id[name] for name in cheapest_first(set(by_id) - quick | both, seconds)]
    if left:
        config.hook.pytest_deselected(items=left)


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests and modules stay to the end: no collection of garbage is to go through them


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    # What another test paid for counts, too: it is there only if somebody makes it.
    shared = item.config.stash.setdefault(_SHARED, {})
    names = getattr(item, "fixturenames", ())
    used = [seconds for (name, base), seconds in shared.items() if name in names and item.nodeid.startswith(base)]
    item.stash[_BEGUN] = _spent() - sum(used)
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.option.until
    if until is not None and time.time() > until:
        pytest.skip(LATE)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Iterator[None]:
    before = _spent()
    try:
        return (yield)
    finally:
        if fixturedef.scope != "function":
            shared = request.config.stash.setdefault(_SHARED, {})
            shared[fixturedef.argname, fixturedef.baseid] = _spent() - before


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        item.user_properties.append((SPENT, _spent() - item.stash[_BEGUN]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    late = [one.nodeid for one in terminalreporter.getreports("skipped") if LATE in str(one.longrepr)]
    if late:
        terminalreporter.section(f"left out, as {LATE}: {len(late)} tests")
        for function, count in sorted(Counter(map(_function, late)).items()):
            terminalreporter.line(f"{function} ({count})" if count > 1 else function)
    if config.option.seconds:
        said = [one for kind in terminalreporter.stats.values() for one in kind if isinstance(one, pytest.TestReport)]
        spent = {one.nodeid: _seconds_of(one) for one in said if one.when == "teardown"}
        whole = config.option.suite == "all" and not _files_are_named(config)
        known = {} if whole else known_seconds()
        rows = [f"{name}\t{seconds:.1f}\n" for name, seconds in sorted((known | spent).items()) if seconds >= DEAR]
        TABLE.write_text("".join(rows), encoding="utf-8")
        terminalreporter.section(f"{sum(spent.values()):.0f} processor seconds; the dearest tests")
        for name in reversed(cheapest_first(spent, spent)[-20:]):
            terminalreporter.line(f"{spent[name]:6.1f} {name}")


def _seconds_of(report: pytest.TestReport) -> float:
    return next(float(str(value)) for name, value in report.user_properties if name == SPENT)


def _spent() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)
