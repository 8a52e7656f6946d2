"""The interface of a file format; `memsched.formats.known` lists the formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from memsched.formats.blocks import OpenModel, Range
from memsched.formats.decoders import Decoder
from memsched.formats.module import FormatName, LoadOptions, Module
from memsched.formats.segment import Segment, SegmentModel
from memsched.graph.border import Borders, Interface
from memsched.graph.chain import Chain
from memsched.graph.dialect import Dialect
from memsched.graph.kernel import KernelRefusal, LayerKernel
from memsched.graph.model import Graph

__all__ = ["Cutter", "Format", "PartWriter"]


class Cutter(Protocol):
    """Makes models of parts of one module, which it has read once."""

    def cut(self, segment: Segment, metadata: Mapping[str, str]) -> bytes:
        """Return what `memsched.formats.segments.extract` returns."""


class PartWriter(Protocol):
    """Writes models whose ops are made from those of one module, which it has read once."""

    def constant_bytes(self) -> dict[int, dict[int, int]]:
        """Return per op of the main graph the bytes of the constants that the file holds, by the input's position."""

    def write(self, graph: Graph, parts: Sequence[int], metadata: Mapping[str, str]) -> SegmentModel:
        """Return the model of ``graph``, whose ops are executed as they stand.

        Args:
            parts: Per tensor of ``graph`` the tensor of the module's main graph that it is, or is a part of.
            metadata: Added where the format has a place for it.

        Raises:
            InternalError: The graph does not fit the module.
            ModelError: A constant cannot be read or cut, or the result is too large.
        """


class Format(Protocol):
    """Reads a file into a `Module`, describes it, rewrites it, and writes it back.

    Attributes:
        name: As reports and targets have it.
        axes: What the axes of an image are called, by the format's layout.
        order_binds: Every runtime executes the ops in the order in which the file stores them.
        names_kept: An op keeps its name through writing and reading.
        for_firmware: Microcontrollers' runtimes take such files.
        bodies_follow_ops: A body is numbered where its op is stored, so that its number changes with the order.
        holds_stages: A file has a place for the stage of every op.
        most_bytes: That a file can have: what is larger holds its weights elsewhere.
    """

    @property
    def name(self) -> FormatName: ...  # noqa: D102 - above
    @property
    def axes(self) -> tuple[str, ...]: ...  # noqa: D102 - above
    @property
    def order_binds(self) -> bool: ...  # noqa: D102 - above
    @property
    def names_kept(self) -> bool: ...  # noqa: D102 - above
    @property
    def for_firmware(self) -> bool: ...  # noqa: D102 - above
    @property
    def bodies_follow_ops(self) -> bool: ...  # noqa: D102 - above
    @property
    def holds_stages(self) -> bool: ...  # noqa: D102 - above
    @property
    def most_bytes(self) -> int: ...  # noqa: D102 - above

    def begins(self, head: bytes) -> bool:
        """Return whether a file of this format can begin with ``head``, its first bytes; a look, before it is read."""

    def recognises(self, data: bytes) -> bool:
        """Return whether ``data`` begins as a file of this format."""

    def read(self, data: bytes, path: str, options: LoadOptions) -> Module:
        """Read a model.

        Raises:
            ModelError: It is truncated or contradictory.
            UnknownShapeError: A size is unknown; the message names the option that states it.
        """

    def references(self, data: bytes, folder: Path) -> tuple[str, ...]:
        """Return the files in ``folder`` that hold weights of the model; none where it cannot be read."""

    def external_files(self, module: Module) -> tuple[str, ...]:
        """Return the files beside the model that hold its weights, as it names them."""

    def copy_external_files(self, module: Module, folder: Path) -> tuple[Path, ...]:
        """Put these files into ``folder``, too; return the files, and folders before them, that were created."""

    def borders(self, module: Module) -> Borders:
        """Return which operators at the border of the main graph, as given, the caller can do instead."""

    def in_branches(self, module: Module, written: bytes) -> Sequence[bytes]:
        """Return ``written``, a file of ``module``, with large values in a branch, of which a runtime notes nothing."""

    def weights_first(self, data: bytes) -> bytes:
        """Return a model with its large weights before all others, where what is in a file first is read first."""

    def chains(self, module: Module) -> tuple[Chain, ...]:
        """Return the chains of operators of the main graph that one operator of the format's runtime can stand for."""

    def folded(self, module: Module, options: LoadOptions) -> bytes | None:
        """Return ``module`` as a file in which what follows from its sizes alone is constant; None where nothing does.

        It holds for the sizes that ``module`` was read with, by ``options``, and is refused others.
        """

    def open_model(self, data: bytes, path: str, dims: Mapping[str, int], ranges: Mapping[str, Range]) -> OpenModel:
        """Return what can be done to a model for every size in some ranges of its open dimensions.

        Args:
            dims: Dimensions that are fixed.

        Raises:
            UsageError: The model has no such open dimension.
            ModelError: It contradicts itself at some size.
        """

    def open_decoder(self, data: bytes, path: str, dims: Mapping[str, int], length: str | None) -> Decoder:
        """Return what a model's caches of keys and values are, and how it appends to them in place.

        Args:
            dims: Dimensions that are fixed.
            length: The dimension that is the number of new tokens; None to find it.

        Raises:
            UsageError: It has none, or it can't be seen what lies along its dimensions.
        """

    def interface(self, module: Module) -> Interface:
        """Return the inputs and outputs of the main graph, with their scales where the file states them."""

    def dialect(self, module: Module) -> Dialect:
        """Return how the format says what rewrites add."""

    def rewrite(self, module: Module, graph: Graph) -> bytes:
        """Return ``module`` as a file with its main graph rewritten to ``graph``, in the order of its ops.

        Raises:
            ModelError: The format cannot say it.
        """

    def rewrite_scaled(self, module: Module, graph: Graph) -> tuple[bytes, Mapping[str, str]]:
        """Return the same with what scales the output of an op as part of its weights, once for all that share them.

        Returns:
            The file, and tensors that are gone, each with the one made instead, which may be gone further on.
        """

    def reorder(
        self,
        module: Module,
        orders: Mapping[int, Sequence[int]],
        metadata: Mapping[str, str],
        *,
        control_dependencies: bool = False,
    ) -> bytes:
        """Return ``module`` as a file in other orders; the given file, byte for byte, where nothing changes.

        Args:
            orders: Per graph the order in which its ops are stored; absent: as in the module.
            metadata: Added where the format has a place for it.
            control_dependencies: Write the orders as metadata that delegates respect, too.

        Raises:
            ModelError: The file is laid out so that it cannot be reordered.
        """

    def notes(
        self, module: Module, orders: Mapping[int, Sequence[int]], *, control_dependencies: bool
    ) -> tuple[str, ...]:
        """Return what a report must say of a file written in ``orders``."""

    def fixed_dimensions(self, given: Module, written: bytes) -> Mapping[str, int]:
        """Return the dimensions that ``given`` leaves open and ``written``, made from it, does not: names to sizes."""

    def with_guards(self, given: Module, module: Module, data: bytes) -> bytes:
        """Return ``data``, the file of ``module``, such that sizes for which it does not hold as ``given`` are refused.

        What refuses them comes after all other operators, so that a compiler that does not know it takes the rest.
        """

    def sizes_can_be_refused(self, module: Module, options: LoadOptions) -> bool:
        """Return whether every size that is stated is an input's: a runtime refuses another for a model cut for it."""

    def constants_read(self, module: Module) -> tuple[list[list[str]], dict[str, int]]:
        """Return the constants that each op of the main graph reads, and the bytes of each."""

    def layer_kernels(self, module: Module) -> tuple[LayerKernel | KernelRefusal, ...]:
        """Return per op of the main graph what it computes, with its weights, or why that cannot be said."""

    def cutter(self, module: Module) -> Cutter:
        """Return what makes models of parts of ``module``."""

    def together(self, module: Module) -> tuple[tuple[int, ...], ...]:
        """Return groups of ops of the main graph that use one state, and so must be in one segment."""

    def annotate_stages(self, module: Module, stages: Sequence[int]) -> bytes | None:
        """Return the whole model with the stage of every op in it; None where the format has no place for that."""

    def part_writer(self, module: Module) -> PartWriter:
        """Return what writes parts of ops of ``module`` as models."""

    def segment_options(self, module: Module, segment: Segment) -> LoadOptions:
        """Return what to state when a model of ``segment`` is read, so that all its sizes are those of ``module``."""
