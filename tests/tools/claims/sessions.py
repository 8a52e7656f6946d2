"""The child processes' side: models run as people are told to run them. Called through `memsched.runtimes.child`."""

from __future__ import annotations

import ctypes
import inspect
import io
import json
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from memsched.runtimes.race import RaceRule, race

__all__ = [
    "run_default_interpreter",
    "run_onnxruntime",
    "run_session",
    "run_tflm",
    "run_told_session",
    "turns_of_default_interpreter",
]
__all__ += ["turns_of_sessions", "turns_of_told_sessions"]

_RUNS = 3
_TOLERANCE = 1e-5
_ARENA, _STEP = 1 << 26, 16
_INTERPRETED, _TURN = 20, 0.05
_SESSIONS = 12


def run_onnxruntime(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run two models at "paths", the second with exactly the lines "options", twice on the inputs "feeds" (npz bytes).

    In which order sessions change layouts is chance, unless they keep the order of the file: several are opened until
    one requests "claimed".

    Returns:
        "peaks": bytes requested at most in either run, weights excluded, per model; of the second those nearest to what
        was claimed; "same": all outputs of the second agree with those of the first, opened without options or with the
        same ones, floats within 1e-5 of their largest magnitude.
    """
    feeds = dict(np.load(io.BytesIO(request["feeds"])))

    def opened(path: str, lines: Sequence[str]) -> tuple[int | None, Any]:
        session = _opened(path, lines, "options.enable_profiling = True")
        read = {one.name: feeds[one.name] for one in session.get_inputs()}
        session.run(None, read)  # whose outputs are let go: only what a second run takes by itself is of interest
        found = session.run(None, read)
        return _peak(json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))), found

    given, written = request["paths"]
    last, outputs = opened(written, request["options"])
    # A file may hold what a session without options executes of the original.
    originals = [opened(given, ()), opened(given, request["options"])]
    ordered = any("execution_order" in line for line in request["options"])
    claimed, tries = request["claimed"], 1 if ordered else _SESSIONS
    while claimed is not None and last is not None and last != claimed and tries > 1:
        more = opened(written, request["options"])[0] or 0
        last, tries = min(last, more, key=lambda one: abs(one - claimed)), tries - 1
    same = any(all(map(_agree, one, outputs)) for _, one in originals)
    return {"peaks": [originals[0][0], last], "same": same}


def _opened(path: str, lines: Sequence[str], *more: str) -> Any:
    """Open a file by exactly the lines of Python that people are told to use, and more options."""
    import onnxruntime

    text = "\n".join(lines) or "session = onnxruntime.InferenceSession(path)"
    if "options =" not in text:
        text = "options = onnxruntime.SessionOptions()\n" + text.replace("(path)", "(path, options)")
    names: dict[str, Any] = {"onnxruntime": onnxruntime, "path": path}
    exec(text.replace("session =", "\n".join((*more, "session ="))), names)  # noqa: S102 - the very lines that are told
    return names["session"]


def _runs(session: Any, feeds: Mapping[str, Any]) -> Callable[[], object]:
    read = {one.name: feeds[one.name] for one in session.get_inputs()}
    return lambda: session.run(None, read)


def _agree(one: Any, other: Any) -> bool:
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    largest = float(np.abs(one).max(initial=0.0))
    return one.shape == other.shape and bool(
        np.allclose(one, other, rtol=0.0, atol=_TOLERANCE * largest, equal_nan=True)
    )


def _peak(events: Sequence[Mapping[str, Any]]) -> int | None:
    base, highest = None, 0
    for event in sorted(events, key=lambda event: int(event["ts"])):  # a node with a body ends after those in it
        arguments = event.get("args", {})
        if event.get("cat") == "Node" and "mem_bytes_requested_in_use" in arguments:
            in_use = int(arguments["mem_bytes_requested_in_use"])
            base = in_use - int(arguments["mem_requested_in_use_delta"]) if base is None else base
            highest = max(highest, in_use - base)
    return None if base is None else highest


def run_session(request: Mapping[str, Any]) -> int:
    """Open the file "path" in ONNX Runtime as "session", a row of a report, says, and run it 20 times on "feeds".

    Returns:
        Bytes of the process at most from the second run on, beyond those before the session.
    """
    import onnxruntime  # noqa: F401 - the runtime itself is no part of what a session takes

    feeds = dict(np.load(io.BytesIO(request["feeds"])))
    before = _status("VmRSS")
    run = _session(request["path"], request["session"], feeds)
    run()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    for _ in range(_INTERPRETED - 1):
        run()
    return _status("VmHWM") - before


def run_told_session(request: Mapping[str, Any]) -> int:
    """Open the file "path" in ONNX Runtime by the lines "options" and run it 20 times on "feeds".

    Returns:
        Bytes of the process beyond those before: of "kind" "private_bytes" (anonymous memory after the last run) or
        "peak_bytes" (resident at most).
    """
    import onnxruntime  # noqa: F401 - the runtime itself is no part of what a session takes

    feeds = dict(np.load(io.BytesIO(request["feeds"])))
    return _grown(request["kind"], lambda: _runs(_opened(request["path"], request["options"]), feeds))


def turns_of_told_sessions(request: Mapping[str, Any]) -> float:
    """Return how much longer "path" takes than "original", which is opened without options, the median of 20 turns."""
    feeds = dict(np.load(io.BytesIO(request["feeds"])))
    original, written = (_opened(request["original"], ()), _opened(request["path"], request["options"]))
    return race(_runs(original, feeds), _runs(written, feeds), RaceRule(_INTERPRETED, turn=_TURN)).processor


def _grown(kind: str, opened: Callable[[], Callable[[], object]]) -> int:
    """Return by how many bytes the process grows as a model is opened and runs 20 times."""
    first, last = {"private_bytes": ("RssAnon", "RssAnon"), "peak_bytes": ("VmRSS", "VmHWM")}[kind]
    # What lies in free blocks of the heap is no growth.
    ctypes.CDLL(None).malloc_trim(0)
    before = _status(first)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    run = opened()
    for _ in range(_INTERPRETED):
        run()
    return _status(last) - before


def turns_of_sessions(request: Mapping[str, Any]) -> float:
    """Return how much longer "path" as "session" takes than "original" in a default session, the median of 20 turns."""
    feeds = dict(np.load(io.BytesIO(request["feeds"])))
    original = _session(request["original"], None, feeds)
    written = _session(request["path"], request["session"], feeds)
    return race(original, written, RaceRule(_INTERPRETED, turn=_TURN)).processor


def _session(path: str, row: Mapping[str, Any] | None, feeds: Mapping[str, Any]) -> Callable[[], object]:
    """Return what runs a file once in the session of a report's row; None for one without options."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    options, disabled = onnxruntime.SessionOptions(), None
    if row is not None:
        levels = {
            "disabled": "DISABLE_ALL",
            **{name: f"ENABLE_{name.upper()}" for name in ("basic", "extended", "all")},
        }
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{levels[row['level']]}")
        if row["execution_order"] == "file":
            options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
        options.enable_mem_reuse, options.enable_mem_pattern = row["mem_reuse"], row["mem_pattern"]
        options.enable_cpu_mem_arena, options.intra_op_num_threads = row["arena"], row["threads"]
        disabled = row["disabled_optimizers"] or None
        for entry, kept in (("prepacking", row["prepacking"]), ("quant_qdq", row["quant_qdq"])):
            if not kept:
                options.add_session_config_entry(f"session.disable_{entry}", "1")
    session = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
    )
    return _runs(session, feeds)


def run_default_interpreter(request: Mapping[str, Any]) -> int:
    """Do in LiteRT's default interpreter what `run_told_session` does."""
    from ai_edge_litert.interpreter import Interpreter

    # What drawing loads is no part of the interpreter.
    random = np.random.default_rng(0)
    for dtype in (np.dtype(np.float32), np.dtype(np.int8)):
        _values({"dtype": dtype, "shape": (64,)}, random)
    for library in Path(inspect.getfile(Interpreter)).parent.rglob("*.so*"):
        _touch(library)
    return _grown(request["kind"], lambda: _interpreted(Interpreter, request["path"]))


def _touch(library: Path) -> None:
    """Map every page of a library that this process has loaded: which of them runs map depends on the page cache."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        if line.endswith(str(library.resolve())) and line.split()[1].startswith("r"):
            start, end = (int(one, 16) for one in line.split()[0].split("-"))
            for place in range(start, end, mmap.PAGESIZE):
                assert ctypes.c_char.from_address(place).value is not None


def turns_of_default_interpreter(request: Mapping[str, Any]) -> float:
    """Return how much longer the second of the files "paths" takes of the processor, the median of 20 turns."""
    from ai_edge_litert.interpreter import Interpreter

    first, second = (_interpreted(Interpreter, path) for path in request["paths"])
    return race(first, second, RaceRule(_INTERPRETED, turn=_TURN)).processor


def _interpreted(kind: Any, path: str) -> Callable[[], None]:
    """Return what runs the file at ``path`` once; integers that are not quantised are 0, as they may be indices."""
    interpreter, random, inputs = kind(model_path=path), np.random.default_rng(0), []
    interpreter.allocate_tensors()
    for detail in interpreter.get_input_details():
        index = np.dtype(detail["dtype"]).kind in "iu" and not detail["quantization"][0]
        zeros = np.zeros(detail["shape"], detail["dtype"])
        inputs.append((detail["index"], zeros if index else _values(detail, random)))

    def run() -> None:
        for number, value in inputs:
            interpreter.set_tensor(number, value)
        interpreter.invoke()

    return run


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name}:"))


def run_tflm(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run the models at "paths" with "inputs" inputs in TensorFlow Lite Micro, each set of inputs twice in a row.

    Returns:
        "same": all outputs are bit-equal; "vary": they differ from input to input; "least": bytes of the smallest arena
        that the last can be allocated in. What the allocator recorded of the arena goes to standard error.
    """
    from tflite_micro.python.tflite_micro import runtime

    outputs = []
    for path in request["paths"]:
        interpreter = runtime.Interpreter.from_file(path, arena_size=_ARENA)
        random, found = np.random.default_rng(0), []
        for _ in range(_RUNS):
            values = [_values(interpreter.get_input_details(number), random) for number in range(request["inputs"])]
            for _ in range(2):
                for number, value in enumerate(values):
                    interpreter.set_input(value, number)
                interpreter.invoke()
                found.append(interpreter.get_output(0).copy())
        outputs.append(found)
    interpreter.print_allocations()
    same = all(map(np.array_equal, *outputs))
    vary = any(not np.array_equal(outputs[0][0], one) for one in outputs[0][2:])
    return {"same": same, "vary": vary, "least": _least(request["paths"][-1])}


def _least(path: str) -> int:
    from tflite_micro.python.tflite_micro import runtime

    refused, granted = 0, _ARENA
    while granted - refused > _STEP:
        size = (refused + granted) // (2 * _STEP) * _STEP
        child = os.fork()
        if not child:
            # What is said of refused sizes is not what was recorded.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            try:
                runtime.Interpreter.from_file(path, arena_size=size)
            except RuntimeError:
                os._exit(1)
            os._exit(0)
        refused, granted = (size, granted) if os.waitpid(child, 0)[1] else (refused, size)
    return granted


def _values(detail: Mapping[str, Any], random: np.random.Generator) -> np.ndarray[Any, Any]:
    kind = np.dtype(detail["dtype"])
    if kind.kind in "iu":
        bounds = np.iinfo(kind)
        return np.asarray(random.integers(bounds.min, bounds.max, detail["shape"], kind, endpoint=True))
    if kind == np.float32:
        # Wider numbers would be memory of the process.
        return np.asarray(random.standard_normal(detail["shape"], np.float32))
    return np.asarray(random.standard_normal(detail["shape"])).astype(kind)
