"""What ONNX files allow beyond reading and writing; the package onnx is imported when it is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from memsched.base.errors import ModelError
from memsched.formats.blocks import OpenModel, Range
from memsched.formats.capabilities import (
    ActivationChains,
    BorderRewrites,
    Capability,
    Cutter,
    DecoderCaches,
    DynamicDimensions,
    FileMetadata,
    KernelContents,
    OpenSizes,
    PartWriter,
    ScaledWeights,
    ShapeArithmetic,
    Shards,
    SizeGuards,
    Stages,
    WeightFiles,
    WeightPlacement,
)
from memsched.formats.decoders import Decoder
from memsched.formats.module import LoadOptions, Module
from memsched.formats.segment import Segment
from memsched.graph.border import Borders
from memsched.graph.chain import Chain
from memsched.graph.kernel import KernelRefusal, LayerKernel
from memsched.graph.model import Graph

__all__ = [
    "CAPABILITIES",
    "OnnxBorders",
    "OnnxCaches",
    "OnnxChains",
    "OnnxDimensions",
    "OnnxKernels",
    "OnnxMetadata",
    "OnnxOpenSizes",
    "OnnxScaledWeights",
    "OnnxShapeArithmetic",
    "OnnxShards",
    "OnnxSizes",
    "OnnxStages",
    "OnnxWeightFiles",
    "OnnxWeightPlacement",
]


class OnnxStages(Stages, frozen=True):
    """Cuts ONNX models into models of consecutive ops."""

    def cutter(self, module: Module) -> Cutter:
        """Return what makes models of parts of ``module``."""
        from memsched.formats.onnx.segments import OnnxCutter

        return OnnxCutter(module)

    def annotate_stages(self, module: Module, stages: Sequence[int]) -> bytes:
        """Return the whole model with the stage of every op in its nodes."""
        from memsched.formats.onnx.segments import annotate_stages

        return annotate_stages(module, stages)

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


class OnnxShards(Shards, frozen=True):
    """Writes models of parts of ops."""

    def part_writer(self, module: Module) -> PartWriter:
        """Return what writes parts of ops of ``module`` as models."""
        from memsched.formats.onnx.parts import PartsWriter

        return PartsWriter(module)


class OnnxBorders(BorderRewrites, frozen=True):
    """Finds operators at the border."""

    def borders(self, module: Module) -> Borders:
        """Return what can be changed at the border; see `BorderRewrites.borders`."""
        from memsched.formats.onnx.borders import borders

        return borders(module)


class OnnxChains(ActivationChains, frozen=True):
    """Finds activations in several operators."""

    def chains(self, module: Module) -> tuple[Chain, ...]:
        """Return activations that were exported in their parts; see `ActivationChains.chains`."""
        from memsched.formats.onnx.chains import chains

        return chains(module)


class OnnxShapeArithmetic(ShapeArithmetic, frozen=True):
    """Computes shapes in advance."""

    def folded(self, module: Module, options: LoadOptions) -> bytes | None:
        """Return ``module`` without its shape arithmetic; see `ShapeArithmetic.folded`."""
        from memsched.formats.onnx.folded import folded

        return folded(module, options)


class OnnxScaledWeights(ScaledWeights, frozen=True):
    """Multiplies scales into weights."""

    def rewrite_scaled(self, module: Module, graph: Graph) -> tuple[bytes, Mapping[str, str]]:
        """Return ``module`` rewritten, with scales in weights; see `memsched.formats.onnx.scaled_weights`."""
        from memsched.formats.onnx.rewriter import serialize_scaled

        return serialize_scaled(module, graph)


class OnnxMetadata(FileMetadata, frozen=True):
    """Adds metadata."""

    def with_metadata(self, data: bytes, entries: Mapping[str, str]) -> bytes:
        """Return the model with more metadata; see `memsched.formats.onnx.file_metadata`."""
        from memsched.formats.onnx.file_metadata import with_metadata

        return with_metadata(data, entries)


class OnnxWeightPlacement(WeightPlacement, frozen=True):
    """Moves weights and large values within a file."""

    def in_branches(self, module: Module, written: bytes) -> tuple[bytes, ...]:
        """Return a file with large values in branches, for which ONNX Runtime keeps no memory pattern."""
        from memsched.formats.onnx.patternless import in_branches

        return in_branches(module, written)

    def weights_first(self, data: bytes) -> bytes:
        """Return it with large weights first; see `memsched.formats.onnx.large_weights`."""
        from memsched.formats.onnx.large_weights import weights_first

        return weights_first(data)


class OnnxWeightFiles(WeightFiles, frozen=True):
    """Knows where external data lies."""

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


class OnnxDimensions(DynamicDimensions, frozen=True):
    """Opens models for every size."""

    def open_model(self, data: bytes, path: str, dims: Mapping[str, int], ranges: Mapping[str, Range]) -> OpenModel:
        """Return what can be done to a model for every size; see `DynamicDimensions.open_model`."""
        from memsched.formats.onnx.blocks.model import open_model

        return open_model(data, path, dims, ranges)


class OnnxCaches(DecoderCaches, frozen=True):
    """Finds caches, and appends to them in place."""

    def open_decoder(self, data: bytes, path: str, dims: Mapping[str, int], length: str | None) -> Decoder:
        """Return what the caches are, and how they are appended to; see `DecoderCaches.open_decoder`."""
        from memsched.formats.onnx.decoder import open_decoder

        return open_decoder(data, path, dims, length)


class OnnxSizes(SizeGuards, frozen=True):
    """Knows which sizes a file accepts."""

    def fixed_dimensions(self, given: Module, written: bytes) -> Mapping[str, int]:
        """Return the dimensions that ``given`` leaves open and ``written`` does not, with their sizes."""
        from onnx import ModelProto

        from memsched.formats.onnx import dimensions

        found = dimensions.fixed(given.native.parse(), ModelProto.FromString(written))
        return {one.name: one.size for one in found if one.size is not None}

    def sizes_can_be_refused(self, module: Module, options: LoadOptions) -> bool:
        """Return whether every size is an input's, and neither looked up in a run nor assumed with others as likely."""
        from memsched.formats.onnx.dimensions import sizes_follow_from_inputs
        from memsched.formats.onnx.reader import all_sizes_follow

        if any(one.free for one in options.assumed):
            return False
        if options.observed is not None and not all_sizes_follow(module.native.data, module.path, options):
            return False
        return not (options.input_shapes or options.dims) or sizes_follow_from_inputs(module, options)


class OnnxOpenSizes(OpenSizes, frozen=True):
    """Finds sizes for open inputs."""

    def candidates(self, data: bytes, path: str, options: LoadOptions) -> Iterator[LoadOptions]:
        """Yield ``options`` with sizes for everything that inputs leave open; see `OpenSizes.candidates`."""
        from memsched.formats.onnx.assumed_sizes import candidates

        return candidates(data, path, options)


class OnnxKernels(KernelContents, frozen=True):
    """Reads what ops compute."""

    def layer_kernels(self, module: Module) -> tuple[LayerKernel | KernelRefusal, ...]:
        """Return per op of the main graph what it computes, with its weights, or why that cannot be said."""
        from memsched.formats.onnx.kernels import layer_kernels

        return layer_kernels(module)


CAPABILITIES: Final[tuple[Capability, ...]] = (
    OnnxStages(),
    OnnxShards(),
    OnnxBorders(),
    OnnxChains(),
    OnnxShapeArithmetic(),
    OnnxScaledWeights(),
    OnnxMetadata(),
    OnnxWeightPlacement(),
    OnnxWeightFiles(),
    OnnxDimensions(),
    OnnxCaches(),
    OnnxSizes(),
    OnnxOpenSizes(),
    OnnxKernels(),
)
