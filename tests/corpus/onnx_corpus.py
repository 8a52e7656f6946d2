"""Every model that the installed onnx package carries or generates, with its recorded inputs and outputs."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["Case", "cases"]

_DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"


@dataclass(frozen=True)
class Case:
    """A model and its recorded data: per data set the inputs in order and the outputs; values as numpy or lists."""

    kind: str
    name: str
    model: bytes
    data_sets: tuple[tuple[list[Any], list[Any]], ...]
    rtol: float
    atol: float


def _value(item: Any, type_proto: onnx.TypeProto) -> Any:
    """Return the value of a serialised proto of the given type."""
    kind = type_proto.WhichOneof("value")
    if kind == "tensor_type":
        return numpy_helper.to_array(onnx.TensorProto.FromString(item))
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(item))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(item))
    raise ValueError(f"no reader for {kind}")


def _normalized(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item


def _folder_cases(kind: str) -> Iterator[Case]:
    for folder in sorted((_DATA / kind).iterdir()):
        path = folder / "model.onnx"
        if not path.exists():
            continue
        model = onnx.load(path)
        sets = []
        for data in sorted(folder.glob("test_data_set_*")):
            values = []
            for name, infos in (("input", model.graph.input), ("output", model.graph.output)):
                files = sorted(data.glob(f"{name}_*.pb"), key=lambda file: int(file.stem.rsplit("_", 1)[1]))
                values.append([_value(file.read_bytes(), info.type) for file, info in zip(files, infos, strict=False)])
            sets.append((values[0], values[1]))
        yield Case(kind, folder.name, path.read_bytes(), tuple(sets), 1e-3, 1e-5)


def _light_cases() -> Iterator[Case]:
    """The architectures of ``light``: inputs count up from 0 to 1, as the package's own runner feeds them."""
    for folder in sorted((_DATA / "real").iterdir()):
        facts = json.loads((folder / "data.json").read_text(encoding="utf-8"))
        path = _DATA / "light" / Path(facts["url"]).name
        model = onnx.load(path)
        constants = {initializer.name for initializer in model.graph.initializer}
        inputs: list[Any] = []
        for info in model.graph.input:
            if info.name not in constants:
                shape = [dim.dim_value or 1 for dim in info.type.tensor_type.shape.dim]
                count = int(np.prod(shape))
                inputs.append((np.arange(count).reshape(shape) / count).astype(np.float32))
        outputs = [
            numpy_helper.to_array(
                onnx.TensorProto.FromString(path.with_name(f"{path.stem}_output_{i}.pb").read_bytes())
            )
            for i in range(len(model.graph.output))
        ]
        yield Case("light", path.stem, path.read_bytes(), ((inputs, outputs),), facts["rtol"], 1e-5)


@functools.cache
def _node_cases() -> tuple[Case, ...]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collected = collect_testcases(None)
    result = []
    for case in collected:
        sets = tuple(
            ([_normalized(item) for item in inputs], [_normalized(item) for item in outputs])
            for inputs, outputs in case.data_sets or ()
        )
        assert case.model is not None
        result.append(Case("node", case.name, case.model.SerializeToString(), sets, case.rtol, case.atol))
    return tuple(result)


def cases(kind: str) -> Iterator[Case]:
    """Return the cases of one kind: "light", "simple", "pytorch-operator", "pytorch-converted" or "node"."""
    if kind == "light":
        return _light_cases()
    if kind == "node":
        return iter(_node_cases())
    return _folder_cases(kind)
