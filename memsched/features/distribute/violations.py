"""The constraints of MemoriaNova as numbers: how much a chromosome violates each of them.

Source: "MemoriaNova", section 3.3.3, equations 13 to 20. A number above 0 is a violation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memsched.features.distribute import shares as rules
from memsched.features.distribute.population import Evaluation, Population

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers = NDArray[np.int64]

__all__ = ["most_parts_of", "violations"]


def most_parts_of(population: Population) -> Integers:
    """Return per position k_max, 1 or more: into how many parts the cluster's memory allows the op to be divided.

    Source: "MemoriaNova", sections 3.3.1 and 3.3.3.
    """
    import numpy as np

    memory = sum(device.memory for device in population.cluster.devices)
    count = len(population.cluster.devices)
    result = []
    for position, axis in enumerate(population.axes):
        rows, channels = rules.most_parts(population.space, position, memory)
        most = {"rows": rows, "channels": channels, "whole": 1.0}[axis]
        result.append(int(max(1.0, min(most, count))))
    return np.array(result, dtype=np.int64)


def violations(population: Population, bounds: Integers, found: Evaluation) -> Integers:
    """Return the vector of equation 19 of every op and plan, [plan, position, 5 + 2 n].

    In order: cv_1 and cv_2 (x_0 = 0), cv_3 and cv_4 (x_n is the length), cv_5 for each device (bounds rise), cv_6,
    cv_7 for each device (its memory while the op is computed). Equation 16 is printed with I_j = 0 where two bounds
    are equal, so that it would bound the number of idle devices; here, as its text says, it bounds the number of
    parts: parts - min(n, k_max).
    """
    import numpy as np

    devices = bounds.shape[2] - 1
    lengths = np.array([
        population.space.divisions[position][axis].length for position, axis in enumerate(population.axes)
    ])  # fmt: skip
    widths = np.diff(bounds, axis=2)
    limits = np.array([device.memory for device in population.cluster.devices])
    parts = (widths != 0).sum(axis=2)
    first, last = bounds[:, :, 0], bounds[:, :, -1] - lengths
    result: Integers = np.concatenate(
        [
            np.stack([first, -first, last, -last], axis=2),
            -widths,
            (parts - np.minimum(devices, most_parts_of(population)))[:, :, None],
            found.held - limits,
        ],
        axis=2,
    )
    return result
