"""An independent check of stage schedules, from the definitions and value by value; it shares no code with solvers."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.base.errors import InternalError
from memsched.graph.stages import Constraints, Network, StageFigures, StageSchedule

__all__ = ["check_rows", "check_stages"]


def check_stages(network: Network, schedule: StageSchedule, constraints: Constraints) -> None:
    """Check that ``schedule`` respects ``constraints``, and that its communication is the sum over its values.

    Raises:
        InternalError: It does not.
    """
    stages = schedule.stages
    if len(stages) != len(network.layers) or schedule.count != constraints.stages:
        raise InternalError("a stage schedule has other layers or stages than were asked for", code="stage-count")
    if set(stages) != set(range(constraints.stages)):
        raise InternalError("a stage is empty or does not exist", code="empty-stage")
    _check_order(network, stages)
    _check_constraints(network, stages, constraints)
    communication = _communication(network, stages, constraints)
    if communication != schedule.communication:
        raise InternalError(
            f"stages receive {communication} bytes, not the {schedule.communication} that were claimed",
            code="bytes-claim",
        )
    if schedule.objective < schedule.lower_bound or communication < schedule.communication_bound:
        raise InternalError("a bound of a stage schedule lies above what it bounds", code="bound")
    proven = (schedule.objective, communication) == (schedule.lower_bound, schedule.communication_bound)
    if schedule.status == "optimal" and not proven:
        raise InternalError("a stage schedule claims to be optimal without bounds that say so", code="bound")


def check_rows(network: Network, schedule: StageSchedule, rows: Sequence[StageFigures]) -> None:
    """Check that the figures of the stages add up to the figures of the whole.

    Raises:
        InternalError: It does not.
    """
    values = [network.values[value] for row in rows for value in row.received_values]
    received = sum(row.receives for row in rows)
    given = sum(value.size for value in values if value.producer < 0)
    if received != sum(value.size for value in values) or received - given != schedule.communication:
        raise InternalError(
            f"stages receive {received - given} bytes of others, not {schedule.communication}", code="bytes-claim"
        )
    if sorted(layer for row in rows for layer in row.layers) != list(range(len(network.layers))):
        raise InternalError("a layer is in no stage, or in several", code="layer-stages")


def _check_order(network: Network, stages: tuple[int, ...]) -> None:
    for number, layer in enumerate(network.layers):
        for before in layer.preds:
            if stages[before] > stages[number]:
                raise InternalError(
                    f"layer '{layer.name}' comes in an earlier stage than one that it needs", code="order"
                )
    for value in network.values:
        for reader in value.readers:
            if value.producer >= 0 and stages[value.producer] > stages[reader]:
                raise InternalError(
                    f"'{value.name}' is read in an earlier stage than the one that makes it", code="order"
                )
    for group in network.together:
        if len({stages[layer] for layer in group}) > 1:
            raise InternalError("layers that share a state are in different stages", code="apart")


def _check_constraints(network: Network, stages: tuple[int, ...], constraints: Constraints) -> None:
    for value in network.values:
        maker = value.producer
        if maker in constraints.cut_after and any(stages[reader] == stages[maker] for reader in value.readers):
            raise InternalError(f"there is no cut after '{network.layers[maker].name}'", code="cut-missing")
        if maker in constraints.never_cut and any(stages[reader] != stages[maker] for reader in value.readers):
            raise InternalError(f"there is a cut after '{network.layers[maker].name}'", code="cut-forbidden")
    if constraints.children_together:
        children: dict[int, set[int]] = {}
        for value in network.values:
            children.setdefault(value.producer, set()).update(stages[reader] for reader in value.readers)
        if any(maker >= 0 and len(found) > 1 for maker, found in children.items()):
            raise InternalError("readers of one layer are in different stages", code="apart")


def _communication(network: Network, stages: tuple[int, ...], constraints: Constraints) -> int:
    """Return what stages receive: each value reaches every stage that reads it, or every stage on its way there."""
    total = 0
    for value in network.values:
        if value.producer < 0:
            continue
        home = stages[value.producer]
        ends = {stages[reader] for reader in value.readers if stages[reader] != home}
        if constraints.skips == "through":
            if value.result:
                ends.add(constraints.stages - 1)
            total += value.size * (max(ends, default=home) - home)
        else:
            total += value.size * len(ends)
    return total
