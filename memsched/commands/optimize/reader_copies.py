"""The largest value computed once for each op that reads it, so that pieces can be cut through it: half a rewrite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memsched.commands.optimize.candidates import Lookout
from memsched.commands.optimize.recompute import RematRewrite
from memsched.commands.optimize.rewrite import RewritePoint

__all__ = ["ReaderCopies"]


class ReaderCopies(RematRewrite):
    """A sequence in which the largest value that several ops read is there for each; it may need more than without."""

    def search(
        self, meets: Callable[[RewritePoint[int]], bool], lookout: Lookout[RewritePoint[int]] | None
    ) -> Sequence[RewritePoint[int]]:
        """Return the sequence, if there is one within the permitted work."""
        del meets, lookout
        return self.search_out()

    def search_out(self) -> Sequence[RewritePoint[int]]:
        """Return the sequence, if there is one within the permitted work."""
        self.take_apart()
        return [point for point in self._permitted() if self.parts(point.way)]
