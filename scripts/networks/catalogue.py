"""All networks by name, in the order of the tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from scripts.networks.amoebanet import amoebanet_a
from scripts.networks.bifpn import bifpn_d0
from scripts.networks.darts import darts
from scripts.networks.efficientnet import efficientnet_b0
from scripts.networks.googlenet import googlenet
from scripts.networks.gpt2 import gpt2_6
from scripts.networks.gpt2_open import gpt2_cached_open, gpt2_prefill_open
from scripts.networks.hrnet import hrnet_w18_small_v1, hrnet_w18_small_v2, hrnet_w32
from scripts.networks.inception_resnet_v2 import inception_resnet_v2
from scripts.networks.inception_v3 import inception_v3
from scripts.networks.lstm import lstm_unrolled
from scripts.networks.mobilenet_v2 import mobilenet_v2
from scripts.networks.nasnet import nasnet_a
from scripts.networks.open_encoders import (
    bert_open,
    conformer_open,
    gpt2_open,
    modernbert_open,
    vit_open,
    whisper_open,
)
from scripts.networks.open_variants import bert_square_open, conformer_relative_open
from scripts.networks.pnasnet import pnasnet5_mobile
from scripts.networks.randwire import randwire1, randwire2, randwire3
from scripts.networks.resnet import resnet18, resnet50
from scripts.networks.sd_unet import sd_unet
from scripts.networks.sd_unet_open import sd_unet_open
from scripts.networks.superres_open import esrgan_open, superres_open
from scripts.networks.swin import swin_t
from scripts.networks.transformer import transformer
from scripts.networks.unet_512 import unet_512
from scripts.networks.unet_open import unet_open, unet_transposed_open
from scripts.networks.unetpp import unetpp
from scripts.networks.vae_open import sd_vae_decoder_open
from scripts.networks.vgg16 import vgg16
from scripts.networks.vgg19 import vgg19
from scripts.networks.whisper import whisper_tiny_encoder
from scripts.networks.yolov8n import yolov8n

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["CLASSIFIERS", "EXPORTED", "FURTHER", "NAMES", "OPEN", "OPEN_IMAGES", "OPEN_TEXTS", "PUBLISHED", "SHARED"]
__all__ += ["STAGED", "build"]

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

EXPORTED: Final[Mapping[str, Callable[[], ModelProto]]] = MappingProxyType(
    {
        "yolov8n": yolov8n,
        "efficientnet_b0": efficientnet_b0,
        "unet_512": unet_512,
        "swin_t": swin_t,
        "whisper_tiny_encoder": whisper_tiny_encoder,
        "gpt2_6": gpt2_6,
        "sd_unet": sd_unet,
    }
)
"""Networks that people run, operator for operator as PyTorch's exporter writes them; not stored either."""

OPEN: Final[Mapping[str, Callable[..., ModelProto]]] = MappingProxyType(
    {
        "bert_open": bert_open,
        "modernbert_open": modernbert_open,
        "whisper_open": whisper_open,
        "conformer_open": conformer_open,
        "vit_open": vit_open,
        "gpt2_open": gpt2_open,
    }
)
"""Networks whose batch and length, or height and width, stay open; not stored either."""

OPEN_TEXTS: Final[Mapping[str, Callable[..., ModelProto]]] = MappingProxyType(
    {
        "bert_square_open": bert_square_open,
        "conformer_relative_open": conformer_relative_open,
        "gpt2_prefill_open": gpt2_prefill_open,
        "gpt2_cached_open": gpt2_cached_open,
    }
)
"""Further networks for texts and sounds of any length; not stored either."""

OPEN_IMAGES: Final[Mapping[str, Callable[..., ModelProto]]] = MappingProxyType(
    {
        "sd_vae_decoder_open": sd_vae_decoder_open,
        "sd_unet_open": sd_unet_open,
        "unet_open": unet_open,
        "unet_transposed_open": unet_transposed_open,
        "superres_open": superres_open,
        "esrgan_open": esrgan_open,
    }
)
"""Networks that give images of any height and width; not stored either."""

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
    others = {**CLASSIFIERS, **STAGED, **SHARED, **EXPORTED, **FURTHER, **OPEN, **OPEN_TEXTS, **OPEN_IMAGES}
    return others[name]()
