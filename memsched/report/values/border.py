"""What reports say of a model's inputs and outputs, and of those that the model written has in another form."""

from __future__ import annotations

from typing import Literal

from memsched.report.values.base import Count, Section

__all__ = ["BorderRow", "BorderSection", "EndRow", "InterfaceSection", "KeptEndRow"]


class EndRow(Section, frozen=True, kw_only=True):
    """An input or an output.

    Attributes:
        tensor: Its name.
        shape: Its dimensions.
        size_bytes: What it holds.
        dtype: In the words of numpy.
        scale: Of values that are quantised as a whole: each means scale * (value - zero_point). null for others, and
            where the file does not say.
        zero_point: Goes with scale.
    """

    tensor: str
    shape: tuple[Count, ...]
    dtype: str
    size_bytes: Count
    scale: float | None
    zero_point: int | None


class InterfaceSection(Section, frozen=True, kw_only=True):
    """The inputs and outputs of the model written, or of the one given where none is written, in its order.

    Attributes:
        inputs: In the model's order.
        outputs: In the model's order.
    """

    inputs: tuple[EndRow, ...]
    outputs: tuple[EndRow, ...]


class BorderRow(Section, frozen=True, kw_only=True):
    """An input or output that the model written has in another form.

    Attributes:
        side: Which end of the model it is at.
        given: What it was.
        written: What it is.
        index: Which of the inputs or outputs it is, from 0.
        ops: The operators of the model as given that the caller does instead, in the order of execution.
        formula: How: of an input what to give now, x being what was given before; of an output how to get from what
            comes now, q, what came before. Division and multiplication are those of 32-bit floats, and transpose names
            per axis of what it makes the axis of what it reads.
        halves: What round does with a number half-way between two integers; null where nothing is rounded.
    """

    side: Literal["input", "output"]
    index: Count
    given: EndRow
    written: EndRow
    ops: tuple[str, ...]
    formula: str
    halves: Literal["away from zero", "to the even one"] | None


class KeptEndRow(Section, frozen=True, kw_only=True):
    """An input or output that stays as it was, although an operator at the border makes it.

    Attributes:
        tensor: Its name.
        reason: Why it cannot change.
    """

    tensor: str
    reason: str


class BorderSection(Section, frozen=True, kw_only=True):
    """Inputs and outputs in the form that the layers have.

    Attributes:
        applied: The model written has other inputs or outputs than the one given: its caller has to change.
        given_bytes: The least that was found to be required without it, by order and in-place writes alone.
        bytes: The same with it.
        changed: What the caller has to do.
        kept: What cannot be changed, and why.
    """

    applied: bool
    given_bytes: Count
    bytes: Count
    changed: tuple[BorderRow, ...]
    kept: tuple[KeptEndRow, ...]
