"""VGG-16 (Simonyan and Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition"), at 224x224."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scripts.networks.vgg19 import vgg

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["vgg16"]

_STAGES: Final = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def vgg16() -> ModelProto:
    """Return VGG-16 without its dropout layers, which do nothing at inference."""
    return vgg("vgg16", _STAGES)
