"""Sessions of ONNX Runtime with the options that a file was measured with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memsched.runtimes.known import open_as_stated

__all__ = ["InferenceSession"]


def InferenceSession(path: str | Path, providers: Sequence[str] | None = None) -> Any:  # noqa: N802 - the runtime's
    """Open a model with the session options in its metadata, which are those of its report.

    Args:
        path: Any ONNX file; one without such metadata is opened without options.
        providers: As ``onnxruntime.InferenceSession`` has them; by default the CPU alone, which was measured.

    Raises:
        ModelError: The file is no ONNX file, or its metadata states no session.
        OSError: It cannot be read.
        RuntimeUnavailableError: onnxruntime is not installed.
    """
    return open_as_stated(path, providers)
