"""A model as a C array, for firmware that has no files: C99 and C++11."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from memsched.base.templates import fill
from memsched.report.header import comment_text, model_name
from memsched.report.values.optimize import OptimizeReport
from memsched.runtimes.arena_facts import ALIGNMENT

__all__ = ["byte_lines", "model_array"]


def byte_lines(data: bytes) -> Iterator[str]:
    """Yield the lines between the braces of an array, one for each unit that it is aligned to."""
    for start in range(0, len(data), ALIGNMENT):
        yield "    " + " ".join(f"0x{byte:02x}," for byte in data[start : start + ALIGNMENT])


def model_array(report: OptimizeReport, model: bytes, file_name: str) -> str:
    """Return the text of a source that defines ``<model>_model`` and ``<model>_model_bytes``.

    Args:
        model: The file that was written.
        file_name: Of the source, for a model that has no name of its own.
    """
    file = report.model if report.output is None else report.output
    path = report.model.path if report.output is None or report.output.path is None else report.output.path
    values: dict[str, str | int] = {
        "version": comment_text(report.memsched_version),
        "file": comment_text(PurePath(path).name),
        "target": comment_text(report.target.name),
        "sha256": file.sha256,
        "name": f"{model_name(report, file_name).lower()}_model",
        "bytes": len(model),
    }
    return fill("memsched.report", "model_array.c", values, {"data": byte_lines(model)})
