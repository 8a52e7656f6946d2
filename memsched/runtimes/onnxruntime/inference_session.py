"""Opens a file with the session options in its metadata."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memsched.formats.onnx.file_metadata import read_metadata
from memsched.runtimes.onnxruntime.opened import options_of
from memsched.runtimes.package import ONNXRUNTIME
from memsched.runtimes.session_code import SESSION, session_of
from memsched.runtimes.sessions import DEFAULT

__all__ = ["open_as_stated"]


def open_as_stated(path: str | Path, providers: Sequence[str] | None) -> Any:
    """Open a model with the session options in its metadata; see `memsched.onnxruntime.InferenceSession`."""
    ONNXRUNTIME.require()
    import onnxruntime

    stated = read_metadata(Path(path)).get(SESSION)
    point = DEFAULT if stated is None else session_of(stated)
    return onnxruntime.InferenceSession(
        str(path),
        options_of(onnxruntime, point),
        providers=list(providers or ["CPUExecutionProvider"]),
        disabled_optimizers=list(point.disabled) or None,
    )
