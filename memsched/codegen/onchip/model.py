"""The parts of a plan of on-chip memory: pieces, buffers with addresses, groups, and what they cost."""

from __future__ import annotations

from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.codegen.onchip.network import Range

__all__ = ["Cost", "Method", "OnChipBuffer", "OnChipGroup", "OnChipPlan", "Policy", "Tile"]

Policy = Literal["separate", "reuse"]
Method = Literal["layers", "flowchart", "greedy", "optimal"]
Weights = Literal["resident", "step"]


class Tile(FrozenValue, frozen=True):
    """Into how many pieces a group is cut, and when its weights are on chip.

    Attributes:
        rows: Pieces of the plane's rows.
        columns: Pieces of its columns.
        channels: Pieces of the channels.
        weights: "resident": the weights of a channel piece are loaded once and stay while all pieces of the plane are
            computed. "step": each layer's weights are loaded when a piece comes to it, whole or some filters at a
            time, and stay no longer.
        kept: Whether rows of the group's inputs that a piece shares with the one above it stay on chip.
        addends: Parts of the input channels of the group's first op, a convolution: a piece's sums stay on chip while
            the parts, with the weights that they take, are loaded in turn, each while the one before is added up.
        front: The step from which channels are cut; those before it run once for each piece of the plane, whole, and
            what they hand on stays for all pieces of the channels.
    """

    rows: int = 1
    columns: int = 1
    channels: int = 1
    weights: Weights = "resident"
    kept: bool = False
    addends: int = 1
    front: int = 0

    @property
    def planes(self) -> int:
        """Pieces of the plane."""
        return self.rows * self.columns


class OnChipBuffer(FrozenValue, frozen=True):
    """Bytes [offset, offset + size) of on-chip memory during steps [first, last] of each piece, both included.

    Step s of a piece computes op ``ops[s]`` of the group. Piece (r, c, k) holds the product of ``rows[r]``,
    ``columns[c]`` and ``channels[k]``, laid out as batch, rows, columns, channels from ``offset`` on; an axis that is
    not cut has one range. None: the piece needs nothing of it.

    Attributes:
        kind: "input": loaded. "output": stored. "inner": neither. "weights": loaded, the constants of one op.
        tensor: Index into the graph; -1 for weights.
        op: Index of the op whose weights these are, otherwise of the op that produces the tensor; -1 for none.
        kept: Rows that the piece above has of it stay: they move to the top, and only the others are loaded.
        addends: Whether ``channels`` are parts of the input channels, taken in turn in every piece, in one half of the
            bytes while the other half is in use.
    """

    name: str
    kind: Literal["input", "inner", "output", "weights"]
    tensor: int
    op: int
    offset: int
    size: int
    first: int
    last: int
    rows: tuple[Range | None, ...] = ()
    columns: tuple[Range | None, ...] = ()
    channels: tuple[Range, ...] = ()
    kept: bool = False
    addends: bool = False


class Cost(FrozenValue, frozen=True):
    """Bytes read from and written to DRAM, and floating-point operations."""

    read: int = 0
    written: int = 0
    flops: int = 0

    @property
    def traffic(self) -> int:
        """Bytes read and written."""
        return self.read + self.written

    def __add__(self, other: Cost) -> Cost:
        """Return the sum."""
        return Cost(self.read + other.read, self.written + other.written, self.flops + other.flops)


class OnChipGroup(FrozenValue, frozen=True):
    """Consecutive ops that are computed piece by piece without leaving the chip in between.

    Attributes:
        ops: Indices into the graph, consecutive.
        tile: How the group is cut.
        buffers: What lies where; empty where ``refusal`` says why the op is not planned: then it counts as loading its
            inputs and weights once and storing its outputs once.
    """

    ops: tuple[int, ...]
    tile: Tile
    buffers: tuple[OnChipBuffer, ...]
    cost: Cost
    seconds: float
    refusal: str | None = None

    @property
    def height(self) -> int:
        """Bytes of on-chip memory that the group uses."""
        return max((buffer.offset + buffer.size for buffer in self.buffers), default=0)


class OnChipPlan(FrozenValue, frozen=True):
    """A network cut into groups.

    Attributes:
        groups: In order of execution.
        names: The name of each op of the graph.
        before: The cost of every layer by itself: its inputs and weights are loaded, its outputs stored.
        once: The same if each operand moved once, whole, regardless of what fits on chip.
        seconds: See `traffic.Machine.seconds`.
        capacity: Bytes of on-chip memory.
        method: How the groups were chosen.
    """

    groups: tuple[OnChipGroup, ...]
    names: tuple[str, ...]
    before: Cost
    before_seconds: float
    once: Cost
    cost: Cost
    seconds: float
    capacity: int
    method: Method
