"""Chains of operators that one operator computes: an activation that was exported in its parts."""

from __future__ import annotations

from memsched.base.frozen import FrozenValue

__all__ = ["Chain"]


class Chain(FrozenValue, frozen=True):
    """Operators from one tensor to another that one operator can stand for.

    Attributes:
        ops: Their names, in the order of the file; nothing else reads what lies between them.
        read: The tensor that they compute from.
        made: The tensor that the last one makes, of the same shape and type.
        type: The operator for it, as `memsched.graph.model.Op.type` has it.
        attributes: That operator's, by name.
    """

    ops: tuple[str, ...]
    read: str
    made: str
    type: str
    attributes: tuple[tuple[str, float | str], ...] = ()
