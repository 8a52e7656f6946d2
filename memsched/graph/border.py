"""What stands between a model's caller and its layers: operators that the caller can do instead, and what they say.

The models that converters write often begin with a float input that is quantised at once, or with an image whose axes
are moved. Both tensors lie in the arena then, the larger one for nothing where the caller has the smaller one.
"""

from __future__ import annotations

from typing import Literal

from memsched.base.frozen import FrozenValue

__all__ = ["Border", "BorderStep", "BorderTensor", "Borders", "Interface", "Side", "StepKind"]

Side = Literal["input", "output"]
StepKind = Literal["quantize", "dequantize", "shift", "transpose", "cast"]


class BorderTensor(FrozenValue, frozen=True):
    """An input or an output as its caller sees it.

    Attributes:
        dtype: In the words of numpy.
        scale: Of a value that is quantised as a whole: it means ``scale * (value - zero_point)``. None for others.
        zero_point: Goes with ``scale``.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    size: int
    scale: float | None = None
    zero_point: int | None = None


class BorderStep(FrozenValue, frozen=True):
    """One operator that the caller does instead of the model.

    Attributes:
        op: Its name in the model as given.
        type: The format's word for it.
        kind: "quantize": ``clamp(round(x / scale) + zero_point)``; "dequantize": ``(q - zero_point) * scale``; "shift":
            ``clamp(q + offset)``, between integers of one scale; "transpose" and "cast" are what numpy calls so.
        dtype: Of what it makes.
        scale: For "quantize" and "dequantize", a number of 32 bits.
        zero_point: Goes with ``scale``.
        offset: For "shift".
        permutation: For "transpose": per axis of what it makes the axis of what it reads.
        halves: Where "quantize" rounds what is half-way between two integers: "away" from zero, or to the "even" one.
    """

    op: str
    type: str
    kind: StepKind
    dtype: str
    scale: float = 0.0
    zero_point: int = 0
    offset: int = 0
    permutation: tuple[int, ...] = ()
    halves: Literal["away", "even"] = "away"


class Border(FrozenValue, frozen=True):
    """An input or output that can be another tensor.

    Attributes:
        place: Which of the graph's inputs or outputs it is.
        given: As the model as given has it.
        written: As the rewritten model has it.
        steps: From what the caller had to what the caller now gives; for an output, from what the caller now gets to
            what it was.
    """

    side: Side
    place: int
    given: BorderTensor
    written: BorderTensor
    steps: tuple[BorderStep, ...]


class Borders(FrozenValue, frozen=True):
    """What can be changed at a model's border.

    Attributes:
        refusals: Per input or output with an operator at the border that has to stay: its name, and why.
    """

    found: tuple[Border, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()


class Interface(FrozenValue, frozen=True):
    """The inputs and outputs of a model, in its order."""

    inputs: tuple[BorderTensor, ...] = ()
    outputs: tuple[BorderTensor, ...] = ()
