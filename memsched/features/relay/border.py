"""A model whose inputs and outputs have the form that its layers have, before it is cut into stages."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.frozen import FrozenValue
from memsched.commands.calls import Hooks
from memsched.commands.optimize.optimize import optimize
from memsched.commands.options import Options, RelayOptions
from memsched.formats.capabilities import BorderRewrites
from memsched.formats.files import load_module
from memsched.formats.known import capability
from memsched.formats.module import Module
from memsched.formats.stated_sizes import stated
from memsched.graph.border import Border
from memsched.plan.rewrite import restated
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
    in_one_file = Options(
        target=options.target or "tflm",
        time_limit=None if run.limits.time_limit is None else run.remaining(),
        effort=run.effort(),
        input_shapes=options.input_shapes,
        dims=options.dims,
        tflm_plan=False,
        allow=[name for name in options.allow if name in {"inplace", "io"}],
        verify=False,
        seed=options.seed,
    )
    result = optimize(data, in_one_file, Hooks(stop=run.stop))
    run.spend(result.work)
    section = result.report.values.sections.border
    if section is None or not section.applied:
        return CutModel(module, data, io=section)
    changed = {(row.side, row.index) for row in section.changed}
    known = capability(module, BorderRewrites).borders(module).found
    borders = [one for one in known if (one.side, one.place) in changed]
    sizes = restated(stated(options.input_shapes, options.dims), borders)
    return CutModel(load_module(result.model, module.path, sizes), result.model, borders, section)
