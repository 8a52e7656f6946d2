"""A model whose inputs and outputs have the form that its layers have, before it is cut into stages."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.commands.optimize.optimize import optimize
from memsched.commands.options import RelayOptions
from memsched.formats.capabilities import BorderRewrites
from memsched.formats.files import load_module
from memsched.formats.known import capability
from memsched.formats.module import LoadOptions, Module
from memsched.frozen import FrozenValue
from memsched.graph.border import Border
from memsched.planning.rewrite import restated
from memsched.report.values.border import BorderSection
from memsched.search.run import Run

__all__ = ["CutModel", "as_cut"]


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


def as_cut(module: Module, data: bytes, options: RelayOptions, run: Run) -> CutModel:
    """Return what is to be cut: where it is permitted, with inputs and outputs that save something in one file.

    Args:
        module: The model as given.
        data: Its file.
    """
    if "io" not in options.allow:
        return CutModel(module, data)
    result = optimize(
        data,
        target=options.target or "tflm",
        time_limit=None if run.limits.time_limit is None else run.remaining(),
        effort=run.effort(),
        solver="file",
        input_shapes=options.input_shapes,
        dims=options.dims,
        tflm_plan=False,
        in_place="inplace" in options.allow,
        io=True,
        verify=False,
        seed=options.seed,
        stop=run.stop,
    )
    run.spend(result.work)
    section = result.report.values.io
    if section is None or not section.applied:
        return CutModel(module, data, io=section)
    changed = {(row.side, row.index) for row in section.changed}
    known = capability(module, BorderRewrites).borders(module).found
    borders = [one for one in known if (one.side, one.place) in changed]
    stated = restated(LoadOptions(dict(options.input_shapes), dict(options.dims)), borders)
    return CutModel(load_module(result.model, module.path, stated), result.model, borders, section)
