"""The check of every file that is written: it is read back and compared with what was planned."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from memsched.base.errors import InternalError, MemschedError
from memsched.check.schedule import check_reordering
from memsched.formats.files import load_module
from memsched.formats.known import format_of
from memsched.formats.module import LoadOptions, Module

__all__ = ["check_written", "load_again"]


def load_again(module: Module, data: bytes, options: LoadOptions, what: str) -> Module:
    """Return what was written of ``module`` as it reads back; sizes that were found are not looked for again.

    Args:
        what: Kind of model, for the message.

    Raises:
        InternalError: It cannot be read.
    """
    try:
        return load_module(data, module.path, dataclasses.replace(options, settled=True))
    except MemschedError as error:
        raise InternalError(f"the {what} model cannot be read back: {error}") from error


def _places(module: Module) -> list[tuple[int | str, ...]]:
    """Return what tells each graph apart in whatever order the ops are stored.

    A body that is numbered where its op stands goes by the names of the ops around it.
    """
    result: list[tuple[int | str, ...]] = [(index,) for index in range(len(module.graphs))]
    count: dict[tuple[int, int], int] = {}
    for body in module.bodies if format_of(module).traits.bodies_follow_ops else ():  # parents come first
        number = count[body.parent, body.op] = count.get((body.parent, body.op), 0) + 1
        result[body.graph] = (*result[body.parent], module.graphs[body.parent].ops[body.op].name, number)
    return result


def check_written(
    module: Module, model: bytes, orders: Mapping[int, Sequence[int]], options: LoadOptions, *, added: bool = False
) -> None:
    """Read ``model`` back and compare it with the given module and the planned orders.

    Args:
        orders: Per graph the order in which its ops are stored; absent: as in the module.
        added: Ops of memsched's own may stand between the planned ones.
    """
    again = load_again(module, model, options, "reordered")
    if len(again.graphs) != len(module.graphs):
        raise InternalError("the reordered model does not hold the same graphs", code="op-differs")
    places = _places(again)
    for index, place in enumerate(_places(module)):
        if place not in places:
            raise InternalError("the reordered model does not hold the same graphs", code="op-differs")
        before, after = module.graphs[index], again.graphs[places.index(place)]
        planned = [before.ops[op].name for op in orders.get(index, range(len(before.ops)))]
        found = [op.name for op in after.ops]
        if added:
            known = set(planned)
            found = [name for name in found if name in known]
        else:
            check_reordering(before, after)
        if found != planned:
            raise InternalError(f"graph '{before.name}' was not written in the planned order", code="order")
