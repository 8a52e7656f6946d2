"""Shape arithmetic done ahead: ops whose shapes are computed stay whole otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from memsched.check.rewrite import check_folded
from memsched.commands.optimize.rewrite import Candidate, Proposals, RewriteBase, Ways
from memsched.formats.capabilities import ShapeArithmetic
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.read_back import load_again
from memsched.search.run import Run

__all__ = ["FoldRewrite"]


@dataclass(frozen=True, slots=True)
class FoldRewrite:
    """The model with its shape arithmetic done, where it has any; it requires as much, and its layers can be cut."""

    name = "fold"
    once = True
    described = "shape arithmetic done ahead"

    def is_quick(self, base: RewriteBase) -> bool:
        """Whether what it finds is written however little time there is; see `Rewrite`."""
        del base
        return False

    def candidates(self, base: RewriteBase, run: Run) -> Proposals:
        """Propose the one model that there is."""
        del run
        data = capability(base.module, ShapeArithmetic).folded(base.module, base.options)
        if data is not None:
            yield Candidate(_FoldWays(base, data), ("folded",), base.peak)


class _FoldWays(Ways):
    """Shape arithmetic done ahead, which only a file can say."""

    stands = True

    def __init__(self, base: RewriteBase, data: bytes) -> None:
        super().__init__(base.given)
        self._data = data

    def write(self, base: RewriteBase, way: tuple[Any, ...], go_on: Callable[[], None]) -> tuple[Module, bytes]:
        """Return what the file is read as, and the file; see `Ways.write`."""
        del way
        again = load_again(base.module, self._data, base.options, "folded")
        go_on()
        check_folded(base.module.graphs[0], again.graphs[0])
        return again, self._data
