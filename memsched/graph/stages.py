"""A network as stages of a pipeline see it: layers with their constants, and the values that they hand to each other.

Layers, values and constants are referred to by index. Sizes are bytes. Layers are in a topological order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from memsched.base.frozen import FrozenValue
from memsched.graph.model import Status

__all__ = ["Constraints", "Layer", "LayerValue", "Network", "Skips", "StageFigures", "StageSchedule", "figures"]

Skips = Literal["once", "through"]
"""How a value reaches a stage that is not the next one: the host keeps it and sends it to each stage that reads it
("once"), or every stage between hands it on, outputs of the network to the last stage ("through"). Inputs of the
network come from the host to each stage that reads them, either way."""


class LayerValue(FrozenValue, frozen=True):
    """What a layer makes for others, or what the network is given.

    Attributes:
        name: The tensor's.
        size: Bytes.
        producer: The layer that makes it; -1 where the network is given it.
        readers: The layers that read it, ascending, each once.
        result: Whether it is an output of the network.
    """

    name: str
    size: int
    producer: int
    readers: tuple[int, ...]
    result: bool = False


class Layer(FrozenValue, frozen=True):
    """One op with what it costs.

    Attributes:
        name: The op's.
        type: The format's operator name.
        constants: Constants that it reads, each once; two layers may share one.
        macs: Multiply-accumulates.
        preds: Layers that must not be in a later stage than this one, ascending: producers of what it reads, and
            ops that come before it without a tensor saying so.
    """

    name: str
    type: str
    constants: tuple[int, ...]
    macs: int
    preds: tuple[int, ...]


class Network(FrozenValue, frozen=True):
    """A DAG of layers to be spread over the stages of a pipeline.

    Attributes:
        constants: Size of each constant, bytes.
        together: Groups of layers that no stage boundary may ever separate (readers of one state).
    """

    name: str
    layers: tuple[Layer, ...]
    values: tuple[LayerValue, ...]
    constants: tuple[int, ...]
    together: tuple[tuple[int, ...], ...] = ()


class Constraints(FrozenValue, frozen=True):
    """What a stage schedule must respect beside the order of stages.

    Attributes:
        stages: How many; none may be empty.
        cut_after: Layers whose outputs no layer of their own stage may read.
        never_cut: Layers whose readers must all be in their stage.
        children_together: All readers of a layer's outputs must be in one stage (RESPECT, post-inference
            processing: what the Edge TPU demands).
        skips: How values reach later stages than the next, which is what communication and time count.
    """

    stages: int
    cut_after: tuple[int, ...] = ()
    never_cut: tuple[int, ...] = ()
    children_together: bool = False
    skips: Skips = "once"


class StageFigures(FrozenValue, frozen=True):
    """What one stage of a schedule holds and moves, bytes and multiply-accumulates.

    Attributes:
        layers: In ascending order.
        parameters: Of the constants that its layers read, each counted once.
        receives: Values that come from outside the stage, inputs of the network included.
        sends: Values that others need of it, outputs of the network included.
    """

    layers: tuple[int, ...]
    parameters: int
    macs: int
    receives: int
    sends: int
    received_values: tuple[int, ...]
    sent_values: tuple[int, ...]


class StageSchedule(FrozenValue, frozen=True):
    """A stage for every layer, with what is known of it.

    Attributes:
        stages: Per layer, from 0.
        count: How many stages there are.
        objective: The largest cost of a stage in the unit that was balanced (bytes of parameters by default).
        lower_bound: No schedule under the same constraints has a smaller ``objective``.
        communication: Bytes that stages receive from other stages, added up over stages; inputs of the network do
            not count. What is handed through counts once per stage that receives it.
        communication_bound: No schedule of this ``objective`` has less.
        status: "optimal" only when both equal their bounds.
        proof: How the bounds were proven, in words.
        method: The scheduler.
    """

    stages: tuple[int, ...]
    count: int
    objective: int
    lower_bound: int
    communication: int
    communication_bound: int
    status: Status
    proof: str
    method: str
    seconds: float = 0.0


def figures(network: Network, stages: Sequence[int], count: int, skips: Skips = "once") -> tuple[StageFigures, ...]:
    """Return what each of ``count`` stages holds and moves where layer i is in ``stages[i]``."""
    layers: list[list[int]] = [[] for _ in range(count)]
    for layer, stage in enumerate(stages):
        layers[stage].append(layer)
    received: list[list[int]] = [[] for _ in range(count)]
    sent: list[list[int]] = [[] for _ in range(count)]
    for number, value in enumerate(network.values):
        home = stages[value.producer] if value.producer >= 0 else -1
        reading = sorted({stages[reader] for reader in value.readers} - {home})
        if value.producer >= 0 and skips == "through":
            last = max([count - 1] if value.result else reading, default=home)
            reading = list(range(home + 1, last + 1))
            for stage in range(home, last if not value.result else last + 1):
                sent[stage].append(number)
        elif value.producer >= 0 and (reading or value.result):
            sent[home].append(number)
        for stage in reading:
            received[stage].append(number)
    return tuple(
        StageFigures(
            layers=tuple(members),
            parameters=sum(
                network.constants[constant]
                for constant in {constant for layer in members for constant in network.layers[layer].constants}
            ),
            macs=sum(network.layers[layer].macs for layer in members),
            receives=sum(network.values[value].size for value in received[stage]),
            sends=sum(network.values[value].size for value in sent[stage]),
            received_values=tuple(received[stage]),
            sent_values=tuple(sent[stage]),
        )
        for stage, members in enumerate(layers)
    )
