"""Identities: one op of a graph computed otherwise, with the same values."""

from __future__ import annotations

from typing import Literal

from memsched.base.frozen import FrozenValue

__all__ = ["Identity", "IdentityKind"]

IdentityKind = Literal["merge", "shift", "cross", "late", "split", "sum"]


class Identity(FrozenValue, frozen=True):
    """One op computed otherwise; what nothing reads then is gone.

    Attributes:
        kind: merge: an equal op's output is read instead. shift: pads, crops and subsamplings in a row become one crop
            and one pad. cross: an op that looks at one element at a time and one that moves elements change places.
            late: what makes many bytes of few is executed for one reader by itself. split: what reads a concatenation
            is computed for each of its inputs, and concatenated. sum: what sums over a concatenation is computed for
            each of its inputs, and added: floats are rounded otherwise.
        op: Name of the op.
        over: Name of the op before it that takes part: the equal one, the first of the row, the one that it changes
            places with, the one that is copied, the concatenation.
    """

    kind: IdentityKind
    op: str
    over: str
