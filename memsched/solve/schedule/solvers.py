"""The names of the solvers, which the command line lists without loading one."""

from __future__ import annotations

from typing import Final

__all__ = ["SOLVERS"]

SOLVERS: Final = ("auto", "exact", "cpsat", "backtrack", "greedy", "file")
"""Names that ``solver`` may have."""
