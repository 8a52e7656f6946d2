"""TFLite as a `Format`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from memsched.errors import UsageError
from memsched.formats.blocks import OpenModel, Range
from memsched.formats.decoders import Decoder
from memsched.formats.format import Cutter, PartWriter
from memsched.formats.module import FormatName, LoadOptions, Module
from memsched.formats.segment import Segment
from memsched.graph.border import Borders, Interface
from memsched.graph.chain import Chain
from memsched.graph.dialect import Dialect
from memsched.graph.kernel import KernelRefusal, LayerKernel
from memsched.graph.model import Graph

__all__ = ["TfliteFormat"]

_IDENTIFIER = b"TFL3"


class TfliteFormat:
    """TFLite files. The package tflite, which knows the schema, is imported when there is one."""

    name: Final[FormatName] = "tflite"
    axes: Final[tuple[str, ...]] = ("batch", "rows", "columns", "channels")
    order_binds: Final = True
    bodies_follow_ops: Final = False
    holds_stages: Final = False
    for_firmware: Final = True
    names_kept: Final = False
    most_bytes: Final = (1 << 32) - 1  # its offsets have 32 bits

    def begins(self, head: bytes) -> bool:
        """Return whether there is the file identifier of TFLite."""
        return self.recognises(head)

    def recognises(self, data: bytes) -> bool:
        """Return whether ``data`` has the file identifier of TFLite."""
        return data[4:8] == _IDENTIFIER

    def read(self, data: bytes, path: str, options: LoadOptions) -> Module:
        """Read a model; see `Format.read`."""
        from memsched.formats.tflite.reader import read

        return read(data, path, options)

    def references(self, data: bytes, folder: Path) -> tuple[str, ...]:
        """Return nothing: the file holds its weights."""
        del data, folder
        return ()

    def external_files(self, module: Module) -> tuple[str, ...]:
        """Return nothing: the file holds its weights."""
        del module
        return ()

    def copy_external_files(self, module: Module, folder: Path) -> tuple[Path, ...]:
        """Do nothing: the file holds its weights."""
        del module, folder
        return ()

    def borders(self, module: Module) -> Borders:
        """Return what can be changed at the border; see `Format.borders`."""
        from memsched.formats.tflite.borders import borders

        return borders(module)

    def in_branches(self, module: Module, written: bytes) -> tuple[bytes, ...]:
        """Return nothing: LiteRT keeps no pattern."""
        del module, written
        return ()

    def weights_first(self, data: bytes) -> bytes:
        """Return it as it is: weights are used where they lie."""
        return data

    def chains(self, module: Module) -> tuple[Chain, ...]:
        """Return nothing: converters write activations as one operator each."""
        del module
        return ()

    def folded(self, module: Module, options: LoadOptions) -> bytes | None:
        """Return None: converters carry out what follows from sizes."""
        del module, options
        return None

    def open_model(self, data: bytes, path: str, dims: Mapping[str, int], ranges: Mapping[str, Range]) -> OpenModel:
        """Refuse: every size is stated.

        Raises:
            UsageError: Always.
        """
        del data, dims
        raise UsageError(
            f"--dim: a TFLite file states every size, so {next(iter(ranges))} has no range",
            location=path,
            code="no-such-dimension",
        )

    def open_decoder(self, data: bytes, path: str, dims: Mapping[str, int], length: str | None) -> Decoder:
        """Refuse: every size is stated, also that of what it keeps.

        Raises:
            UsageError: Always.
        """
        del data, dims, length
        raise UsageError(
            "a TFLite file states every size, and its runtime keeps variables in place already",
            location=path,
            code="no-decoder",
        )

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

    def rewrite_scaled(self, module: Module, graph: Graph) -> tuple[bytes, Mapping[str, str]]:
        """Return ``module`` rewritten; converters have made scales part of weights."""
        return self.rewrite(module, graph), {}

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

    def fixed_dimensions(self, given: Module, written: bytes) -> Mapping[str, int]:
        """Return the sizes that ``given`` leaves open and ``written`` does not."""
        from memsched.formats.tflite.open_sizes import fixed_dimensions

        return fixed_dimensions(given, written)

    def with_guards(self, given: Module, module: Module, data: bytes) -> bytes:
        """Return the file with a GATHER without positions at its end for each input that is not to be resized."""
        from memsched.formats.tflite.open_sizes import with_guards

        return with_guards(given, module, data, last=True)

    def sizes_can_be_refused(self, module: Module, options: LoadOptions) -> bool:
        """Return True: no size is stated."""
        del module, options
        return True

    def constants_read(self, module: Module) -> tuple[list[list[str]], dict[str, int]]:
        """Return the constants that each op of the main graph reads, and the bytes of each."""
        from memsched.formats.tflite.weights import read_constants

        return read_constants(module)

    def layer_kernels(self, module: Module) -> tuple[LayerKernel | KernelRefusal, ...]:
        """Return per op of the main graph what it computes, with its weights, or why that cannot be said."""
        from memsched.formats.tflite.kernels import layer_kernels

        return layer_kernels(module)

    def cutter(self, module: Module) -> Cutter:
        """Return what makes models of parts of ``module``."""
        from memsched.formats.tflite.segments import TfliteCutter

        return TfliteCutter(module)

    def together(self, module: Module) -> tuple[tuple[int, ...], ...]:
        """Return groups of ops of the main graph that use one state, and so must be in one segment."""
        from memsched.formats.tflite.segments import together

        return together(module)

    def annotate_stages(self, module: Module, stages: Sequence[int]) -> bytes | None:
        """Return None: the format has no place for stages."""
        del module, stages
        return None

    def part_writer(self, module: Module) -> PartWriter:
        """Return what writes parts of ops of ``module`` as models."""
        from memsched.formats.tflite.parts import TflitePartsWriter

        return TflitePartsWriter(module)

    def segment_options(self, module: Module, segment: Segment) -> LoadOptions:
        """State nothing: all sizes are in the file."""
        del module, segment
        return LoadOptions()
