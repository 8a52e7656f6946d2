"""All networks by name, in the order of the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from scripts.networks.amoebanet import amoebanet_a
from scripts.networks.bifpn import bifpn_d0
from scripts.networks.darts import darts
from scripts.networks.hrnet import hrnet_w18_small_v1, hrnet_w18_small_v2, hrnet_w32
from scripts.networks.lstm import lstm_unrolled
from scripts.networks.nasnet import nasnet_a
from scripts.networks.pnasnet import pnasnet5_mobile
from scripts.networks.randwire import randwire1, randwire2, randwire3
from scripts.networks.transformer import transformer
from scripts.networks.unetpp import unetpp

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["FURTHER", "NAMES", "PUBLISHED", "build"]

PUBLISHED: Final[Mapping[str, Callable[..., ModelProto]]] = MappingProxyType(
    {
        "nasnet_a": nasnet_a,
        "amoebanet_a": amoebanet_a,
        "darts": darts,
        "randwire1": randwire1,
        "randwire2": randwire2,
        "randwire3": randwire3,
        "hrnet_w18_small_v1": hrnet_w18_small_v1,
        "hrnet_w18_small_v2": hrnet_w18_small_v2,
        "hrnet_w32": hrnet_w32,
    }
)
"""Networks with published memory figures."""

FURTHER: Final[Mapping[str, Callable[[], ModelProto]]] = MappingProxyType(
    {
        "pnasnet5_mobile": pnasnet5_mobile,
        "bifpn_d0": bifpn_d0,
        "unetpp": unetpp,
        "transformer": transformer,
        "lstm_unrolled": lstm_unrolled,
    }
)
"""Networks of other kinds, whose activations are always ops of their own."""

NAMES: Final = (*PUBLISHED, *FURTHER)


def build(name: str, *, keep_activations: bool = False) -> ModelProto:
    """Return the network ``name``.

    Args:
        keep_activations: Of a network of `PUBLISHED`, write the activations that engines fuse as ops of their own.

    Raises:
        KeyError: There is no such network.
    """
    if name in PUBLISHED:
        return PUBLISHED[name](keep_activations=keep_activations)
    return FURTHER[name]()
