"""What may be done to a model beside ordering it."""

from __future__ import annotations

from collections.abc import Collection

from memsched.base.frozen import FrozenValue
from memsched.commands.levels import ALLOWED, BY_DEFAULT, BY_NAME

__all__ = ["MOST_EXTRA_MACS", "Permissions", "percent_left", "permissions_of"]

MOST_EXTRA_MACS = 10_000
"""The most extra work that can be permitted, in percent of the model's."""


class Permissions(FrozenValue, frozen=True):
    """What may be done to the model beside ordering it.

    Attributes:
        io: Inputs and outputs may become other tensors, so that the caller has to change.
        extra_percent: Extra work, in percent of the model's: multiply-accumulates for pieces, for repetitions bytes
            moved as well.
        fuse: One operator may stand for a chain of others.
        free: Only what costs nothing: prices are cautious, and outputs keep their bits if they need not be rounded.
        algebra: Operators may be computed otherwise with the same values.
        bands: Convolutions may be split into bands, concatenations into trees; `tile` and `algebra` permit both.
        reassociate: With that, sums may be added up in another order.
        built_in: Layers may be left to built-in kernels, which round otherwise; `reassociate` permits it.
        branch: Large values may be made in a branch of an If.
        opening: What a session executes may be written, which has to be opened as the report says.
    """

    tile: bool = False
    remat: bool = False
    io: bool = False
    extra_percent: float = 15.0
    fuse: bool = False
    free: bool = False
    algebra: bool = False
    bands: bool = False
    reassociate: bool = False
    built_in: bool = False
    branch: bool = False
    opening: bool = False

    @property
    def exact(self) -> bool:
        """Whether outputs have to keep their bits."""
        return self.free and not self.reassociate


def permissions_of(allow: Collection[str], extra_percent: float, *, free: bool = False) -> Permissions:
    """Return what ``allow`` names beside the order."""
    named = {name: name in allow for name in (*ALLOWED, *BY_NAME) if name not in BY_DEFAULT}
    more = {"bands": named["algebra"] or named["tile"], "built_in": named["reassociate"]}
    return Permissions(**named, **more, extra_percent=extra_percent, free=free)


def percent_left(permitted: float, macs: int, extra_macs: int, extra_work: float) -> float:
    """Return the extra work that is still permitted for a model that was rewritten, in percent of its own work.

    Args:
        permitted: In percent of the work of the model as given.
        macs: Multiply-accumulates of the model as given.
        extra_macs: Those that were added.
        extra_work: What was added as `Permissions.extra_percent` counts it, as a part of the model's as given.
    """
    done = macs + extra_macs
    if macs <= 0 or done <= 0:
        return max(0.0, permitted - 100 * extra_work)
    return max(0.0, permitted - 100 * max(extra_work, extra_macs / macs)) * macs / done
