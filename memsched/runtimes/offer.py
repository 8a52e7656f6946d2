"""A built-in target that a runtime offers for a file, and whether files like it usually run there."""

from __future__ import annotations

from memsched.base.frozen import FrozenValue

__all__ = ["Offer"]


class Offer(FrozenValue, frozen=True):
    """A target that a runtime offers for a file.

    Attributes:
        target: Name of the built-in target.
        title: The runtime in words, and how it opens the file.
        takes: The runtime is not known to refuse the file.
        usual: The runtime is the one to choose if the user names none, unless an earlier offer is.
        reason: Why it is, or why not; empty if there is nothing to say.
        elsewhere: Where people run such files, too, which no figure for this target says anything about.
    """

    target: str
    title: str
    takes: bool
    usual: bool
    reason: str = ""
    elsewhere: tuple[str, ...] = ()
