"""A small network that finds text on a page, built as those of OCR programs are: four scales, joined and scored."""

from __future__ import annotations

from scripts.networks.builder import Builder

__all__ = ["text_detector"]

_CHANNELS = (16, 24, 48, 96)
_JOINED = 24
_SCORED = 16


def text_detector(side: int) -> bytes:
    """Return a model's bytes: for a page of ``side`` x ``side`` pixels, a multiple of 32, how likely each is text."""
    net = Builder("text_detector")
    x = net.relu(net.conv(net.input("page", 1, 3, side, side), _CHANNELS[0], 3, 2))
    scales = []
    for channels in _CHANNELS:
        x = net.relu(net.conv(net.relu(net.conv(x, channels, 3, 2)), channels, 3))
        scales.append(x)
    joined = net.conv(x, _JOINED)
    levels = [joined]
    for scale in scales[-2::-1]:
        joined = net.add(net.conv(scale, _JOINED), net.upsample(joined, 2))
        levels.append(joined)
    finest = levels[-1].shape[2]
    raised = []
    for level in levels:
        scored = net.conv(level, _SCORED, 3)
        factor = finest // scored.shape[2]
        raised.append(net.upsample(scored, factor) if factor > 1 else scored)
    y = net.relu(net.conv(net.concat(raised), _SCORED, 3))
    y = net.relu(net.conv(net.upsample(y, 2), _SCORED, 3))
    model = net.model(net.unary("Sigmoid", net.conv(net.upsample(y, 2), 1, 3)))
    return bytes(model.SerializeToString())
