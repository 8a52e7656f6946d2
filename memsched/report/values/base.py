"""What all parts of reports have in common, and the kinds of figures in them."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

__all__ = ["SCHEMA_VERSION", "Amount", "Count", "Percentage", "Positive", "Section", "Sha256", "Span", "Status"]

SCHEMA_VERSION: Final = 2
"""The version of the reports of all commands."""

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Amount = Annotated[float, Meta(ge=0)]
Percentage = Annotated[float, Meta(ge=0, le=100)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Span = tuple[Count, Count]
"""The first element, and the one after the last."""
Status = Literal["optimal", "feasible"]


class Section(Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A part of a report: one JSON object, its fields in the order in which they are written.

    Values are checked when a report is read, not when one is built. A field with a default is written all the same; one
    that may be UNSET is left out where it is.
    """
