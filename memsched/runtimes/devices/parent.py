"""Runs a network that is shared out to several devices: one process per device, connected over the loopback interface.

The processes move in step: this one says when a step begins, which is when all have ended the one before. A process
that dies or does not answer in time ends the run; none is left behind, whatever happens here.
"""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from memsched.base.errors import ModelError, VerificationError
from memsched.base.shown import LONGEST_REASON
from memsched.runtimes.child import temporary_folder
from memsched.runtimes.devices.measured import ClusterRun, DeviceRun, PassTimes, ThrottledRun
from memsched.runtimes.devices.program import CALLER, ArrayAssembly, DeviceProgram, Send, Throttle
from memsched.search.limits import POLL_SECONDS
from memsched.search.messages import Channel, LostError
from memsched.search.processes import Death, start_process

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ClusterRunError", "run_cluster", "run_each", "time_cluster"]

_WORKER: Final = "memsched.runtimes.devices.worker"


class ClusterRunError(VerificationError):
    """A distributed run failed: a process died, did not answer in time, or reported an error."""


def run_cluster(
    programs: Sequence[DeviceProgram],
    given: Sequence[Sequence[Send]],
    model: Callable[[int, int], bytes],
    feeds: Mapping[str, np.ndarray[Any, Any]],
    *,
    runtime: str,
    patience_seconds: float = 120.0,
    on_start: Callable[[Sequence[int]], None] | None = None,
) -> ClusterRun:
    """Run the programs, one process each, and return what comes out and what was measured.

    Args:
        programs: One per device; all have the same number of steps.
        given: Per step what this process sends; keys are names of ``feeds``.
        model: (device, step) -> the model that the device runs in that step.
        runtime: What executes it, a `PartRuntime`: "package.module:Class".
        patience_seconds: The longest that loading, or one step, may take.
        on_start: Called with the ids of the processes once they run.

    Raises:
        ClusterRunError: A process died, reported an error or did not answer in time.
        ModelError: An element type is one that numpy does not have.
        OutputError: There is no room for temporary files.
    """
    _check_types(programs)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        team = stack.enter_context(_Team(folder, programs, model, runtime, patience_seconds))
        if on_start is not None:
            on_start(team.numbers)
        team.connect()
        started = time.perf_counter()
        for step, sends in enumerate(given):
            team.step(step, sends, feeds)
        seconds = time.perf_counter() - started
        return team.finish(seconds)


def run_each(
    programs: Sequence[DeviceProgram],
    given: Sequence[Sequence[Send]],
    model: Callable[[int, int], bytes],
    feeds: Sequence[Mapping[str, np.ndarray[Any, Any]]],
    *,
    runtime: str,
    patience_seconds: float = 120.0,
) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Run the programs on several feeds, one after the other, and return what comes out of each.

    Arguments and errors: as of `run_cluster`.
    """
    _check_types(programs)
    found = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        team = _Team(folder, programs, model, runtime, patience_seconds, passes=len(feeds), each=True)
        stack.enter_context(team)
        team.connect()
        for feed in feeds:
            for step, sends in enumerate(given):
                team.step(step, sends, feed)
            found.append(team.outputs())
        team.finish(0.0)
    return found


def time_cluster(
    programs: Sequence[DeviceProgram],
    given: Sequence[Sequence[Send]],
    model: Callable[[int, int], bytes],
    feeds: Mapping[str, np.ndarray[Any, Any]],
    throttles: Sequence[Throttle],
    *,
    runtime: str,
    slower: int = 1,
    passes: int = 3,
    patience_seconds: float = 120.0,
) -> ThrottledRun:
    """Run the programs several times, each process held to its throttle, and return what it took.

    A first pass, in which the runtime takes its memory, does not count. A step begins when the last device is done with
    the one before: to say so costs nothing, as in a cluster's model. Arguments and errors: as of `run_cluster`.

    Args:
        slower: Let everything take so many times as long: where this machine has fewer cores than the cluster has
            devices, processes do not wait for a core instead of their link.
    """
    _check_types(programs)
    throttles = [_slowed(one, slower) for one in throttles]
    result = []
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary_folder())
        team = _Team(folder, programs, model, runtime, patience_seconds, throttles=throttles, passes=1 + passes)
        stack.enter_context(team)
        team.connect()
        for _ in range(1 + passes):
            steps, computing = [], []
            started = time.perf_counter()
            for step, sends in enumerate(given):
                answers = team.step(step, sends, feeds, started)
                done = max(answer["done"] for answer in answers)
                steps.append((done - started) / slower)
                computing.append([answer["computing"] / slower for answer in answers])
                started = done
            result.append(PassTimes(tuple(steps), tuple(zip(*computing, strict=True))))
        team.finish(0.0)
    nodes = tuple(tuple(found.get(str(step), {}) for step in range(len(given))) for found in team.nodes)
    return ThrottledRun(tuple(result[1:]), slower, nodes)


def _slowed(throttle: Throttle, times: int) -> Throttle:
    return dataclasses.replace(
        throttle,
        cores=throttle.cores / times,
        seconds=tuple(times * one for one in throttle.seconds),
        bandwidth=throttle.bandwidth / times,
        latency=times * throttle.latency,
    )


def _check_types(programs: Sequence[DeviceProgram]) -> None:
    import numpy as np

    steps = [step for program in programs for step in program.steps]
    kinds = {one.dtype for step in steps for one in (*step.receives, *step.receives_ahead)}
    kinds.update(value.dtype for program in programs for _, value in program.outputs)
    for name in sorted(kinds):
        if name not in np.sctypeDict:
            problem = f"values of type {name} cannot be sent between processes"
            raise ModelError(problem, code="type-not-sent", action="use --no-run")


class _Team:
    """The processes of all devices and the connections to them."""

    def __init__(
        self,
        folder: Path,
        programs: Sequence[DeviceProgram],
        model: Callable[[int, int], bytes],
        runtime: str,
        patience: float,
        *,
        throttles: Sequence[Throttle] = (),
        passes: int = 1,
        each: bool = False,
    ) -> None:
        self._throttles, self._passes, self._each = throttles, passes, each
        self._folder, self._programs, self._model = folder, programs, model
        self._runtime, self._patience = runtime, patience
        self._token = secrets.token_bytes()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._control: list[Channel] = []
        self._briefings: list[threading.Thread] = []
        self._data: dict[int, socket.socket] = {}
        self._seconds: list[list[float]] = [[] for _ in programs]
        self._given = self._given_once = 0
        self.nodes: list[dict[str, dict[str, float]]] = []

    def __enter__(self) -> _Team:
        try:
            links = _links(self._programs)
            for device in range(len(self._programs)):
                self._start(device, links[device])
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        for briefing in self._briefings:
            briefing.join()
        for channel in self._control:
            channel.close()
        for connection in self._data.values():
            connection.close()

    @property
    def numbers(self) -> list[int]:
        """The processes' numbers."""
        return [process.pid for process in self._processes]

    def _start(self, device: int, links: Sequence[int]) -> None:
        place = self._folder / f"device_{device}"
        place.mkdir()
        paths: list[str | None] = []
        for step, one in enumerate(self._programs[device].steps):
            path = place / f"step_{step}.model"
            if one.run is not None:
                path.write_bytes(self._model(device, step))
            paths.append(str(path) if one.run is not None else None)
        request = {
            "device": device,
            "token": self._token,
            "links": list(links),
            "runtime": self._runtime,
            "models": paths,
            "program": dataclasses.asdict(self._programs[device]),
            "throttle": dataclasses.asdict(self._throttles[device]) if self._throttles else None,
            "passes": self._passes,
            "each": self._each,
        }
        with (place / "log").open("wb") as log:
            process, channel = start_process(_WORKER, folder=place, log=log)
        self._processes.append(process)
        self._control.append(channel)
        # In a thread, as a program may be longer than what a pipe takes unread: all start at once, none has to wait.
        briefing = threading.Thread(target=_brief, args=(channel, request), daemon=True)
        self._briefings.append(briefing)
        briefing.start()

    # Conversation ---------------------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Wait until all processes have loaded their models, and connect them with each other and with this one."""
        from memsched.runtimes.devices.wire import introduce

        deadline = time.monotonic() + self._patience
        ports = {str(device): answer["port"] for device, answer in enumerate(self._all(deadline, "loading its models"))}
        try:
            for device in range(len(self._programs)):
                self._control[device].tell({"ports": ports})
                self._data[device] = introduce(ports[str(device)], self._token, CALLER, self._patience)
        except (OSError, LostError):
            self._fail("connecting")
        self._all(deadline, "connecting")

    def step(
        self,
        step: int,
        sends: Sequence[Send],
        feeds: Mapping[str, np.ndarray[Any, Any]],
        start: float | None = None,
    ) -> list[dict[str, Any]]:
        """Let every process do a step; return their answers.

        Args:
            start: When it begins, as `time.perf_counter` counts: what paces are kept against; None without any.
        """
        from memsched.runtimes.devices.wire import LinkPace, send_array, send_to_all

        deadline = time.monotonic() + self._patience
        try:
            for device in range(len(self._programs)):
                self._control[device].tell({"step": step, "start": start})
            # The source of the inputs has a link like every device.
            link = self._throttles[0] if self._throttles and start is not None else None
            pace = None if link is None else LinkPace(link.bandwidth)
            if start is not None and link is not None and pace is not None:
                pace.begin(step, start + link.latency)
            for one in sends:
                array = _given_part(one.value, feeds)
                self._given_once += array.nbytes
                connections = [self._data[target] for target in one.targets]
                if link is not None and pace is not None:
                    self._given += send_to_all(connections, step, one.transfer, array, pace, once=link.once)
                else:
                    self._given += sum(send_array(each, step, one.transfer, array) for each in connections)
        except (OSError, LostError):
            self._fail(f"step {step}")
        answers = self._all(deadline, f"step {step}")
        for device, answer in enumerate(answers):
            self._seconds[device].append(answer["seconds"])
        return answers

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Take the outputs of a pass."""
        outputs: dict[str, np.ndarray[Any, Any]] = {}
        try:
            for device in range(len(self._programs)):
                self._control[device].tell({"finish": True})
            for device, program in enumerate(self._programs):
                for name, value in program.outputs:
                    outputs[name] = _output(self._data[device], value)
        except (OSError, LostError):
            self._fail("giving the outputs")
        return outputs

    def finish(self, seconds: float) -> ClusterRun:
        """Take outputs and measurements, and end all processes."""
        deadline = time.monotonic() + self._patience
        outputs = self.outputs()
        answers = self._all(deadline, "giving the outputs")
        self.nodes = [answer["nodes"] for answer in answers]
        devices = tuple(_device_run(answer, self._seconds[device]) for device, answer in enumerate(answers))
        return ClusterRun(outputs, devices, self._given, self._given_once, seconds, answers[0]["version"])

    def _all(self, deadline: float, doing: str) -> list[dict[str, Any]]:
        """Return the next message of every process."""
        import selectors

        answers: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for device in range(len(self._programs)):
                selector.register(self._control[device], selectors.EVENT_READ, device)
            while len(answers) < len(self._programs):
                ready = selector.select(POLL_SECONDS)
                for key, _ in ready:
                    try:
                        answers[key.data] = self._control[key.data].hear()
                    except LostError:
                        self._fail(doing)
                    selector.unregister(key.fileobj)
                    if "error" in answers[key.data]:
                        where = f"device {key.data}, {doing}"
                        raise ClusterRunError(answers[key.data]["error"], code="device-failed", location=where)
                if not ready:
                    waited = [device for device in range(len(self._programs)) if device not in answers]
                    self._check(deadline, doing, waited)
        return [answers[device] for device in range(len(self._programs))]

    def _check(self, deadline: float, doing: str, waited: Sequence[int] = ()) -> None:
        """Raise an error if a process has ended, or time is up."""
        for device, process in enumerate(self._processes):
            code = process.poll()
            if code is not None:
                where = f"device {device}, {doing}"
                raise ClusterRunError(self._death(device, code), code="process-ended", location=where)
        if time.monotonic() > deadline:
            who = f"device{'s' if len(waited) > 1 else ''} {', '.join(map(str, waited))}" if waited else "a device"
            problem = f"{who} did not answer within {self._patience:g} s"
            raise ClusterRunError(problem, code="no-answer", location=doing)

    def _fail(self, doing: str) -> None:
        """Say which process has ended: a connection was lost, so one has or soon will."""
        until = time.monotonic() + 2.0
        while time.monotonic() < until:
            self._check(until, doing)
            time.sleep(POLL_SECONDS)
        raise ClusterRunError("the connection to a device was lost", code="connection-lost", location=doing)

    def _death(self, device: int, code: int) -> str:
        end = Death(code, self._folder / f"device_{device}" / "log")
        said = " ".join(end.last_words().split())[-LONGEST_REASON:]
        return f"its process {end.how()}{f': {said}' if said else ''}"


def _brief(channel: Channel, request: Mapping[str, Any]) -> None:
    with contextlib.suppress(LostError):  # that the process has ended, and how, is found out by who waits for it
        channel.tell(request)


def _links(programs: Sequence[DeviceProgram]) -> list[list[int]]:
    """Return per device the devices that it exchanges anything with."""
    pairs = {
        (source, target)
        for source, program in enumerate(programs)
        for step in program.steps
        for one in (*step.sends, *step.sends_ahead)
        for target in one.targets
    }
    both = pairs | {(target, source) for source, target in pairs}
    return [sorted({b for a, b in both if a == device and b != device}) for device in range(len(programs))]


def _given_part(value: ArrayAssembly, feeds: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    (cut,) = value.cuts
    index: tuple[Any, ...] = (*(slice(start, stop) for start, stop in cut.source), ...)
    part: np.ndarray[Any, Any] = feeds[cut.key][index]
    return part


def _output(connection: socket.socket, value: ArrayAssembly) -> np.ndarray[Any, Any]:
    import numpy as np

    from memsched.runtimes.devices.wire import read_header, receive_into

    array = np.empty(value.shape, np.dtype(value.dtype))
    if read_header(connection)[2] != array.nbytes:
        raise LostError("an output has another size than it should have")
    receive_into(connection, array.reshape(-1).view(np.uint8).data)
    return array


def _device_run(answer: Mapping[str, Any], seconds: Sequence[float]) -> DeviceRun:
    start, loaded, peak = answer["resident"]
    return DeviceRun(
        sent=answer["sent"],
        sent_once=answer["sent_once"],
        received=answer["received"],
        headers=answer["headers"],
        activations=answer["activations"],
        resident_start=start,
        resident_loaded=loaded,
        resident_peak=peak,
        seconds=tuple(seconds),
    )
