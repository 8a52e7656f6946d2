"""The Python package of a runtime: whether it is here, and what to say where it is not."""

from __future__ import annotations

import importlib.util
from typing import Final

from memsched.base.errors import RuntimeUnavailableError
from memsched.base.frozen import FrozenValue

__all__ = ["LITERT", "ONNXRUNTIME", "TFLM", "RuntimePackage"]


class RuntimePackage(FrozenValue, frozen=True):
    """A runtime's package.

    Attributes:
        runtime: What reports call the runtime.
        name: Of the package.
        module: What is imported.
        source: What pip installs it from.
    """

    runtime: str
    name: str
    module: str
    source: str

    def found(self) -> bool:
        """Return whether it is installed."""
        return importlib.util.find_spec(self.module) is not None

    def require(self, otherwise: str | None = None) -> str:
        """Return the runtime's name and version.

        Args:
            otherwise: The option, or the command, that does without it; None: there is none.

        Raises:
            RuntimeUnavailableError: It is not installed; the message says how it would be.
        """
        if not self.found():
            another = "" if otherwise is None else f", or use {otherwise}"
            raise RuntimeUnavailableError(f"{self.name} is not installed: pip install {self.source}{another}")
        from importlib.metadata import version  # takes as long as all of this package

        return f"{self.runtime} {version(self.name)}"


ONNXRUNTIME: Final = RuntimePackage("onnxruntime", "onnxruntime", "onnxruntime", "onnxruntime")
LITERT: Final = RuntimePackage("litert", "ai-edge-litert", "ai_edge_litert", "ai-edge-litert")
TFLM: Final = RuntimePackage("tflite-micro", "tflite-micro", "tflite_micro", "tflite-micro (Linux on x86-64)")
