"""What is measured of a fake runtime, whose memory and clock the test moves; and once of a real process."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import pytest

from memsched.runtimes import measure as module
from memsched.runtimes import race as racing
from memsched.runtimes.measure import (
    LEAST_RUNS,
    Measured,
    Opener,
    OwnFigures,
    Raced,
    SteadyRule,
    forget_highest,
    measure,
    measure_here,
    middle,
    process_bytes,
    race_here,
    race_models,
)
from memsched.runtimes.race import RaceRule

_BLOCK = 8 << 20
_BEFORE = 3 * _BLOCK


class Machine:
    """A process: its memory, the highest of it since that was forgotten, and its clock."""

    def __init__(self) -> None:
        self.memory = self.highest = _BEFORE
        self.files = 0
        self.now = self.worked = self.waited = 0.0
        self.events: list[str] = []

    def take(self, blocks: float) -> None:
        """Take memory."""
        self.memory += round(blocks * _BLOCK)
        self.highest = max(self.highest, self.memory)

    def touch(self, blocks: float) -> None:
        """Take memory and give it back."""
        self.take(blocks)
        self.take(-blocks)

    def forget(self) -> None:
        self.highest = self.memory

    def counted(self, name: str) -> int:
        return {
            "VmHWM:": self.highest,
            "VmRSS:": self.memory,
            "RssAnon:": self.memory - self.files,
            "RssFile:": self.files,
        }[name]

    def spend(self, seconds: float) -> None:
        self.now += seconds
        self.worked += 2 * seconds

    def perf_counter(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.worked

    def sleep(self, seconds: float) -> None:
        self.now += seconds


_machine = Machine()


class FakeOpener(Opener, frozen=True):
    """Opens a model that takes a block in each of the runs that are named.

    Attributes:
        lengths: Seconds of a run of each size.
        grows: Numbers of runs, the first of which is 1.
        opening: Blocks that are taken for a moment while it is opened.
        starting: Blocks that are taken for a moment before each run.
        first: The same in the first run.
        lasting: Blocks that it takes once it is open.
        gives: What it returns.
        waits: Seconds of a run in which another program has the processor.
    """

    lengths: tuple[float, ...] = (0.5,)
    grows: tuple[int, ...] = (1,)
    opening: float = 0.0
    starting: float = 0.0
    first: float = 0.0
    lasting: float = 1.0
    gives: float = 1.0
    waits: float = 0.0
    fails: bool = False

    @property
    def sizes(self) -> int:
        return len(self.lengths)

    def prepare(self) -> Callable[[], FakeModel]:
        _machine.touch(50)  # what loading takes is no part of it
        _machine.take(2)
        return lambda: FakeModel(self)

    def own_figures(self) -> OwnFigures:
        return OwnFigures(requested=77)


class FakeModel:
    """Such a model."""

    def __init__(self, opener: FakeOpener) -> None:
        if opener.fails:
            raise RuntimeError("no\n  operator")
        self.opener, self.ran = opener, 0
        _machine.touch(opener.opening)
        _machine.take(opener.lasting)
        _machine.files += 1 << 20
        _machine.events.append("open")

    def start(self, size: int) -> None:
        _machine.events.append(f"start {size}")
        _machine.touch(self.opener.starting)
        _machine.spend(0.25)

    def run(self, size: int) -> None:
        self.ran += 1
        _machine.events.append(f"run {size}")
        _machine.touch(self.opener.first if self.ran == 1 else 0.0)
        _machine.take(self.ran in self.opener.grows)
        _machine.spend(self.opener.lengths[size])
        _machine.waited += self.opener.waits

    def outputs(self, size: int) -> Sequence[Any]:
        _machine.events.append(f"outputs {size}")
        _machine.touch(100)
        return [np.full(3, self.opener.gives + size, np.float32)]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    fake = Machine()
    monkeypatch.setattr(sys.modules[__name__], "_machine", fake)
    monkeypatch.setattr(module, "process_bytes", fake.counted)
    monkeypatch.setattr(module, "forget_highest", fake.forget)
    monkeypatch.setattr(module, "_waited_seconds", lambda: fake.waited)
    monkeypatch.setattr(module, "time", fake)
    monkeypatch.setattr(racing, "time", fake)
    return fake


def taken(rule: SteadyRule | None = None, beside: FakeOpener | None = None, **fields: Any) -> Measured:
    """Return what is measured of such a model, in this process."""
    openers = [one for one in (FakeOpener(**fields), beside) if one is not None]
    request = {
        "openers": [module._sent(one) for one in openers],
        "rule": msgspec.to_builtins(rule or SteadyRule()),
        "turns": msgspec.to_builtins(RaceRule(2)),
    }
    return msgspec.convert(measure_here(request), Measured)


@pytest.mark.parametrize("grows", [(1,), (1, 2), (1, 2, 3), (1, 5), (1, 3, 5, 7, 9)])
def test_all_that_later_runs_keep_is_measured(grows: tuple[int, ...]) -> None:
    found = taken(grows=grows)
    assert found.settled
    assert found.peak == _BLOCK * (1 + len(grows))
    assert found.runs == max(LEAST_RUNS, max(grows) + 2)


def test_a_process_that_never_stops_growing_is_told_from_one_that_did() -> None:
    found = taken(grows=tuple(range(100)))
    assert not found.settled
    assert found.runs == 40


def test_a_file_may_ask_for_more_runs() -> None:
    assert taken(SteadyRule(least=20)).runs == 20


def test_sizes_take_turns_until_none_of_them_adds_memory(machine: Machine) -> None:
    found = taken(lengths=(0.5, 0.25, 0.125), grows=(1, 2, 3, 9))
    assert [one for one in machine.events if one.startswith("run")][:6] == ["run 0", "run 1", "run 2"] * 2
    assert found.settled
    assert found.peak == 5 * _BLOCK
    assert found.runs == 15
    assert [found.seconds(size) for size in range(3)] == [0.5, 0.25, 0.125]
    assert found.seconds() == 0.125
    assert found.processor_seconds == 0.25


def test_time_ends_what_has_not_settled() -> None:
    found = taken(SteadyRule(seconds=0.0), grows=(1, 2, 3, 4))
    assert not found.settled
    assert found.runs == 2


def test_figures_are_above_what_the_process_had_once_all_is_loaded() -> None:
    found = taken(lasting=4, grows=())
    assert (found.opened.resident, found.opened.private) == (4 * _BLOCK, 4 * _BLOCK - (1 << 20))
    assert (found.rest, found.peak, found.private) == (found.opened, 4 * _BLOCK, found.opened.private)
    assert found.rest.files == 1 << 20


@pytest.mark.parametrize(
    ("peak_from", "earlier", "peak"),
    [("opening", 20, 33), ("first run", 20, 33), ("second run", 33, 4)],
)
def test_the_peak_is_that_since_what_is_asked_for(
    peak_from: Literal["opening", "first run", "second run"], earlier: int, peak: int
) -> None:
    found = taken(SteadyRule(peak_from=peak_from), opening=20, lasting=3, first=30, grows=(1,))
    assert (found.earlier, found.peak) == (earlier * _BLOCK, peak * _BLOCK)


def test_what_opening_took_is_no_part_of_the_peak_of_runs() -> None:
    assert taken(SteadyRule(peak_from="opening"), opening=20).peak == 20 * _BLOCK
    assert taken(SteadyRule(peak_from="first run"), opening=20).peak == 2 * _BLOCK


def test_what_makes_runs_ready_counts_as_memory_and_not_as_time() -> None:
    found = taken(SteadyRule(peak_from="first run"), starting=6, grows=())
    assert found.peak == 7 * _BLOCK
    assert set(found.clock) == {0.5}


def test_digests_are_those_of_the_outputs_and_take_no_part_in_the_figures(machine: Machine) -> None:
    one, same, other = (taken(lengths=(0.5, 0.5), gives=gives) for gives in (1.0, 1.0, 2.0))
    assert one.peak == same.peak == 2 * _BLOCK
    assert len(set(one.digests)) == 2
    assert one.digests == same.digests
    assert other.digests[0] == one.digests[1]
    assert machine.events[-4:] == ["start 0", "outputs 0", "start 1", "outputs 1"]


def test_what_the_runtime_says_is_told() -> None:
    assert taken().requested == 77


def test_a_model_takes_turns_with_another() -> None:
    assert taken().ratio is None
    assert taken(lengths=(0.5,), beside=FakeOpener(lengths=(0.25,))).ratio == pytest.approx(2.0)


@pytest.mark.parametrize(("waits", "busy"), [(0.05, False), (0.5, True)])
def test_other_programs_on_the_processors_are_noticed(waits: float, busy: bool) -> None:
    found = taken(lengths=(0.5,), beside=FakeOpener(lengths=(0.5,), waits=waits), waits=waits).raced
    assert found is not None
    assert found.busy is busy


def test_models_are_raced_with_the_first_and_one_that_fails_is_told() -> None:
    openers = [FakeOpener(lengths=(0.25, 0.25)), FakeOpener(lengths=(1.0,)), FakeOpener(fails=True)]
    request = {"openers": [module._sent(one) for one in openers], "turns": msgspec.to_builtins(RaceRule(2))}
    first, second, third = race_here(request)
    assert msgspec.convert(first, Raced) == Raced(own=OwnFigures(requested=77))
    # Between its two sizes the first makes the second one ready, which a turn of all sizes takes as well.
    assert msgspec.convert(second, Raced).ratio == pytest.approx(1.0 / (0.25 + 0.25 + 0.25))
    assert third == "no operator"


def test_of_several_processes_the_middle_is_told() -> None:
    assert middle([Measured(5), Measured(1), Measured(3)]).peak == 3


class RealOpener(Opener, frozen=True):
    """A model that takes 64 MiB in every run, and leaves the process where it is told to."""

    ends: bool = False

    def prepare(self) -> Callable[[], RealModel]:
        if self.ends:
            sys.exit(3)
        return RealModel


class RealModel:
    """Such a model."""

    def start(self, size: int) -> None:
        """Do nothing."""

    def run(self, size: int) -> None:
        self.outputs(size)

    def outputs(self, size: int) -> Sequence[Any]:
        return [np.ones(64 << 20, np.uint8)]


linux = pytest.mark.skipif(sys.platform != "linux", reason="figures of /proc")


@linux
def test_the_highest_memory_of_a_fresh_process_is_measured() -> None:
    found = measure(RealOpener(), SteadyRule())
    assert not isinstance(found, str)
    assert found.settled
    assert 60 << 20 <= found.peak <= 80 << 20
    assert found.private < 16 << 20


@linux
def test_why_a_process_gave_no_figures_is_told() -> None:
    told = "the process ended with exit code 3"
    assert measure(RealOpener(ends=True), SteadyRule()) == told
    assert race_models([RealOpener(), RealOpener(ends=True)], RaceRule(1)) == (told, told)


@linux
def test_this_process_is_read() -> None:
    forget_highest()
    # The least first: a process that grows between two readings keeps them in order.
    private, resident, highest = (process_bytes(f"{name}:") for name in ("RssAnon", "VmRSS", "VmHWM"))
    assert highest >= resident >= private > 0
    with pytest.raises(OSError, match="VmNone:"):
        process_bytes("VmNone:")
