"""The operator table: the class of every operator that has a rule, and what its output needs of its operands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from memsched.ops import indices, movement, values, windows
from memsched.ops.rules import Family, OpClass, OpRule

__all__ = ["OPERATORS", "class_of", "families"]

OPERATORS: Final[Mapping[str, OpRule]] = MappingProxyType(
    {**windows.RULES, **movement.RULES, **indices.RULES, **values.RULES}
)


def class_of(kind: str) -> OpClass | None:
    """Return the class of an operator; None of one that has no rule."""
    rule = OPERATORS.get(kind)
    return None if rule is None else rule.kind


@cache
def families(*names: Family) -> frozenset[str]:
    """Return the operators of some families, of all formats."""
    return frozenset(kind for kind, rule in OPERATORS.items() if rule.family in names)
