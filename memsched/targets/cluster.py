"""Devices that share the work on a network, and the router between them: values, and their TOML files.

Source: "MemoriaNova", section 3.3.2: devices around a router, point-to-point or broadcast; the time of an op is
linear in its size (Y_i). All times are seconds, all sizes bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal

from memsched.errors import MemschedError, UsageError
from memsched.suggestions import did_you_mean
from memsched.targets.text import LONGEST_FILE, parse_toml, shown_value
from memsched.units import parse_size

__all__ = [
    "Cluster",
    "ClusterError",
    "Device",
    "LinearTime",
    "Mode",
    "Router",
    "builtin_clusters",
    "load_cluster",
    "load_cluster_schema",
    "parse_cluster",
    "without",
]

Mode = Literal["broadcast", "point-to-point"]

MOST_DEVICES: Final = 256
"""Beyond which a file is a mistake: no household has as many, and no search of this package ends for them."""

_FOLDER = Path(__file__).parent.parent / "clusters"
_MOST_BYTES: Final = 1 << 50
_MOST_SECONDS: Final = 1e6
_MOST_BANDWIDTH: Final = 1e15
_LEAST_BANDWIDTH: Final = 1.0
_LEAST_SPEED: Final = 1e-6
"""So that no time of a plan is infinite."""


class ClusterError(MemschedError):
    """A cluster's name or TOML file is wrong."""


@dataclass(frozen=True, slots=True)
class LinearTime:
    """Seconds of one op: ``base + per_mac * macs + per_byte * bytes``.

    Attributes:
        base: Per op, whatever its size.
        per_mac: Per multiply-accumulate.
        per_byte: Per byte that the op reads (weights too) or writes.
    """

    base: float = 0.0
    per_mac: float = 0.0
    per_byte: float = 0.0

    def seconds(self, macs: float, size: float) -> float:
        """Return the seconds of an op of so many multiply-accumulates that reads and writes ``size`` bytes."""
        return self.base + self.per_mac * macs + self.per_byte * size


@dataclass(frozen=True, slots=True)
class Device:
    """One device.

    Attributes:
        memory: Bytes for weights, pieces of tensors and what is being computed.
        default: Time of an op whose type has no model of its own.
        operators: Time per operator type, as `Op.type` names it.
    """

    name: str
    memory: int
    default: LinearTime
    operators: Mapping[str, LinearTime] = field(default_factory=lambda: MappingProxyType({}))

    def time_of(self, kind: str) -> LinearTime:
        """Return the model of operators of this type."""
        return self.operators.get(kind, self.default)


@dataclass(frozen=True, slots=True)
class Router:
    """What connects the devices: every device has a link to it that sends and receives at the same time.

    Attributes:
        bandwidth: Bytes per second of each link, in each direction.
        latency: Seconds that a device waits once in a step in which it sends or receives anything.
        mode: "broadcast": what several devices need leaves its sender once. "point-to-point": once for each.
    """

    bandwidth: float
    latency: float = 0.0
    mode: Mode = "broadcast"

    def seconds(self, sent: float, received: float) -> float:
        """Return how long a device's link is busy in a step in which it sends and receives so many bytes."""
        return self.latency + max(sent, received) / self.bandwidth if sent or received else 0.0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Devices and their router. Devices are referred to by index."""

    name: str
    devices: tuple[Device, ...]
    router: Router


def without(cluster: Cluster, device: int) -> Cluster:
    """Return the cluster after ``device`` has dropped out; devices after it move up by one.

    Raises:
        UsageError: There is no such device, or no other.
    """
    count = len(cluster.devices)
    if not 0 <= device < count:
        raise UsageError(f"cluster '{cluster.name}' has no device {device}: they are numbered from 0 to {count - 1}")
    if count == 1:
        raise UsageError(f"cluster '{cluster.name}' has only one device: nothing is left without it")
    return replace(cluster, devices=cluster.devices[:device] + cluster.devices[device + 1 :])


# Files ------------------------------------------------------------------------------------------------------------


def builtin_clusters() -> tuple[str, ...]:
    """Return the names of the clusters that ship with memsched, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def load_cluster_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a cluster's TOML file, for editors."""
    schema: dict[str, Any] = json.loads(Path(__file__).with_name("cluster_schema.json").read_text(encoding="utf-8"))
    return schema


def load_cluster(name_or_path: str) -> Cluster:
    """Return the built-in cluster of that name, or the one that a .toml file describes.

    Raises:
        ClusterError: An unknown name, an unreadable file, or a key that is missing, unknown or out of range.
    """
    if name_or_path in builtin_clusters():
        path = _FOLDER / f"{name_or_path}.toml"
    elif name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    else:
        names = builtin_clusters()
        raise ClusterError(
            f"unknown cluster '{name_or_path}'{did_you_mean(name_or_path, names)}; built-in clusters: "
            f"{', '.join(names)}; or give the path of a .toml file"
        )
    return parse_cluster(_text(path), str(path), default_name=path.stem)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_FILE + 1)
    except FileNotFoundError:
        raise ClusterError(f"{path}: no such cluster file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no path of a file"
        raise ClusterError(f"{path}: cannot be read: {reason}".replace("\0", "?")) from None
    if len(data) > LONGEST_FILE:
        raise ClusterError(f"{path}: is larger than a cluster file can be ({LONGEST_FILE:,} bytes)")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ClusterError(f"{path}: cannot be read: it is not UTF-8 text") from None


def parse_cluster(text: str, path: str, *, default_name: str = "cluster") -> Cluster:
    """Return the cluster that a file's text describes; ``path`` is what messages call it.

    Raises:
        ClusterError: It describes none.
    """
    try:
        values = parse_toml(text)
    except ValueError as error:
        raise ClusterError(f"{path}: not valid TOML: {error}") from None
    top = _Table(path, "", values, ("name", "router", "compute", "devices"))
    profiles = {
        name: _operators(_Table(path, f"[compute.{name}] ", _mapping(path, f"compute.{name}", given), None))
        for name, given in _mapping(path, "compute", top.values.get("compute", {})).items()
    }
    router = _router(_Table(path, "[router] ", _mapping(path, "router", top.required("router")), _ROUTER_KEYS))
    return Cluster(top.text("name", default_name), _devices(path, top.required("devices"), profiles), router)


_ROUTER_KEYS = ("bandwidth_bytes_per_second", "latency_seconds", "mode")
_DEVICE_KEYS = ("name", "memory_bytes", "compute", "speed", "count")
_TIME_KEYS = ("base_seconds", "seconds_per_mac", "seconds_per_byte")
_Profile = dict[str, LinearTime]


class _Table:
    """A table of the file with what messages call it."""

    def __init__(self, path: str, where: str, values: dict[str, Any], known: tuple[str, ...] | None) -> None:
        self.at = f"{path}: {where}"
        self.values = values
        for key in values:
            if known is not None and key not in known:
                hint = did_you_mean(key, known) or f"; known keys: {', '.join(known)}"
                raise ClusterError(f"{self.at}unknown key {key!r}{hint}")

    def required(self, key: str) -> Any:
        if key not in self.values:
            raise ClusterError(f"{self.at}key '{key}' is missing")
        return self.values[key]

    def text(self, key: str, default: str) -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str) or not value.strip() or not value.isprintable() or len(value) > 200:
            raise ClusterError(f"{self.at}key '{key}' must be a name, not {shown_value(value)}")
        return value

    def number(self, key: str, default: float | None, most: float, *, least: float = 0.0) -> float:
        value = self.required(key) if default is None else self.values.get(key, default)
        if type(value) not in {int, float}:
            raise ClusterError(f"{self.at}key '{key}' must be a number, not {shown_value(value)}")
        if not least <= value <= most:  # which is also how a NaN is refused
            raise ClusterError(
                f"{self.at}key '{key}' must be {least:g} or more and at most {most:g}, not {shown_value(value)}"
            )
        return float(value)

    def whole(self, key: str, default: int | None, most: int) -> int:
        value = self.required(key) if default is None else self.values.get(key, default)
        if isinstance(value, str):
            try:
                value = parse_size(value) if len(value) <= 40 else value
            except (UsageError, OverflowError) as error:
                raise ClusterError(f"{self.at}key '{key}': {error}") from None
        if type(value) is not int:
            raise ClusterError(f"{self.at}key '{key}' must be a whole number, not {shown_value(value)}")
        if not 1 <= value <= most:
            raise ClusterError(f"{self.at}key '{key}' must be from 1 to {most:,}, not {shown_value(value)}")
        return value


def _mapping(path: str, key: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ClusterError(f"{path}: key '{key}' must be a table, written as [{key}]")
    return value


def _router(table: _Table) -> Router:
    mode = table.values.get("mode", "broadcast")
    if mode not in ("broadcast", "point-to-point"):
        raise ClusterError(f"{table.at}key 'mode' must be 'broadcast' or 'point-to-point', not {shown_value(mode)}")
    return Router(
        bandwidth=table.number("bandwidth_bytes_per_second", None, _MOST_BANDWIDTH, least=_LEAST_BANDWIDTH),
        latency=table.number("latency_seconds", 0.0, _MOST_SECONDS),
        mode=mode,
    )


def _devices(path: str, tables: object, profiles: Mapping[str, _Profile]) -> tuple[Device, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ClusterError(f"{path}: key 'devices' must be a list of tables, written as [[devices]]")
    result: list[Device] = []
    for number, values in enumerate(tables):
        table = _Table(path, f"[[devices]] number {number + 1}: ", values, _DEVICE_KEYS)
        name = table.text("name", f"device-{number}")
        count = table.whole("count", 1, MOST_DEVICES)
        if len(result) + count > MOST_DEVICES:
            raise ClusterError(f"{path}: there are more than {MOST_DEVICES} devices")
        memory = table.whole("memory_bytes", None, _MOST_BYTES)
        speed = table.number("speed", 1.0, 1 / _LEAST_SPEED, least=_LEAST_SPEED)
        profile = _profile(table, profiles)
        scaled = {kind: _faster(time, speed) for kind, time in profile.items()}
        default = scaled.pop("default")
        result.extend(
            Device(name if count == 1 else f"{name}-{copy}", memory, default, MappingProxyType(scaled))
            for copy in range(count)
        )
    if not result:
        raise ClusterError(f"{path}: there are no devices: add a [[devices]] table for each")
    names = [device.name for device in result]
    for place, name in enumerate(names):
        if name in names[:place]:
            raise ClusterError(f"{path}: two devices are named '{name}'")
    return tuple(result)


def _profile(table: _Table, profiles: Mapping[str, _Profile]) -> _Profile:
    value = table.required("compute")
    if isinstance(value, dict):
        return _operators(_Table(table.at[:-2], "compute: ", value, None))
    if not isinstance(value, str):
        raise ClusterError(f"{table.at}key 'compute' must be a name or a table, not {shown_value(value)}")
    if value not in profiles:
        known = did_you_mean(value[:200], profiles) or f"; there are: {', '.join(profiles) or 'none'}"
        raise ClusterError(f"{table.at}key 'compute': there is no [compute.{shown_value(value)[1:-1]}]{known}")
    return profiles[value]


def _operators(table: _Table) -> _Profile:
    """Return a time per operator type, "default" among them."""
    table.required("default")
    result = {}
    for kind, given in table.values.items():
        if not isinstance(given, dict):
            raise ClusterError(f"{table.at}key {kind!r} must be a table of {', '.join(_TIME_KEYS)}")
        one = _Table(table.at[:-1], f" {kind}: ", given, _TIME_KEYS)
        result[kind] = LinearTime(*(one.number(key, 0.0, _MOST_SECONDS) for key in _TIME_KEYS))
    if result["default"] == LinearTime():
        raise ClusterError(f"{table.at}'default' takes no time at all: give {', '.join(_TIME_KEYS)}")
    return result


def _faster(time: LinearTime, speed: float) -> LinearTime:
    return LinearTime(time.base / speed, time.per_mac / speed, time.per_byte / speed)
