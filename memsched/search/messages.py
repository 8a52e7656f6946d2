"""What processes of our own say to each other: plain values and arrays, over multiprocessing's connections."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Channel", "LostError"]


class LostError(Exception):
    """The other side has closed the connection, or is nobody of this run."""


class Channel:
    """One end of a conversation with another process, which ends when either does.

    Values are None, bool, int, float, str, bytes, numpy arrays (of strings too), and lists, tuples and dictionaries
    with string keys of these. They travel as JSON with raw bytes behind it and are never pickled: the process may be
    running foreign native code, and what it says must not become code here.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    @classmethod
    def inherited(cls, descriptor: str) -> Channel:
        """Return the end that `memsched.search.processes.start_process` gave to this process."""
        os.set_inheritable(int(descriptor), False)
        return cls(Connection(int(descriptor)))

    def fileno(self) -> int:
        """Return what a selector waits for."""
        return self._connection.fileno()

    def tell(self, value: Any) -> None:
        """Send a value; any thread may.

        Raises:
            TypeError: The value holds something that cannot be sent.
            LostError: The other process is gone.
        """
        parts: list[Any] = []
        text = json.dumps(_encode(value, parts))
        with self._lock:
            try:
                self._connection.send_bytes(text.encode())
                for part in parts:
                    self._connection.send_bytes(part)
            except OSError as error:
                raise LostError(str(error)) from None

    def hear(self) -> Any:
        """Return the next value, and wait for it if need be; one thread at a time may.

        Raises:
            LostError: The other process is gone.
        """
        try:
            return _decode(json.loads(self._connection.recv_bytes()), self._connection)
        except (EOFError, OSError) as error:
            raise LostError(str(error)) from None

    def close(self) -> None:
        """End the conversation."""
        self._connection.close()


def _encode(value: Any, parts: list[Any]) -> Any:
    """Scalars stand for themselves; all else is a list that begins with a tag. Bytes go to ``parts``, in order."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, bytes):
        parts.append(value)
        return ["bytes"]
    if isinstance(value, (list, tuple)):
        return ["tuple" if isinstance(value, tuple) else "list", [_encode(item, parts) for item in value]]
    if isinstance(value, Mapping):
        return ["mapping", [[_key(key), _encode(item, parts)] for key, item in value.items()]]
    import numpy as np

    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"a value of type {type(value).__name__} cannot be passed to another process")
    if value.dtype.kind in "OUS":
        return ["strings", list(value.shape), [_text(item) for item in value.ravel().tolist()]]
    parts.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return ["array", value.dtype.name, list(value.shape)]


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key of type {type(key).__name__} cannot be passed to another process")
    return key


def _text(item: Any) -> str:
    return item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item)


def _decode(encoded: Any, connection: Connection) -> Any:
    """Return what was encoded; the bytes in it are what comes next."""
    if not isinstance(encoded, list):
        return encoded
    tag, *more = encoded
    if tag == "bytes":
        return connection.recv_bytes()
    if tag == "mapping":
        return {key: _decode(item, connection) for key, item in more[0]}
    if tag in {"list", "tuple"}:
        items = [_decode(item, connection) for item in more[0]]
        return tuple(items) if tag == "tuple" else items
    import numpy as np

    if tag == "strings":
        return np.array(more[1], dtype=object).reshape(more[0])
    # A bytearray, so that the array can be written to.
    return np.frombuffer(bytearray(connection.recv_bytes()), _dtype(more[0])).reshape(more[1])


def _dtype(name: str) -> Any:
    """Return the numpy type of a name; the names of types that numpy lacks (bfloat16, int4) come from ml_dtypes."""
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
