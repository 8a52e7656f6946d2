"""All networks by name, in the order of the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from scripts.networks.amoebanet import amoebanet_a
from scripts.networks.bifpn import bifpn_d0
from scripts.networks.darts import darts
from scripts.networks.googlenet import googlenet
from scripts.networks.hrnet import hrnet_w18_small_v1, hrnet_w18_small_v2, hrnet_w32
from scripts.networks.inception_resnet_v2 import inception_resnet_v2
from scripts.networks.inception_v3 import inception_v3
from scripts.networks.lstm import lstm_unrolled
from scripts.networks.mobilenet_v2 import mobilenet_v2
from scripts.networks.nasnet import nasnet_a
from scripts.networks.pnasnet import pnasnet5_mobile
from scripts.networks.randwire import randwire1, randwire2, randwire3
from scripts.networks.resnet import resnet18, resnet50
from scripts.networks.transformer import transformer
from scripts.networks.unetpp import unetpp
from scripts.networks.vgg16 import vgg16
from scripts.networks.vgg19 import vgg19

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["CLASSIFIERS", "FURTHER", "NAMES", "PUBLISHED", "SHARED", "STAGED", "build"]

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

CLASSIFIERS: Final[Mapping[str, Callable[[], ModelProto]]] = MappingProxyType(
    {
        "vgg19": vgg19,
        "googlenet": googlenet,
        "inception_v3": inception_v3,
        "resnet18": resnet18,
        "resnet50": resnet50,
    }
)
"""Networks of the layer fusion literature, as Caffe's model files have them; not among those that are stored."""

STAGED: Final[Mapping[str, Callable[[], ModelProto]]] = MappingProxyType({"inception_resnet_v2": inception_resnet_v2})
"""Networks of the literature on pipelines of accelerators that are not among the others; not stored either."""

SHARED: Final[Mapping[str, Callable[[], ModelProto]]] = MappingProxyType({"vgg16": vgg16, "mobilenet_v2": mobilenet_v2})
"""Networks of the literature on devices that share one model that are not among the others; not stored either."""

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
    return {**CLASSIFIERS, **STAGED, **SHARED, **FURTHER}[name]()
