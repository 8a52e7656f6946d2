"""TFLite as a `Format`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from memsched.formats.format import FormatTraits
from memsched.formats.module import FormatName, LoadOptions, Module
from memsched.formats.tflite.capabilities import CAPABILITIES
from memsched.graph.border import Interface
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph

__all__ = ["TfliteFormat"]

_IDENTIFIER = b"TFL3"


class TfliteFormat:
    """TFLite files. The package tflite, which knows the schema, is imported when there is one."""

    name: Final[FormatName] = "tflite"
    traits: Final = FormatTraits(
        title="TFLite",
        axes=("batch", "rows", "columns", "channels"),
        order_binds=True,
        names_kept=False,
        bodies_follow_ops=False,
        holds_stages=False,
        max_bytes=(1 << 32) - 1,  # its offsets have 32 bits
        other_sizes="its signature allows no others",
    )
    capabilities: Final = CAPABILITIES

    def begins(self, head: bytes) -> bool:
        """Return whether there is the file identifier of TFLite."""
        return head[4:8] == _IDENTIFIER

    def read(self, data: bytes, path: str, options: LoadOptions) -> Module:
        """Read a model; see `Format.read`."""
        from memsched.formats.tflite.reader import read

        return read(data, path, options)

    def interface(self, module: Module) -> Interface:
        """Return the inputs and outputs of the main graph."""
        from memsched.formats.tflite.borders import interface

        return interface(module)

    def dialect(self, module: Module) -> Dialect:
        """Return how TFLite says what rewrites add."""
        from memsched.formats.tflite.rewriter import dialect

        return dialect(module)

    def rewrite(self, module: Module, graph: Graph) -> bytes:
        """Return ``module`` with its main graph rewritten; see `Format.rewrite`."""
        from memsched.formats.tflite.rewriter import serialize

        return serialize(module, graph, range(len(graph.ops)))

    def reorder(
        self,
        module: Module,
        orders: Mapping[int, Sequence[int]],
        metadata: Mapping[str, str],
        *,
        control_dependencies: bool = False,
    ) -> bytes:
        """Return ``module`` in other orders; see `Format.reorder`. There is no place for ``metadata``."""
        from memsched.formats.tflite.writer import serialize

        del metadata
        return serialize(module, orders, control_dependencies=control_dependencies)

    def notes(
        self, module: Module, orders: Mapping[int, Sequence[int]], *, control_dependencies: bool
    ) -> tuple[str, ...]:
        """Return what a report must say of a file written in ``orders``."""
        from memsched.formats.tflite.writer import notes

        return notes(module, orders, control_dependencies=control_dependencies)

    def constants_read(self, module: Module) -> tuple[list[list[str]], dict[str, int]]:
        """Return the constants that each op of the main graph reads, and the bytes of each."""
        from memsched.formats.tflite.weights import read_constants

        return read_constants(module)
