"""Algorithm 2 made exact: what devices need of a tensor and do not hold, cut into boxes that one device sends.

Source: "MemoriaNova", section 3.3.2. Its three cases (a channel-divided reader needs everything; a row-divided reader
of a channel-divided tensor needs its rows of every channel; rows of rows, with halos) are one here: what a device
needs minus what it holds, with needs by region deduction.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.features.distribute.boxes import Box, volume
from memsched.targets.cluster import Mode

__all__ = ["Parcel", "parcels"]


class Parcel(FrozenValue, frozen=True):
    """A box that ``source`` sends to ``targets``."""

    box: Box
    source: int
    targets: tuple[int, ...]


def parcels(
    needs: Sequence[Box], holds: Sequence[Sequence[Box]], owners: Sequence[tuple[int, Box]], mode: Mode
) -> list[Parcel]:
    """Return what has to be sent so that device k has all of ``needs[k]``.

    Args:
        needs: Per device.
        holds: Per device the boxes that it has.
        owners: Who sends which box; the boxes are disjoint and cover all that is needed and not held.
    """
    if all(
        any(_covers(held, need) for held in mine) or not volume(need) for need, mine in zip(needs, holds, strict=True)
    ):
        return []
    boxes = [*needs, *(box for held in holds for box in held), *(box for _, box in owners)]
    channels = sorted({edge for box in boxes if volume(box) for edge in box[:2]})
    rows = sorted({edge for box in boxes if volume(box) for edge in box[2:]})
    result: list[Parcel] = []
    running: dict[tuple[int, int, int, tuple[int, ...]], int] = {}
    for low, high in itertools.pairwise(channels):
        for top, bottom, source, targets in _column(low, high, rows, needs, holds, owners, mode):
            # A box that begins where the one before it ended is sent together with it.
            key = (top, bottom, source, targets)
            before = running.get(key)
            if before is not None and result[before].box[1] == low:
                result[before] = Parcel((result[before].box[0], high, top, bottom), source, targets)
            else:
                running[key] = len(result)
                result.append(Parcel((low, high, top, bottom), source, targets))
    return result


def _column(
    low: int, high: int, rows: Sequence[int], needs: Sequence[Box], holds: Sequence[Sequence[Box]],
    owners: Sequence[tuple[int, Box]], mode: Mode,
) -> list[tuple[int, int, int, tuple[int, ...]]]:  # fmt: skip
    """Return (first row, end, source, targets) of the channels [low, high), between which no boundary lies."""
    result: list[tuple[int, int, int, tuple[int, ...]]] = []
    running: dict[tuple[int, tuple[int, ...]], int] = {}
    for top, bottom in itertools.pairwise(rows):
        cell = (low, high, top, bottom)
        targets = tuple(
            device
            for device, need in enumerate(needs)
            if _covers(need, cell) and not any(_covers(held, cell) for held in holds[device])
        )
        if not targets:
            continue
        source = next(device for device, box in owners if _covers(box, cell))
        for receivers in [(one,) for one in targets] if mode == "point-to-point" else [targets]:
            before = running.get((source, receivers))
            if before is not None and result[before][1] == top:
                result[before] = (result[before][0], bottom, source, receivers)
            else:
                running[source, receivers] = len(result)
                result.append((top, bottom, source, receivers))
    return result


def _covers(box: Box, cell: Box) -> bool:
    return box[0] <= cell[0] and cell[1] <= box[1] and box[2] <= cell[2] and cell[3] <= box[3]
