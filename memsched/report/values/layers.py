"""What a report says of each layer, in the model as given and in the one written."""

from __future__ import annotations

from memsched.report.values.base import Count, Section

__all__ = ["LayerFigures", "LayerRow"]


class LayerFigures(Section, frozen=True, kw_only=True):
    """What a layer takes in one model.

    Attributes:
        steps: So many steps compute it.
        footprint_bytes: The largest footprint of any of them.
        macs: Multiply-accumulates of all of them; 0 where they are unknown.
        weights_bytes: Constants that they read, in flash, each once; what other layers read, too, counts for each of
            them. null where this is unknown.
        persistent_bytes: What stays in TensorFlow Lite Micro's arena for them, on 32 bit, as ``firmware.kept``; null
            for other targets.
    """

    steps: Count
    footprint_bytes: Count
    macs: Count
    weights_bytes: Count | None
    persistent_bytes: Count | None


class LayerRow(Section, frozen=True, kw_only=True):
    """An op of the model as given, or one that a rewrite added.

    Attributes:
        type: Its operator.
        op: Its name in the model as given; of one that was added in the model written.
        before: In the file's order; null for one that was added.
        after: Of all steps that compute the op or a part of it; null where none does.
        computed_in: The op of the model written in whose body the op is computed piece by piece; null for all others.
    """

    op: str
    type: str
    before: LayerFigures | None
    after: LayerFigures | None
    computed_in: str | None = None
