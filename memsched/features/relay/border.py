"""A model whose inputs and outputs have the form that its layers have, before it is cut into stages."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from memsched.base.frozen import FrozenValue
from memsched.commands.optimize.border import BorderWays
from memsched.commands.optimize.place import Request, place
from memsched.commands.optimize.placing import UnwritableError, stored
from memsched.commands.optimize.rewrite import Candidate, RewriteBase
from memsched.commands.optimize.worth import LEAST_GAIN
from memsched.commands.options import RelayOptions
from memsched.formats.module import Module
from memsched.formats.stated_sizes import stated
from memsched.graph.border import Border
from memsched.plan.values import TargetModule
from memsched.report.border import border_section
from memsched.report.values.border import BorderSection
from memsched.search.run import Run

__all__ = ["CutModel", "bordered"]

_LITTLE = "in another form it would save less than 1% of what the model requires"


class CutModel(FrozenValue, frozen=True):
    """The model that is cut: that given, or the same with other inputs and outputs.

    Attributes:
        data: Its file.
        borders: What the caller does instead of the model; nothing where inputs and outputs are those given.
        io: What is reported of it; None where it was not permitted.
    """

    module: Module
    data: bytes
    borders: Sequence[Border] = ()
    io: BorderSection | None = None


def bordered(
    model: CutModel, prepared: TargetModule, requires: Callable[[bytes], int], options: RelayOptions, run: Run
) -> CutModel:
    """Return a model with inputs and outputs in the form that its layers have, if they become smaller so.

    What a whole file saves decides nothing: the first stage holds the input beside one layer, not beside the largest.

    Args:
        requires: Returns the bytes that a file requires as a whole.
    """
    request, required = Request(run, "file"), requires(model.data)
    sizes = stated(options.input_shapes, options.dims)
    base = RewriteBase(model.module, prepared, place(model.module, prepared, request), sizes)
    ways = BorderWays(base)
    while _saved(ways.left.found) >= LEAST_GAIN * required:
        candidate = Candidate(ways, ways.left.found, base.peak)
        try:
            made = stored(base, candidate, request)
        except UnwritableError as error:
            ways.drop(error.reasons)
            continue
        io = border_section(ways.left, candidate.way, required, requires(made.data))
        return CutModel(made.module, made.data, candidate.way, io)
    rows = tuple((one.given.name, _LITTLE) for one in ways.left.found)
    kept = dataclasses.replace(ways.left, refusals=(*ways.left.refusals, *rows))
    return dataclasses.replace(model, io=border_section(kept, (), required, required))


def _saved(way: Sequence[Border]) -> int:
    return sum(max(0, one.given.size - one.written.size) for one in way)
