"""ONNX as a `Format`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from memsched.formats.format import FormatTraits
from memsched.formats.module import FormatName, LoadOptions, Module
from memsched.formats.onnx.capabilities import CAPABILITIES
from memsched.graph.border import Interface
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph

__all__ = ["OnnxFormat"]

_FIRST: Final = tuple(
    bytes([tag]) if tag < 128 else bytes([tag & 127 | 128, tag >> 7])
    for field, kind in ((1, 0), (5, 0), *((field, 2) for field in (2, 3, 4, 6, 7, 8, 14, 20, 25, 26)))
    for tag in (field << 3 | kind,)
)
"""How fields of a model are marked in a protocol buffer: by their number, and whether it is a number or a block."""


class OnnxFormat:
    """ONNX files. The package onnx is imported when there is one."""

    name: Final[FormatName] = "onnx"
    traits: Final = FormatTraits(
        title="ONNX",
        axes=("batch", "channels", "rows", "columns"),
        order_binds=False,
        names_kept=True,
        bodies_follow_ops=True,
        holds_stages=True,
        max_bytes=(1 << 31) - 1,  # of a protocol buffer
        other_sizes="ONNX Runtime refuses others",
    )
    capabilities: Final = CAPABILITIES

    def begins(self, head: bytes) -> bool:
        """Return whether a field of a model comes first."""
        return head.startswith(_FIRST)

    def read(self, data: bytes, path: str, options: LoadOptions) -> Module:
        """Read a model; see `Format.read`."""
        from memsched.formats.onnx.reader import read

        return read(data, path, options)

    def interface(self, module: Module) -> Interface:
        """Return the inputs and outputs of the main graph; ONNX states no scale of theirs."""
        from memsched.formats.onnx.borders import interface

        return interface(module)

    def dialect(self, module: Module) -> Dialect:
        """Return how ONNX says what rewrites add, in the model's operator set."""
        from memsched.formats.onnx.rewriter import dialect

        return dialect(module)

    def rewrite(self, module: Module, graph: Graph) -> bytes:
        """Return ``module`` with its main graph rewritten; see `Format.rewrite`."""
        from memsched.formats.onnx.rewriter import serialize

        return serialize(module, graph, range(len(graph.ops)), {})

    def reorder(
        self,
        module: Module,
        orders: Mapping[int, Sequence[int]],
        metadata: Mapping[str, str],
        *,
        control_dependencies: bool = False,
    ) -> bytes:
        """Return ``module`` in other orders; see `Format.reorder`. ONNX has no control dependencies."""
        from memsched.formats.onnx.writer import serialize

        del control_dependencies
        return serialize(module, orders, metadata)

    def notes(
        self, module: Module, orders: Mapping[int, Sequence[int]], *, control_dependencies: bool
    ) -> tuple[str, ...]:
        """Return nothing: an order costs nothing in the file."""
        del module, orders, control_dependencies
        return ()

    def constants_read(self, module: Module) -> tuple[list[list[str]], dict[str, int]]:
        """Return the constants that each op of the main graph reads, and the bytes of each."""
        from memsched.formats.onnx.weights import read_constants

        return read_constants(module)
