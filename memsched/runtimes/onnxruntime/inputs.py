"""Inputs for ONNX models: random values of the types and sizes that they take."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from memsched.formats.module import LoadOptions
from memsched.formats.onnx.structure import graphs_of
from memsched.formats.onnx.types import SHAPE_ELEMENTS, length_of
from memsched.runtimes.inputs import Draw, random_values
from memsched.runtimes.values import CLOSE, Verification, peaks_off

__all__ = ["at_stated_sizes", "compared_with", "dtype_of", "random_feed", "read_arrays", "read_feeds"]

_NOT_NUMPY = {
    "double": "float64",
    "float": "float32",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "string": "O",
}
_SEQUENCE_LENGTH = 2
_MOST_CHOICES = 16


def random_feed(
    session: Any, proto: Any, request: Mapping[str, Any], rng: Any, bound: int, draw: Draw = "noise"
) -> dict[str, Any]:
    """Return values for the inputs of ``session``, whose model is ``proto``; integers lie below ``bound``.

    An integer that the model compares with constants is one of these, which it knows what to do with.

    Args:
        request: "input_shapes" and "dims" as in `execute`.

    Raises:
        ValueError: An input's dimension is unknown, or there are no random values of its type.
    """
    declared = {value.name: value.type for value in proto.graph.input}
    known = compared_with(proto.graph)
    feed = {}
    for value in session.get_inputs():
        drawn = _random_value(value.name, value.type, declared[value.name], request, rng, (bound, draw))
        choices = known.get(value.name)
        feed[value.name] = rng.choice(choices, drawn.shape).astype(drawn.dtype) if choices else drawn
    return feed


def at_stated_sizes(found: Verification, model: bytes, options: LoadOptions) -> bool:
    """Whether models ran at the sizes that the user stated: those of values inside may follow from the inputs' data.

    Where peaks are those predicted, what was stated is what ran.

    Args:
        found: What running ``model`` showed, beside what was predicted.
    """
    return peaks_off(found) <= CLOSE or not _states_inside(model, options)


def _states_inside(model: bytes, options: LoadOptions) -> bool:
    """Return whether sizes of values inside of a model are stated, or dimensions that no input has."""
    import onnx

    if not options.input_shapes and not options.dims:
        return False
    inputs = onnx.load_model_from_string(model).graph.input
    known = {dim.dim_param for value in inputs for dim in value.type.tensor_type.shape.dim}
    return not (set(options.input_shapes) <= {value.name for value in inputs} and set(options.dims) <= known)


def read_arrays(path: str) -> dict[str, Any]:
    """Return the arrays of an .npz file, by name.

    Raises:
        ValueError: It is none of numpy's, or cannot be read.
    """
    feed = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.namelist():
                with archive.open(member) as file:
                    feed[member.removesuffix(".npy")] = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None
    except Exception:  # numpy, zipfile and zlib raise several types of their own
        raise ValueError("it is no .npz file of arrays, as numpy.savez writes it") from None
    return feed


def read_feeds(path: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the arrays of an .npz file, one for each of ``names``.

    Raises:
        ValueError: One is missing or too many, or the file is none of numpy's.
    """
    feed = read_arrays(path)
    missing = [f"'{name}'" for name in names if name not in feed]
    foreign = [f"'{name}'" for name in feed if name not in names]
    if missing:
        raise ValueError(f"it has no array for the input {', '.join(missing)}")
    if foreign:
        raise ValueError(f"the model has no input {', '.join(foreign)}; it has {', '.join(map(repr, names))}")
    return feed


def compared_with(graph: Any) -> dict[str, list[int]]:
    """Return the inputs of an ONNX graph that nodes of any body compare with integer constants, and with which."""
    from onnx import numpy_helper

    scopes = graphs_of(graph)
    constants: dict[str, Any] = {}
    for scope in scopes:
        constants.update((tensor.name, tensor) for tensor in scope.graph.initializer)
        for node in scope.graph.node:
            held = [
                attribute.t for attribute in node.attribute if attribute.name == "value" and attribute.HasField("t")
            ]
            constants.update((name, held[0]) for name in node.output if node.op_type == "Constant" and held)
    found: dict[str, dict[int, None]] = {}
    inputs = {value.name for value in graph.input} - constants.keys()
    for node in (node for scope in scopes for node in scope.graph.node if node.op_type == "Equal"):
        for name, other in (tuple(node.input), tuple(node.input)[::-1]):
            if name in inputs and other in constants and constants[other].data_type in SHAPE_ELEMENTS:
                values = numpy_helper.to_array(constants[other]).reshape(-1)[:_MOST_CHOICES]
                found.setdefault(name, {}).update(dict.fromkeys(values.tolist()))
    return {name: list(values) for name, values in found.items()}


def _random_value(
    name: str,
    kind: str,
    declared: Any,
    request: Mapping[str, Any],
    rng: Any,
    drawn: tuple[int, Draw],
    unknown: int | None = None,
) -> Any:
    """Return a value for an input of ONNX Runtime's type ``kind``, such as "tensor(float)" or "seq(tensor(int64))".

    Args:
        drawn: Exclusive bound of integers, and how values are drawn.
        unknown: Length of unstated dimensions, such as those in sequences, which no option can state.
    """
    if kind.startswith("optional("):
        return _random_value(name, kind[9:-1], declared.optional_type.elem_type, request, rng, drawn, unknown)
    if kind.startswith("seq("):
        part = declared.sequence_type.elem_type
        return [_random_value(name, kind[4:-1], part, request, rng, drawn, 2) for _ in range(_SEQUENCE_LENGTH)]
    if not kind.startswith("tensor("):
        raise ValueError(f"input '{name}' has type {kind}, for which no random values can be made")
    shape = _shape(name, declared.tensor_type, request, unknown)
    return random_values(dtype_of(kind[7:-1]), shape, rng, high=drawn[0], draw=drawn[1])


def _shape(name: str, tensor: Any, request: Mapping[str, Any], unknown: int | None) -> tuple[int, ...]:
    """Return an input's dimensions: as stated by the user, otherwise as the model has them.

    Raises:
        ValueError: A dimension is unknown.
    """
    stated = request["input_shapes"].get(name)
    if stated is not None:
        return tuple(stated)
    if not tensor.HasField("shape"):
        if unknown is not None:
            return (unknown,)
        raise ValueError(f"input '{name}' has no shape: state it with --shape {name}=...")
    shape = []
    for dim in tensor.shape.dim:
        size: int | None = dim.dim_value if dim.HasField("dim_value") else length_of(dim.dim_param, request["dims"])
        size = unknown if size is None else size
        if size is None or size < 0:
            raise ValueError(f"input '{name}' has a dimension of unknown size: state it with --shape {name}=...")
        shape.append(size)
    return tuple(shape)


def dtype_of(kind: str) -> Any:
    """Return numpy's element type for ONNX Runtime's ``kind``, such as "float"."""
    name = _NOT_NUMPY.get(kind, kind)
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
