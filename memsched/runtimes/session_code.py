"""How a session is opened, in Python and in a file's metadata."""

from __future__ import annotations

import dataclasses
from typing import Final

import msgspec

from memsched.base.errors import ModelError
from memsched.runtimes.sessions import DEFAULT, SessionPoint

__all__ = ["LEVELS", "SESSION", "opening_lines", "session_of", "session_text"]

SESSION: Final = "memsched.session_options"
"""Key of a file's metadata: the options that it was measured with, if it needs any."""

LEVELS: Final = {"disabled": "ORT_DISABLE_ALL", "basic": "ORT_ENABLE_BASIC", "extended": "ORT_ENABLE_EXTENDED"}
"""Words for the levels of graph optimization, but for the highest, to the runtime's own."""


def opening_lines(point: SessionPoint) -> tuple[str, ...]:
    """Return the lines of Python that open ``path`` so; none for a session without options."""
    if point == DEFAULT:
        return ()
    lines = ["options = onnxruntime.SessionOptions()"]
    if point.order == "file":
        lines.append("options.execution_order = onnxruntime.ExecutionOrder.PRIORITY_BASED")
    if point.level in LEVELS:
        lines.append(f"options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.{LEVELS[point.level]}")
    flags = {"enable_mem_reuse": point.reuse, "enable_mem_pattern": point.pattern, "enable_cpu_mem_arena": point.arena}
    lines += [f"options.{name} = False" for name, kept in flags.items() if not kept]
    entries = {"session.disable_quant_qdq": point.quant_qdq, "session.disable_prepacking": point.prepacking}
    lines += [f'options.add_session_config_entry("{name}", "1")' for name, kept in entries.items() if not kept]
    lines += [f"options.intra_op_num_threads = {point.threads}"] if point.threads else []
    if not point.disabled:
        return (*lines, "session = onnxruntime.InferenceSession(path, options)")
    names = ", ".join(f'"{name}"' for name in point.disabled)
    lines.append(f"kept = [{names}]")
    return (*lines, "session = onnxruntime.InferenceSession(path, options, disabled_optimizers=kept)")


def session_text(point: SessionPoint) -> str:
    """Return what a file's metadata says of a session: the options that are not those by default, as JSON."""
    stated = {field.name: getattr(point, field.name) for field in dataclasses.fields(point)}
    return msgspec.json.encode({name: one for name, one in stated.items() if one != getattr(DEFAULT, name)}).decode()


def session_of(text: str) -> SessionPoint:
    """Return the session of which a file's metadata says ``text``.

    Raises:
        ModelError: There is no such session.
    """
    try:
        return msgspec.json.decode(text, type=SessionPoint)
    except msgspec.DecodeError as error:
        raise ModelError(f"metadata {SESSION}: {error}", code="bad-metadata") from None
