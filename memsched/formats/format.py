"""The interface of a file format; `memsched.formats.known` lists the formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from memsched.base.frozen import FrozenValue
from memsched.formats.capabilities import Capability
from memsched.formats.module import FormatName, LoadOptions, Module
from memsched.graph.border import Interface
from memsched.graph.dialect import Dialect
from memsched.graph.model import Graph

__all__ = ["Format", "FormatTraits"]


class FormatTraits(FrozenValue, frozen=True):
    """What holds for all files of a format.

    Attributes:
        title: The format's name in text, such as "TFLite".
        axes: Names of a feature map's axes, in the format's layout.
        order_binds: Every runtime executes the ops in the order in which the file stores them.
        names_kept: An op keeps its name through writing and reading.
        bodies_follow_ops: A body is numbered where its op is stored, so that its number changes with the order.
        holds_stages: A file has a place for the stage of each op.
        max_bytes: Size of the largest file; a larger model holds its weights in other files.
        other_sizes: What refuses other sizes than those of a written file, for notes.
    """

    title: str
    axes: tuple[str, ...]
    order_binds: bool
    names_kept: bool
    bodies_follow_ops: bool
    holds_stages: bool
    max_bytes: int
    other_sizes: str

    @property
    def a_title(self) -> str:
        """The title with its article."""
        return f"{'an' if self.title[0] in 'AEIOU' else 'a'} {self.title}"


class Format(Protocol):
    """Reads a file into a `Module`, describes it, rewrites it, and writes it back.

    Attributes:
        name: The name that reports and targets use.
        traits: What holds for all its files.
        capabilities: What it can do beyond this protocol, each once; see `memsched.formats.capabilities`.
    """

    @property
    def name(self) -> FormatName: ...  # noqa: D102 - above
    @property
    def traits(self) -> FormatTraits: ...  # noqa: D102 - above
    @property
    def capabilities(self) -> tuple[Capability, ...]: ...  # noqa: D102 - above

    def begins(self, head: bytes) -> bool:
        """Return whether a file of this format can begin with ``head``, its first bytes; a look, before it is read."""

    def read(self, data: bytes, path: str, options: LoadOptions) -> Module:
        """Read a model.

        Raises:
            ModelError: It is truncated or contradictory.
            UnknownShapeError: A size is unknown; the message names the option that states it.
        """

    def interface(self, module: Module) -> Interface:
        """Return the inputs and outputs of the main graph, with their scales if the file states them."""

    def constants_read(self, module: Module) -> tuple[list[list[str]], dict[str, int]]:
        """Return the constants that each op of the main graph reads, and the bytes of each."""

    def dialect(self, module: Module) -> Dialect:
        """Return how the format says what rewrites add."""

    def rewrite(self, module: Module, graph: Graph) -> bytes:
        """Return ``module`` as a file with its main graph rewritten to ``graph``, in the order of its ops.

        Raises:
            ModelError: The format cannot say it.
        """

    def reorder(
        self,
        module: Module,
        orders: Mapping[int, Sequence[int]],
        metadata: Mapping[str, str],
        *,
        control_dependencies: bool = False,
    ) -> bytes:
        """Return ``module`` as a file in other orders; the original file, byte for byte, if nothing changes.

        Args:
            orders: The order in which the ops of a graph are stored, by the number of the graph; absent: as in the
                module.
            metadata: Added if the format has a place for it.
            control_dependencies: Also write the orders as metadata that delegates respect.

        Raises:
            ModelError: The file is laid out so that it cannot be reordered.
        """

    def notes(
        self, module: Module, orders: Mapping[int, Sequence[int]], *, control_dependencies: bool
    ) -> tuple[str, ...]:
        """Return what a report must say of a file written in ``orders``."""
