"""memsched: order, place and prove the activation memory of neural networks.

`optimize`, `analyze`, `verify` and `load` are the commands of the same names as functions; they and what they return
are imported on first use, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from memsched.errors import MemschedError

if TYPE_CHECKING:
    from memsched.compiler import analyze, load, optimize, verify
    from memsched.results import AnalyzeResult, OptimizeResult, OutputsDifferError, Report

__version__ = "0.1.0"

__all__ = [
    "AnalyzeResult",
    "MemschedError",
    "OptimizeResult",
    "OutputsDifferError",
    "Report",
    "__version__",
    "analyze",
    "load",
    "optimize",
    "verify",
]

_HOMES = {
    "AnalyzeResult": "memsched.results",
    "OptimizeResult": "memsched.results",
    "OutputsDifferError": "memsched.results",
    "Report": "memsched.results",
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
