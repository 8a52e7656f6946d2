"""Devices that share the work on a network, and the router between them: values, and their TOML files.

Source: "MemoriaNova", section 3.3.2: devices around a router, point-to-point or broadcast; the time of an op is
linear in its size (Y_i). All times are seconds, all sizes bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, Literal

from msgspec import Meta
from msgspec import field as value_of
from msgspec.structs import fields

from memsched.base.errors import MemschedError, UsageError
from memsched.base.frozen import FrozenValue
from memsched.base.suggestions import did_you_mean
from memsched.targets.model import BYTES, LARGEST, Rules
from memsched.targets.tables import BadTableError, read_table
from memsched.targets.text import LONGEST_FILE, parse_toml, shown_value

__all__ = [
    "Cluster",
    "ClusterError",
    "ClusterTable",
    "Device",
    "LinearTime",
    "Mode",
    "Router",
    "builtin_clusters",
    "load_cluster",
    "parse_cluster",
    "without",
]

Mode = Literal["broadcast", "point-to-point"]

MOST_DEVICES: Final = 256
"""A file with more is a mistake: no household has so many, and no search of this package would end for them."""

_FOLDER = Path(__file__).parent.parent / "clusters"
_LEAST: Final = 1e-6
"""The least share of a core, and the least speed: every time of a plan is finite."""

Memory = Annotated[int, Meta(ge=1, le=LARGEST, extra=BYTES)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]


class ClusterError(MemschedError):
    """A cluster's TOML file is wrong."""


class LinearTime(FrozenValue, frozen=True):
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
        cores: The share of a core of this machine that stands for the device in a throttled run.
    """

    name: str
    memory: int
    default: LinearTime
    operators: Mapping[str, LinearTime] = field(default_factory=lambda: MappingProxyType({}))
    cores: float = 1.0

    def time_of(self, kind: str) -> LinearTime:
        """Return the model of operators of this type."""
        return self.operators.get(kind, self.default)


class Router(FrozenValue, frozen=True):
    """What connects the devices: every device has a link to it that sends and receives at the same time.

    Attributes:
        bandwidth: Bytes per second of each link, in each direction.
        latency: Seconds that a device waits, once, in a step in which it sends or receives anything.
        mode: "broadcast": what several devices need leaves its sender once. "point-to-point": once for each.
        overlap: Whether devices send and receive while they compute.
    """

    bandwidth: float
    latency: float = 0.0
    mode: Mode = "broadcast"
    overlap: bool = False

    def seconds(self, sent: float, received: float) -> float:
        """Return how long a device's link is busy in a step in which it sends and receives so many bytes."""
        return self.latency + max(sent, received) / self.bandwidth if sent or received else 0.0


class Cluster(FrozenValue, frozen=True):
    """Devices and their router. Devices are referred to by index."""

    name: str
    devices: tuple[Device, ...]
    router: Router


def without(cluster: Cluster, device: int) -> Cluster:
    """Return the cluster after ``device`` has dropped out; the devices after it move up by one.

    Raises:
        UsageError: There is no such device, or it is the only one.
    """
    count = len(cluster.devices)
    if not 0 <= device < count:
        raise UsageError(
            f"cluster '{cluster.name}' has no device {device}: they are numbered from 0 to {count - 1}",
            code="no-such-device",
        )
    if count == 1:
        raise UsageError(
            f"cluster '{cluster.name}' has only one device: nothing is left without it", code="no-device-left"
        )
    return replace(cluster, devices=cluster.devices[:device] + cluster.devices[device + 1 :])


# Files ------------------------------------------------------------------------------------------------------------


class OperatorSeconds(Rules, frozen=True):
    """The seconds that operators of a type take.

    Attributes:
        base_seconds: Per operator, whatever its size.
        seconds_per_byte: Per byte read or written, weights too.
    """

    base_seconds: Seconds = 0.0
    seconds_per_mac: Seconds = 0.0
    seconds_per_byte: Seconds = 0.0


Profile = Annotated[dict[str, OperatorSeconds], Meta(extra_json_schema={"required": ["default"]})]
_Profile = dict[str, LinearTime]


class RouterTable(Rules, frozen=True):
    """What connects the devices.

    Attributes:
        bandwidth_bytes_per_second: Bandwidth of each device's link, in each direction.
        latency_seconds: How long a device waits, once, in a step in which it sends or receives anything.
        mode: Whether what several devices need leaves its sender once, or once for each.
        overlap: Whether devices send and receive while they compute: then what later steps need goes ahead.
    """

    bandwidth_bytes_per_second: Annotated[float, Meta(ge=1, le=1e15)]
    latency_seconds: Seconds = 0.0
    mode: Mode = "broadcast"
    overlap: bool = False


class DeviceTable(Rules, frozen=True, kw_only=True):
    """A device, or several that are alike.

    Attributes:
        count: Devices that are alike.
        memory_bytes: Memory for weights, parts of tensors and what is being computed; also as text such as "1536MB".
        compute: The name of a profile, or one of its own: operator type, or "default", to the seconds that it takes.
        speed: Speed, as a multiple of the profile's.
        cores: The share of a core of this machine that stands for the device in a throttled run.
    """

    name: Name | None = None
    count: Annotated[int, Meta(ge=1, le=MOST_DEVICES)] = 1
    memory_bytes: Memory
    compute: str | Profile
    speed: Annotated[float, Meta(ge=_LEAST, le=1 / _LEAST)] = 1.0
    cores: Annotated[float, Meta(ge=_LEAST, le=1)] = 1.0


class ClusterTable(Rules, frozen=True, kw_only=True):
    """A cluster of memsched distribute, as its TOML file holds it.

    Attributes:
        name: The cluster's name; by default the file's.
        compute: Profiles that devices name: operator type, or "default", to the seconds that it takes.
    """

    name: Name | None = None
    router: RouterTable
    compute: dict[str, Profile] = value_of(default_factory=dict)
    devices: Annotated[tuple[DeviceTable, ...], Meta(min_length=1, max_length=MOST_DEVICES)]


def builtin_clusters() -> tuple[str, ...]:
    """Return the names of the clusters that ship with memsched, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def load_cluster(name_or_path: str) -> Cluster:
    """Return the built-in cluster of that name, or the one that a .toml file describes.

    Raises:
        UsageError: No cluster has that name.
        ClusterError: An unreadable file, or a key that is missing, unknown or out of range.
    """
    if name_or_path in builtin_clusters():
        path = _FOLDER / f"{name_or_path}.toml"
    elif name_or_path.endswith(".toml"):
        path = Path(name_or_path)
    else:
        names = builtin_clusters()
        raise UsageError(
            f"unknown cluster '{name_or_path}'{did_you_mean(name_or_path, names)}",
            code="no-such-cluster",
            action=f"choose one of {', '.join(names)}, or give the path of a .toml file",
        )
    return parse_cluster(_text(path), str(path), default_name=path.stem)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LONGEST_FILE + 1)
    except FileNotFoundError:
        raise ClusterError("no such cluster file", code="no-such-cluster-file", location=str(path)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no path of a file"
        raise ClusterError(
            f"it cannot be read: {reason}", code="cluster-unreadable", location=str(path).replace("\0", "?")
        ) from None
    if len(data) > LONGEST_FILE:
        raise ClusterError(
            f"it is larger than a cluster file can be ({LONGEST_FILE:,} bytes)",
            code="cluster-too-large",
            location=str(path),
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise ClusterError("it is not UTF-8 text", code="cluster-not-text", location=str(path)) from None


def parse_cluster(text: str, path: str, *, default_name: str = "cluster") -> Cluster:
    """Return the cluster that a file's text describes; ``path`` is what messages call it.

    Raises:
        ClusterError: It does not describe one.
    """
    try:
        values = parse_toml(text)
    except ValueError as error:
        raise ClusterError(f"not valid TOML: {error}", code="cluster-not-toml", location=path) from None
    if isinstance(values, dict) and values.get("devices") == []:
        raise ClusterError(
            "there are no devices", code="no-devices", location=path, action="add a [[devices]] table for each"
        )
    try:
        table = read_table(values, ClusterTable)
        _check_name("", table.name)
        profiles = {name: _profile(f"[compute.{name}]: ", given) for name, given in table.compute.items()}
        devices = tuple(_devices(table.devices, profiles))
    except BadTableError as error:
        raise ClusterError(str(error), code=error.code, location=path) from None
    router = table.router
    return Cluster(
        table.name or default_name,
        devices,
        Router(router.bandwidth_bytes_per_second, router.latency_seconds, router.mode, router.overlap),
    )


def _check_name(where: str, name: str | None) -> None:
    if name is not None and (not name.strip() or not name.isprintable()):
        raise BadTableError(f"{where}key 'name' must be a name, not {shown_value(name)}", "bad-name")


def _devices(tables: Sequence[DeviceTable], profiles: Mapping[str, _Profile]) -> Iterator[Device]:
    names: set[str] = set()
    for number, table in enumerate(tables):
        where = f"[[devices]] number {number + 1}: "
        _check_name(where, table.name)
        name = f"device-{number}" if table.name is None else table.name
        if len(names) + table.count > MOST_DEVICES:
            raise BadTableError(f"there are more than {MOST_DEVICES} devices", "too-many-devices")
        scaled = {kind: _faster(time, table.speed) for kind, time in _named(where, table.compute, profiles).items()}
        default = scaled.pop("default")
        for copy in range(table.count):
            own = name if table.count == 1 else f"{name}-{copy}"
            if own in names:
                raise BadTableError(f"two devices are named '{own}'", "named-twice")
            names.add(own)
            yield Device(own, table.memory_bytes, default, MappingProxyType(scaled), table.cores)


def _named(where: str, compute: str | dict[str, OperatorSeconds], profiles: Mapping[str, _Profile]) -> _Profile:
    """Return the profile of that name, or the one that is stated."""
    if not isinstance(compute, str):
        return _profile(f"{where}compute: ", compute)
    if compute not in profiles:
        known = did_you_mean(compute[:200], profiles) or f"; there are: {', '.join(profiles) or 'none'}"
        problem = f"{where}key 'compute': there is no [compute.{shown_value(compute)[1:-1]}]{known}"
        raise BadTableError(problem, "no-such-profile")
    return profiles[compute]


def _profile(where: str, given: dict[str, OperatorSeconds]) -> _Profile:
    """Return a time per operator type, "default" among them."""
    if "default" not in given:
        raise BadTableError(f"{where}key 'default' is missing", "missing-key")
    if given["default"] == OperatorSeconds():
        keys = ", ".join(field.name for field in fields(OperatorSeconds))
        raise BadTableError(f"{where}'default' takes no time at all; give {keys}", "no-time")
    return {
        kind: LinearTime(one.base_seconds, one.seconds_per_mac, one.seconds_per_byte) for kind, one in given.items()
    }


def _faster(time: LinearTime, speed: float) -> LinearTime:
    return LinearTime(time.base / speed, time.per_mac / speed, time.per_byte / speed)
