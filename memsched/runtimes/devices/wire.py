"""How the devices of a distributed run exchange values: frames of raw elements on sockets.

Sockets, and no `Channel` as between a process and its parent, because they stand for the network: any two devices have
one, what they take is counted, and elements go from and into arrays where they lie.

A frame is 24 bytes that say which transfer it is, and when a paced link is done with it; then the elements follow, in
the machine's byte order. All connections are
on the loopback interface, and each begins with the run's secret: no other program can take part.
"""

from __future__ import annotations

import secrets
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from mmap import PAGESIZE
from typing import Any, Final

import numpy as np

from memsched.search.messages import LostError

__all__ = [
    "HEADER_BYTES",
    "HOST",
    "LinkPace",
    "elements_of",
    "introduce",
    "listen",
    "meet",
    "read_header",
    "receive_array",
    "receive_into",
    "send_array",
    "send_to_all",
]

HOST: Final = "127.0.0.1"

_HEADER: Final = struct.Struct("!IIQd")
HEADER_BYTES: Final = _HEADER.size
_TOKEN_BYTES: Final = secrets.DEFAULT_ENTROPY
_HELLO: Final = struct.Struct(f"!{_TOKEN_BYTES}si")
_GREETING_SECONDS: Final = 5.0
_CHUNK_SECONDS: Final = 1e-3
_SHORTEST_SLEEP: Final = 2e-4
"""The seconds of what a paced link takes at one time, and the fewest that are worth a sleep."""


def listen() -> socket.socket:
    """Return a socket that others of this machine can connect to."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind((HOST, 0))
    listener.listen()
    return listener


def introduce(port: int, token: bytes, number: int, timeout: float | None) -> socket.socket:
    """Connect to a process and say which one this is."""
    connection = socket.create_connection((HOST, port), timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.sendall(_HELLO.pack(token, number))
    return connection


def meet(listener: socket.socket, token: bytes) -> tuple[int, socket.socket]:
    """Return the next process that connects, with its number.

    Raises:
        TimeoutError: Nothing connected within the listener's time.
        LostError: What connected does not know the secret.
    """
    connection, _ = listener.accept()
    connection.settimeout(_GREETING_SECONDS)
    hello = bytearray(_HELLO.size)
    try:
        receive_into(connection, memoryview(hello))
        said, number = _HELLO.unpack(hello)
        if said != token:
            raise LostError("a stranger")
    except TimeoutError:
        connection.close()
        raise LostError("nobody") from None
    except BaseException:
        connection.close()
        raise
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return number, connection


# Frames -----------------------------------------------------------------------------------------------------------


def send_array(connection: socket.socket, step: int, transfer: int, array: np.ndarray[Any, Any]) -> int:
    """Send an array, which may be a part of another; return the bytes of its elements that the socket took."""
    connection.sendall(_HEADER.pack(step, transfer, array.nbytes, 0.0))
    taken = 0
    for chunk in elements_of(array):
        at = 0
        while at < len(chunk):
            at += connection.send(chunk[at:])
        taken += at
    return taken


class LinkPace:
    """The pace of a link in one direction, kept against a schedule, so that late sleeps do not add up.

    Moments are those of `time.perf_counter`, which all processes of a machine share.
    """

    def __init__(self, bandwidth: float) -> None:
        self._rate, self._free, self._step = bandwidth, 0.0, -1
        self._lock = threading.Condition()
        self.chunk = max(PAGESIZE, int(bandwidth * _CHUNK_SECONDS))

    def begin(self, step: int, moment: float) -> None:
        """Begin a step: its first byte passes after ``moment``."""
        with self._lock:
            self._step, self._free = step, moment
            self._lock.notify_all()

    def rest_until(self, moment: float) -> None:
        """Let nothing more pass before ``moment``."""
        with self._lock:
            self._free = max(self._free, moment)

    def wait_for(self, step: int) -> None:
        """Wait until a step has begun."""
        with self._lock:
            self._lock.wait_for(lambda: self._step == step)

    def through(self, size: int) -> float:
        """Return when so many more bytes will have passed."""
        with self._lock:
            return self._free + size / self._rate

    def passing(self, size: int) -> None:
        """Wait until so many bytes have passed since the step began."""
        with self._lock:
            self._free = free = self._free + size / self._rate
        _sleep_until(free)


def _sleep_until(moment: float) -> None:
    left = moment - time.perf_counter()
    if left > _SHORTEST_SLEEP:
        time.sleep(left)


def send_to_all(
    connections: Sequence[socket.socket],
    step: int,
    transfer: int,
    array: np.ndarray[Any, Any],
    pace: LinkPace,
    *,
    once: bool,
) -> int:
    """Send an array to several at the pace of a link, which it passes once or once for each; return the bytes taken."""
    taken = 0
    for group in [connections] if once else [[one] for one in connections]:
        for connection in group:
            connection.sendall(_HEADER.pack(step, transfer, array.nbytes, pace.through(array.nbytes)))
        for whole in elements_of(array):
            for at in range(0, len(whole), pace.chunk):
                chunk = whole[at : at + pace.chunk]
                pace.passing(len(chunk))
                for connection in group:
                    connection.sendall(chunk)
                    taken += len(chunk)
    return taken


def receive_array(connection: socket.socket, array: np.ndarray[Any, Any], pace: LinkPace | None = None) -> int:
    """Fill an array, which may be a part of another; return the bytes that came.

    Raises:
        LostError: The connection is closed before it is full.
    """
    first, stretch = _stretches(array)
    if first and stretch < PAGESIZE:
        received = np.empty(array.shape, array.dtype)
        came = receive_into(connection, _bytes_of(received), pace)
        array[...] = received
        return came
    return sum(
        receive_into(connection, _bytes_of(_at(array, index)), pace) for index in np.ndindex(array.shape[:first])
    )


def read_header(connection: socket.socket) -> tuple[int, int, int, float]:
    """Return step, transfer and number of bytes of the next frame, and when its sender's link is done with it.

    Raises:
        LostError: The connection is closed.
    """
    header = bytearray(HEADER_BYTES)
    receive_into(connection, memoryview(header))
    step, transfer, length, due = _HEADER.unpack(header)
    return step, transfer, length, due


def receive_into(connection: socket.socket, view: memoryview, pace: LinkPace | None = None) -> int:
    """Fill ``view``; return the bytes that came.

    Raises:
        LostError: The connection is closed before it is full.
    """
    at = 0
    while at < len(view):
        came = connection.recv_into(view[at:])
        if not came:
            raise LostError("the connection was closed")
        at += came
        if pace is not None:
            pace.passing(came)
    return at


def elements_of(array: np.ndarray[Any, Any]) -> Iterator[memoryview]:
    """Yield an array's bytes, row-major, without a copy where its contiguous stretches are not tiny."""
    first, stretch = _stretches(array)
    if first and stretch < PAGESIZE:
        array, first = np.ascontiguousarray(array), 0
    for index in np.ndindex(array.shape[:first]):
        yield _bytes_of(_at(array, index))


def _stretches(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return the first axis from which on elements are contiguous, and the bytes of such a stretch."""
    first = next(axis for axis in range(array.ndim + 1) if _contiguous_from(array, axis))
    return first, array.itemsize * int(np.prod(array.shape[first:], dtype=np.int64))


def _contiguous_from(array: np.ndarray[Any, Any], axis: int) -> bool:
    """Whether the axes from ``axis`` on are contiguous."""
    expected = array.itemsize
    for size, stride in zip(array.shape[axis:][::-1], array.strides[axis:][::-1], strict=True):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _at(array: np.ndarray[Any, Any], index: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a part of an array as a view of it, even of an array without axes."""
    place: tuple[Any, ...] = (*index, ...)
    part: np.ndarray[Any, Any] = array[place]
    return part


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
