"""What each process of a distributed run does, step by step, without a notion of networks or plans.

A process holds arrays under keys. In every step it sends parts of them, receives new ones, and runs one model on some.
The processes are numbered from 0; -1 is the source of the inputs.
"""

from __future__ import annotations

from memsched.base.frozen import FrozenValue

__all__ = [
    "CALLER",
    "ArrayAssembly",
    "ArrayCut",
    "DeviceProgram",
    "Gather",
    "ModelRun",
    "Receive",
    "Send",
    "StepProgram",
    "Throttle",
]

CALLER = -1

Ranges = tuple[tuple[int, int], ...]


class ArrayCut(FrozenValue, frozen=True):
    """Elements ``source`` of the array ``key``, which are elements ``target`` of the value made of cuts."""

    key: str
    source: Ranges
    target: Ranges


class ArrayAssembly(FrozenValue, frozen=True):
    """An array to be put together from cuts of others."""

    shape: tuple[int, ...]
    dtype: str
    cuts: tuple[ArrayCut, ...]


class Send(FrozenValue, frozen=True):
    """``value`` goes to ``targets`` as transfer number ``transfer`` of the step."""

    transfer: int
    targets: tuple[int, ...]
    value: ArrayAssembly


class Receive(FrozenValue, frozen=True):
    """Transfer number ``transfer`` of the step comes from ``source`` into the elements ``place`` of the array ``key``.

    Attributes:
        shape: The shape of that array.
    """

    transfer: int
    source: int
    key: str
    place: Ranges
    shape: tuple[int, ...]
    dtype: str


class Gather(FrozenValue, frozen=True):
    """Cuts that are copied into the array ``key``, whose other elements were received."""

    key: str
    value: ArrayAssembly


class ModelRun(FrozenValue, frozen=True):
    """The model of a step.

    Attributes:
        inputs: Pairs of a name in the model and the key of what it is given.
        outputs: Pairs of a name in the model and the key under which the result is held.
    """

    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]


class StepProgram(FrozenValue, frozen=True):
    """What one process does in one step, in this order.

    Attributes:
        gathers: After all transfers, in this order.
        sent: Keys that are dropped then.
        sends_ahead: While the model runs.
        receives_ahead: Likewise; the arrays are held from then on.
        run: None where the process computes nothing.
        done: Keys that are dropped at the end.
    """

    sends: tuple[Send, ...]
    receives: tuple[Receive, ...]
    gathers: tuple[Gather, ...]
    sent: tuple[str, ...]
    sends_ahead: tuple[Send, ...]
    receives_ahead: tuple[Receive, ...]
    run: ModelRun | None
    done: tuple[str, ...]


class DeviceProgram(FrozenValue, frozen=True):
    """All steps of one process.

    Attributes:
        outputs: Names of the network's outputs and how they are made in the end; empty but for one process.
    """

    steps: tuple[StepProgram, ...]
    outputs: tuple[tuple[str, ArrayAssembly], ...]


class Throttle(FrozenValue, frozen=True):
    """What a process is held to so that it is like a device of the cluster.

    Attributes:
        cores: The share of a core that it has while it computes.
        seconds: Per step, how long it computes at least, instead of that; empty where its own time counts.
        room: Bytes that it may take once its models are loaded.
        bandwidth: Bytes per second, in each direction.
        latency: Seconds before it sends anything in a step.
        once: Whether what several receive leaves it once.
    """

    cores: float
    seconds: tuple[float, ...]
    room: int
    bandwidth: float
    latency: float
    once: bool
