"""ONNX as a `Format`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from memsched.errors import ModelError
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
    axes: Final[tuple[str, ...]] = ("batch", "channels", "rows", "columns")
    order_binds: Final = False
    bodies_follow_ops: Final = True
    holds_stages: Final = True
    for_firmware: Final = False
    names_kept: Final = True
    most_bytes: Final = (1 << 31) - 1  # of a protocol buffer

    def begins(self, head: bytes) -> bool:
        """Return whether a field of a model comes first."""
        return head.startswith(_FIRST)

    def recognises(self, data: bytes) -> bool:
        """Return True: a protocol buffer begins with nothing that would tell it, and reading says what is wrong."""
        del data
        return True

    def read(self, data: bytes, path: str, options: LoadOptions) -> Module:
        """Read a model; see `Format.read`."""
        from memsched.formats.onnx.reader import read

        return read(data, path, options)

    def references(self, data: bytes, folder: Path) -> tuple[str, ...]:
        """Return the files in ``folder`` that hold weights; what is wrong with a model its reader says."""
        import onnx
        from google.protobuf.message import DecodeError

        from memsched.formats.onnx.light import lighten

        try:
            return tuple(lighten(onnx.ModelProto.FromString(data), folder).locations)
        except (DecodeError, ModelError, UnicodeDecodeError):
            return ()

    def external_files(self, module: Module) -> tuple[str, ...]:
        """Return the files beside the model that hold its weights."""
        from memsched.formats.onnx.external import external_files

        return external_files(module)

    def copy_external_files(self, module: Module, folder: Path) -> tuple[Path, ...]:
        """Put these files into ``folder``, too; return those that were created."""
        from memsched.formats.onnx.external import copy_external_files

        return copy_external_files(module, folder) if self.external_files(module) else ()

    def borders(self, module: Module) -> Borders:
        """Return what can be changed at the border; see `Format.borders`."""
        from memsched.formats.onnx.borders import borders

        return borders(module)

    def in_branches(self, module: Module, written: bytes) -> tuple[bytes, ...]:
        """Return a file with large values in branches, for which ONNX Runtime keeps no memory pattern."""
        from memsched.formats.onnx.patternless import in_branches

        return in_branches(module, written)

    def weights_first(self, data: bytes) -> bytes:
        """Return it with large weights first; see `memsched.formats.onnx.large_weights`."""
        from memsched.formats.onnx.large_weights import weights_first

        return weights_first(data)

    def chains(self, module: Module) -> tuple[Chain, ...]:
        """Return activations that were exported in their parts; see `Format.chains`."""
        from memsched.formats.onnx.chains import chains

        return chains(module)

    def folded(self, module: Module, options: LoadOptions) -> bytes | None:
        """Return ``module`` without its shape arithmetic; see `Format.folded`."""
        from memsched.formats.onnx.folded import folded

        return folded(module, options)

    def open_model(self, data: bytes, path: str, dims: Mapping[str, int], ranges: Mapping[str, Range]) -> OpenModel:
        """Return what can be done to a model for every size; see `Format.open_model`."""
        from memsched.formats.onnx.blocks.model import open_model

        return open_model(data, path, dims, ranges)

    def open_decoder(self, data: bytes, path: str, dims: Mapping[str, int], length: str | None) -> Decoder:
        """Return what the caches are, and how they are appended to; see `Format.open_decoder`."""
        from memsched.formats.onnx.decoder import open_decoder

        return open_decoder(data, path, dims, length)

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

    def rewrite_scaled(self, module: Module, graph: Graph) -> tuple[bytes, Mapping[str, str]]:
        """Return ``module`` rewritten, with scales in weights; see `memsched.formats.onnx.scaled_weights`."""
        from memsched.formats.onnx.rewriter import serialize_scaled

        return serialize_scaled(module, graph)

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

    def fixed_dimensions(self, given: Module, written: bytes) -> Mapping[str, int]:
        """Return the dimensions that ``given`` leaves open and ``written`` does not, with their sizes."""
        from onnx import ModelProto

        from memsched.formats.onnx import dimensions

        found = dimensions.fixed(given.native.parse(), ModelProto.FromString(written))
        return {one.name: one.size for one in found if one.size is not None}

    def with_guards(self, given: Module, module: Module, data: bytes) -> bytes:
        """Return the file as it is: its inputs state the sizes, which ONNX Runtime compares."""
        del given, module
        return data

    def sizes_can_be_refused(self, module: Module, options: LoadOptions) -> bool:
        """Return whether every size that is stated is an input's, and no size had to be looked up in a run."""
        from memsched.formats.onnx.dimensions import sizes_follow_from_inputs
        from memsched.formats.onnx.reader import all_sizes_follow

        if options.observed is not None and not all_sizes_follow(module.native.data, module.path, options):
            return False
        return not (options.input_shapes or options.dims) or sizes_follow_from_inputs(module, options)

    def constants_read(self, module: Module) -> tuple[list[list[str]], dict[str, int]]:
        """Return the constants that each op of the main graph reads, and the bytes of each."""
        from memsched.formats.onnx.weights import read_constants

        return read_constants(module)

    def layer_kernels(self, module: Module) -> tuple[LayerKernel | KernelRefusal, ...]:
        """Return per op of the main graph what it computes, with its weights, or why that cannot be said."""
        from memsched.formats.onnx.kernels import layer_kernels

        return layer_kernels(module)

    def cutter(self, module: Module) -> Cutter:
        """Return what makes models of parts of ``module``."""
        from memsched.formats.onnx.segments import OnnxCutter

        return OnnxCutter(module)

    def together(self, module: Module) -> tuple[tuple[int, ...], ...]:
        """Return nothing: ONNX has no state that ops share."""
        del module
        return ()

    def annotate_stages(self, module: Module, stages: Sequence[int]) -> bytes:
        """Return the whole model with the stage of every op in its nodes."""
        from memsched.formats.onnx.segments import annotate_stages

        return annotate_stages(module, stages)

    def part_writer(self, module: Module) -> PartWriter:
        """Return what writes parts of ops of ``module`` as models."""
        from memsched.formats.onnx.parts import PartsWriter

        return PartsWriter(module)

    def segment_options(self, module: Module, segment: Segment) -> LoadOptions:
        """State every shape that is known: segments leave open what the model leaves open."""
        graph = module.graphs[0]
        made = {graph.tensors[tensor].name for op in segment.ops for tensor in graph.ops[op].outputs}
        held = made.union(segment.inputs)
        return LoadOptions(
            {
                tensor.name: tensor.shape
                for tensor in graph.tensors
                if tensor.name in held and tensor.sized and tensor.shape is not None
            }
        )
