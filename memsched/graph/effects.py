"""Effects: everything that an op does beyond computing its outputs from its inputs.

A pure op may be executed again, merged with an equal op, folded, or divided into tiles. An op that draws random
numbers, or that reads or writes a state, must be executed exactly once, whole. The effects of an op with bodies
include those of the bodies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from memsched.base.frozen import FrozenValue

__all__ = ["PURE", "UNKNOWN", "Effects", "joined", "spread"]


class Effects(FrozenValue, frozen=True):
    """The effects of an op, its bodies' included.

    Attributes:
        random: It draws random numbers.
        shared: It draws from a generator that other ops draw from, too, so that their order decides who gets what.
        stateful: It reads or writes a state: a variable, a table, a queue, or something outside the model.
        unknown: The operator is of a domain that memsched does not know. Such an op keeps its place and its number of
            executions, unless the user vouches for it.
        captures: A body of it reads tensors of the graphs around it by their names.
    """

    random: bool = False
    shared: bool = False
    stateful: bool = False
    unknown: bool = False
    captures: bool = False

    @property
    def pure(self) -> bool:
        """Whether the outputs follow from the inputs and captures, and nothing else changes."""
        return not (self.random or self.stateful or self.unknown)

    @property
    def once(self) -> bool:
        """Whether the op must be executed exactly once, whatever the user vouches for."""
        return self.random or self.stateful

    def repeatable(self, *, custom: bool = False) -> bool:
        """Whether a second execution gives the same values and has no other effect.

        Args:
            custom: The user vouches for operators that memsched does not know.
        """
        return not (self.once or self.captures) and (custom or not self.unknown)

    def words(self) -> str:
        """Return why an op with these effects is executed once, whole; "" for a pure op."""
        if self.random:
            return "it draws random numbers"
        if self.stateful:
            return "it reads or writes a state"
        return "its effects are unknown" if self.unknown else ""

    def __or__(self, other: Effects) -> Effects:
        if other in (PURE, self):
            return self
        if self == PURE:
            return other
        return Effects(
            self.random or other.random,
            self.shared or other.shared,
            self.stateful or other.stateful,
            self.unknown or other.unknown,
            self.captures or other.captures,
        )


PURE: Final = Effects()
UNKNOWN: Final = Effects(unknown=True)


def joined(several: Iterable[Effects]) -> Effects:
    """Return the effects of ops together."""
    result = PURE
    for one in several:
        result = result | one
    return result


def spread(own: Sequence[Effects], calls: Mapping[int, Iterable[int]]) -> list[Effects]:
    """Return the effects of graphs that execute each other, those of the executed graphs included.

    Args:
        own: Per graph the effects of its ops without their bodies.
        calls: Per graph the graphs that its ops execute; cycles are permitted.
    """
    result = list(own)
    callers: dict[int, list[int]] = {}
    for caller, called in calls.items():
        for one in called:
            callers.setdefault(one, []).append(caller)
    waiting = list(range(len(result)))
    while waiting:
        one = waiting.pop()
        for caller in callers.get(one, ()):
            more = result[caller] | result[one]
            if more != result[caller]:
                result[caller] = more
                waiting.append(caller)
    return result
