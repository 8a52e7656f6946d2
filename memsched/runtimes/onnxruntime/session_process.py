"""One session in a process of its own: what it takes of the process, part by part. The child process's side.

Called through ``run_in_child``; requests and answers are plain values. Figures of the process are those of Linux
(``/proc/self``), those of the arena ONNX Runtime's own (its profile).
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from memsched.runtimes.onnxruntime.inputs import random_feed, read_arrays
from memsched.runtimes.onnxruntime.sessions import find_data, open_session, read_profile, run_once, session_options

__all__ = ["draw", "measure"]

_INTEGER_BOUNDS: Final = (4, 2, 1)
_KIB: Final = 1024


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
        Bytes above the process as it was before the session: "first" (peak until the first run's end), "steady" (peak
        of a later run); of the arena "requested" (at most, of the first run) and "lasting" (of the next too), None
        where they were not shown; "cpu_seconds" of a run.
    """
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    feed = read_arrays(request["feeds"])
    gc.collect()
    wanted = request["options"]
    before = _resident()
    session = open_session(onnxruntime, request["path"], _options(onnxruntime, wanted), wanted)
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
        "first": first - before,
        "steady": steady - before,
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
    return {"requested": peaks["peak_bytes"], "lasting": peaks["lasting_bytes"]}


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
