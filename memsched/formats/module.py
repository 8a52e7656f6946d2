"""A loaded model: its graphs, and the native model that they were lowered from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Graph

__all__ = ["AssumedSize", "Body", "FormatName", "LoadOptions", "Module", "ObservedSizes", "OrderGuarantee"]

FormatName = Literal["onnx", "tflite"]
OrderGuarantee = Literal["none", "session", "pins", "default"]


class ObservedSizes(FrozenValue, frozen=True):
    """The sizes that one run of a model showed.

    Attributes:
        source: What it ran on, in words for the report.
        values: Per graph (as the format names its graphs) and tensor name the format's number of the element type, and
            the dimensions; those of the most elements where a body ran several times.
        executed: The graphs that ran at least once.
    """

    source: str
    values: Mapping[str, Mapping[str, tuple[int, tuple[int, ...]]]]
    executed: frozenset[str]


class AssumedSize(FrozenValue, frozen=True):
    """A size that the file leaves open and nobody stated.

    Attributes:
        dimension: Its name, or input[axis] if it has none.
        reason: Where the size comes from.
        free: Other sizes are as likely: a file that refuses them is of no use.
        decoder: The model is a decoder with past keys and values.
    """

    dimension: str
    size: int
    reason: str
    free: bool = False
    decoder: bool = False


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What the user states about a model.

    Attributes:
        input_shapes: Tensor name to dimensions (``--shape``).
        dims: Name of a symbolic dimension to its value (``--dim``).
        settled: The model was written by memsched with some of this in it: dimensions that it lacks are no error.
        feeds: The file with the inputs that the model is run on, absolute; None for random ones.
        observed: Sizes that a run showed, for values of which nothing else tells them (``--shapes-from-run``).
        folded: What nodes compute from constants alone is computed once, before the first run; else in each run.
        assumed: What of these sizes nobody stated.
    """

    input_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    settled: bool = False
    feeds: str | None = None
    observed: ObservedSizes | None = None
    folded: bool = True
    assumed: tuple[AssumedSize, ...] = ()

    def assuming(
        self, input_shapes: Mapping[str, tuple[int, ...]], dims: Mapping[str, int], rows: tuple[AssumedSize, ...]
    ) -> LoadOptions:
        """Return these options with sizes that nobody stated."""
        shapes, lengths = {**self.input_shapes, **input_shapes}, {**self.dims, **dims}
        return replace(self, input_shapes=shapes, dims=lengths, assumed=(*self.assumed, *rows))


class Body(FrozenValue, frozen=True):
    """Graph ``graph`` of a module is executed by op ``op`` of its graph ``parent`` (If, Loop, Scan, WHILE, CALL).

    A body's own captures are inputs of the op. Bodies of one op run one at a time, so its workspace is the
    largest of their peaks, less what of them the op's own outputs are.

    Attributes:
        handed: Bytes of the op's outputs that the body makes: they are handed on, not copied.
    """

    graph: int
    parent: int
    op: int
    handed: int = 0


class Module(FrozenValue, frozen=True):
    """A model read from a file.

    Attributes:
        path: Where it was read from; "-" for standard input.
        sha256: Of the file's bytes.
        graphs: The main graph first, then all bodies and further subgraphs.
        bodies: Which op executes which graph; a graph that no op executes is in none of them.
        weights_bytes: Size of all constants.
        constant_ops: Ops that compute constants from constants alone: in the file, but no steps.
        notes: What a report must say about the reading: values of unknown size, unread outputs, and so on.
        native: The format's own model and its mapping to the graphs; only its format's writer looks into it.
    """

    path: str
    format: FormatName
    sha256: str
    graphs: tuple[Graph, ...]
    bodies: tuple[Body, ...]
    weights_bytes: int
    constant_ops: int
    notes: tuple[str, ...]
    native: Any

    @property
    def graph(self) -> Graph:
        """The main graph."""
        return self.graphs[0]
