"""What a throttled run says about a cluster: predicted against measured seconds, and figures fitted to them.

A throttled process has a share of a core, so its seconds are those of its own processor time, stretched. A line per
operator type, as `LinearTime` has it, is fitted to the seconds of the nodes, and what the steps took beyond that is
shared out. What a step takes whatever it computes is the router's delay, as are the seconds beside computing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Final

from memsched.base.frozen import FrozenValue
from memsched.features.distribute.checking import StepWork
from memsched.runtimes.devices.measured import ThrottledRun
from memsched.runtimes.devices.program import Throttle
from memsched.targets.cluster import Cluster, LinearTime, Router

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["LatencyComparison", "calibrated", "cluster_text", "compared", "throttles_of"]

_SWEEPS: Final = 3000
_LEAST_STEPS: Final = 4
"""Steps with transfers of which a router's figures can be fitted."""

_Row = tuple[dict[str, tuple[float, float, float]], float]
"""Per operator type (parts, multiply-accumulates, bytes) that a device computed in a step, and its seconds."""


class LatencyComparison(FrozenValue, frozen=True):
    """Predicted and measured seconds of a throttled run.

    Attributes:
        predicted: Per step, by the cluster's model; the last one brings the outputs together.
        measured: Per step, the median of the passes.
        total: Of a whole pass, the median.
        slower: How many times as long it took.
    """

    predicted: tuple[float, ...]
    measured: tuple[float, ...]
    total: float
    slower: int


def throttles_of(
    cluster: Cluster, weights: Sequence[int], works: Sequence[StepWork] | None = None
) -> tuple[Throttle, ...]:
    """Return what holds processes to a cluster's rates.

    Args:
        weights: Bytes of constants per device.
        works: Of the plan's steps where computing takes what the cluster says; None where it takes what it takes on
            the device's share of a core.
    """
    router = cluster.router
    return tuple(
        Throttle(
            cores=one.cores,
            seconds=tuple(work.computing(cluster, device) for work in works or ()),
            room=max(0, one.memory - used),
            bandwidth=router.bandwidth,
            latency=router.latency,
            once=router.mode == "broadcast",
        )
        for device, (one, used) in enumerate(zip(cluster.devices, weights, strict=True))
    )


def compared(works: Sequence[StepWork], cluster: Cluster, run: ThrottledRun) -> LatencyComparison:
    """Return predicted against measured seconds."""
    passes = run.passes
    return LatencyComparison(
        tuple(work.seconds(cluster) for work in works),
        tuple(median(seconds) for seconds in zip(*(one.steps for one in passes), strict=True)),
        median(sum(one.steps) for one in passes),
        run.slower,
    )


def calibrated(
    works: Sequence[StepWork], names: Sequence[Sequence[Sequence[str]]], cluster: Cluster, run: ThrottledRun
) -> Cluster:
    """Return the cluster with figures fitted to a throttled run; operator types that it lacks get the default's.

    Args:
        names: Per step and device the names of the ops that are computed.
    """
    passes = run.passes
    computing = [
        [median(one.computing[device][step] for one in passes) for step in range(len(works))]
        for device in range(len(cluster.devices))
    ]
    rows: list[_Row] = []
    nodes: list[_Row] = []
    for device, one in enumerate(cluster.devices):
        for step, work in enumerate(works):
            if work.ops[device]:
                rows.append((_by_type(work.ops[device]), computing[device][step] * one.cores))
                took_by = run.nodes[device][step]
                nodes += [
                    (_by_type([part]), took_by[name])
                    for part, name in zip(work.ops[device], names[step][device], strict=True)
                    if name in took_by
                ]
    default, operators, step_seconds = _fitted(rows, nodes)
    devices = tuple(
        replace(
            one,
            default=_slower(default, one.cores),
            operators={kind: _slower(line, one.cores) for kind, line in operators.items()},
        )
        for one in cluster.devices
    )
    beside = []
    for step, work in enumerate(works):
        took = median(one.steps[step] for one in passes) - max(mine[step] for mine in computing)
        most = max(max(work.sent[device], work.received[device]) for device in work.sent)
        if most and not work.ahead:
            beside.append((float(most), max(took, 1e-9)))
    router = _router(cluster.router, beside)
    slowest = min(one.cores for one in cluster.devices)
    return replace(cluster, devices=devices, router=replace(router, latency=router.latency + step_seconds / slowest))


def _by_type(parts: Sequence[tuple[str, float, float]]) -> dict[str, tuple[float, float, float]]:
    result: dict[str, tuple[float, float, float]] = {}
    for kind, macs, touched in parts:
        count, all_macs, all_touched = result.get(kind, (0.0, 0.0, 0.0))
        result[kind] = (count + 1, all_macs + macs, all_touched + touched)
    return result


def _fitted(steps: Sequence[_Row], nodes: Sequence[_Row]) -> tuple[LinearTime, dict[str, LinearTime], float]:
    """Return the default, the line of every operator type and the seconds of a step by itself, for a whole core.

    Lines go through the nodes. Steps take longer: by a factor, by some seconds for each of their operators, and by some
    for themselves, as the runtime is called, values are put together and caches are cold.
    """
    import numpy as np

    kinds = sorted({kind for row, _ in steps for kind in row})
    table, seconds = _table(nodes or steps, kinds)
    lines = np.zeros(3 * len(kinds))
    for place in range(len(kinds)):
        mine = table[:, 3 * place] > 0
        columns = slice(3 * place, 3 * place + 3)
        lines[columns] = _least_squares(table[mine, columns], seconds[mine])
    table, seconds = _table(steps, kinds)
    together = np.stack([table @ lines, table[:, ::3].sum(axis=1), np.ones(len(steps))], axis=1)
    factor, each, once = _least_squares(together, seconds)
    found = {
        kind: LinearTime(*(float(value) for value in factor * lines[3 * place : 3 * place + 3] + (each, 0.0, 0.0)))
        for place, kind in enumerate(kinds)
    }
    moved = [line for line in found.values() if not line.per_mac]
    default = LinearTime(
        median([one.base for one in moved] or [1e-6]), 0.0, median([one.per_byte for one in moved] or [1e-9])
    )
    return default if default.seconds(0, 1) else LinearTime(1e-6), found, float(once)


def _table(rows: Sequence[_Row], kinds: Sequence[str]) -> tuple[Floats, Floats]:
    import numpy as np

    table = np.array([[value for kind in kinds for value in row.get(kind, (0.0, 0.0, 0.0))] for row, _ in rows])
    return table.reshape(len(rows), 3 * len(kinds)), np.array([took for _, took in rows])


def _least_squares(table: Floats, wanted: Floats) -> Floats:
    """Return the non-negative coefficients whose sums are nearest, one coefficient at a time.

    The weight lies between equal weight for every second and for every relative error: large rows decide, small count.
    """
    import numpy as np

    if not len(wanted):
        return np.zeros(table.shape[1])
    weight = 1 / np.sqrt(np.maximum(wanted, wanted.max() * 1e-3))
    table, wanted = table * weight[:, None], wanted * weight
    scale = np.sqrt((table**2).sum(axis=0))
    columns = table / np.where(scale > 0, scale, 1.0)
    gram, target = columns.T @ columns, columns.T @ wanted
    found = np.zeros(len(scale))
    for _ in range(_SWEEPS):
        for place in np.flatnonzero(scale > 0):
            found[place] = max(0.0, found[place] + target[place] - gram[place] @ found)
    result: Floats = found / np.where(scale > 0, scale, 1.0)
    return result


def _router(given: Router, beside: Sequence[tuple[float, float]]) -> Router:
    import numpy as np

    if len(beside) < _LEAST_STEPS:
        return given
    table = np.array([(1.0, size) for size, _ in beside])
    latency, per_byte = _least_squares(table, np.array([seconds for _, seconds in beside]))
    bandwidth = 1 / per_byte if per_byte > 0 else given.bandwidth
    return replace(given, latency=float(latency), bandwidth=float(bandwidth))


def _slower(line: LinearTime, cores: float) -> LinearTime:
    return LinearTime(line.base / cores, line.per_mac / cores, line.per_byte / cores)


def cluster_text(cluster: Cluster) -> str:
    """Return a cluster as its TOML file."""
    router = cluster.router
    lines = [
        *(f"name = {json.dumps(cluster.name)}", "", "[router]"),
        f"bandwidth_bytes_per_second = {router.bandwidth:.6g}",
        f"latency_seconds = {router.latency:.6g}",
        f'mode = "{router.mode}"',
    ]
    for one in cluster.devices:
        lines += [
            *("", "[[devices]]", f"name = {json.dumps(one.name)}", f"memory_bytes = {one.memory}"),
            f"cores = {one.cores:.6g}",
            "[devices.compute]",
            *_lines({"default": one.default, **one.operators}),
        ]
    return "\n".join([*lines, ""])


def _lines(times: Mapping[str, LinearTime]) -> Iterator[str]:
    for kind, one in times.items():
        pairs = (("base_seconds", one.base), ("seconds_per_mac", one.per_mac), ("seconds_per_byte", one.per_byte))
        yield f"{json.dumps(kind)} = {{ {', '.join(f'{key} = {value:.6g}' for key, value in pairs if value)} }}"
