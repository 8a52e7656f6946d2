"""What "did you mean" proposes."""

from __future__ import annotations

import time

import pytest

from memsched.base.suggestions import closest, did_you_mean


@pytest.mark.parametrize(
    ("name", "candidates", "expected"),
    [
        ("conv_1", ["conv_2", "conv_1 ", "relu"], "conv_1 "),
        ("TFLM", ["litert", "tflm"], "tflm"),
        ("optimise", ["allocate", "optimize"], "optimize"),
        ("layer3/conv/BiasAd", ["layer2/conv/BiasAdd", "layer3/conv/BiasAdd"], "layer3/conv/BiasAdd"),
        ("BiasAdd", ["network/layer1/conv/BiasAdd", "network/layer1/conv/Conv2D"], "network/layer1/conv/BiasAdd"),
        ("BiasAdd", ["network/layer1/conv/BiasAdd", "network/layer2/conv/BiasAdd"], None),
        ("zzz", ["conv", "relu"], None),
        ("", ["conv"], None),
        ("  ", ["conv"], None),
        ("conv", [], None),
    ],
)
def test_closest(name: str, candidates: list[str], expected: str | None) -> None:
    assert closest(name, candidates) == expected


def test_the_first_of_equals() -> None:
    assert closest("aab", ["aaa", "aac"]) == closest("aab", ["aaa", "aac"])
    assert closest("CONV", ["Conv", "conv"]) == "Conv"
    assert closest("convo", ["Conv", "conv"]) == "Conv"


def test_did_you_mean() -> None:
    assert "'relu'" in did_you_mean("reluu", ["relu", "conv"])
    assert did_you_mean("x", ["relu", "conv"]) == ""


def test_very_many_and_very_long_names() -> None:
    names = [f"block_{number}/conv2d/BiasAdd_{number % 7}" for number in range(100_000)] + ["x" * 1_000_000]
    started = time.process_time()
    found = closest("block_777/conv2d/BiasAd_0", names)
    assert found is not None
    assert found.startswith("block_777/conv2d/BiasAdd") or "conv2d" in found
    assert closest("x" * 999_999, names) is None or time.process_time() - started < 5
    assert time.process_time() - started < 5
