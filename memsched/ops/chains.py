"""Chains of operators that one operator can stand for: activations that are exported in their parts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

__all__ = ["CURVES", "LINKS", "STANDS_FOR"]

_GATES: Final = frozenset({"Exp", "Sigmoid", "Tanh"})

STANDS_FOR: Final[Mapping[tuple[str, object], frozenset[str]]] = MappingProxyType(
    {
        ("com.microsoft.Gelu", None): frozenset({"Erf"}),
        ("Gelu", None): frozenset({"Erf"}),
        ("Gelu", "tanh"): _GATES,
        ("com.microsoft.FastGelu", None): _GATES,
        ("com.microsoft.QuickGelu", None): _GATES,
    }
)
"""Operators that stand for a chain of others, by type and ``approximate``: one of these must be in it."""

CURVES: Final = frozenset(one for some in STANDS_FOR.values() for one in some)
"""What is in every chain."""

LINKS: Final = CURVES | {"Add", "Div", "Identity", "Mul", "Neg", "Pow", "Reciprocal", "Sub"}
"""What may be in a chain: each element is computed by itself."""
