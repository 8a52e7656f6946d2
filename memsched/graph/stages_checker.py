"""An independent check of stage schedules, from the definitions and value by value; it shares no code with solvers."""

from __future__ import annotations

from memsched.errors import InternalError
from memsched.graph.stages import Constraints, Network, StageSchedule

__all__ = ["check_stages"]


def check_stages(network: Network, schedule: StageSchedule, constraints: Constraints) -> None:
    """Check that ``schedule`` respects ``constraints``, and that its communication is what the values amount to.

    Raises:
        InternalError: It does not.
    """
    stages = schedule.stages
    if len(stages) != len(network.layers) or schedule.count != constraints.stages:
        raise InternalError("a stage schedule has other layers or stages than were asked for")
    if set(stages) != set(range(constraints.stages)):
        raise InternalError("a stage is empty or does not exist")
    _check_order(network, stages)
    _check_constraints(network, stages, constraints)
    communication = _communication(network, stages)
    if communication != schedule.communication:
        raise InternalError(f"stages receive {communication} bytes, not the {schedule.communication} that were claimed")
    if schedule.objective < schedule.lower_bound or communication < schedule.communication_bound:
        raise InternalError("a bound of a stage schedule lies above what it bounds")
    proven = (schedule.objective, communication) == (schedule.lower_bound, schedule.communication_bound)
    if schedule.status == "optimal" and not proven:
        raise InternalError("a stage schedule claims to be optimal without bounds that say so")


def _check_order(network: Network, stages: tuple[int, ...]) -> None:
    for number, layer in enumerate(network.layers):
        for before in layer.preds:
            if stages[before] > stages[number]:
                raise InternalError(f"layer '{layer.name}' comes in an earlier stage than one that it needs")
    for value in network.values:
        for reader in value.readers:
            if value.producer >= 0 and stages[value.producer] > stages[reader]:
                raise InternalError(f"'{value.name}' is read in an earlier stage than the one that makes it")
    for group in network.together:
        if len({stages[layer] for layer in group}) > 1:
            raise InternalError("layers that share a state are in different stages")


def _check_constraints(network: Network, stages: tuple[int, ...], constraints: Constraints) -> None:
    for value in network.values:
        maker = value.producer
        if maker in constraints.cut_after and any(stages[reader] == stages[maker] for reader in value.readers):
            raise InternalError(f"there is no cut after '{network.layers[maker].name}'")
        if maker in constraints.never_cut and any(stages[reader] != stages[maker] for reader in value.readers):
            raise InternalError(f"there is a cut after '{network.layers[maker].name}'")
    if constraints.children_together:
        children: dict[int, set[int]] = {}
        for value in network.values:
            children.setdefault(value.producer, set()).update(stages[reader] for reader in value.readers)
        if any(maker >= 0 and len(found) > 1 for maker, found in children.items()):
            raise InternalError("readers of one layer are in different stages")


def _communication(network: Network, stages: tuple[int, ...]) -> int:
    total = 0
    for value in network.values:
        if value.producer >= 0:
            others = {stages[reader] for reader in value.readers if stages[reader] != stages[value.producer]}
            total += value.size * len(others)
    return total
