"""What formats can do beyond reading and writing: one small class for each feature that needs something of a format.

A class says in its methods what holds for a format that does not have it: usually that there is nothing to do, and a
refusal if a command cannot go on. A format that has it names a subclass in `Format.capabilities`, and
`memsched.formats.known.capability` finds it there. A new capability changes no format but those that have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from memsched.base.errors import UsageError
from memsched.base.frozen import FrozenValue
from memsched.formats.blocks import OpenModel, Range
from memsched.formats.decoders import Decoder
from memsched.formats.module import LoadOptions, Module
from memsched.formats.segment import Segment, SegmentModel
from memsched.graph.border import Borders
from memsched.graph.chain import Chain
from memsched.graph.kernel import KernelRefusal, LayerKernel
from memsched.graph.model import Graph

__all__ = [
    "ActivationChains",
    "BorderRewrites",
    "Capability",
    "Cutter",
    "DecoderCaches",
    "DynamicDimensions",
    "FileMetadata",
    "KernelContents",
    "MadeConstants",
    "OpenSizes",
    "PartWriter",
    "ScaledWeights",
    "ShapeArithmetic",
    "Shards",
    "SizeGuards",
    "Stages",
    "WeightFiles",
    "WeightPlacement",
]


class Cutter(Protocol):
    """Makes models of parts of one module, which it has read once."""

    def cut(self, segment: Segment, metadata: Mapping[str, str]) -> bytes:
        """Return what `memsched.formats.segments.extract` returns."""


class PartWriter(Protocol):
    """Writes models whose ops are made from those of one module, which it has read once."""

    def constant_bytes(self) -> dict[int, dict[int, int]]:
        """Return for each op of the main graph the bytes of the constants that the file holds, by input position."""

    def write(self, graph: Graph, parts: Sequence[int], metadata: Mapping[str, str]) -> SegmentModel:
        """Return the model of ``graph``, whose ops are executed as they stand.

        Args:
            parts: For each tensor of ``graph`` the tensor of the module's main graph that it is, or is a part of.
            metadata: Added if the format has a place for it.

        Raises:
            InternalError: The graph does not fit the module.
            ModelError: A constant cannot be read or cut, or the result is too large.
        """


class Capability(FrozenValue, frozen=True):
    """One thing that some formats can do.

    Attributes:
        title: The format's name in messages, such as "TFLite".
    """

    title: str = "such"


class Stages(Capability, frozen=True):
    """Cuts a model into models of consecutive ops: for `pipeline` and `relay`."""

    def cutter(self, module: Module) -> Cutter:
        """Return the cutter of ``module``.

        Raises:
            UsageError: Models of this format cannot be cut.
        """
        raise UsageError(
            f"{self.title} models cannot be cut into stages", location=module.path, code="format-without-stages"
        )

    def together(self, module: Module) -> tuple[tuple[int, ...], ...]:
        """Return groups of ops of the main graph that share one state, and so must be in one segment; by default none.

        ONNX has no state that ops share.
        """
        del module
        return ()

    def annotate_stages(self, module: Module, stages: Sequence[int]) -> bytes | None:
        """Return the whole model with the stage of each op in it; by default None, as there is no place for stages."""
        del module, stages
        return None

    def segment_options(self, module: Module, segment: Segment) -> LoadOptions:
        """Return what to state when a model of ``segment`` is read, so that all its sizes are those of ``module``.

        By default nothing, as all sizes are in the file.
        """
        del module, segment
        return LoadOptions()


class Shards(Capability, frozen=True):
    """Writes models of parts of ops: for `distribute`."""

    def part_writer(self, module: Module) -> PartWriter:
        """Return the writer of parts of the ops of ``module``.

        Raises:
            UsageError: Ops of this format cannot be cut.
        """
        raise UsageError(f"{self.title} models cannot be distributed", location=module.path, code="no-shards")


class BorderRewrites(Capability, frozen=True):
    """Finds the operators next to inputs and outputs that the caller can execute: for `--allow io`."""

    def borders(self, module: Module) -> Borders:
        """Return which operators of the original main graph the caller can execute instead; by default none."""
        del module
        return Borders()


class ActivationChains(Capability, frozen=True):
    """Finds activations that were exported as several operators: for `--allow fuse`."""

    def chains(self, module: Module) -> tuple[Chain, ...]:
        """Return the chains of the main graph that one operator of the format's runtime can stand for; by default none.

        TFLite converters write each activation as one operator.
        """
        del module
        return ()


class ShapeArithmetic(Capability, frozen=True):
    """Computes shapes in advance, so that ops between them can be cut: for the rewrites of a model of fixed size."""

    def folded(self, module: Module, options: LoadOptions) -> bytes | None:
        """Return ``module`` as a file in which what follows from its sizes is constant; None if nothing does.

        The file holds for the sizes that ``module`` was read with, by ``options``, and is refused others. By default
        None: converters have done it.
        """
        del module, options
        return None


class ScaledWeights(Capability, frozen=True):
    """Multiplies scales into weights once: for runtimes that otherwise do it for each op that reads the weights."""

    def rewrite_scaled(self, module: Module, graph: Graph) -> tuple[bytes, Mapping[str, str]] | None:
        """Return ``module`` as a file with the main graph ``graph``, with scales of outputs as part of the weights.

        Returns:
            The file, and the tensors that are gone, each with the one made instead, which may be gone in turn. By
            default None: write the graph as it is.
        """
        del module, graph
        return None


class MadeConstants(Capability, frozen=True):
    """Lets operators of the file make constants: delegates that want them in the file leave the layers alone."""

    def with_made_constants(self, module: Module, places: Mapping[str, int]) -> bytes | None:
        """Return the file of ``module`` with a constant of each op, by name and position, made of the same values.

        By default None: no runtime of the format has such delegates.
        """
        del module, places
        return None


class WeightPlacement(Capability, frozen=True):
    """Moves weights and large values within a file: for files that are opened without session options."""

    def in_branches(self, module: Module, written: bytes) -> Sequence[bytes]:
        """Return ``written``, a file of ``module``, with large values in a branch, for which no pattern is kept.

        By default none: no runtime of the format keeps a pattern.
        """
        del module, written
        return ()

    def weights_first(self, data: bytes) -> bytes:
        """Return a model with its large weights before all others, which its runtime reads first.

        By default the model itself: weights are used where they lie.
        """
        return data


class FileMetadata(Capability, frozen=True):
    """Adds metadata to a file: for session options."""

    def with_metadata(self, data: bytes, entries: Mapping[str, str]) -> bytes:
        """Return a model with more metadata; by default the model itself: its runtime has no such options."""
        del entries
        return data


class WeightFiles(Capability, frozen=True):
    """Knows the files next to a model that hold its weights: for all that copies, sends, or opens models."""

    def references(self, data: bytes, folder: Path) -> tuple[str, ...]:
        """Return the files in ``folder`` that hold weights of the model; none if it cannot be read."""
        del data, folder
        return ()

    def external_files(self, module: Module) -> tuple[str, ...]:
        """Return the files next to the model that hold its weights, as the model names them."""
        del module
        return ()

    def copy_external_files(self, module: Module, folder: Path) -> tuple[Path, ...]:
        """Copy these files into ``folder``; return the files, and folders before them, that were created."""
        del module, folder
        return ()


class DynamicDimensions(Capability, frozen=True):
    """Opens a model for every size of its dynamic dimensions: for `--dim` with a range."""

    def open_model(self, data: bytes, path: str, dims: Mapping[str, int], ranges: Mapping[str, Range]) -> OpenModel:
        """Return what can be done to a model for every size in some ranges of its open dimensions.

        Args:
            dims: Dimensions that are fixed.

        Raises:
            UsageError: The model has no such open dimension, as no model of a format that states every size has.
            ModelError: It contradicts itself at some size.
        """
        del data, dims
        raise UsageError(
            f"--dim: a {self.title} file states every size, so {next(iter(ranges))} has no range",
            location=path,
            code="no-such-dimension",
        )


class DecoderCaches(Capability, frozen=True):
    """Appends keys and values to the caches of a decoder in place: for `decoder`."""

    def open_decoder(self, data: bytes, path: str, dims: Mapping[str, int], length: str | None) -> Decoder:
        """Return a model's caches of keys and values, and how it appends to them in place.

        Args:
            dims: Dimensions that are fixed.
            length: The dimension that is the number of new tokens; None to find it.

        Raises:
            UsageError: It has none, or it can't be seen what lies along its dimensions; or the format states every
                size, that of the caches, too.
        """
        del data, dims, length
        raise UsageError(
            f"a {self.title} file states every size, and its runtime keeps variables in place already",
            location=path,
            code="no-decoder",
        )


class SizeGuards(Capability, frozen=True):
    """Knows which sizes a file accepts: for rewrites that hold for one size."""

    def fixed_dimensions(self, given: Module, written: bytes) -> Mapping[str, int]:
        """Return the dimensions that ``given`` leaves open and ``written``, made from it, does not: names to sizes."""
        del given, written
        return {}

    def with_guards(self, given: Module, module: Module, data: bytes) -> bytes:
        """Return ``data``, the file of ``module``, such that sizes for which it does not hold as ``given`` are refused.

        What refuses them comes after all other operators, so that a compiler that does not know it takes the rest. By
        default the file itself, as a file's inputs state the sizes, and its runtime compares them.
        """
        del given, module
        return data

    def sizes_can_be_refused(self, module: Module, options: LoadOptions) -> bool:
        """Return whether every size that is stated is an input's: a runtime refuses another for a model cut for it.

        By default True: no size is stated.
        """
        del module, options
        return True


class OpenSizes(Capability, frozen=True):
    """Finds sizes for what a file leaves open: for all commands that read models."""

    def candidates(self, data: bytes, path: str, options: LoadOptions) -> Iterator[LoadOptions]:
        """Yield ``options`` with sizes for everything that inputs leave open, the likeliest first; at least once.

        By default ``options`` themselves, as the file states every size.
        """
        del data, path
        yield options


class KernelContents(Capability, frozen=True):
    """Reads what each op computes, with its weights: for the C that `--emit` writes."""

    def layer_kernels(self, module: Module) -> tuple[LayerKernel | KernelRefusal, ...]:
        """Return for each op of the main graph what it computes, with its weights, or why that cannot be said."""
        reason = f"what {self.title} operators compute is not known"
        return tuple(KernelRefusal(reason) for _ in module.graphs[0].ops)
