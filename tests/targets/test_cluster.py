"""Clusters from TOML: what is read, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsched.errors import MemschedError, UsageError
from memsched.targets.cluster import (
    ClusterError,
    LinearTime,
    Router,
    builtin_clusters,
    load_cluster,
    parse_cluster,
    without,
)

ROUTER = "[router]\nbandwidth_bytes_per_second = 1e6\n"
COMPUTE = "[compute.c]\ndefault = { seconds_per_byte = 1e-9 }\nConv = { base_seconds = 1, seconds_per_mac = 2 }\n"
DEVICE = "[[devices]]\nmemory_bytes = 1000\ncompute = 'c'\n"
GOOD = ROUTER + COMPUTE + DEVICE


def test_all_keys() -> None:
    text = (
        "name = 'home'\n" + ROUTER + "latency_seconds = 0.5\nmode = 'point-to-point'\n" + COMPUTE
        + "[[devices]]\nname = 'a'\nmemory_bytes = '1KB'\ncompute = 'c'\ncount = 2\nspeed = 2\n"
        + "[[devices]]\nname = 'b'\nmemory_bytes = 7\ncompute = { default = { base_seconds = 3 } }\n"
    )  # fmt: skip
    found = parse_cluster(text, "file")
    assert found.name == "home"
    assert found.router == Router(1e6, 0.5, "point-to-point")
    assert [(device.name, device.memory) for device in found.devices] == [("a-0", 1024), ("a-1", 1024), ("b", 7)]
    assert found.devices[1].time_of("Conv") == LinearTime(0.5, 1.0, 0.0)
    assert found.devices[1].time_of("Relu") == LinearTime(0.0, 0.0, 0.5e-9)
    assert found.devices[2].time_of("Conv") == LinearTime(3.0)
    assert found.devices[0].time_of("Conv").seconds(10, 5) == 10.5


def test_router_seconds() -> None:
    router = Router(10.0, 1.0)
    assert router.seconds(0, 0) == 0
    assert router.seconds(20, 5) == router.seconds(5, 20) == 3.0


@pytest.mark.parametrize("name", builtin_clusters())
def test_built_in_clusters_load(name: str) -> None:
    assert len(load_cluster(name).devices) == 4


def test_a_device_drops_out() -> None:
    found = parse_cluster(GOOD + DEVICE.replace("compute", "name = 'other'\ncompute"), "file")
    assert [device.name for device in without(found, 0).devices] == ["other"]
    with pytest.raises(UsageError, match="no device 2"):
        without(found, 2)
    with pytest.raises(UsageError, match="only one"):
        without(without(found, 0), 0)


BAD = {
    "no devices": (ROUTER + COMPUTE + "devices = []", "devices"),
    "no device table": (ROUTER + COMPUTE, "'devices' is missing"),
    "an empty list": ("devices = []\n" + ROUTER + COMPUTE, "no devices"),
    "devices as a table": (ROUTER + COMPUTE + "[devices]\n", "must be a list"),
    "no router": (COMPUTE + DEVICE, "'router' is missing"),
    "router as a number": ("router = 5\n" + COMPUTE + DEVICE, "must be a table"),
    "no bandwidth": ("[router]\n" + COMPUTE + DEVICE, "'bandwidth_bytes_per_second' is missing"),
    "bandwidth 0": (GOOD.replace("1e6", "0"), "must be 1 or more"),
    "negative bandwidth": (GOOD.replace("1e6", "-1"), "must be 1 or more"),
    "bandwidth nan": (GOOD.replace("1e6", "nan"), "must be 1 or more"),
    "bandwidth inf": (GOOD.replace("1e6", "inf"), "must be 1 or more"),
    "bandwidth too large": (GOOD.replace("1e6", "9" * 400), "must be at most 1,000"),
    "bandwidth of thousands of digits": (GOOD.replace("1e6", "0x1" + "0" * 9000), "thousands of digits"),
    "bandwidth as text": (GOOD.replace("1e6", "'fast'"), "must be of type float, not 'fast'"),
    "bandwidth true": (GOOD.replace("1e6", "true"), "must be of type float, not True"),
    "negative latency": (ROUTER + "latency_seconds = -1\n" + COMPUTE + DEVICE, "must not be negative"),
    "unknown mode": (ROUTER + "mode = 'smoke'\n" + COMPUTE + DEVICE, "one of 'broadcast', 'point-to-point', not"),
    "mode as a list": (ROUTER + "mode = []\n" + COMPUTE + DEVICE, "one of 'broadcast', 'point-to-point', not"),
    "unknown key": (GOOD + "memory = 3\n", "unknown key 'memory'"),
    "unknown key with a hint": (GOOD + "sped = 3\n", "did you mean 'speed'"),
    "unknown key at the top": ("colour = 1\n" + GOOD, "unknown key 'colour'"),
    "no memory": (GOOD.replace("memory_bytes = 1000", ""), "'memory_bytes' is missing"),
    "memory 0": (GOOD.replace("1000", "0"), "must be 1 or more, not 0"),
    "memory negative": (GOOD.replace("1000", "-5"), "must be 1 or more, not -5"),
    "memory absurd": (GOOD.replace("1000", "'99999999TB'"), "must be at most 1,125,899,906,842,624"),
    "memory no size": (GOOD.replace("1000", "'lots'"), "not a size"),
    "memory a fraction": (GOOD.replace("1000", "1.5"), "must be of type int, not 1.5"),
    "count 0": (GOOD + "count = 0\n", "must be 1 or more, not 0"),
    "too many devices": (GOOD + "count = 200\n" + DEVICE + "count = 200\n", "more than 256"),
    "speed 0": (GOOD + "speed = 0\n", "must be 1e-06 or more"),
    "speed next to nothing": (GOOD + "speed = 5e-324\n", "must be 1e-06 or more"),
    "the same name twice": (GOOD + "name = 'x'\n" + DEVICE + "name = 'x'\n", "two devices"),
    "a name with a line break": (GOOD + 'name = "a\\nb"\n', "must be a name"),
    "unknown profile": (GOOD.replace("'c'", "'d'"), "there is no [compute.d]"),
    "profile as a number": (GOOD.replace("'c'", "5"), "'compute'"),
    "no default": (ROUTER + "[compute.c]\n" + DEVICE, "'default' is missing"),
    "default takes no time": (GOOD.replace("seconds_per_byte = 1e-9", ""), "no time at all"),
    "operator as a number": (GOOD.replace("{ base_seconds = 1, seconds_per_mac = 2 }", "5"), "must be a table"),
    "negative seconds": (
        GOOD.replace("seconds_per_mac = 2", "seconds_per_mac = -2"),
        "[compute.c.Conv]: key 'seconds_per_mac'",
    ),
    "unknown seconds": (GOOD.replace("seconds_per_mac = 2", "seconds_per_flop = 2"), "unknown key"),
    "no TOML": ("[router", "not valid TOML"),
    "deep nesting": ("a = " + "[" * 100_000, "not valid TOML"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_clusters_are_refused_in_one_line(what: str) -> None:
    text, message = BAD[what]
    with pytest.raises(ClusterError) as caught:
        parse_cluster(text, "file.toml")
    shown = str(caught.value)
    assert message in shown
    assert "\n" not in shown
    assert len(shown) < 400
    assert caught.value.exit_code == 1


def test_bad_files(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 21))
    for name in ("absent.toml", "binary.toml", "large.toml"):
        with pytest.raises(ClusterError, match=name):
            load_cluster(str(tmp_path / name))
    with pytest.raises(ClusterError, match="cannot be read"):
        load_cluster(str(tmp_path) + "/\0.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(MemschedError, match="folder"):
        load_cluster(str(tmp_path / "folder.toml"))
    with pytest.raises(UsageError, match="did you mean 'pi4x4'"):
        load_cluster("pi4x5")
