"""Each rewrite, in the file that is written: special values make what they made before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import memsched
from memsched.runtimes.special import WORDS
from tests.rewrites.algebra.nets import OnnxNet
from tests.rewrites.tile.random_nets import tflite_net


def wide() -> bytes:
    """Return a model whose large tensor lies between convolutions of few products."""
    net = OnnxNet((1, 3, 24, 24))
    return net.data(net.conv(net.same("Relu", net.conv("x", 12)), 3))


def skipping() -> bytes:
    """Return a model that keeps a large tensor for its end, which is quickly made again."""
    net = OnnxNet((1, 3, 16, 16))
    large = net.twice("x")
    inner = net.pool(net.same("Tanh", net.twice(net.same("Abs", large))), 2, 2)
    return net.data(net.same("Add", net.same("Neg", inner), large))


def twins() -> bytes:
    """Return a model with equal operators, and with one that reads a concatenation."""
    net = OnnxNet((2, 3, 16, 16))
    one, two = net.same("Relu", "x"), net.same("Relu", "x")
    return net.data(net.same("Mul", net.same("Neg", net.join([one, net.same("Neg", two)])), net.join([two, one])))


def activations() -> bytes:
    """Return a model with x * sigmoid(1.702 x)."""
    net = OnnxNet((1, 3, 16, 16))
    large = net.twice("x")
    gate = net.same("Sigmoid", net.add("Mul", [large, net.constant(np.float32(1.702))], net.shapes[large]))
    return net.data(net.same("Mul", large, gate))


def turned() -> bytes:
    """Return a model whose caller could exchange rows and columns."""
    net = OnnxNet((1, 3, 16, 16))
    return net.data(net.turned(net.conv(net.turned("x"), 3)))


CASES: dict[str, tuple[Callable[[], bytes], dict[str, Any]]] = {
    "chains": (activations, {"allow": ("reorder", "inplace", "fuse")}),
    "algebra": (twins, {"allow": ("reorder", "inplace", "algebra")}),
    "border": (turned, {"allow": ("reorder", "inplace", "io")}),
    "recompute": (skipping, {"allow": ("reorder", "inplace", "remat"), "max_extra_macs": 100.0, "max_slowdown": None}),
    "tile": (wide, {"level": 2, "max_slowdown": None}),
}


@pytest.mark.parametrize("section", CASES)
def test_rewrites_keep_special_values(section: str) -> None:
    make, asked = CASES[section]
    found = memsched.optimize(make(), order_guarantee="session", effort=0.2, seed=0, **asked)
    assert found.report["sections"][section]["applied"]
    assert found.report["sections"]["failures"] == []
    shown = found.report["sections"]["verification"]
    assert shown["special_values"] == list(WORDS.values())
    assert shown["outputs_equal"]


def test_pieces_of_tflite_models_keep_special_values() -> None:
    found = memsched.optimize(tflite_net(4), target="litert-reference", level=2, effort=0.2)
    assert found.report["sections"]["tile"]["applied"]
    assert found.report["sections"]["verification"]["special_values"] == list(WORDS.values())
