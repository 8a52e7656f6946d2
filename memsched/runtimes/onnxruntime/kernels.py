"""How long the kernels of an ONNX model take in ONNX Runtime: the child process's side."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import onnx

from memsched.runtimes.onnxruntime.inputs import random_feed
from memsched.runtimes.onnxruntime.opened import opened, profile_of, profiled, run_once
from memsched.runtimes.sessions import SessionPoint
from memsched.runtimes.values import INTEGER_BOUNDS

__all__ = ["seconds"]

_RUNS: Final = 10
_KERNEL: Final = "_kernel_time"
_SESSION: Final = SessionPoint("disabled", threads=1)


def seconds(request: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds of every node of "model" by its name, on one core, without graph optimisation.

    The least of several runs: what is more is another process's. Together they are what a run without a profile takes
    of the processor's time.

    Args:
        request: Also "seed" of the inputs, "folder" of external data (or None) and "input_shapes".
    """
    proto = onnx.load_model_from_string(request["model"])
    plain = opened(request["model"], _SESSION, folder=request["folder"])
    measured = opened(request["model"], _SESSION, folder=request["folder"], change=profiled)
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
        run_once(measured, feed)
    took: dict[str, float] = {}
    for event in profile_of(measured):
        name = str(event.get("name", ""))
        if event.get("cat") == "Node" and name.endswith(_KERNEL):
            node = name.removesuffix(_KERNEL)
            took[node] = min(took.get(node, float("inf")), float(event["dur"]))
    total = sum(took.values())
    return {node: whole * one / total for node, one in took.items()} if total else dict.fromkeys(took, 0.0)
