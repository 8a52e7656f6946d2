"""Which cuts of an operator's output give the bits that the whole gives: a table, made by `python -m tests.tools.cuts`.

It holds, for each operator, what a cut does to its operands (`role`), and the element type, the worst that any runtime
of the format showed: "exact", "rounds" (finite results differ in their last bits), or "differs".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Literal

from memsched.ops.rules import ChannelGroups, Geometry, Pointwise, TransposedWindow, WholeAxis, Window
from memsched.targets.text import parse_toml

__all__ = ["LONG", "TABLE", "VERDICTS", "Cuts", "Verdict", "role", "table", "verdict"]

TABLE: Final = Path(__file__).with_name("cuts.toml")

Verdict = Literal["exact", "rounds", "differs"]
VERDICTS: Final[tuple[Verdict, ...]] = ("exact", "rounds", "differs")
"""From best to worst."""

SHORT: Final = 128
"""Terms of a sum that ONNX Runtime adds up in one go; it divides longer ones by how many rows and columns there are."""

LONG: Final = f">{SHORT}"

PACKED: Final = "packed"

Cuts = Mapping[tuple[str, str, str], Verdict]
"""Operator, role and element type to what was seen."""

_UNSTATED: Final = "float32"
"""The type of tensors of which a graph does not say it."""


def role(geometry: Geometry, axis: int, activations: Sequence[int]) -> str:
    """Return what cutting ``axis`` of an output does to its operands, in one word of the table.

    Args:
        activations: Positions of the operands that are no constants.

    Returns:
        "window": they are cut with margins, or padding of their own, along rows ("point": windows of one row); "line":
        the same along other axes. "groups": they are cut into whole groups of channels. "moved": elements change
        places. Where axes or windows are summed up: "channels" where the first activation stays whole, "inner" where it
        is cut behind one that is summed up. Otherwise "each" where all operands are cut, and "rows" where some are
        ("packed": and what is summed up is multiplied with constants alone, which ONNX Runtime packs in one way for any
        number of rows). ">128" is added where an element is a sum of more terms.
    """
    first = activations[0]
    word = _word(geometry, axis, first)
    if word == "rows" and len(activations) == 1 and (_windowed(geometry, first) or _summed(geometry, first)):
        word = PACKED
    return word + LONG if word != "moved" and _terms(geometry, first) > SHORT else word


def _terms(geometry: Geometry, first: int) -> int:
    """Return how many elements of an operand an element of the output is made of."""
    found = 1
    for one, length in zip(geometry.operands[first], geometry.shapes[first], strict=True):
        if isinstance(one.rule, WholeAxis):
            found *= length
        elif isinstance(one.rule, Window | TransposedWindow):
            found *= min(one.rule.kernel, length)
        elif isinstance(one.rule, ChannelGroups):
            found *= one.rule.inputs
    return found


def _word(geometry: Geometry, axis: int, first: int) -> str:
    maps = {
        place: [one for one in operand if one.output == axis and not isinstance(one.rule, WholeAxis)]
        for place, operand in geometry.operands.items()
    }
    rules = [one.rule for found in maps.values() for one in found]
    if any(isinstance(one, Window | TransposedWindow) for one in rules):
        return _along(geometry, axis, first)
    if any(isinstance(one, ChannelGroups) for one in rules):
        return "groups"
    if any(not isinstance(one, Pointwise) for one in rules):
        return "moved"
    summed = {place: _summed(geometry, place) for place in geometry.operands}
    if (_windowed(geometry, first) or any(summed.values())) and not maps.get(first):
        return "channels"
    if any(summed.values()):
        mine = next(place for place, one in enumerate(geometry.operands[first]) if one.output == axis)
        if summed[first] and summed[first][0] < mine:
            return "inner"
    return "each" if all(maps.values()) else "rows"


def _along(geometry: Geometry, axis: int, first: int) -> str:
    operand = geometry.operands[first]
    windowed = {one.output: one.rule for one in operand if isinstance(one.rule, Window | TransposedWindow)}
    if next(iter(windowed), -1) != axis or operand[-1].output == axis:
        return "line"
    return "window" if windowed[axis].kernel > 1 else "point"


def _windowed(geometry: Geometry, position: int) -> bool:
    return any(isinstance(one.rule, Window | TransposedWindow) for one in geometry.operands[position])


def _summed(geometry: Geometry, position: int) -> list[int]:
    """Return the axes of an operand that are longer than 1 and needed whole."""
    lengths = geometry.shapes[position]
    maps = enumerate(geometry.operands[position])
    return [axis for axis, one in maps if isinstance(one.rule, WholeAxis) and lengths[axis] > 1]


@cache
def verdict(kind: str, word: str, dtype: str, runtime: str = "") -> Verdict:
    """Return what ``runtime`` showed of cuts of an operator; what was never compared counts as "differs".

    Without a runtime, or if the operator was not compared in it, the worst that any showed is returned.
    """
    stated = dtype or _UNSTATED
    seen: dict[str, Verdict] = {}
    for name, cuts in _tables().items():
        found = (cuts.get((kind, one, stated)) for one in _words(word))
        seen.update((name, one) for one in [one for one in found if one is not None][:1])
    return seen[runtime] if runtime in seen else max(seen.values(), key=VERDICTS.index, default="differs")


def _words(word: str) -> tuple[str, ...]:
    """Return a word and those that say it where only they were compared: of other sums, larger windows, all rows."""
    short = word.removesuffix(LONG)
    if short == PACKED:
        return (word, short, short + LONG, *_words(word.replace(PACKED, "rows")))
    return (word, short, short + LONG, *(("window", f"window{LONG}") if short == "point" else ()))


@cache
def _tables() -> Mapping[str, Cuts]:
    return {runtime: table(stated) for runtime, stated in parse_toml(TABLE.read_text(encoding="utf-8")).items()}


def table(stated: Mapping[str, Sequence[str]]) -> Cuts:
    """Return one runtime's part of the table, which has a text per role and verdict: "rows exact float32 int8"."""
    found: dict[tuple[str, str, str], Verdict] = {}
    for kind, lines in stated.items():
        for line in lines:
            word, seen, *types = line.split()
            found.update(((kind, word, dtype), VERDICTS[VERDICTS.index(seen)]) for dtype in types)
    return found
