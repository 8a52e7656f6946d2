"""Runs a function in a child process, so that a runtime that crashes or hangs takes nothing else with it."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from memsched.errors import OutputError
from memsched.search.processes import Death, start_process

__all__ = ["ChildResult", "read_value", "run_in_child", "temporary_folder", "write_value"]

_STDERR_CHARACTERS = 8000
_DATA_ALIGNMENT = 64

_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

_LEAST_ROOM: Final = 16384
"""Free bytes of a disk on which a process that failed may have failed for want of room."""


@dataclass(frozen=True, slots=True)
class ChildResult:
    """What became of a function run in a child process.

    Attributes:
        status: "ok"; "error" (the function raised an exception); "crash" (the process died, by a signal or
            by leaving without an answer); "timeout" (it was killed after the given time).
        value: What the function returned; None unless ``status`` is "ok".
        reason: One line saying what went wrong; None when ``status`` is "ok".
        error_type: Name of the exception's class; None unless ``status`` is "error".
        stderr: The last characters that the child wrote to standard output and standard error.
    """

    status: Literal["ok", "error", "crash", "timeout"]
    value: Any = None
    reason: str | None = None
    error_type: str | None = None
    stderr: str = ""

    @property
    def ok(self) -> bool:
        """Whether the function returned a value."""
        return self.status == "ok"


def run_in_child(function_path: str, payload: Any, timeout_seconds: float | None = None) -> ChildResult:
    """Call a function of one argument in a new Python process and return what it returned.

    The child works in an empty folder of its own: paths in ``payload`` must be absolute. Ctrl-C in the parent
    kills the child and is passed on.

    Args:
        function_path: "package.module:function".
        payload: None, bool, int, float, str, bytes, numpy arrays (of strings too) and lists, tuples and
            dictionaries with string keys of these; the function's result likewise.
        timeout_seconds: The child is killed after this time; None waits for ever.

    Raises:
        OutputError: There is no room for the temporary files by which the two speak.
    """
    with temporary_folder() as folder:
        write_value(folder / "request", payload)
        log = folder / "log"
        with log.open("wb") as stream:
            process = start_process("memsched.runtimes.worker", function_path, folder=folder, output=stream)
            try:
                code = process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                return _stopped(process, timeout_seconds, log)
            finally:
                process.kill()
                process.wait()
        result = _result(folder, Death(code, log))
        if not result.ok and shutil.disk_usage(folder).free < _LEAST_ROOM:
            # Neither the model nor the runtime is to blame, and most often neither can say what happened.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return result


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """Give an empty folder, named memsched-*, that is removed at the end.

    Raises:
        OutputError: It cannot be made, or has no room for what was to be written into it.
    """
    try:
        made = tempfile.TemporaryDirectory(prefix="memsched-", ignore_cleanup_errors=True)
    except OSError as error:
        raise _no_room(error) from None
    with made as name:
        try:
            yield Path(name)
        except OSError as error:
            if error.errno not in _FULL:
                raise
            raise _no_room(error) from None


def _no_room(error: OSError) -> OutputError:
    reason = error.strerror or str(error)
    return OutputError(f"temporary files cannot be written: {reason}; name a folder with room for them in TMPDIR")


def _stopped(process: subprocess.Popen[bytes], timeout_seconds: float | None, log: Path) -> ChildResult:
    process.kill()
    process.wait()
    said = Death(process.returncode, log).last_words(_STDERR_CHARACTERS)
    return ChildResult("timeout", reason=f"not finished after {timeout_seconds:g} s", stderr=said)


def _result(folder: Path, end: Death) -> ChildResult:
    """Read the child's answer from its folder."""
    answer, stderr = folder / "response", end.last_words(_STDERR_CHARACTERS)
    if end.code != 0 or not answer.exists():
        how = f"ended with exit code {end.code}" if end.signal is None else f"was killed by {end.signal}"
        return ChildResult("crash", reason=f"the process {how}", stderr=stderr)
    response: dict[str, Any] = read_value(answer)
    if "error" in response:
        return ChildResult("error", reason=response["error"], error_type=response["type"], stderr=stderr)
    return ChildResult("ok", value=response["value"], stderr=stderr)


def write_value(path: Path, value: Any) -> None:
    """Write a value as JSON to ``path`` and its arrays' bytes to ``path`` + ".data".

    Raises:
        TypeError: The value holds something that the format does not know.
    """
    with path.with_suffix(".data").open("wb") as data:
        encoded = _encode(value, data)
    path.write_text(json.dumps(encoded), encoding="utf-8")


def read_value(path: Path) -> Any:
    """Read what ``write_value`` wrote."""
    import numpy as np

    data = path.with_suffix(".data")
    stored = np.fromfile(data, dtype=np.uint8) if data.stat().st_size else np.zeros(0, np.uint8)
    return _decode(json.loads(path.read_text(encoding="utf-8")), stored)


def _encode(value: Any, data: Any) -> Any:
    """Scalars stand for themselves; everything else is a list that begins with a tag."""
    import numpy as np

    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item()
    if isinstance(value, bytes):
        return ["bytes", *_store(np.frombuffer(value, np.uint8), data)]
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "OUS":
            return ["strings", list(value.shape), [_text(item) for item in value.ravel().tolist()]]
        return ["array", value.dtype.name, list(value.shape), *_store(value, data)]
    if isinstance(value, (list, tuple)):
        return ["tuple" if isinstance(value, tuple) else "list", [_encode(item, data) for item in value]]
    if isinstance(value, Mapping):
        return ["mapping", [[_key(key), _encode(item, data)] for key, item in value.items()]]
    raise TypeError(f"a value of type {type(value).__name__} cannot be passed to a child process")


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key of type {type(key).__name__} cannot be passed to a child process")
    return key


def _text(item: Any) -> str:
    return item.decode("utf-8", "surrogateescape") if isinstance(item, bytes) else str(item)


def _store(array: Any, data: Any) -> list[int]:
    """Append an array's bytes; returns their place and length."""
    import numpy as np

    data.write(b"\0" * (-data.tell() % _DATA_ALIGNMENT))
    start = data.tell()
    data.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return [start, data.tell() - start]


def _decode(encoded: Any, stored: Any) -> Any:
    if not isinstance(encoded, list):
        return encoded
    tag, *parts = encoded
    if tag == "bytes":
        return stored[parts[0] : parts[0] + parts[1]].tobytes()
    if tag == "array":
        name, shape, start, length = parts
        return stored[start : start + length].view(_dtype(name)).reshape(shape).copy()
    if tag == "strings":
        import numpy as np

        return np.array(parts[1], dtype=object).reshape(parts[0])
    if tag == "mapping":
        return {key: _decode(item, stored) for key, item in parts[0]}
    items = [_decode(item, stored) for item in parts[0]]
    return tuple(items) if tag == "tuple" else items


def _dtype(name: str) -> Any:
    """The numpy type of a name; the names of types that numpy lacks (bfloat16, int4) come from ml_dtypes."""
    import numpy as np

    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
