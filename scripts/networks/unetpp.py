"""U-Net++ (Zhou et al., "UNet++: A Nested U-Net Architecture for Medical Image Segmentation", figure 1), 256x256.

Five depths with 8 to 128 channels (a quarter of the publication's), so four levels of nested skips; node (i, j) is at
depth i and reads all nodes (i, 0) to (i, j - 1) and the node (i + 1, j - 1), upsampled. Deep supervision: the four
nodes (0, 1) to (0, 4) each give a map.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scripts.networks.builder import Builder, Value

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["unetpp"]

_CHANNELS: Final = (8, 16, 32, 64, 128)


def unetpp() -> ModelProto:
    """Return the network with all four outputs."""
    net = Builder("unetpp")
    x = net.input("input", 1, 3, 256, 256)
    rows: list[list[Value]] = []
    for depth, channels in enumerate(_CHANNELS):
        x = _block(net, net.max_pool(x, 2, 2, 0) if depth else x, channels)
        rows.append([x])
        for above in range(depth - 1, -1, -1):
            raised = net.conv_transpose(rows[above + 1][-1], _CHANNELS[above])
            rows[above].append(_block(net, net.concat([*rows[above], raised]), _CHANNELS[above]))
    return net.model(*(net.unary("Sigmoid", net.conv(node, 1)) for node in rows[0][1:]))


def _block(net: Builder, x: Value, channels: int) -> Value:
    for _ in range(2):
        x = net.relu(net.conv(x, channels, 3))
    return x
