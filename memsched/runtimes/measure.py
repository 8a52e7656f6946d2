"""What a model takes in a process of its own, measured the same way in every runtime.

A runtime says how it opens a model (`Opener`). That value travels to a fresh process, which runs the model until its
memory has stopped growing (`measure`), or runs two in turns (`race_models`).

The first runs are not the steady state. An arena keeps what the first run of a size took, asks for as much again as one
block in a later run, and grows once more for a size that it does not know. Figures are those of Linux (``/proc/self``).
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from memsched.base.frozen import FrozenValue
from memsched.base.units import KIB
from memsched.runtimes.child import run_in_child
from memsched.runtimes.race import IDLE, Race, RaceRule, race
from memsched.runtimes.values import one_line
from memsched.search.heap import trim

__all__ = ["LEAST_RUNS", "LEAST_RUNS_OF_BODIES", "LITTLE_CHANCE", "MOST_RUNS", "PROCESSES", "STEADY_SECONDS"]
__all__ += ["Arena", "Counts", "Measured", "Opener", "OwnFigures", "Raced", "RunnableModel", "SteadyRule"]
__all__ += ["forget_highest", "measure", "measure_here", "middle", "process_bytes", "race_here", "race_models"]
__all__ += ["race_two"]

_MEASURE: Final = "memsched.runtimes.measure:measure_here"
_RACE: Final = "memsched.runtimes.measure:race_here"

LEAST_RUNS: Final = 5
"""Runs at least: the last growth of files without bodies was seen in the third."""

LEAST_RUNS_OF_BODIES: Final = 20
"""The same of files with bodies (If, Loop, Scan), each of which has a memory pattern of its own, or none."""

MOST_RUNS: Final = 40

STEADY_SECONDS: Final = 60.0
"""After which no further run of one process begins: figures that did not settle until then say so."""

PROCESSES: Final = 3
"""Processes, or further sessions, of a model where what one takes may be chance: the middle one is what is usual."""

LITTLE_CHANCE: Final = 256_000_000
"""Bytes of a process from which what is chance, 10 MB of unet's, is a few percent."""

_FURTHER: Final = 2
"""Passes over all sizes that must add nothing."""

_LEAST_PASSES: Final = _FURTHER + 1

_NOTHING: Final = 0.005
"""Share of what a process takes that counts as no growth: steady ones were seen to grow by 0.3 % in 20 runs."""

_COUNTED_LATE: Final = 1 << 17
"""Bytes that the system may count in a later run only: it counts pages by the batch."""


class Arena(FrozenValue, frozen=True):
    """What a runtime's own arena holds, bytes.

    Attributes:
        rest: In use while nothing runs.
        highest: In use at most.
        held: What it has taken from the system in the end.
    """

    rest: int
    highest: int
    held: int


class OwnFigures(FrozenValue, frozen=True):
    """What a runtime itself says of a model, bytes.

    Attributes:
        requested: Activations that were requested at most, in the first run or a later one; None if it does not say.
        weights: Of the graph that it makes of the file; 0 where it was not asked.
        arena: None if it does not say.
    """

    requested: int | None = None
    weights: int = 0
    arena: Arena | None = None


class RunnableModel(Protocol):
    """A model that is open in a runtime; sizes are numbers of inputs that take turns."""

    def start(self, size: int) -> None:
        """Make a run of a size ready; its memory counts, its time does not."""

    def run(self, size: int) -> None:
        """Run once, after `start`."""

    def outputs(self, size: int) -> Sequence[Any]:
        """Run once, after `start`, and return the outputs."""


class Opener(FrozenValue, frozen=True):
    """How a runtime opens a model. Its fields travel to the process, where `prepare` and `own_figures` are called."""

    @property
    def sizes(self) -> int:
        """How many sizes take turns."""
        return 1

    def prepare(self) -> Callable[[], RunnableModel]:
        """Load what is no part of what is measured; return what opens the model."""
        raise NotImplementedError

    def own_figures(self) -> OwnFigures:
        """Return what the runtime says of the model, opened once more for that."""
        return OwnFigures()


class SteadyRule(FrozenValue, frozen=True):
    """How long a model is run, and which of the process's memory is its peak.

    Attributes:
        least: Runs at least.
        most: Runs at most, but three passes over all sizes.
        seconds: After which no further pass begins, if each size ran twice; None for no limit.
        peak_from: From when on the highest memory is the peak: what goes before is told apart.
    """

    least: int = LEAST_RUNS
    most: int = MOST_RUNS
    seconds: float | None = STEADY_SECONDS
    peak_from: Literal["opening", "first run", "second run"] = "opening"

    def is_met(self, clock: Sequence[float], peaks: Sequence[int], before: int) -> bool:
        """Return whether the last passes added no memory.

        Args:
            clock: Seconds of each run.
            peaks: The highest memory of the process at the end of each pass.
            before: Memory of the process without the model, bytes.
        """
        if len(clock) < self.least or len(peaks) < _LEAST_PASSES:
            return False
        return peaks[-1] - peaks[-1 - _FURTHER] <= max(_NOTHING * (peaks[-1] - before), _COUNTED_LATE)

    def is_over(self, clock: Sequence[float], peaks: Sequence[int], sizes: int, seconds: float) -> bool:
        """Return whether no further pass over the sizes begins after so many seconds."""
        late = self.seconds is not None and len(peaks) >= _FURTHER and seconds > self.seconds
        return late or len(clock) >= max(self.most, _LEAST_PASSES * sizes)


class Counts(FrozenValue, frozen=True):
    """Bytes of a process that are resident, and of these what no file backs and what files do."""

    resident: int = 0
    private: int = 0
    files: int = 0

    @classmethod
    def now(cls) -> Counts:
        """Return what this process has."""
        return cls(process_bytes("VmRSS:"), process_bytes("RssAnon:"), process_bytes("RssFile:"))

    def above(self, before: Counts) -> Counts:
        """Return by how much this is more."""
        return Counts(self.resident - before.resident, self.private - before.private, self.files - before.files)


class Raced(FrozenValue, frozen=True):
    """A model that took turns with another one.

    Attributes:
        race: The other one first; without rounds for that one.
        busy: Whether other programs used the processors: threads that wait busily for one without a processor count.
        own: What the runtime says of it.
    """

    race: Race = Race(())
    busy: bool = False
    own: OwnFigures = OwnFigures()

    @property
    def ratio(self) -> float | None:
        """The median ratio of its processor time to the other's; None where there was none."""
        return self.race.processor if self.race.rounds else None


class Measured(FrozenValue, frozen=True):
    """What a model took in a fresh process; bytes are above what that had before.

    Attributes:
        peak: The highest memory since what `SteadyRule.peak_from` says.
        earlier: The highest before that.
        opened: What the process had when the model was open.
        rest: The same after the last run.
        clock: Seconds of each run.
        processor: Processor seconds of each run, all threads together.
        sizes: How many sizes took turns.
        settled: Whether the process stopped growing; otherwise time or runs ended first.
        digests: Of the outputs of a further run of each size: equal ones are equal bit by bit.
        own: What the runtime says.
        raced: Its turns with another model; None where there was none.
    """

    peak: int
    earlier: int = 0
    opened: Counts = Counts()
    rest: Counts = Counts()
    clock: tuple[float, ...] = ()
    processor: tuple[float, ...] = ()
    sizes: int = 1
    settled: bool = True
    digests: tuple[str, ...] = ()
    own: OwnFigures = OwnFigures()
    raced: Raced | None = None

    @property
    def runs(self) -> int:
        """How many runs there were until the process stopped growing."""
        return len(self.clock)

    @property
    def requested(self) -> int | None:
        """What the runtime says was requested at most, bytes."""
        return self.own.requested

    @property
    def ratio(self) -> float | None:
        """Processor time beside that of the model that it took turns with, the median; None where there was none."""
        return None if self.raced is None else self.raced.ratio

    @property
    def private(self) -> int:
        """What no file backs of the process after the last run, bytes."""
        return max(0, self.rest.private)

    @property
    def processor_seconds(self) -> float:
        """Processor seconds of the run that took least, the first one left out."""
        return min(self.processor[1:] or self.processor)

    def seconds(self, size: int = -1) -> float:
        """Return the seconds of the quickest run of a size, the first run left out; by default of the last size."""
        times = self.clock[size % self.sizes :: self.sizes]
        return min(times[1:] or times)


def measure(
    opener: Opener,
    rule: SteadyRule,
    *,
    beside: Opener | None = None,
    turns: RaceRule | None = None,
    timeout: float | None = None,
) -> Measured | str:
    """Return what a model takes in a process of its own; or why it did not run.

    Args:
        beside: A model that it takes turns with in being timed, by the rule ``turns``.
        timeout: Seconds after which the process is ended.
    """
    request = {
        "openers": [_sent(one) for one in (opener, beside) if one is not None],
        "rule": msgspec.to_builtins(rule),
        "turns": msgspec.to_builtins(turns),
    }
    result = run_in_child(_MEASURE, request, timeout)
    return msgspec.convert(result.value, Measured) if result.ok else result.reason


def race_models(openers: Sequence[Opener], turns: RaceRule, *, timeout: float | None = None) -> tuple[Raced | str, ...]:
    """Run models in turns with the first of them, all in one process; return why in place of those that do not run."""
    request = {"openers": [_sent(one) for one in openers], "turns": msgspec.to_builtins(turns)}
    result = run_in_child(_RACE, request, timeout)
    if not result.ok:
        return (result.reason,) * len(openers)
    return tuple(msgspec.convert(one, Raced | str) for one in result.value)


def race_two(first: Opener, second: Opener, turns: RaceRule, *, timeout: float | None = None) -> Race | str:
    """Run two models in turns in one process; return why if they do not run."""
    found = race_models((first, second), turns, timeout=timeout)[1]
    return found if isinstance(found, str) else found.race


def middle(runs: Sequence[Measured]) -> Measured:
    """Return, of what several processes of a model took, the one whose peak is in the middle: some of it is chance."""
    return sorted(runs, key=lambda one: one.peak)[len(runs) // 2]


def _sent(opener: Opener) -> dict[str, Any]:
    kind = type(opener)
    return {"kind": f"{kind.__module__}:{kind.__qualname__}", "fields": msgspec.to_builtins(opener)}


def _received(sent: Mapping[str, Any]) -> Opener:
    module, _, name = sent["kind"].partition(":")
    opener: Opener = msgspec.convert(sent["fields"], getattr(importlib.import_module(module), name))
    return opener


def measure_here(request: Mapping[str, Any]) -> Any:
    """Do what `measure` asks for, in the child process."""
    opener, *beside = (_received(one) for one in request["openers"])
    found = _measured(opener, msgspec.convert(request["rule"], SteadyRule))
    if beside:
        raced = _in_turns(beside[0], opener, msgspec.convert(request["turns"], RaceRule))
        found = msgspec.structs.replace(found, raced=raced)
    return msgspec.to_builtins(found)


def race_here(request: Mapping[str, Any]) -> Any:
    """Do what `race_models` asks for, in the child process."""
    openers = [_received(one) for one in request["openers"]]
    turns = msgspec.convert(request["turns"], RaceRule)
    return [
        msgspec.to_builtins(_attempt(openers[0] if number else None, one, turns)) for number, one in enumerate(openers)
    ]


def _attempt(first: Opener | None, opener: Opener, turns: RaceRule) -> Raced | str:
    try:
        found = Raced() if first is None else _in_turns(first, opener, turns)
        return msgspec.structs.replace(found, own=opener.own_figures())
    except Exception as error:  # runtimes raise classes of their own
        return one_line(error)


def _measured(opener: Opener, rule: SteadyRule) -> Measured:
    """Open a model in this process, run it until two further passes add no memory, and return what that took."""
    opens = opener.prepare()
    # What measuring takes itself, the first time, is no part of the model.
    _run_until_steady(_Nothing(), rule, opener.sizes)
    gc.collect()
    # A model that lies in free blocks of the heap would seem to take less.
    trim()
    forget_highest()
    before = Counts.now()
    model = opens()
    opened, earlier = Counts.now(), process_bytes("VmHWM:")
    runs = _run_until_steady(model, rule, opener.sizes, before.resident)
    rest = Counts.now()
    digests = tuple(_digest(model, size) for size in range(opener.sizes))
    del model
    return Measured(
        peak=max(0, runs.peaks[-1] - before.resident),
        earlier=max(0, (runs.earlier or earlier) - before.resident),
        opened=opened.above(before),
        rest=rest.above(before),
        clock=tuple(runs.clock),
        processor=tuple(runs.processor),
        sizes=opener.sizes,
        settled=rule.is_met(runs.clock, runs.peaks, before.resident),
        digests=digests,
        own=opener.own_figures(),
    )


class _Nothing:
    """A `RunnableModel` of no operators."""

    def start(self, size: int) -> None:
        """Do nothing."""

    def run(self, size: int) -> None:
        """Do nothing."""

    def outputs(self, size: int) -> Sequence[Any]:
        """Return none."""
        del size
        return ()


@dataclass
class _Runs:
    """Runs so far: seconds of each, the highest memory after each pass, and the highest before it was forgotten."""

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    earlier: int = 0


def _run_until_steady(model: RunnableModel, rule: SteadyRule, sizes: int, before: int = 0) -> _Runs:
    """Run an open model, all sizes in turns, until a rule is met or ends it; ``before`` as in `SteadyRule.is_met`."""
    runs = _Runs()
    model.start(0)
    if rule.peak_from == "first run":
        gc.collect()
        forget_highest()
    began = time.monotonic()
    while not rule.is_met(runs.clock, runs.peaks, before):
        if rule.is_over(runs.clock, runs.peaks, sizes, time.monotonic() - began):
            break
        for size in range(sizes):
            model.start(size)
            started, worked = time.perf_counter(), time.process_time()
            model.run(size)
            runs.clock.append(time.perf_counter() - started)
            runs.processor.append(time.process_time() - worked)
            if len(runs.clock) == 1 and rule.peak_from == "second run":
                runs.earlier = process_bytes("VmHWM:")
                forget_highest()
        runs.peaks.append(process_bytes("VmHWM:"))
    return runs


def _digest(model: RunnableModel, size: int) -> str:
    """Return a digest of what a model gives; nothing that this loads counts, as the figures are known before."""
    from memsched.runtimes.compare import digest

    model.start(size)
    return digest(model.outputs(size))


def _in_turns(first: Opener, second: Opener, turns: RaceRule) -> Raced:
    """Run two models in turns in this process."""
    models = [one.prepare()() for one in (first, second)]
    waited, worked = _waited_seconds(), time.process_time()
    found = race(
        partial(_pass, models[0], first.sizes),
        partial(_pass, models[1], second.sizes),
        turns,
        start=lambda place: models[place].start(0),
    )
    return Raced(found, _waited_seconds() - waited > IDLE * (time.process_time() - worked))


def _pass(model: RunnableModel, sizes: int) -> None:
    """Run all sizes, of which the first was made ready before."""
    for size in range(sizes):
        if size:
            model.start(size)
        model.run(size)


def process_bytes(name: str) -> int:
    """Return what the system counts of this process under a name of ``/proc/self/status``, such as "VmHWM:".

    Raises:
        OSError: It does not count that.
    """
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * KIB
    raise OSError(f"/proc/self/status has no {name}")


def forget_highest() -> None:
    """Begin a new highest value of the process's memory."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _waited_seconds() -> float:
    """Return how long the threads of this process were ready to compute and had no processor; 0 if not shown."""
    waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # threads end
            waited += int(path.read_text(encoding="ascii").split()[1])
    return waited / 1e9
