"""Random inputs on which a model runs, stored for the processes that measure it. The child process's side.

Called through ``run_in_child``; requests and answers are plain values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from memsched.runtimes.onnxruntime.inputs import random_feed
from memsched.runtimes.onnxruntime.opened import opened, run_once
from memsched.runtimes.values import INTEGER_BOUNDS, one_line

__all__ = ["draw"]


def draw(request: Mapping[str, Any]) -> dict[str, Any]:
    """Store random inputs that the model takes in "file", an .npz.

    Args:
        request: "model" with "bytes" and "folder"; "file"; "seed", "input_shapes", "dims".

    Returns:
        "failed": why there are none; None where there are. "loaded": whether the runtime loads the model.
    """
    model = request["model"]
    try:
        proto = onnx.load_model_from_string(model["bytes"])
        session = opened(model["bytes"], folder=model["folder"])
    except Exception as error:  # the runtime raises classes of its own
        return {"failed": one_line(error), "loaded": False}
    failed = "there are no inputs that it takes"
    for bound in INTEGER_BOUNDS:
        try:
            feed = random_feed(session, proto, request, np.random.default_rng(request["seed"]), bound)
            if not all(isinstance(value, np.ndarray) for value in feed.values()):
                return {"failed": "its inputs are not all tensors", "loaded": True}
            run_once(session, feed)
        except Exception as error:  # the runtime raises classes of its own
            failed = one_line(error)
            continue
        np.savez(request["file"], **feed)
        return {"failed": None, "loaded": True}
    return {"failed": failed, "loaded": True}
