"""The operator table: the class of every operator that has a rule, and what its output needs of its operands."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from memsched.ops import indices, movement, values, windows
from memsched.ops.rules import Family, OpClass, OpRule

__all__ = ["FROM_NUMBERS", "OPERATORS", "SHAPED", "class_of", "families"]

OPERATORS: Final[Mapping[str, OpRule]] = MappingProxyType(
    {**windows.RULES, **movement.RULES, **indices.RULES, **values.RULES}
)

FROM_NUMBERS: Final = frozenset({"ConstantOfShape", "Range"})
"""Operators that make their elements from a few numbers: without a rule, as they read no tensor to take parts of."""

SHAPED: Final[Mapping[str, int]] = MappingProxyType(
    {
        "ConstantOfShape": 0,
        **{kind: rule.told for kind, rule in OPERATORS.items() if rule.told is not None},
    }
)
"""Operators that an operand tells their output's shape, and its position."""


def class_of(kind: str) -> OpClass | None:
    """Return the class of an operator; None of one that has no rule."""
    rule = OPERATORS.get(kind)
    return None if rule is None else rule.kind


@cache
def families(*names: Family) -> frozenset[str]:
    """Return the operators of some families, of all formats."""
    wanted = frozenset(names)
    return frozenset(kind for kind, rule in OPERATORS.items() if not wanted.isdisjoint(rule.families))
