"""One session in a process of its own: what it takes of the process, part by part. The child process's side.

Called through ``run_in_child``; requests and answers are plain values. Figures of the process are those of Linux
(``/proc/self``), those of the heap glibc's (``mallinfo2``), those of the arena ONNX Runtime's own (its profile).
"""

from __future__ import annotations

import ctypes
import gc
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memsched.runtimes.onnxruntime.inputs import random_feed
from memsched.runtimes.onnxruntime.sessions import find_data, open_session, read_profile, run_once, session_options

__all__ = ["draw", "measure"]

_INTEGER_BOUNDS: Final = (4, 2, 1)
_KIB: Final = 1024
_HEAP: Final = (
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
)


class _HeapFigures(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _HEAP]


def draw(request: Mapping[str, Any]) -> dict[str, Any]:
    """Store random inputs that the model takes in "file", an .npz.

    Args:
        request: "model" with "bytes" and "folder"; "file"; "seed", "input_shapes", "dims".

    Returns:
        "failed": why there are none; None where there are.
    """
    import numpy as np
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    model = request["model"]
    proto = onnx.load_model_from_string(model["bytes"])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    find_data(options, model["folder"])
    failed = "there are no inputs that it takes"
    for bound in _INTEGER_BOUNDS:
        try:
            session = onnxruntime.InferenceSession(model["bytes"], options, providers=["CPUExecutionProvider"])
            feed = random_feed(session, proto, request, np.random.default_rng(request["seed"]), bound)
            if not all(isinstance(value, np.ndarray) for value in feed.values()):
                return {"failed": "its inputs are not all tensors"}
            run_once(session, feed)
        except Exception as error:  # the runtime raises classes of its own
            failed = " ".join(str(error).split())
            continue
        np.savez(request["file"], **feed)
        return {"failed": None}
    return {"failed": failed}


def measure(request: Mapping[str, Any]) -> dict[str, Any]:
    """Open a model in a session, run it, and say what the process took.

    Args:
        request: "path" of the model; "feeds": an .npz file; "options" as `session_options` takes them, with "arena",
            "shrinkage", "prepacking" and "threads"; "runs": timed after the first.

    Returns:
        Bytes above the process as it was before the session: "opened", "first" (peak until the first run's end),
        "steady" (peak of a later run), "heap" (in use once open); of the arena "weights" (in use before the first
        node), "held" (then), "in_use" (at most, beyond the weights), "requested" (at most, of the first run),
        "lasting" (of the next too); "cpu_seconds" of a run. None where something was not shown.
    """
    import numpy as np
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    with np.load(request["feeds"]) as stored:
        feed = {name: stored[name].copy() for name in stored.files}
    gc.collect()
    wanted = request["options"]
    before, heap = _resident(), _heap()
    session = open_session(onnxruntime, request["path"], _options(onnxruntime, wanted), wanted)
    opened, used = _resident(), _heap()
    told = _run_options(onnxruntime, wanted)
    session.run(None, feed, told)
    first = _highest()
    session.run(None, feed, told)
    _forget_highest()
    seconds = min(_cpu_seconds(session, feed, told) for _ in range(request["runs"]))
    steady = _highest()
    del session
    shown = _profiled(onnxruntime, request["path"], wanted, feed)
    return {
        "opened": opened - before,
        "first": first - before,
        "steady": steady - before,
        "heap": None if used is None or heap is None else used - heap,
        "cpu_seconds": seconds,
        **shown,
    }


def _options(onnxruntime: Any, wanted: Mapping[str, Any]) -> Any:
    options = session_options(onnxruntime, wanted)
    options.enable_cpu_mem_arena = wanted["arena"]
    if wanted["threads"]:
        options.intra_op_num_threads = wanted["threads"]
    if not wanted["prepacking"]:
        options.add_session_config_entry("session.disable_prepacking", "1")
    return options


def _run_options(onnxruntime: Any, wanted: Mapping[str, Any]) -> Any:
    options = onnxruntime.RunOptions()
    if wanted["shrinkage"]:
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def _cpu_seconds(session: Any, feed: Mapping[str, Any], told: Any) -> float:
    started = time.process_time()
    session.run(None, feed, told)
    return time.process_time() - started


def _profiled(onnxruntime: Any, path: str, wanted: Mapping[str, Any], feed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a profile shows of the arena in two runs."""
    options = _options(onnxruntime, wanted)
    options.enable_profiling = True
    options.profile_file_prefix = "profile"
    session = open_session(onnxruntime, path, options, wanted)
    told = _run_options(onnxruntime, wanted)
    for _ in range(2):
        session.run(None, feed, told)
    file = Path(session.end_profiling())
    events = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    peaks = read_profile(events)
    return {"requested": peaks["peak_bytes"], "lasting": peaks["lasting_bytes"], **_arena(events)}


def _arena(events: Sequence[Mapping[str, Any]]) -> dict[str, int | None]:
    """Return bytes in use and held before the first node, and those in use at most beyond."""
    nodes = [event for event in events if "mem_in_use_peak" in event.get("args", {})]
    first = min(nodes, key=lambda event: int(event["ts"]), default=None)
    if first is None:
        return {"weights": None, "held": None, "in_use": None}
    told = {name: int(value) for name, value in first["args"].items() if name.startswith("mem_")}
    weights = told["mem_bytes_in_use"] - told["mem_in_use_delta"]
    highest = max(int(event["args"]["mem_in_use_peak"]) for event in nodes)
    return {
        "weights": weights,
        "held": told["mem_arena_held"] - told["mem_arena_held_delta"],
        "in_use": highest - weights,
    }


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * _KIB
    raise OSError(f"/proc/self/status has no {name}")


def _resident() -> int:
    return _status("VmRSS:")


def _highest() -> int:
    return _status("VmHWM:")


def _forget_highest() -> None:
    """Begin a new highest value of the process's memory."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _heap() -> int | None:
    """Return the bytes that the program has of the allocator; None where it cannot say."""
    function = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if function is None:
        return None
    function.restype = _HeapFigures
    found = function()
    return int(found.uordblks + found.hblkhd)
