"""memsched: order, place and prove the activation memory of neural networks.

`optimize`, `analyze`, `verify`, `allocate_buffers` and `load` are the commands as functions; they and what they return
are imported on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from memsched.errors import MemschedError

if TYPE_CHECKING:
    from memsched.compiler import analyze, load, optimize, verify
    from memsched.packing import AllocateResult, allocate_buffers
    from memsched.results import AnalyzeResult, OptimizeResult, OutputsDifferError, Report

__version__ = "0.1.0"

__all__ = [
    "AllocateResult",
    "AnalyzeResult",
    "MemschedError",
    "OptimizeResult",
    "OutputsDifferError",
    "Report",
    "__version__",
    "allocate_buffers",
    "analyze",
    "load",
    "optimize",
    "verify",
]

_HOMES = {
    "AllocateResult": "memsched.packing",
    "AnalyzeResult": "memsched.results",
    "OptimizeResult": "memsched.results",
    "OutputsDifferError": "memsched.results",
    "Report": "memsched.results",
    "allocate_buffers": "memsched.packing",
    "analyze": "memsched.compiler",
    "load": "memsched.compiler",
    "optimize": "memsched.compiler",
    "verify": "memsched.compiler",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'memsched' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
