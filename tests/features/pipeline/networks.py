"""Small networks for tests of stage schedules, and what is true of them by trying everything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import strategies as st

from memsched.base.errors import InternalError
from memsched.check.stages import check_stages
from memsched.graph.stages import Constraints, Layer, LayerValue, Network, Skips, StageSchedule

__all__ = ["all_schedules", "communication_of", "constraints", "network", "networks", "parameters_of_stages"]


def network(
    edges: Sequence[tuple[int, int]],
    parameters: Sequence[int],
    sizes: Sequence[int] | None = None,
    macs: Sequence[int] | None = None,
) -> Network:
    """Return a network with a layer per entry of ``parameters``, each with one output that ``edges`` say who reads."""
    count = len(parameters)
    outputs = sizes or [1] * count
    return Network(
        "test",
        tuple(
            Layer(
                f"l{number}",
                "Op",
                (number,) if parameters[number] else (),
                macs[number] if macs else 0,
                tuple(sorted({before for before, after in edges if after == number})),
            )
            for number in range(count)
        ),
        tuple(
            LayerValue(
                f"v{number}",
                outputs[number],
                number,
                tuple(sorted({after for before, after in edges if before == number})),
                all(before != number for before, _ in edges),
            )
            for number in range(count)
        ),
        tuple(parameters),
    )


@st.composite
def networks(draw: st.DrawFn, most: int = 6) -> Network:
    """Draw networks with everything that they may have: several outputs, shared constants, states, control edges."""
    count = draw(st.integers(1, most))
    constants = tuple(draw(st.lists(st.integers(0, 9), max_size=6)))
    layers, values = [], []
    for number in range(count):
        outputs = draw(st.integers(0, 2))
        for output in range(outputs):
            later = list(range(number + 1, count))
            readers = draw(st.sets(st.sampled_from(later), max_size=3)) if later else set()
            result = draw(st.integers(0, 3)) == 0
            values.append(
                LayerValue(f"v{number}.{output}", draw(st.integers(0, 5)), number, tuple(sorted(readers)), result)
            )
        earlier = draw(st.sets(st.integers(0, number - 1), max_size=1)) if number and draw(st.booleans()) else set()
        used = draw(st.sets(st.integers(0, len(constants) - 1), max_size=2)) if constants else set()
        layers.append((tuple(sorted(used)), draw(st.integers(0, 9)), earlier))
    values.append(LayerValue("input", draw(st.integers(0, 5)), -1, (0,)))
    for value in values:
        for reader in value.readers:
            if value.producer >= 0:
                layers[reader][2].add(value.producer)
    group = draw(st.sets(st.integers(0, count - 1), max_size=2)) if draw(st.integers(0, 3)) == 0 else set()
    return Network(
        "drawn",
        tuple(
            Layer(f"l{number}", "Op", used, macs, tuple(sorted(befores)))
            for number, (used, macs, befores) in enumerate(layers)
        ),
        tuple(values),
        constants,
        (tuple(sorted(group)),) if len(group) > 1 else (),
    )


@st.composite
def constraints(draw: st.DrawFn, count: int, most: int = 4) -> Constraints:
    """Draw what may be demanded of a network with ``count`` layers."""
    some = st.lists(st.integers(0, count - 1), max_size=2, unique=True)
    return Constraints(
        draw(st.integers(1, most)),
        tuple(draw(some)) if draw(st.booleans()) else (),
        tuple(draw(some)) if draw(st.booleans()) else (),
        draw(st.booleans()),
        draw(st.sampled_from(["once", "through"])),
    )


def all_schedules(network: Network, constraints: Constraints) -> Iterator[tuple[int, ...]]:
    """Yield every stage schedule that the checker accepts."""
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        stages = waiting.pop()
        if len(stages) == len(network.layers):
            if _accepted(network, stages, constraints):
                yield stages
            continue
        first = max([stages[before] for before in network.layers[len(stages)].preds], default=0)
        waiting.extend((*stages, stage) for stage in range(first, constraints.stages))


def parameters_of_stages(network: Network, stages: Sequence[int]) -> list[int]:
    """Return the bytes of constants that each stage holds."""
    held: dict[int, set[int]] = {stage: set() for stage in stages}
    for layer, stage in zip(network.layers, stages, strict=True):
        held[stage].update(layer.constants)
    return [sum(network.constants[constant] for constant in held[stage]) for stage in sorted(held)]


def communication_of(network: Network, stages: Sequence[int], skips: Skips = "once") -> int:
    """Return the bytes that stages receive from other stages."""
    moved = {
        (number, stages[reader])
        for number, value in enumerate(network.values)
        for reader in value.readers
        if value.producer >= 0 and stages[reader] != stages[value.producer]
    }
    if skips == "through":
        # Whatever a stage receives, and what leaves the last one, those between have received before.
        moved |= {
            (number, max(stages))
            for number, value in enumerate(network.values)
            if value.result and value.producer >= 0 and stages[value.producer] != max(stages)
        }
        moved |= {
            (number, between)
            for number, stage in moved
            for between in range(stages[network.values[number].producer] + 1, stage)
        }
    return sum(network.values[number].size for number, _ in moved)


def _accepted(network: Network, stages: tuple[int, ...], constraints: Constraints) -> bool:
    communication = communication_of(network, stages, constraints.skips)
    claim = StageSchedule(stages, constraints.stages, 0, 0, communication, 0, "feasible", "", "")
    try:
        check_stages(network, claim, constraints)
    except InternalError:
        return False
    return True
