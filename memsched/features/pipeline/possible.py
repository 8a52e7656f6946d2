"""Whether a network can be cut into a number of stages under the given demands, and what would be possible if not.

Groups of layers that belong together form a DAG. Every number of stages is possible from the most cuts in a row that
were asked for, plus one, up to the number of groups: each stage of more than one group can be cut once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from memsched.base.errors import UsageError
from memsched.base.units import counted
from memsched.features.pipeline.condense import Condensation, condense
from memsched.graph.stages import Constraints, Network

__all__ = ["explain"]

STATES, NEVER_CUT, READERS = "shared states", "layers never to cut after", "readers of one layer in one stage"
"""What binds layers into groups, in words."""

_MOST_TRIALS = 200
"""Most layers that are tried one by one as the reason for a contradiction."""


def explain(network: Network, constraints: Constraints) -> UsageError | None:
    """Return why no stage schedule respects ``constraints``, with the nearest that is possible; None if one does."""
    if constraints.stages < 1:
        return UsageError(f"{constraints.stages} stages are not possible: ask for 1 or more", code="no-stages-asked")
    if not network.layers:
        return UsageError("the network has no layers, so that there is nothing to spread over stages", code="no-layers")
    condensed = condense(network, constraints)
    if condensed.uncuttable:
        return _contradiction(network, constraints, condensed.uncuttable[0])
    levels = condensed.levels()
    fewest, most = max(levels) + 1, len(condensed.groups)
    if constraints.stages > most:
        return UsageError(
            f"{counted(constraints.stages, 'stage')} are not possible: the network has "
            f"{counted(len(network.layers), 'layer')}{_grouped(network, constraints, condensed)}, so that "
            f"{counted(most, 'stage')} {_are(most)} the most",
            code="too-many-stages",
        )
    if constraints.stages < fewest:
        names = " -> ".join(
            f"'{network.layers[layer].name}'" for layer in _row(network, constraints, condensed, levels)
        )
        return UsageError(
            f"{counted(constraints.stages, 'stage')} {_are(constraints.stages)} not possible: cuts were asked for "
            f"after {names}, which come one after the other, so that {counted(fewest, 'stage')} are the fewest",
            code="too-few-stages",
        )
    return None


def _contradiction(network: Network, constraints: Constraints, layer: int) -> UsageError:
    """Return what keeps a reader of ``layer`` in its stage although a cut was asked for after it."""
    name = f"'{network.layers[layer].name}'"
    start = f"there cannot be a cut after {name}"

    def possible(never_cut: Sequence[int], children_together: bool) -> bool:
        trial = Constraints(1, (layer,), tuple(never_cut), children_together)
        return not condense(network, trial).uncuttable

    if not possible((), children_together=False):
        problem = f"{start}: it shares a state with a layer that reads it"
        return UsageError(problem, code="cut-shares-state", action="leave out this cut")
    if not possible((), children_together=True) and constraints.children_together:
        return UsageError(
            f"{start} while all readers of a layer must be in one stage: some of what lies before and behind {name} "
            "would have to be both before and after the cut",
            code="cut-parts-readers",
            action="leave out this cut or the rule for readers",
        )
    needed = list(constraints.never_cut)
    for other in constraints.never_cut[:_MOST_TRIALS]:
        fewer = [each for each in needed if each != other]
        if not possible(fewer, constraints.children_together):
            needed = fewer
    if layer in needed and len(needed) == 1:
        problem = f"{start}: it is also named as one never to cut after"
        return UsageError(problem, code="cut-never-cut", action="leave out either")
    others = ", ".join(f"'{network.layers[each].name}'" for each in needed[:5]) + (", ..." if len(needed) > 5 else "")
    problem = f"{start} and none after {others}: a reader of {name} would then be in its stage"
    return UsageError(problem, code="cut-joins-reader", action="leave out either")


def _row(network: Network, constraints: Constraints, condensed: Condensation, levels: Sequence[int]) -> list[int]:
    """Return the longest row of layers one after the other that each have a cut after them."""
    cuts = set(condensed.strict)
    asked = set(constraints.cut_after)
    group = max(range(len(levels)), key=lambda each: (levels[each], -each))
    result: list[int] = []
    while levels[group]:
        before = next(
            other for other in condensed.preds[group] if levels[other] + ((other, group) in cuts) == levels[group]
        )
        if (before, group) in cuts:
            result.append(
                next(
                    layer
                    for layer in condensed.groups[before]
                    if layer in asked and _reads(network, condensed, layer, group)
                )
            )
        group = before
    return result[::-1]


def _reads(network: Network, condensed: Condensation, layer: int, group: int) -> bool:
    """Whether a layer of ``group`` reads an output of ``layer``."""
    return any(
        value.producer == layer and any(condensed.group_of[reader] == group for reader in value.readers)
        for value in network.values
    )


def _grouped(network: Network, constraints: Constraints, condensed: Condensation) -> str:
    """Return how many groups of layers there are and what binds them, if anything does."""
    if len(condensed.groups) == len(network.layers):
        return ""
    reasons = [
        reason
        for reason, alone in (
            (STATES, Constraints(1)),
            (NEVER_CUT, replace(Constraints(1), never_cut=constraints.never_cut)),
            (READERS, Constraints(1, children_together=constraints.children_together)),
        )
        if len(condense(network, alone).groups) < len(network.layers)
    ]
    if network.together:
        reasons = [reason for reason in reasons if reason == STATES or _adds(network, constraints, reason)]
    count = len(condensed.groups)
    return f", which {' and '.join(reasons)} bind to {counted(count, 'group')} that cannot be cut"


def _adds(network: Network, constraints: Constraints, reason: str) -> bool:
    """Whether ``reason`` binds more layers than shared states do."""
    alone = len(condense(network, Constraints(1)).groups)
    if reason == NEVER_CUT:
        return len(condense(network, Constraints(1, never_cut=constraints.never_cut)).groups) < alone
    return len(condense(network, Constraints(1, children_together=True)).groups) < alone


def _are(count: int) -> str:
    return "are" if count != 1 else "is"
