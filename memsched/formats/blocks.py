"""Models whose dimensions stay open: the ranges of these, and what computes such a model block by block."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from memsched.base.frozen import FrozenValue
from memsched.formats.module import LoadOptions

__all__ = ["BlockPoint", "BlockRow", "OpenModel", "Range"]


class Range(FrozenValue, frozen=True):
    """The lengths that a dimension may have.

    Attributes:
        least: At least 0, as of past tokens.
        most: The largest length.
        multiple: Lengths are multiples of this, as convolutions that halve an image want it.
        named: Somebody stated it, so that other lengths are to be refused.
    """

    least: int
    most: int
    multiple: int = 1
    named: bool = False

    def nearest(self, length: int) -> int:
        """Return the length of the range that is nearest to ``length``, from below where there is one."""
        least = -(-self.least // self.multiple) * self.multiple
        return max(least, min(length, self.most) // self.multiple * self.multiple)


class BlockRow(FrozenValue, frozen=True):
    """One loop, or one kernel, and what it stands for.

    Attributes:
        kind: "loop" or "kernel".
        name: The name of its node.
        dimension: The open dimension that a loop is over; "" for kernels.
        ops: Names of the nodes of the model as given that are computed in it.
    """

    kind: str
    name: str
    dimension: str
    ops: tuple[str, ...]


class BlockPoint(FrozenValue, frozen=True):
    """One way to rewrite a model, right for every size in its ranges.

    Attributes:
        name: In the words of reports: "in blocks of 16 MB".
        rows: What was rewritten.
        build: Makes the file, with the weights of the one that was given.
        work: Its arithmetic, as a multiple of that of the model as given.
        kernels: Operators of the runtime alone are in it, which round floats otherwise.
        reassociates: Floats are added up in another order.
    """

    name: str
    rows: tuple[BlockRow, ...]
    build: Callable[[], bytes]
    work: float = 1.0
    kernels: bool = False
    reassociates: bool = False


class OpenModel(FrozenValue, frozen=True):
    """A model with open dimensions.

    Attributes:
        ranges: Of every open dimension of its inputs; those that nobody stated are short, as a batch is.
        points: Returns ways to compute it block by block; none where nothing grows so that it is worth it.
        largest: Returns the bytes of the largest value at the sizes of all open dimensions.
        growth: Returns the values that are largest there: names, their bytes as expressions, and bytes.
        coarser: Returns of what number lengths have to be multiples so that more can be computed by rows; 1: of none.
        accurate: Returns the model with normalisations in double precision, to judge others by; None where it has none.
        unnamed: Returns the shapes of inputs that have a dimension without a name, at the sizes of all open dimensions.
    """

    ranges: Mapping[str, Range]
    points: Callable[[], Sequence[BlockPoint]]
    largest: Callable[[Mapping[str, int]], int]
    growth: Callable[[Mapping[str, int]], Sequence[tuple[str, str, int]]]
    coarser: Callable[[], int]
    accurate: Callable[[], bytes | None]
    unnamed: Callable[[Mapping[str, int]], Mapping[str, tuple[int, ...]]]

    def at(self, sizes: Mapping[str, int], options: LoadOptions) -> LoadOptions:
        """Return what states every size of the model, beside what is fixed by ``options``."""
        shapes = self.unnamed(sizes)
        dims = {name: size for name, size in sizes.items() if "[" not in name}
        return replace(options, dims={**options.dims, **dims}, input_shapes=shapes)
