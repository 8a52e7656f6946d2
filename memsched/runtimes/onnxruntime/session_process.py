"""One session in a process of its own: what it takes of the process, part by part. The child process's side.

Called through ``run_in_child``; requests and answers are plain values. Figures of the process are those of Linux
(``/proc/self``), those of the arena ONNX Runtime's own (its profile).
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from memsched.runtimes.measure import LEAST_RUNS, SteadyRuns, forget_highest, process_bytes, run_until_steady
from memsched.runtimes.onnxruntime.inputs import random_feed, read_arrays
from memsched.runtimes.onnxruntime.sessions import find_data, open_session, read_profile, run_once, session_options
from memsched.runtimes.race import is_vague
from memsched.runtimes.race import race as run_in_turns
from memsched.runtimes.values import INTEGER_BOUNDS

__all__ = ["draw", "measure", "race"]

_OPTIMIZED: Final = "optimized.onnx"
_TURN: Final = 0.1
"""Processor seconds that a turn of being timed takes at least."""

_SHORT_TURN: Final = 0.02
"""The same of small models, whose sessions are timed for nothing but the options to recommend."""

_MOST_ROUNDS: Final = 20
"""Rounds of such turns at most; short turns have fewer, as their sessions are many."""

_MOST_SHORT_ROUNDS: Final = 9
_RACE: Final = 5.0
"""Seconds after which no round is added: long runs differ less by chance."""

_BUSY: Final = 0.1
"""Time without a processor, as a share of computing, from which other programs use the processors."""


def draw(request: Mapping[str, Any]) -> dict[str, Any]:
    """Store random inputs that the model takes in "file", an .npz.

    Args:
        request: "model" with "bytes" and "folder"; "file"; "seed", "input_shapes", "dims".

    Returns:
        "failed": why there are none; None where there are. "loaded": whether the runtime loads the model.
    """
    import numpy as np
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    model = request["model"]
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    find_data(options, model["folder"])
    try:
        proto = onnx.load_model_from_string(model["bytes"])
        session = onnxruntime.InferenceSession(model["bytes"], options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime raises classes of its own
        return {"failed": " ".join(str(error).split()), "loaded": False}
    failed = "there are no inputs that it takes"
    for bound in INTEGER_BOUNDS:
        try:
            feed = random_feed(session, proto, request, np.random.default_rng(request["seed"]), bound)
            if not all(isinstance(value, np.ndarray) for value in feed.values()):
                return {"failed": "its inputs are not all tensors", "loaded": True}
            run_once(session, feed)
        except Exception as error:  # the runtime raises classes of its own
            failed = " ".join(str(error).split())
            continue
        np.savez(request["file"], **feed)
        return {"failed": None, "loaded": True}
    return {"failed": failed, "loaded": True}


def measure(request: Mapping[str, Any]) -> dict[str, Any]:
    """Open a model in a session, run it, and say what the process took.

    Args:
        request: "path" of the model; "folder": where its external data lies, None if beside it; "options" as
            `session_options` takes them, with "arena", "shrinkage", "prepacking" and "threads"; "feeds": an .npz file;
            "least": runs, and "seconds" that they may take, as `run_until_steady` has them; "beside": the first three
            of a session that takes turns with it in being timed, or None.

    Returns:
        Bytes above the process as it was before the session: "first" (peak until the first run's end), "steady" (peak
        of all later ones); "runs", and whether they "settled"; of the arena "requested" (at most, of the first run) and
        "lasting" (of later ones too), None where they were not shown; "cpu_seconds" of a run; "ratio" of these to those
        of "beside", the median; "parts": counters of the process from which the split is made; "arena": those of the
        arena.
    """
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    feed = read_arrays(request["feeds"])
    gc.collect()
    wanted = request["options"]
    start = _counters()
    before = start["resident"]
    session = _opened(onnxruntime, request, _options(onnxruntime, wanted))
    opened = _counters()
    told = _run_options(onnxruntime, wanted)
    first, found = _run(session, feed, told, request, before)
    rest = _counters()
    del session
    shown = _profiled(onnxruntime, request, feed)
    beside = request.get("beside")
    return {
        "ratio": None if beside is None else _ratio(onnxruntime, request, beside, feed, request["rounds"]),
        "parts": {
            "opened": {name: opened[name] - start[name] for name in start},
            "rest": {name: rest[name] - start[name] for name in start},
            "weights": _weights(onnxruntime, request),
        },
        "first": first - before,
        "steady": found.peak - before,
        "runs": found.runs,
        "settled": found.settled,
        "cpu_seconds": min(found.processor[1:]),
        **shown,
    }


def race(request: Mapping[str, Any]) -> list[dict[str, Any] | None]:
    """Run sessions in turns with the first of them, and say what each requested of the arena.

    Args:
        request: "sessions", each as `measure` has it; "feeds", "rounds".

    Returns:
        Per session "lasting" and "ratio" as `measure` has them, the latter None for the first; None if it failed.
    """
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    feed = read_arrays(request["feeds"])
    first = request["sessions"][0]

    def raced(one: Mapping[str, Any]) -> dict[str, Any] | None:
        try:
            rounds = request["rounds"]
            ratio = (
                None if one is first else _ratio(onnxruntime, one, first, feed, rounds, _SHORT_TURN, _MOST_SHORT_ROUNDS)
            )
            return {"lasting": _profiled(onnxruntime, one, feed)["lasting"], "ratio": ratio}
        except Exception:  # the runtime raises classes of its own
            return None

    return [raced(one) for one in request["sessions"]]


def _opened(onnxruntime: Any, wanted: Mapping[str, Any], options: Any) -> Any:
    """Open a session on the file at "path" of a request, whose external data may lie in another "folder"."""
    path, folder = Path(wanted["path"]), wanted["folder"]
    source: str | bytes = wanted["path"]
    if folder is not None and path.parent != Path(folder):
        find_data(options, folder)
        source = path.read_bytes()
    return open_session(onnxruntime, source, options, wanted["options"])


def _run(
    session: Any, feed: Mapping[str, Any], told: Any, request: Mapping[str, Any], before: int
) -> tuple[int, SteadyRuns]:
    """Run until the memory is steady; return the highest until the first run's end, and all runs: the peak of later."""
    first: list[int] = []

    def run(_: int) -> None:
        session.run(None, feed, told)
        if not first:
            first.append(_highest())
            forget_highest()

    found = run_until_steady(run, before, least=request["least"], seconds=request["seconds"])
    return first[0], found


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


def _profiled(onnxruntime: Any, wanted: Mapping[str, Any], feed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a profile shows of the arena."""
    options = _options(onnxruntime, wanted["options"])
    options.enable_profiling = True
    options.profile_file_prefix = "profile"
    session = _opened(onnxruntime, wanted, options)
    told = _run_options(onnxruntime, wanted["options"])
    for _ in range(LEAST_RUNS):
        session.run(None, feed, told)
    file = Path(session.end_profiling())
    events = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    peaks = read_profile(events)
    return {"requested": peaks["peak_bytes"], "lasting": peaks["lasting_bytes"], "arena": _arena(events)}


def _arena(events: Sequence[Mapping[str, Any]]) -> dict[str, int] | None:
    """Return what of the arena is in use at rest, what at most, and what it holds in the end; None if not shown."""
    shown = [event["args"] for event in events if "mem_arena_held" in event.get("args", {})]
    if not shown:
        return None
    first = shown[0]
    return {
        "rest": int(first["mem_bytes_in_use"]) - int(first["mem_in_use_delta"]),
        "highest": max(int(one["mem_bytes_in_use"]) for one in shown),
        "held": int(shown[-1]["mem_arena_held"]),
    }


def _ratio(
    onnxruntime: Any,
    wanted: Mapping[str, Any],
    beside: Mapping[str, Any],
    feed: Mapping[str, Any],
    rounds: int,
    turn: float = _TURN,
    most: int = _MOST_ROUNDS,
) -> float:
    """Return the median ratio of processor times of two sessions that take turns: noise meets both alike.

    Threads that wait busily for one that has no processor count as computing, so that sessions have one thread each
    where other programs use the processors.
    """
    waited, worked = _waited_seconds(), time.process_time()
    ratio = _ratio_of_turns(onnxruntime, (wanted, beside), feed, rounds, turn, most)
    if _waited_seconds() - waited <= _BUSY * (time.process_time() - worked):
        return ratio
    alone = [{**one, "options": {**one["options"], "threads": 1}} for one in (wanted, beside)]
    return _ratio_of_turns(onnxruntime, alone, feed, rounds, turn, most)


def _waited_seconds() -> float:
    """Return how long the threads of this process were ready to compute and had no processor; 0 if not shown."""
    waited = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # threads end
            waited += int(path.read_text(encoding="ascii").split()[1])
    return waited / 1e9


def _ratio_of_turns(
    onnxruntime: Any,
    sessions: Sequence[Mapping[str, Any]],
    feed: Mapping[str, Any],
    rounds: int,
    turn: float,
    most: int,
) -> float:
    def runs(one: Mapping[str, Any]) -> Callable[[], object]:
        session = _opened(onnxruntime, one, _options(onnxruntime, one["options"]))
        return partial(session.run, None, feed, _run_options(onnxruntime, one["options"]))

    wanted, beside = map(runs, sessions)
    late = time.monotonic() + _RACE
    found = run_in_turns(
        beside,
        wanted,
        rounds=rounds,
        turn=turn,
        goes_on=lambda ratios: 1 < len(ratios) < most and time.monotonic() < late and is_vague(ratios),
    )
    return found.processor


def _weights(onnxruntime: Any, wanted: Mapping[str, Any]) -> int:
    """Return the bytes of weights in the graph that a session makes of a file, folded and external ones included."""
    import onnx

    options = _options(onnxruntime, wanted["options"])
    options.optimized_model_filepath = str(Path(_OPTIMIZED).absolute())
    source = _OPTIMIZED
    try:
        _opened(onnxruntime, wanted, options)
    except Exception:  # the runtime raises classes of its own; some graphs cannot be saved
        source = wanted["path"]
    graph = onnx.load_model(source, load_external_data=False).graph
    Path(_OPTIMIZED).unlink(missing_ok=True)
    values = [
        one.t for node in graph.node if node.op_type == "Constant" for one in node.attribute if one.name == "value"
    ]
    kinds = [one for one in (*graph.initializer, *values) if one.data_type != onnx.TensorProto.STRING]
    return sum(math.prod(one.dims) * _item_bytes(one.data_type) for one in kinds)


def _item_bytes(kind: int) -> int:
    import onnx

    return int(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)


def _counters() -> dict[str, int]:
    """Return bytes of the process that are resident, and of these what is anonymous and what is of files."""
    return {
        "resident": process_bytes("VmRSS:"),
        "anonymous": process_bytes("RssAnon:"),
        "files": process_bytes("RssFile:"),
    }


def _highest() -> int:
    return process_bytes("VmHWM:")
