"""What was measured of processes that ran a network which is shared out to several devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memsched.base.frozen import FrozenValue

if TYPE_CHECKING:
    import numpy as np

__all__ = ["ClusterRun", "DeviceRun", "PassTimes", "ThrottledRun"]


class DeviceRun(FrozenValue, frozen=True):
    """What the process of one device measured. Sizes are bytes.

    Attributes:
        sent: Bytes of elements that its sockets took, once for every receiver.
        sent_once: The same with what several receive counted once, as a broadcast sends it.
        received: Bytes of elements that came.
        headers: What its sockets took beside them.
        activations: Most in use at one time: arrays that it held, and what the runtime had beside them; None where
            the runtime does not say.
        resident_start: The process before it loaded any model; None where the system does not say.
        resident_loaded: The process with all its models loaded.
        resident_peak: The process at its largest while it ran.
        seconds: Per step, from the signal to begin until it was done.
    """

    sent: int
    sent_once: int
    received: int
    headers: int
    activations: int | None
    resident_start: int | None
    resident_loaded: int | None
    resident_peak: int | None
    seconds: tuple[float, ...]


class ClusterRun(FrozenValue, frozen=True):
    """A finished run.

    Attributes:
        outputs: By name.
        given: Bytes of inputs that were sent to the devices, once for every receiver.
        given_once: The same with what several receive counted once.
        seconds: Seconds of all steps, without starting and loading.
        runtime: Name and version.
    """

    outputs: Mapping[str, np.ndarray[Any, Any]]
    devices: tuple[DeviceRun, ...]
    given: int
    given_once: int
    seconds: float
    runtime: str


class PassTimes(FrozenValue, frozen=True):
    """The seconds of one pass of a throttled run.

    Attributes:
        steps: Per step, until all processes were done.
        computing: Per device and step, between having all values and having the results.
    """

    steps: tuple[float, ...]
    computing: tuple[tuple[float, ...], ...]


class ThrottledRun(FrozenValue, frozen=True):
    """What a throttled run measured.

    Attributes:
        passes: Their seconds as they would be without slow motion.
        slower: How many times as long everything took.
        nodes: Per device and step the seconds of the model's nodes by name, while they had a core.
    """

    passes: tuple[PassTimes, ...]
    slower: int
    nodes: tuple[tuple[Mapping[str, float], ...], ...]
