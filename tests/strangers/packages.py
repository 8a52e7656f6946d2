"""The models that installed packages carry: TensorFlow Lite Micro's, ONNX Runtime's, and others'."""

from __future__ import annotations

import functools
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tests.strangers.judge import Subject

__all__ = ["carried"]

_SMALLEST, _LARGEST = 16, 20 << 20
_NO_MODELS = ("onnx/backend",)
"""Tests that another suite runs."""


@functools.cache
def carried() -> tuple[Subject, ...]:
    """Return every model that lies in an installed package."""
    return tuple(_found())


def _folders() -> list[Path]:
    """Return where packages are installed: what is on the path, and what `make test-strangers` downloads."""
    own = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *site.getsitepackages()}
    own |= {folder for folder in sys.path if Path(folder).name == "site-packages"}
    downloaded = Path(__file__).parents[2] / "build" / "strangers"
    return [*map(Path, sorted(own)), downloaded]


def _found() -> Iterator[Subject]:
    import numpy as np
    import onnxruntime

    seen: set[bytes] = set()
    for folder in _folders():
        for path in sorted((*folder.rglob("*.tflite"), *folder.rglob("*.onnx"))):
            name = path.relative_to(folder).as_posix()
            if name.startswith(_NO_MODELS) or not _SMALLEST <= path.stat().st_size <= _LARGEST:
                continue
            data = path.read_bytes()
            if data in seen:
                continue
            seen.add(data)
            if path.suffix == ".tflite":
                yield Subject("packages", name, data)
                continue
            session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
            rng = np.random.default_rng(0)
            feeds = tuple(
                rng.uniform(-1, 1, [dim if isinstance(dim, int) else 1 for dim in value.shape]).astype("f")
                for value in session.get_inputs()
            )
            yield Subject("packages", name, data, (feeds,))
