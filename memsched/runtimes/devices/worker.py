"""The process of one device: ``python -m memsched.runtimes.devices.worker NUMBER``.

It executes its program step by step, each when the parent says so. It ends at once when the parent is gone.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import queue
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

import numpy as np

from memsched.runtimes.devices.part_runtime import PartRuntime, PartSession
from memsched.runtimes.devices.program import CALLER
from memsched.runtimes.devices.wire import (
    HEADER_BYTES,
    LinkPace,
    introduce,
    listen,
    meet,
    read_header,
    receive_array,
    send_array,
    send_to_all,
)
from memsched.runtimes.measure import forget_highest, process_bytes
from memsched.search.messages import Channel, LostError
from memsched.search.processes import end_with_parent

__all__ = ["main", "reference"]

_OWN_ROOM: Final = 16 << 20
"""Bytes beside the device's memory for what the process itself takes: sockets, arguments, fragments."""


def main(channel: Channel) -> None:
    """Do what the process that started this one asks for."""
    # Ctrl-C reaches the whole group of processes; the parent decides what follows from it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = _Parent(channel)
    request = parent.wait()
    try:
        _Worker(request, parent).work()
    except LostError:
        # Another device is gone: the parent finds out which, and ends this one.
        threading.Event().wait()
    except Exception as error:  # whatever it is, the parent must hear of it
        reason = " ".join(str(error).split()) or type(error).__name__
        parent.tell({"error": reason})
        parent.wait()


class _Parent:
    """The conversation with the parent; the process ends when it is closed."""

    def __init__(self, channel: Channel) -> None:
        self._messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.tell = channel.tell
        end_with_parent(channel, self._messages.put)

    def wait(self) -> Any:
        return self._messages.get()


class _Inbox:
    """Messages from other processes, kept until they are read."""

    def __init__(self, expected: Mapping[tuple[int, int], Mapping[str, Any]], pace: LinkPace | None) -> None:
        self._expected, self._pace = expected, pace
        self._arrays: dict[tuple[int, str], np.ndarray[Any, Any]] = {}
        self._came: dict[tuple[int, int], float] = {}
        self._changed = threading.Condition()
        self._lost: str | None = None
        self.received = 0

    def read(self, source: int, connection: socket.socket) -> None:
        """Read one connection to its end."""
        try:
            while True:
                step, transfer, length, due = read_header(connection)
                wanted = self._expected.get((step, transfer))
                if wanted is None or wanted["source"] != source:
                    raise LostError(f"process {source} sent what nobody asked for")
                part = self.array(step, wanted)[_index(wanted["place"])]
                if part.nbytes != length:
                    raise LostError(f"process {source} sent {length} bytes instead of {part.nbytes}")
                if self._pace is not None:
                    self._pace.wait_for(step)
                came = receive_array(connection, part, self._pace)
                with self._changed:
                    self._came[step, transfer] = due
                    self.received += came
                    self._changed.notify_all()
        except (OSError, LostError) as error:
            with self._changed:
                self._lost = str(error)
                self._changed.notify_all()

    def array(self, step: int, wanted: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        """Return the array that a transfer is a part of; the first makes it."""
        with self._changed:
            key = (step, wanted["key"])
            if key not in self._arrays:
                self._arrays[key] = np.empty(wanted["shape"], np.dtype(wanted["dtype"]))
            return self._arrays[key]

    def take(self, step: int, receives: Sequence[Mapping[str, Any]]) -> tuple[dict[str, np.ndarray[Any, Any]], float]:
        """Return the arrays of a step once all of it has come, and when the last has by the paces of links.

        Raises:
            LostError: A connection was closed before.
        """
        missing = {(step, entry["transfer"]) for entry in receives}
        with self._changed:
            while not missing <= self._came.keys():
                if self._lost is not None:
                    raise LostError(self._lost)
                self._changed.wait()
            due = max((self._came.pop(one) for one in missing), default=0.0)
            if missing and self._pace is not None:
                due = max(due, self._pace.through(0))
            keys = dict.fromkeys(entry["key"] for entry in receives)
            return {key: self._arrays.pop((step, key)) for key in keys}, due


class _Worker:
    def __init__(self, request: Mapping[str, Any], parent: _Parent) -> None:
        self._request, self._parent = request, parent
        self._program: Mapping[str, Any] = request["program"]
        self._throttle: Mapping[str, Any] | None = request["throttle"]
        bandwidth = None if self._throttle is None else self._throttle["bandwidth"]
        self._out, self._in = (None if bandwidth is None else LinkPace(bandwidth) for _ in range(2))
        self._links: dict[int, socket.socket] = {}
        self._inbox = _Inbox(
            {
                (step, entry["transfer"]): entry
                for step, one in enumerate(self._program["steps"])
                for entry in (*one["receives"], *one["receives_ahead"])
            },
            self._in,
        )
        self._held: dict[str, np.ndarray[Any, Any]] = {}
        self._peak: int | None = 0
        self._sent = self._once = self._frames = 0

    def work(self) -> None:
        runtime = _runtime(self._request["runtime"])
        start = _process_bytes("VmRSS:")
        sessions = {
            step: runtime.open(path, step, {}) for step, path in enumerate(self._request["models"]) if path is not None
        }
        loaded = _process_bytes("VmRSS:")
        # Loading needs models twice for a moment.
        with contextlib.suppress(OSError):
            forget_highest()
        self._connect()
        if self._throttle is not None:
            _limit_memory(self._throttle["room"])
        for _ in range(self._request["passes"]):
            self._held.clear()
            for step, program in enumerate(self._program["steps"]):
                started = self._parent.wait()["start"] or time.perf_counter()
                computing, done = self._step(step, program, sessions.get(step), started)
                self._parent.tell({"done": done, "seconds": done - started, "computing": computing})
            if self._request["each"]:
                self._parent.wait()
                self._give_outputs()
        self._parent.wait()
        peak = _process_bytes("VmHWM:")
        self._give_outputs()
        self._parent.tell(
            {
                "sent": self._sent,
                "sent_once": self._once,
                "received": self._inbox.received,
                "headers": self._frames * HEADER_BYTES,
                "activations": self._peak,
                "resident": [start, loaded, peak],
                "nodes": self._nodes(sessions) if self._throttle is not None else {},
                "version": runtime.version,
            }
        )
        self._parent.wait()

    def _give_outputs(self) -> None:
        for number, (_, value) in enumerate(self._program["outputs"]):
            send_array(self._links[CALLER], len(self._program["steps"]), number, _made_of(value, self._held))

    def _connect(self) -> None:
        """Connect to the devices before this one, and wait for those after it and for the parent."""
        token, own = self._request["token"], self._request["device"]
        with listen() as listener:
            self._parent.tell({"port": listener.getsockname()[1]})
            ports = {int(number): port for number, port in self._parent.wait()["ports"].items()}
            for number in self._request["links"]:
                if number < own:
                    self._links[number] = introduce(ports[number], token, own, None)
            while len(self._links) <= len(self._request["links"]):
                with contextlib.suppress(LostError):
                    number, connection = meet(listener, token)
                    self._links[number] = connection
        for number, connection in self._links.items():
            connection.settimeout(None)
            threading.Thread(target=self._inbox.read, args=(number, connection), daemon=True).start()
        self._parent.tell({"connected": True})

    def _step(self, step: int, program: Mapping[str, Any], session: Any, started: float) -> tuple[float, float]:
        """Do a step that begins at a moment.

        Returns:
            The seconds between having all values and having the results; when the step is done.
        """
        for link in (self._out, self._in):
            if self._throttle is not None and link is not None:
                link.begin(step, started + self._throttle["latency"])
        for entry in program["sends"]:
            self._send(step, entry, _made_of(entry["value"], self._held))
        arrays, due = self._inbox.take(step, program["receives"])
        self._held.update(arrays)
        # By the paces of links, however late this process woke up: to be late is not a device's.
        if program["sends"] and self._out is not None:
            due = max(due, self._out.through(0))
        started = max(due, started) if self._throttle is not None else time.perf_counter()
        ahead = self._send_ahead(step, program, started)
        before = time.thread_time()
        for entry in program["gathers"]:
            self._gather(entry["key"], entry["value"])
        self._reach(0)
        for key in program["sent"]:
            del self._held[key]
        if program["run"] is not None:
            self._run(session, program["run"])
        done = time.perf_counter()
        if self._throttle is not None:
            planned = self._throttle["seconds"]
            # What the process would have taken on so much of a core, however much of one it had.
            own = (time.thread_time() - before) / self._throttle["cores"]
            # To wake up late is this machine's, too.
            done = max(done, started + (planned[step] if planned else own))
            _sleep_until(done)
        computing = done - started
        done = max(done, self._finish_ahead(step, program, ahead))
        for key in program["done"]:
            del self._held[key]
        return computing, done

    def _send_ahead(self, step: int, program: Mapping[str, Any], started: float) -> threading.Thread | None:
        """Begin to send what goes while the model runs."""
        if not (program["sends_ahead"] or program["receives_ahead"]):
            return None
        for link in (self._out, self._in):
            if self._throttle is not None and link is not None:
                link.rest_until(started + self._throttle["latency"])
        self._held.update({entry["key"]: self._inbox.array(step, entry) for entry in program["receives_ahead"]})
        # What it is made of may be dropped meanwhile.
        ready = [(entry, _made_of(entry["value"], self._held)) for entry in program["sends_ahead"]]

        def send() -> None:
            # The step waits for what was sent: a connection that is lost is noticed there.
            with contextlib.suppress(LostError):
                for entry, array in ready:
                    self._send(step, entry, array)

        thread = threading.Thread(target=send, daemon=True)
        thread.start()
        return thread

    def _finish_ahead(self, step: int, program: Mapping[str, Any], sending: threading.Thread | None) -> float:
        """Wait until everything is sent and received that goes while the model runs; return when that was."""
        if sending is None:
            return 0.0
        sending.join()
        _, due = self._inbox.take(step, program["receives_ahead"])
        if program["sends_ahead"] and self._out is not None:
            due = max(due, self._out.through(0))
        if self._throttle is None:
            return time.perf_counter()
        _sleep_until(due)
        return due

    def _send(self, step: int, entry: Mapping[str, Any], array: np.ndarray[Any, Any]) -> None:
        links = [self._links[target] for target in entry["targets"]]
        try:
            if self._throttle is not None and self._out is not None:
                once = self._throttle["once"]
                self._sent += send_to_all(links, step, entry["transfer"], array, self._out, once=once)
            else:
                self._sent += sum(send_array(link, step, entry["transfer"], array) for link in links)
        except OSError as error:
            raise LostError(str(error)) from error
        self._frames += len(links)
        self._once += array.nbytes

    def _gather(self, key: str, value: Mapping[str, Any]) -> None:
        if key not in self._held:
            self._held[key] = np.empty(value["shape"], np.dtype(value["dtype"]))
        for cut in value["cuts"]:
            self._held[key][_index(cut["target"])] = self._held[cut["key"]][_index(cut["source"])]

    def _run(self, session: PartSession, run: Mapping[str, Any]) -> None:
        feeds = {name: self._held[key] for name, key in run["inputs"]}
        results = session.run([name for name, _ in run["outputs"]], feeds)
        if self._throttle is None and not self._request["each"]:
            self._reach(session.peak())
        for (_, key), array in zip(run["outputs"], results, strict=True):
            self._held[key] = array

    def _nodes(self, sessions: Mapping[int, PartSession]) -> dict[str, dict[str, float]]:
        """Return per step the seconds of every node, the median of all passes but the first."""
        return {
            str(step): {name: median(seconds[1:] or seconds) for name, seconds in session.nodes().items()}
            for step, session in sessions.items()
        }

    def _reach(self, beside: int | None) -> None:
        """Note what is in use: the arrays held, and what the runtime has beside them; None where it cannot say."""
        if beside is None or self._peak is None:
            self._peak = None
        else:
            self._peak = max(self._peak, beside + sum(array.nbytes for array in self._held.values()))


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.perf_counter()))


def _made_of(value: Mapping[str, Any], held: Mapping[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Return a value: a part of one array as it lies there, or a copy of several."""
    cuts: Sequence[Mapping[str, Any]] = value["cuts"]
    if len(cuts) == 1:
        part: np.ndarray[Any, Any] = held[cuts[0]["key"]][_index(cuts[0]["source"])]
        return part
    made = np.empty(value["shape"], np.dtype(value["dtype"]))
    for cut in cuts:
        made[_index(cut["target"])] = held[cut["key"]][_index(cut["source"])]
    return made


def _index(ranges: Sequence[Sequence[int]]) -> tuple[Any, ...]:
    """Return what indexes a part of an array: always a view of it, even of an array without axes."""
    return (*(slice(start, stop) for start, stop in ranges), ...)


def _limit_memory(room: int) -> None:
    """Limit what this process may take from now on, where the system can: the device's room, and some for itself."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        taken = _process_bytes("VmData:")
        if taken is not None:
            limit = taken + room + _OWN_ROOM
            resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.getrlimit(resource.RLIMIT_DATA)[1]))


def _process_bytes(name: str) -> int | None:
    """Return what `process_bytes` does; None where the system does not say."""
    with contextlib.suppress(OSError):
        return process_bytes(name)
    return None


def reference(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the model as given in one session, in a process of its own: `memsched.runtimes.child` calls it.

    Args:
        request: "runtime": what executes it; "model": its path or its bytes; "names": pairs of a value's number in the
            file and its name; "feeds": lists of inputs by name, of which the first that the model runs on is taken;
            "outputs": names.

    Returns:
        "feed": which of the feeds it was; "outputs"; "activations": bytes in use at most, inputs included, or None;
        "version".
    """
    runtime = _runtime(request["runtime"])
    names = {int(number): str(name) for number, name in request["names"]}
    for number, feed in enumerate(request["feeds"]):
        session = runtime.open(request["model"], number, names)
        try:
            outputs = session.run(request["outputs"], feed)
        except Exception:  # indices out of bounds, for one: smaller ones may do
            if number + 1 == len(request["feeds"]):
                raise
            continue
        peak = session.peak()
        given = sum(array.nbytes for array in feed.values())
        activations = None if peak is None else peak + given
        return {"feed": number, "outputs": outputs, "activations": activations, "version": runtime.version}
    raise ValueError("there are no inputs")


def _runtime(path: str) -> PartRuntime:
    """Return what "package.module:Class" names."""
    module, _, name = path.partition(":")
    found: PartRuntime = getattr(importlib.import_module(module), name)()
    return found


if __name__ == "__main__":
    main(Channel.inherited(sys.argv[1]))
    sys.stdout.flush()
    # Threads that still read have nothing more to report.
    os._exit(0)
