"""ONNX Runtime's symbolic shape inference: a second opinion where ONNX's own leaves dimensions open."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Final

from onnx import ModelProto

__all__ = ["LONGEST_VECTOR", "MOST_NODES", "infer"]

MOST_NODES: Final = 5_000
"""Larger models are left to ONNX's own inference: this one needs about a millisecond per node."""

LONGEST_VECTOR: Final = 4096
"""Models with longer vectors of integers are left to it as well: this one makes a symbol for each of their elements."""


def infer(model: ModelProto) -> ModelProto | None:
    """Return ``model`` with more types stated; None where ONNX Runtime is not installed or gives no help.

    It makes no guesses: symbolic dimensions that a broadcast would force to be equal are not merged.
    """
    with _silence():
        try:
            from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

            inference = SymbolicShapeInference(int_max=2**31 - 1, auto_merge=False, guess_output_rank=False, verbose=0)
            # Its public entry throws everything away when a single shape stays open.
            inference._preprocess(model)
            result: ModelProto = inference.out_mp_
            with contextlib.suppress(Exception):
                while inference.run_:
                    inference._infer_impl()
            with contextlib.suppress(Exception):
                inference._update_output_from_vi()
        except Exception:  # any failure inside means no help
            return None
        return result


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
