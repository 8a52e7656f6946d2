"""A model as ONNX Runtime's graph optimisation writes it, made in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from memsched.base.errors import ModelError
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.onnxruntime.opened import optimized
from memsched.runtimes.package import ONNXRUNTIME
from memsched.runtimes.sessions import SessionPoint

__all__ = ["offline_optimized", "optimize_offline"]

_OPTIMIZE: Final = "scripts.bench.offline:optimize_offline"


def offline_optimized(path: str | Path, level: Literal["basic", "extended"]) -> bytes:
    """Return the model as ONNX Runtime's graph optimisation of this level rewrites it.

    Reordered afterwards, its file order holds in a session with ``PRIORITY_BASED`` at this level or a lower one,
    because there is nothing left to rewrite.

    Raises:
        RuntimeUnavailableError: onnxruntime is not installed.
        ModelError: ONNX Runtime cannot load the model.
    """
    ONNXRUNTIME.require()
    request = {"path": str(Path(path).absolute()), "level": level}
    result = run_in_child(_OPTIMIZE, request, TIMEOUT)
    if not result.ok:
        problem = f"onnxruntime cannot optimize it: {result.reason}"
        raise ModelError(problem, code="not-loaded", location=str(path))
    optimized: bytes = result.value["bytes"]
    return optimized


def optimize_offline(request: Mapping[str, Any]) -> dict[str, bytes]:
    """Return {"bytes": the model at "path" as ONNX Runtime's graph optimisation at "level" rewrites it}."""
    return {"bytes": optimized(request["path"], SessionPoint(request["level"]))}
