"""How long the kernels of an ONNX model take in ONNX Runtime: the child process's side."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from memsched.runtimes.onnxruntime.inputs import random_feed
from memsched.runtimes.onnxruntime.sessions import find_data, run_once
from memsched.runtimes.values import INTEGER_BOUNDS

__all__ = ["seconds"]

_RUNS: Final = 10
_KERNEL: Final = "_kernel_time"


def seconds(request: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of every node of "model" by its name, on one core, without graph optimisation.

    The least of several runs: what is more is another process's. Together they are what a run without a profile takes
    of the processor's time.

    Args:
        request: Also "seed" of the inputs, "folder" of external data (or None) and "input_shapes".
    """
    import numpy as np
    import onnx
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    proto = onnx.load_model_from_string(request["model"])
    plain, profiled = (_open(onnxruntime, request, profile=profile) for profile in (False, True))
    for bound in INTEGER_BOUNDS:
        feed = random_feed(plain, proto, request, np.random.default_rng(request["seed"]), bound)
        try:
            run_once(plain, feed)
            break
        except Exception:  # indices out of bounds, for one: smaller ones may do
            if bound == INTEGER_BOUNDS[-1]:
                raise
    whole = float("inf")
    for _ in range(_RUNS):
        before = time.thread_time()
        run_once(plain, feed)
        whole = min(whole, time.thread_time() - before)
        run_once(profiled, feed)
    took: dict[str, float] = {}
    for event in json.loads(Path(profiled.end_profiling()).read_text(encoding="utf-8")):
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(_KERNEL):
            node = name.removesuffix(_KERNEL)
            took[node] = min(took.get(node, float("inf")), float(event["dur"]))
    total = sum(took.values())
    return {node: whole * one / total for node, one in took.items()} if total else dict.fromkeys(took, 0.0)


def _open(onnxruntime: Any, request: Mapping[str, Any], *, profile: bool) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_profiling = profile
    find_data(options, request["folder"])
    return onnxruntime.InferenceSession(request["model"], options, providers=["CPUExecutionProvider"])
