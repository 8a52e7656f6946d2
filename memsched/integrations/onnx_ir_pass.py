"""A pass for ONNX IR (package onnx-ir): the model in the order, or the pieces, that need the least activation memory.

import onnx_ir as ir
from memsched.integrations.onnx_ir_pass import LeastMemoryPass

result = ir.passes.Sequential(LeastMemoryPass(level=2))(ir.load("model.onnx"))
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsched.base.errors import MemschedError
from memsched.integrations.missing import missing_tool

try:
    import onnx_ir as ir
    from onnx_ir.passes import FunctionalPass, PassResult, PostconditionError, PreconditionError
except ModuleNotFoundError as error:
    raise missing_tool(error, "onnx-ir", "onnx-ir") from None

if TYPE_CHECKING:
    from memsched.commands.results import Report
    from memsched.report.values.optimize import OptimizeReport

__all__ = ["LeastMemoryPass"]

_INLINE = 2**20
"""Bytes of weights above which they are handed over in a file of their own: one protobuf ends at 2 GiB."""


class LeastMemoryPass(FunctionalPass):  # type: ignore[misc]  # types are checked without onnx-ir
    """Returns what `memsched.optimize` makes of a model; weights are those of the model given, not copies.

    Attributes:
        report: Of the last model; None before. ``report["output"]["guarantee"]["session_options"]`` are the lines that
            open a session which executes the order.
    """

    def __init__(self, **options: Any) -> None:
        """Take the options of `memsched.optimize`, such as ``level=2`` or ``budget="4MB"``."""
        super().__init__()
        self._options = options
        self.report: Report[OptimizeReport] | None = None

    def requires(self, model: ir.Model) -> None:
        """Check that memsched can read the model and knows all sizes.

        Raises:
            PreconditionError: It does not; the message says what to state.
        """
        from memsched.commands.optimize.analysis import analyze

        stated = {key: self._options[key] for key in ("target", "dims", "input_shapes") if key in self._options}
        with tempfile.TemporaryDirectory() as folder:
            try:
                analyze(str(_saved(model, Path(folder))), **stated)
            except MemschedError as error:
                raise PreconditionError(str(error)) from error

    def call(self, model: ir.Model) -> PassResult:
        """Optimize the model.

        Raises:
            MemschedError: As `memsched.optimize`.
        """
        from memsched.commands.optimize.optimize import optimize

        with tempfile.TemporaryDirectory() as folder:
            path = _saved(model, Path(folder))
            result = optimize(str(path), **self._options)
            self.report = result.report
            written = Path(folder, "written.onnx")
            result.save(written)
            found = ir.load(written)
            ir.external_data.load_to_model(found)  # the file of the weights goes with the folder
            _take_weights(found, model)
        output = result.report.values.output
        return PassResult(found, modified=output is None or not output.unchanged)

    def ensures(self, model: ir.Model) -> None:
        """Check that each value is computed before it is read, and that the model needs no more than the one given.

        Raises:
            PostconditionError: It is not so.
        """
        known = {value for value in (*model.graph.inputs, *model.graph.initializers.values()) if value is not None}
        for node in model.graph:
            for value in node.inputs:
                if value is not None and value not in known:
                    raise PostconditionError(f"'{value.name}' is read before it is computed")
            known.update(node.outputs)
        if self.report is not None:
            values = self.report.values
            if values.written.schedule.peak_bytes > values.original.schedule.peak_bytes:
                raise PostconditionError("the model needs more memory than the one given")


def _saved(model: ir.Model, folder: Path) -> Path:
    """Write ``model`` below ``folder``, its weights beside it where they are large, and return the path."""
    path = folder / "model.onnx"
    weights = sum(value.const_value.nbytes for value in _weights(model) if value.const_value is not None)
    external = any(isinstance(value.const_value, ir.ExternalTensor) for value in _weights(model))
    if weights > _INLINE or external:
        ir.save(model, path, external_data="model.data")
    else:
        ir.save(model, path)
    return path


def _weights(model: ir.Model) -> Iterator[ir.Value]:
    for graph in model.graphs():
        yield from graph.initializers.values()


def _take_weights(model: ir.Model, given: ir.Model) -> None:
    """Let initializers of ``model`` that ``given`` has, too, be the same tensors, wherever these lie."""
    known = {value.name: value.const_value for value in _weights(given)}
    for value in _weights(model):
        old, new = known.get(value.name), value.const_value
        if old is None or new is None or (old.dtype, old.shape) != (new.dtype, new.shape):
            continue
        if old.tobytes() == new.tobytes():
            value.const_value = old
