"""Plan the memory of ONNX models in their given order with onnxsim; needs onnx and onnxsim alone.

``python onnxsim_peer.py MODEL...`` prints one JSON object per model: bytes of the arena, of all tensors without reuse,
and the seconds of planning. Weights, computed here by ConstantOfShape, are left out, as onnxsim leaves out stored ones.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path


def main() -> None:
    """Plan each model named on the command line."""
    import onnx

    planning = importlib.import_module("onnxsim.memory_planning")
    for path in sys.argv[1:]:
        model = onnx.load_model_from_string(Path(path).read_bytes())
        started = time.perf_counter()
        # With shape inference, the weights that ConstantOfShape computes would count as activations.
        plan = planning.plan_activation_memory(model, run_shape_inference=False)
        seconds = time.perf_counter() - started
        print(json.dumps({"arena": plan.arena_bytes, "naive": plan.naive_bytes, "seconds": seconds}))


if __name__ == "__main__":
    main()
