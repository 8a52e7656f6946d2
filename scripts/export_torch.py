"""Export ten networks with random weights from torch, as people export theirs.

    python -m scripts.export_torch FOLDER

Needs the packages torch, onnxscript and onnxruntime. Two exporters; floats of 32 and 16 bits, and int8 with
QuantizeLinear and DequantizeLinear; fixed sizes, open batches, lengths and image sizes; weights in the file and beside
it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, quantize_static
from torch import nn

__all__ = ["main"]

_SEED: Final = 0
_OPSET: Final = 18


class Residual(nn.Module):  # type: ignore[misc]  # the package may be missing
    """Two convolutions, and what they read."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Any) -> Any:
        """Return the sum."""
        return torch.relu(x + self.second(torch.relu(self.first(x))))


class Classifier(nn.Module):  # type: ignore[misc]  # the package may be missing
    """Convolutions with residual blocks, for images."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), nn.ReLU(), Residual(channels))
        self.body = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU())
        self.more = nn.Sequential(Residual(2 * channels), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.head = nn.Linear(2 * channels, 10)

    def forward(self, x: Any) -> Any:
        """Return ten logits."""
        return self.head(self.more(self.body(self.stem(x))))


class Separable(nn.Module):  # type: ignore[misc]  # the package may be missing
    """Inverted bottlenecks of depthwise convolutions."""

    def __init__(self, width: int = 24, blocks: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                *(nn.Conv2d(width, 6 * width, 1), nn.Hardswish()),
                *(nn.Conv2d(6 * width, 6 * width, 3, padding=1, groups=6 * width), nn.Hardswish()),
                nn.Conv2d(6 * width, width, 1),
            )
            for _ in range(blocks)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: Any) -> Any:
        """Return ten logits."""
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


class Encoder(nn.Module):  # type: ignore[misc]  # the package may be missing
    """A transformer's encoder over tokens."""

    def __init__(self, width: int = 256, layers: int = 2, tokens: int = 1000) -> None:
        super().__init__()
        self.embed = nn.Embedding(tokens, width)
        self.places = nn.Parameter(torch.randn(1, 512, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, activation="gelu", dropout=0.0)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens: Any) -> Any:
        """Return a vector for each token."""
        return self.layers(self.embed(tokens) + self.places[:, : tokens.shape[1]])


class Audio(nn.Module):  # type: ignore[misc]  # the package may be missing
    """Dilated convolutions over a waveform."""

    def __init__(self, channels: int = 48) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, channels, 9, padding=4)
        self.layers = nn.ModuleList(
            nn.Conv1d(channels, channels, 3, dilation=2**one, padding=2**one) for one in range(5)
        )
        self.last = nn.Conv1d(channels, 2, 1)

    def forward(self, x: Any) -> Any:
        """Return two signals."""
        x = torch.relu(self.first(x))
        for layer in self.layers:
            x = x + torch.tanh(layer(x))
        return self.last(x)


class Segmenter(nn.Module):  # type: ignore[misc]  # the package may be missing
    """An encoder and a decoder with skip connections, for images."""

    def __init__(self, channels: int = 24) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            nn.Conv2d(3 if not level else channels << (level - 1), channels << level, 3, padding=1)
            for level in range(3)
        )
        self.up = nn.ModuleList(
            nn.Conv2d((channels << (level + 1)) + (channels << level), channels << level, 3, padding=1)
            for level in (1, 0)
        )
        self.head = nn.Conv2d(channels, 4, 1)

    def forward(self, x: Any) -> Any:
        """Return four maps."""
        kept = []
        for level, one in enumerate(self.down):
            x = torch.relu(one(x if not level else nn.functional.max_pool2d(x, 2)))
            kept.append(x)
        for one, skip in zip(self.up, reversed(kept[:-1]), strict=True):
            x = nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
            x = torch.relu(one(torch.cat((x, skip), 1)))
        return self.head(x)


def _image(size: int = 96, kind: Any = torch.float32) -> Any:
    return torch.randn(1, 3, size, size).to(kind)


def _tokens() -> Any:
    return torch.randint(0, 1000, (1, 128))


def _legacy(network: nn.Module, given: Any, path: Path, name: str, axes: dict[int, str]) -> None:
    torch.onnx.export(
        network,
        (given,),
        str(path),
        input_names=[name],
        output_names=["out"],
        dynamic_axes={name: axes} if axes else None,
        opset_version=_OPSET,
        dynamo=False,
    )


def _dynamo(
    network: nn.Module, given: Any, path: Path, name: str, axes: dict[int, str], *, external: bool = False
) -> None:
    sizes = {axis: torch.export.Dim(word) for axis, word in axes.items()}
    batch = torch.cat([given, given]) if 0 in axes else given
    torch.onnx.export(
        network,
        (batch,),
        str(path),
        input_names=[name],
        output_names=["out"],
        dynamic_shapes=(sizes,) if axes else None,
        opset_version=_OPSET,
        dynamo=True,
        external_data=external,
    )


class _Samples(CalibrationDataReader):  # type: ignore[misc]  # the package has no types
    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self._left = [{name: np.asarray(make())} for _ in range(4)]

    def get_next(self) -> Any:
        """Return the next sample; None after the last."""
        return self._left.pop() if self._left else None


def _quantized(path: Path, name: str, make: Callable[[], Any]) -> None:
    whole = path.with_suffix(".float.onnx")
    path.rename(whole)
    quantize_static(str(whole), str(path), _Samples(name, make), quant_format=QuantFormat.QDQ, per_channel=True)
    whole.unlink()


def main(folder: Path) -> None:
    """Write all models."""
    torch.manual_seed(_SEED)
    folder.mkdir(parents=True, exist_ok=True)
    half, whole = torch.float16, {0: "batch"}
    image = {0: "batch", 2: "height", 3: "width"}
    _legacy(Classifier().eval(), _image(), folder / "classifier.onnx", "image", {})
    _dynamo(Classifier().eval(), _image(), folder / "classifier_batch_dynamo.onnx", "image", whole)
    _legacy(Separable().to(half).eval(), _image(kind=half), folder / "separable_fp16_batch.onnx", "image", whole)
    _dynamo(Separable().eval(), _image(), folder / "separable_dynamo.onnx", "image", {}, external=True)
    _legacy(Encoder().eval(), _tokens(), folder / "encoder_length.onnx", "tokens", {0: "batch", 1: "length"})
    _dynamo(Encoder().eval(), _tokens(), folder / "encoder_length_dynamo.onnx", "tokens", {0: "batch", 1: "length"})
    _legacy(Audio().eval(), torch.randn(1, 1, 4096), folder / "audio_length.onnx", "wave", {2: "samples"})
    _legacy(Segmenter().eval(), _image(), folder / "segmenter_sizes.onnx", "image", image)
    _dynamo(Segmenter().to(half).eval(), _image(kind=half), folder / "segmenter_fp16_dynamo.onnx", "image", {})
    _legacy(Classifier().eval(), _image(), folder / "classifier_int8.onnx", "image", whole)
    _quantized(folder / "classifier_int8.onnx", "image", lambda: _image().numpy())
    for path in sorted(folder.glob("*.onnx")):
        onnx.checker.check_model(str(path))
        sys.stdout.write(f"{path.name}: {path.stat().st_size:,} B\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
