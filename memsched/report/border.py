"""What people read of changed inputs and outputs: what each was, what it is, and the formula between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memsched.base.shown import ROWS_SHOWN
from memsched.base.units import counted
from memsched.graph.border import Border, Borders, BorderStep, BorderTensor, Interface
from memsched.report.text import shortened
from memsched.report.values.border import BorderRow, BorderSection, EndRow, InterfaceSection, KeptEndRow

__all__ = ["border_lines", "border_notes", "border_section", "end_text", "float_text", "interface_section"]

_RANGES: Final = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "uint16": (0, 65535)}


def interface_section(found: Interface, borders: Sequence[Border] = ()) -> InterfaceSection:
    """Return the inputs and outputs of a model, with the scales that ``borders`` know where its file states none."""
    told = {(border.side, border.place): border.written for border in borders}

    return InterfaceSection(
        inputs=tuple(_row(told.get(("input", place), one)) for place, one in enumerate(found.inputs)),
        outputs=tuple(_row(told.get(("output", place), one)) for place, one in enumerate(found.outputs)),
    )


def border_section(found: Borders, used: Sequence[Border], given: int, now: int) -> BorderSection:
    """Return the report of inputs and outputs in another form.

    Args:
        used: What the model written has; none where that was not worth it.
        given: Bytes that are required without it.
        now: Bytes that are required with it.
    """
    return BorderSection(
        applied=bool(used),
        given_bytes=given,
        bytes=now,
        changed=tuple(_changed(border) for border in used),
        kept=tuple(KeptEndRow(tensor=name, reason=reason) for name, reason in found.refusals),
    )


def _row(tensor: BorderTensor) -> EndRow:
    return EndRow(
        tensor=tensor.name,
        shape=tensor.shape,
        dtype=tensor.dtype,
        size_bytes=tensor.size,
        scale=None if tensor.scale is None else float(float_text(tensor.scale)),
        zero_point=tensor.zero_point,
    )


def _changed(border: Border) -> BorderRow:
    rounds = [step.halves for step in border.steps if step.kind == "quantize"]
    return BorderRow(
        side=border.side,
        index=border.place,
        given=_row(border.given),
        written=_row(border.written),
        ops=tuple(step.op for step in border.steps),
        formula=_formula(border),
        halves=None if not rounds else "away from zero" if rounds[0] == "away" else "to the even one",
    )


def _formula(border: Border) -> str:
    text, atom = ("x" if border.side == "input" else "q"), True
    for step in border.steps:
        text, atom = _applied(step, text, atom)
    return text


def _applied(step: BorderStep, text: str, atom: bool) -> tuple[str, bool]:
    """Return a step's formula of ``text``, and whether it needs no brackets; ``atom``: that one needs none."""
    inner = text if atom else f"({text})"
    if step.kind == "transpose":
        return f"transpose({text}, {list(step.permutation)})", True
    if step.kind == "cast":
        return f"{step.dtype}({text})", True
    scale = float_text(step.scale)
    if step.kind == "dequantize":
        shifted = inner if not step.zero_point else f"({inner}{_signed(-step.zero_point)})"
        return f"{shifted} * {scale}", False
    low, high = _RANGES[step.dtype]
    if step.kind == "shift":
        return f"clamp({inner}{_signed(step.offset)}, {low}, {high})", True
    return f"clamp(round({inner} / {scale}){_signed(step.zero_point)}, {low}, {high})", True


def _signed(number: int) -> str:
    return "" if not number else f" {'+' if number > 0 else '-'} {abs(number)}"


def float_text(number: float) -> str:
    """Return the shortest decimal number that is this one in 32 bits."""
    return next(text for digits in range(1, 18) if _single(float(text := f"{number:.{digits}g}")) == _single(number))


def _single(number: float) -> float:
    import numpy as np

    return float(np.float32(number))


def end_text(end: EndRow) -> str:
    """Return type, shape and meaning of an input or output, in words."""
    text = f"{end.dtype} [{', '.join(map(str, end.shape))}]"
    if end.scale is not None:
        text += f", scale {float_text(end.scale)}, zero point {end.zero_point}"
    return text


def border_notes(borders: Sequence[Border]) -> tuple[str, ...]:
    """Return in words by what models with other inputs and outputs were compared; nothing where there is nothing."""
    return tuple(_note(_changed(border)) for border in borders)


def _note(row: BorderRow) -> str:
    if row.side == "input":
        return f"input {row.index} of B is {end_text(row.written)}: fed with {row.formula}, x being that of A"
    return f"output {row.index} of B is {end_text(row.written)}: compared as {row.formula}, q being that of B"


def border_lines(
    section: BorderSection | None, columns: int, *, verbose: bool, of: str = ""
) -> list[tuple[str, str | None]]:
    """Return the lines of a summary, each with its style; names are shortened to fit into ``columns``.

    Args:
        of: Of what the bytes are, if that has to be said.
        verbose: All that stays instead of the first few.
    """
    if section is None:
        return []
    lines: list[tuple[str, str | None]] = []
    if section.applied:
        changed = section.changed
        inputs = sum(row.side == "input" for row in changed)
        counts = (inputs, "input"), (len(changed) - inputs, "output")
        what = " and ".join(counted(number, noun) for number, noun in counts if number)
        saved = f"{section.given_bytes:,} -> {section.bytes:,} B{of and f' {of}'}"
        lines.append((f"the caller has to change: {what} in another form, {saved}", "yellow"))
        for row in changed:
            name = shortened(row.given.tensor, columns - 14)
            lines.append((f"  {row.side} {row.index} '{name}'", None))
            lines.append((f"    {end_text(row.given)} -> {end_text(row.written)}", None))
            halves = "" if row.halves is None else f"; round takes halves {row.halves}"
            way = f"give {row.formula}{halves}" if row.side == "input" else f"what it was: {row.formula}"
            lines.append((f"    {way}", None))
    elif section.kept:
        lines.append(("inputs and outputs stay as they are: none can be given in another form that needs less", None))
    else:
        lines.append(("inputs and outputs stay as they are: no operator stands between them and the layers", None))
    kept = section.kept if verbose else section.kept[:ROWS_SHOWN]
    lines += [(f"  '{shortened(row.tensor, columns // 2)}' stays: {row.reason}", "dim") for row in kept]
    return lines
