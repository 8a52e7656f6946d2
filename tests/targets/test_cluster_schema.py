"""The schema of cluster files: what the loader accepts it accepts, and it refuses what is wrong in form."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import memsched
from memsched.report.schema import json_schema
from memsched.targets.cluster import ClusterError, builtin_clusters, load_cluster, parse_cluster
from memsched.targets.text import parse_toml

CLUSTERS = Path(memsched.__file__).parent / "clusters"
SCHEMA = jsonschema.Draft202012Validator(json_schema("cluster"))
VALID: dict[str, Any] = {
    "name": "two",
    "router": {"bandwidth_bytes_per_second": 1e6, "latency_seconds": 0.001, "mode": "broadcast"},
    "compute": {"board": {"default": {"seconds_per_byte": 1e-9}, "Conv": {"seconds_per_mac": 1e-10}}},
    "devices": [
        {"name": "a", "memory_bytes": "64MB", "compute": "board", "speed": 2.0},
        {"memory_bytes": 1000, "compute": {"default": {"base_seconds": 1}}, "count": 2},
    ],
}


def toml(value: Any) -> str:
    """Return a value in TOML's inline form."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def text_of(cluster: dict[str, Any]) -> str:
    return "\n".join(f"{key} = {toml(value)}" for key, value in cluster.items())


@pytest.mark.parametrize("name", builtin_clusters())
def test_the_clusters_that_ship(name: str) -> None:
    assert load_cluster(name).devices
    SCHEMA.validate(parse_toml((CLUSTERS / f"{name}.toml").read_text()))


def test_a_cluster_with_everything() -> None:
    SCHEMA.validate(VALID)
    assert len(parse_cluster(text_of(VALID), "c.toml").devices) == 3


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("devices",), []),
        (("router", "bandwidth_bytes_per_second"), -1.0),
        (("router", "bandwidth_bytes_per_second"), 0),
        (("router", "mode"), "ring"),
        (("router", "speed"), 1),
        (("router", "latency_seconds"), -1),
        (("devices", 0, "memory_bytes"), 0),
        (("devices", 0, "memory_bytes"), 2**51),
        (("devices", 0, "speed"), 0),
        (("devices", 1, "count"), 257),
        (("devices", 1, "compute"), {}),
        (("devices", 1, "compute"), {"default": {"seconds": 1}}),
        (("compute", "board", "Conv"), 3),
        (("extra",), 1),
        (("name",), ""),
    ],
)
def test_both_refuse(path: tuple[Any, ...], value: object) -> None:
    changed = copy.deepcopy(VALID)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert list(SCHEMA.iter_errors(changed))
    with pytest.raises(ClusterError):
        parse_cluster(text_of(changed), "c.toml")
