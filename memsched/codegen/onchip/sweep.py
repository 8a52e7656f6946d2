"""What a group's pieces need along one axis, op by op from its last to its first, for all pieces at once.

Rows and columns do not depend on each other: the region of a piece is the product of its ranges. A group that grows at
its front only adds to what is known already.
"""

from __future__ import annotations

import itertools

from memsched.codegen.onchip.network import OnChipNetwork, Range

__all__ = ["AxisSweep", "cuts"]


def cuts(length: int, count: int) -> list[Range | None]:
    """Return the ``count`` equal parts of [0, length); None for parts without an element."""
    ends = [place * length // count for place in range(count + 1)]
    return [(low, high) if low < high else None for low, high in itertools.pairwise(ends)]


class AxisSweep:
    """The ranges on ``axis`` (0 rows, 1 columns) that ``count`` pieces of a group ending with op ``last`` need.

    Attributes:
        ranges: Per tensor and piece what must be there, tensors from outside included.
        refused: The op that cannot be computed in these pieces; None while all can.
    """

    def __init__(self, network: OnChipNetwork, last: int, axis: int, count: int) -> None:
        self.network, self.last, self.axis, self.count = network, last, axis, count
        self.ranges: dict[int, list[Range | None]] = {}
        self.refused: int | None = None
        self._sizes: dict[int, tuple[int, int]] = {}

    def extend(self, op: int) -> bool:
        """Add op ``op``, the one before those added; return whether it can be computed in pieces."""
        layer = self.network.layers[op]
        if self.count > 1 and (not layer.spatial or len(layer.writes) != 1):
            self.refused = op
            return False
        for tensor in layer.writes:
            asked = self.ranges.get(tensor)
            if asked is None or self.network.leaves(tensor, self.last):
                own = cuts(self.network.maps[tensor].length(self.axis), self.count)
                self.ranges[tensor] = own if asked is None else _hulls(asked, own)
                self._sizes.pop(tensor, None)
        if self.count == 1:
            for tensor in layer.reads:
                self.ranges[tensor] = [(0, self.network.maps[tensor].length(self.axis))]
            return True
        return self._transfer(op, layer.writes[0], layer.reads)

    def _transfer(self, op: int, made: int, reads: tuple[int, ...]) -> bool:
        required: list[list[Range | None]] = [[] for _ in reads]
        pieces = self.ranges[made]
        for piece, span in enumerate(pieces):
            if span is None:
                for one in required:
                    one.append(None)
                continue
            found = self.network.needed(op, self.axis, *span)
            if found is None:
                self.refused = op
                return False
            pieces[piece] = found[0]
            for one, entry in zip(required, found[1], strict=True):
                one.append(entry)
        self._sizes.pop(made, None)
        for tensor, one in zip(reads, required, strict=True):
            before = self.ranges.get(tensor)
            self.ranges[tensor] = one if before is None else _hulls(before, one)
            self._sizes.pop(tensor, None)
        return True

    def sizes(self, tensor: int) -> tuple[int, int]:
        """Return the longest range of a tensor, and the sum over all pieces."""
        found = self._sizes.get(tensor)
        if found is None:
            lengths = [span[1] - span[0] for span in self.ranges[tensor] if span is not None]
            found = self._sizes[tensor] = (max(lengths, default=0), sum(lengths))
        return found

    def fresh(self, tensor: int) -> int:
        """Return the sum over all pieces of what the piece before does not have of ``tensor``."""
        total, reached = 0, 0
        for span in self.ranges[tensor]:
            if span is None:
                reached = 0
                continue
            total += max(0, span[1] - max(span[0], reached))
            reached = span[1]
        return total


def _hulls(one: list[Range | None], other: list[Range | None]) -> list[Range | None]:
    result: list[Range | None] = []
    for a, b in zip(one, other, strict=True):
        if a is None or b is None:
            result.append(b if a is None else a)
        else:
            result.append((min(a[0], b[0]), max(a[1], b[1])))
    return result
