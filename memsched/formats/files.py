"""Models read from files, each by its content."""

from __future__ import annotations

import os
import sys

from memsched.base.errors import ModelError, UsageError
from memsched.formats.known import FORMATS, format_in
from memsched.formats.module import LoadOptions, Module
from memsched.formats.reading import read_judged
from memsched.formats.staging import STANDARD_STREAM, describe, reason
from memsched.search.heap import give_back

__all__ = [
    "load_module",
    "read_source",
]


def read_source(source: str | os.PathLike[str] | bytes) -> tuple[bytes, str]:
    """Return a model's bytes and the path that names it: "-" for standard input and for bytes.

    Raises:
        ModelError: The file does not exist, is a folder, is empty, begins as no model or cannot be read.
        UsageError: Standard input is a terminal.
    """
    if isinstance(source, bytes):
        data, path = source, STANDARD_STREAM
    else:
        path = os.fspath(source)
        data = _read(path)
    if not data:
        raise ModelError(f"{describe(path)} is empty", code="empty-file", action="give an ONNX or TFLite model")
    return data, path


def _read(path: str) -> bytes:
    if path == STANDARD_STREAM and (sys.stdin is None or sys.stdin.isatty()):
        raise UsageError(
            "standard input is a terminal",
            code="terminal",
            action="give a model file, or send one in with '< model.onnx'",
        )

    def judge(head: bytes, size: int) -> None:
        form = next((one for one in FORMATS if one.begins(head)), None)
        if head and form is None:
            raise ModelError(
                f"{describe(path)} is neither an ONNX nor a TFLite model",
                code="not-a-model",
                action="check the path of the model",
            )
        if form is not None and size > form.traits.max_bytes:
            most = f"{form.traits.max_bytes:,} bytes"
            raise ModelError(
                f"{describe(path)} is larger than the {most} that a file of its format can have", code="file-too-large"
            )

    try:
        return read_judged(path, judge)
    except IsADirectoryError:
        raise ModelError(f"'{path}' is a folder", code="is-a-folder", action="name a model file in it") from None
    except FileNotFoundError:
        raise ModelError(
            f"'{path}' does not exist", code="no-such-file", action="check the path of the model"
        ) from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{describe(path)} cannot be read: {reason(error)}", code="unreadable") from None


def load_module(data: bytes, path: str, options: LoadOptions) -> Module:
    """Read the model in ``data``, whatever its format.

    Raises:
        ModelError: It is no model of any format, truncated or contradictory.
        UnknownShapeError: A size is unknown; the message names the option that states it.
    """
    module = format_in(data).read(data, path, options)
    give_back(len(data))
    return module
