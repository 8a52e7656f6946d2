"""How sessions of ONNX Runtime are opened and run, and what their profiles say. The child processes' side."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from memsched.runtimes.sessions import DEFAULT, SessionPoint

__all__ = [
    "opened",
    "optimized",
    "options_of",
    "profile_of",
    "profiled",
    "read_profile",
    "run_once",
    "runtime",
    "session_options",
]

_LEVELS: Final = {
    "disabled": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""Words for levels of graph optimisation to the runtime's own."""

_FOREIGN: Final = ("bfloat16", "float8")
_FIRST_FOREIGN_TYPE: Final = 256  # numpy gives the types that packages register numbers from here on


def runtime() -> Any:
    """Return the runtime, which keeps silent."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    return onnxruntime


def session_options(point: SessionPoint) -> Any:
    """Return the options of a session that keeps silent, but those that it disables when it is opened."""
    options = options_of(runtime(), point)
    options.log_severity_level = 4
    return options


def options_of(onnxruntime: Any, point: SessionPoint) -> Any:
    """Return the options of a session but those that it disables when it is opened."""
    options = onnxruntime.SessionOptions()
    options.enable_mem_pattern = point.pattern
    options.enable_mem_reuse = point.reuse
    options.enable_cpu_mem_arena = point.arena
    options.intra_op_num_threads = point.threads
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, _LEVELS[point.level])
    if not point.quant_qdq:
        options.add_session_config_entry("session.disable_quant_qdq", "1")
    if not point.prepacking:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if point.order == "file":
        options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED
    return options


def opened(
    source: str | bytes,
    point: SessionPoint = DEFAULT,
    *,
    folder: str | None = None,
    change: Callable[[Any], None] = lambda _: None,
) -> Any:
    """Open a session.

    Args:
        source: A path, or a model's bytes.
        folder: Where the weights lie that the model names; None: it names none, or they are beside its file.
        change: Sets further options.
    """
    options = session_options(point)
    change(options)
    if folder is not None and not (isinstance(source, str) and Path(source).parent == Path(folder)):
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
        source = Path(source).read_bytes() if isinstance(source, str) else source
    return runtime().InferenceSession(
        source, options, providers=["CPUExecutionProvider"], disabled_optimizers=list(point.disabled) or None
    )


def optimized(source: str | bytes, point: SessionPoint, *, folder: str | None = None) -> bytes:
    """Return the model that a session makes of one."""
    file = Path("optimized.onnx").absolute()

    def stored(options: Any) -> None:
        options.optimized_model_filepath = str(file)

    opened(source, point, folder=folder, change=stored)
    made = file.read_bytes()
    file.unlink()
    return made


def profiled(options: Any) -> None:
    """Let a session profile its runs, for `profile_of`."""
    options.enable_profiling = True
    options.profile_file_prefix = "profile"


def profile_of(session: Any) -> Sequence[Mapping[str, Any]]:
    """Return the events of a session's runs, and end its profile."""
    file = Path(session.end_profiling())
    events: Sequence[Mapping[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    return events


def run_once(session: Any, feed: Mapping[str, Any]) -> list[Any]:
    """Run a session; values of types that numpy lacks (bfloat16, float8) take a detour as raw bytes."""
    kinds = [value.type for value in (*session.get_inputs(), *session.get_outputs())]
    if not any(foreign in kind for kind in kinds for foreign in _FOREIGN):
        outputs: list[Any] = session.run(None, feed)
        return outputs
    import onnx
    import onnxruntime

    values = {}
    for name, array in feed.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        raw = array.view(f"u{array.dtype.itemsize}") if array.dtype.num >= _FIRST_FOREIGN_TYPE else array
        values[name] = onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(raw, kind)
    return [_array(value) for value in session.run_with_ort_values(None, values)]


def _array(value: Any) -> Any:
    """Return the elements of an OrtValue, of a type that numpy knows or not."""
    kind = value.data_type()
    if not any(foreign in kind for foreign in _FOREIGN):
        return value.numpy()
    import ctypes

    import numpy as np

    from memsched.runtimes.onnxruntime.inputs import dtype_of

    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(data, dtype_of(kind[7:-1])).reshape(value.shape())


def read_profile(events: Sequence[Mapping[str, Any]], places: Sequence[tuple[int, str]] = ()) -> dict[str, Any]:
    """Return the peak and the order of nodes in the profile of a session's first runs.

    "peak_bytes" is the most that was requested from the CPU arena at any node's end of the first run, less what was in
    use before its first node (the weights); "lasting_bytes" is the same over all runs, "least_bytes" that of the
    session, of several, that requested least; "order" has the file positions of the main graph's nodes, each once.

    Args:
        places: Of the nodes as the session numbers them, position in the file and type.
    """
    order: dict[int, None] = {}
    base = _before(events)
    highest = first = 0
    ended = min((e["ts"] + e["dur"] for e in events if e.get("name") == "model_run"), default=math.inf)
    for event in events:
        if event.get("cat") != "Node" or not event["name"].endswith("_kernel_time"):
            continue
        arguments = event.get("args", {})
        number = int(arguments.get("node_index", -1))
        # What optimisation made has a number of its own, behind those of the file.
        if 0 <= number < len(places) and places[number][1] == arguments.get("op_name"):
            order[places[number][0]] = None
        if base is not None and "mem_bytes_requested_in_use" in arguments:
            highest = max(highest, int(arguments["mem_bytes_requested_in_use"]) - base)
            first = highest if event["ts"] <= ended else first
    known = base is not None
    lasting = highest if known else None
    peaks = {"peak_bytes": first if known else None, "lasting_bytes": lasting, "least_bytes": lasting}
    return {**peaks, "order": list(order)}


def _before(events: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the bytes in use before the node that began first: one with a body ends after those in it."""
    nodes = [event for event in events if "mem_bytes_requested_in_use" in event.get("args", {})]
    first = min(nodes, key=lambda event: int(event["ts"]), default=None)
    if first is None:
        return None
    return int(first["args"]["mem_bytes_requested_in_use"]) - int(first["args"]["mem_requested_in_use_delta"])
