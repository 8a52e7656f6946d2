"""The models that benchmarks measure: files of ``models/``, light models of the onnx package, generated networks."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from memsched.graph.model import Graph
from scripts.bench.runner.declare import ROOT
from scripts.networks.catalogue import build
from scripts.networks.table import lowered

__all__ = ["built", "light_model", "light_models", "network", "shipped_networks", "shipped_tflite"]


def light_models() -> list[Path]:
    """Return the real architectures without weights that the onnx package ships."""
    import onnx

    return sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


def light_model(name: str) -> Path:
    """Return one of them, such as "light_resnet50"."""
    return next(path for path in light_models() if path.stem == name)


def shipped_tflite() -> list[Path]:
    """Return the TFLite models of ``models/``."""
    return sorted((ROOT / "models").glob("*.tflite"))


def shipped_networks() -> list[Path]:
    """Return the ONNX models of ``models/networks/``."""
    return sorted((ROOT / "models/networks").glob("*.onnx"))


def built(name: str) -> bytes:
    """Return the ONNX file of a network of the catalogue."""
    return bytes(build(name).SerializeToString(deterministic=True))


@cache
def network(name: str, target: str) -> Graph:
    """Return a network of the catalogue as ``target`` executes it."""
    return lowered(built(name), name, target)
