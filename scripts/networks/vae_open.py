"""The decoder of Stable Diffusion 1.5's autoencoder (Rombach et al., as `sd_unet` names them), image open.

4 channels of latents, 512 at the first depths, 128 at the last; each place becomes 8 x 8 pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scripts.networks.open_image_layers import attended, conv, doubled, group_norm, residual
from scripts.networks.open_layers import OpenBuilder

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["sd_vae_decoder_open"]


def sd_vae_decoder_open(layers: int = 2, widths: Sequence[int] = (512, 512, 256, 128), groups: int = 32) -> ModelProto:
    """Return the decoder.

    Args:
        layers: One less than the residual blocks of each depth.
        widths: Channels of each depth.
    """
    width = widths[0]
    net = OpenBuilder("sd_vae_decoder_open", width, 1)
    x = conv(net, net.input("latent_sample", "batch", 4, "height", "width"), 4, 4, 1)
    x = residual(net, conv(net, x, 4, width), width, width, groups)
    x = residual(net, _attention(net, x, groups), width, width, groups)
    for depth, after in enumerate(widths):
        for _ in range(layers + 1):
            x = residual(net, x, width, after, groups)
            width = after
        if depth < len(widths) - 1:
            x = conv(net, doubled(net, x), width, width)
    x = conv(net, net.silu(group_norm(net, x, width, groups)), width, 3)
    return net.model(net.named(x, "sample"), "batch", 3, "image_height", "image_width")


def _attention(net: OpenBuilder, x: str, groups: int) -> str:
    width = net.width
    batch, height, across = net.size(x, 0), net.length(x, 2), net.length(x, 3)
    places = net.op("Unsqueeze", net.op("Mul", height, across), net.integers(0))
    flat = group_norm(net, net.reshaped(x, batch, width, places), width, groups, axes=1)
    y = net.op("Transpose", flat, perm=[0, 2, 1])
    heads = [net.reshaped(net.linear(y, width, width), batch, -1, 1, width) for _ in range(3)]
    y = net.join_heads(attended(net, *(net.op("Transpose", one, perm=[0, 2, 1, 3]) for one in heads)))
    y = net.op("Transpose", net.linear(y, width, width), perm=[0, 2, 1])
    y = net.reshaped(y, batch, width, *(net.op("Unsqueeze", one, net.integers(0)) for one in (height, across)))
    return net.op("Div", net.op("Add", y, x), net.constant(1.0))
