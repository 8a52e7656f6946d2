"""Clusters from TOML: what is read, and what is refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsched.targets.cluster import (
    ClusterError,
    LinearTime,
    Router,
    builtin_clusters,
    load_cluster,
    parse_cluster,
    without,
)
from tests.failures import fails

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
    with fails("no-such-device", "2"):
        without(found, 2)
    with fails("no-device-left"):
        without(without(found, 0), 0)


BAD = {
    "no devices": (ROUTER + COMPUTE + "devices = []", "value-type", "[compute.c]", "'devices'"),
    "no device table": (ROUTER + COMPUTE, "missing-key", "'devices'"),
    "an empty list": ("devices = []\n" + ROUTER + COMPUTE, "no-devices", "[[devices]]"),
    "devices as a table": (ROUTER + COMPUTE + "[devices]\n", "value-type", "'devices'", "[[devices]]"),
    "no router": (COMPUTE + DEVICE, "missing-key", "'router'"),
    "router as a number": ("router = 5\n" + COMPUTE + DEVICE, "value-type", "'router'", "[router]"),
    "no bandwidth": ("[router]\n" + COMPUTE + DEVICE, "missing-key", "[router]", "'bandwidth_bytes_per_second'"),
    "bandwidth 0": (GOOD.replace("1e6", "0"), "value-range", "[router]", "'bandwidth_bytes_per_second'"),
    "negative bandwidth": (GOOD.replace("1e6", "-1"), "value-range", "[router]", "'bandwidth_bytes_per_second'"),
    "bandwidth nan": (GOOD.replace("1e6", "nan"), "value-range", "[router]", "'bandwidth_bytes_per_second'"),
    "bandwidth inf": (GOOD.replace("1e6", "inf"), "value-range", "[router]", "'bandwidth_bytes_per_second'"),
    "bandwidth too large": (
        GOOD.replace("1e6", "9" * 400),
        "value-range",
        "[router]",
        "'bandwidth_bytes_per_second'",
        "1,000",
    ),
    "bandwidth of thousands of digits": (
        GOOD.replace("1e6", "0x1" + "0" * 9000),
        "value-range",
        "[router]",
        "'bandwidth_bytes_per_second'",
    ),
    "bandwidth as text": (
        GOOD.replace("1e6", "'fast'"),
        "value-type",
        "[router]",
        "'bandwidth_bytes_per_second'",
        "'fast'",
    ),
    "bandwidth true": (GOOD.replace("1e6", "true"), "value-type", "[router]", "'bandwidth_bytes_per_second'", "True"),
    "negative latency": (
        ROUTER + "latency_seconds = -1\n" + COMPUTE + DEVICE,
        "value-range",
        "[router]",
        "'latency_seconds'",
    ),
    "unknown mode": (
        ROUTER + "mode = 'smoke'\n" + COMPUTE + DEVICE,
        "value-choice",
        "[router]",
        "'mode'",
        "'broadcast'",
        "'point-to-point'",
    ),
    "mode as a list": (
        ROUTER + "mode = []\n" + COMPUTE + DEVICE,
        "value-choice",
        "[router]",
        "'mode'",
        "'broadcast'",
        "'point-to-point'",
    ),
    "unknown key": (GOOD + "memory = 3\n", "unknown-key", "[[devices]] number 1", "'memory'"),
    "unknown key with a hint": (GOOD + "sped = 3\n", "unknown-key", "[[devices]] number 1", "'sped'", "'speed'"),
    "unknown key at the top": ("colour = 1\n" + GOOD, "unknown-key", "'colour'"),
    "no memory": (GOOD.replace("memory_bytes = 1000", ""), "missing-key", "[[devices]] number 1", "'memory_bytes'"),
    "memory 0": (GOOD.replace("1000", "0"), "value-range", "[[devices]] number 1", "'memory_bytes'"),
    "memory negative": (GOOD.replace("1000", "-5"), "value-range", "[[devices]] number 1", "'memory_bytes'", "-5"),
    "memory absurd": (
        GOOD.replace("1000", "'99999999TB'"),
        "value-range",
        "[[devices]] number 1",
        "'memory_bytes'",
        "1,125,899,906,842,624",
    ),
    "memory no size": (GOOD.replace("1000", "'lots'"), "bad-size", "[[devices]] number 1", "'memory_bytes'"),
    "memory a fraction": (GOOD.replace("1000", "1.5"), "value-type", "[[devices]] number 1", "'memory_bytes'", "1.5"),
    "count 0": (GOOD + "count = 0\n", "value-range", "[[devices]] number 1", "'count'"),
    "too many devices": (GOOD + "count = 200\n" + DEVICE + "count = 200\n", "too-many-devices", "256"),
    "speed 0": (GOOD + "speed = 0\n", "value-range", "[[devices]] number 1", "'speed'", "1e-06"),
    "speed next to nothing": (GOOD + "speed = 5e-324\n", "value-range", "[[devices]] number 1", "'speed'", "1e-06"),
    "the same name twice": (GOOD + "name = 'x'\n" + DEVICE + "name = 'x'\n", "named-twice", "'x'"),
    "a name with a line break": (GOOD + 'name = "a\\nb"\n', "bad-name", "[[devices]] number 1", "'name'"),
    "unknown profile": (
        GOOD.replace("'c'", "'d'"),
        "no-such-profile",
        "[[devices]] number 1",
        "'compute'",
        "[compute.d]",
    ),
    "profile as a number": (GOOD.replace("'c'", "5"), "value-type", "[[devices]] number 1", "'compute'"),
    "no default": (ROUTER + "[compute.c]\n" + DEVICE, "missing-key", "[compute.c]", "'default'"),
    "default takes no time": (GOOD.replace("seconds_per_byte = 1e-9", ""), "no-time", "[compute.c]", "'default'"),
    "operator as a number": (
        GOOD.replace("{ base_seconds = 1, seconds_per_mac = 2 }", "5"),
        "value-type",
        "[compute.c]",
        "'Conv'",
    ),
    "negative seconds": (
        GOOD.replace("seconds_per_mac = 2", "seconds_per_mac = -2"),
        "value-range",
        "[compute.c.Conv]",
        "'seconds_per_mac'",
    ),
    "unknown seconds": (
        GOOD.replace("seconds_per_mac = 2", "seconds_per_flop = 2"),
        "unknown-key",
        "[compute.c.Conv]",
        "'seconds_per_flop'",
    ),
    "no TOML": ("[router", "cluster-not-toml"),
    "deep nesting": ("a = " + "[" * 100_000, "cluster-not-toml"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_clusters_are_refused_in_one_line(what: str) -> None:
    text, code, *about = BAD[what]
    with fails(code, *about) as caught:
        parse_cluster(text, "file.toml")
    error = caught.value
    assert isinstance(error, ClusterError)
    assert (error.location, error.exit_code) == ("file.toml", 1)
    assert "\n" not in str(error)
    assert len(str(error)) < 400


def test_bad_files(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.toml").write_bytes(b"#" * (1 << 21))
    codes = {
        "absent.toml": "no-such-cluster-file",
        "binary.toml": "cluster-not-text",
        "large.toml": "cluster-too-large",
    }
    for name, code in codes.items():
        with fails(code, name):
            load_cluster(str(tmp_path / name))
    with fails("cluster-unreadable", "?.toml"):
        load_cluster(str(tmp_path) + "/\0.toml")
    (tmp_path / "folder.toml").mkdir()
    with fails("cluster-unreadable", "folder.toml"):
        load_cluster(str(tmp_path / "folder.toml"))
    with fails("no-such-cluster", "'pi4x5'", "'pi4x4'?"):
        load_cluster("pi4x5")
