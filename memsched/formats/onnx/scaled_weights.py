"""Scales behind convolutions as part of their weights, once for all convolutions that read the same ones.

ONNX Runtime makes a batch normalization, or a product or sum by channel, part of the convolution before it when it
opens a session, and gives each convolution weights of its own: the pieces of a layer then hold as many copies. What
those replace leaves holes, so that even a layer in one piece takes more. Here each step of the arithmetic is the
runtime's, so that all bits are the same.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, defs, numpy_helper

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.computed import ComputedConstants, NoValueError
from memsched.formats.onnx.free_names import FreeNames
from memsched.formats.onnx.standard import Axes, IrVersion
from memsched.formats.onnx.structure import Scope, analyse
from memsched.formats.onnx.writer import drop_unread, list_initializers
from memsched.ops.table import families

__all__ = ["scale_weights"]

Array = np.ndarray[Any, np.dtype[Any]]

_STATISTICS: Final = ("scale", "shift", "mean", "variance")
"""What a BatchNormalization is told by channel."""

_FORMS: Final = families("transpose", "view") | {"Constant", "ConstantOfShape"}
"""Operators that compute constants without arithmetic, which might round otherwise than the runtime's."""

_MOST_FILLED: Final = 1 << 16
"""Elements at most of weights that a node fills with one value: scaled, the file holds all of them."""


def scale_weights(model: ModelProto) -> dict[str, str]:
    """Make what scales the outputs of convolutions part of their weights, in place.

    Returns:
        Tensors that are gone, each with the one that its convolution makes instead, which may be gone again further on.
    """
    merged = _Scales(model, analyse(model.graph)).merge()
    if merged:
        _drop(model, merged)
        if model.ir_version < IrVersion.FREE_INITIALIZERS:
            list_initializers(model.graph)
    return merged


def _drop(model: ModelProto, gone: Mapping[str, str]) -> None:
    """Leave out what nothing reads any more: weights, what computed them, and what is said of tensors that are gone."""
    main = model.graph
    scopes = analyse(main)
    read = {value.name for value in main.output} | {name for scope in scopes[1:] for name in scope.free}
    kept = []
    for node, is_constant in reversed(list(zip(main.node, scopes[0].constant_node, strict=True))):
        if not is_constant or not read.isdisjoint(node.output):
            kept.append(node)
            read.update(node.input)
    kept.reverse()
    stated = [value for value in main.value_info if value.name not in gone]
    del main.node[:], main.value_info[:]
    main.node.extend(kept)
    main.value_info.extend(stated)
    drop_unread(model, scopes, {tensor.name for tensor in main.initializer})


class _Pair(FrozenValue, frozen=True):
    """A convolution and what scales its output, which nothing else reads: numbers of nodes."""

    convolution: int
    scale: int


class _Scales:
    """What follows the convolutions of a model."""

    def __init__(self, model: ModelProto, scopes: Sequence[Scope]) -> None:
        self._graph: GraphProto = model.graph
        self._nodes: Sequence[NodeProto] = list(model.graph.node)
        self._scope = scopes[0]
        self._names = FreeNames(name for scope in scopes for name in scope.defined)
        computing = list(itertools.compress(model.graph.node, scopes[0].constant_node))
        self._values = ComputedConstants(model, computing, None, _FORMS, _MOST_FILLED)
        # Callers may replace what is listed as an input, and with it what is computed of that.
        open_ = (
            {value.name for value in model.graph.input} if model.ir_version >= IrVersion.FREE_INITIALIZERS else set()
        )
        for node in computing:
            if not open_.isdisjoint(node.input):
                open_.update(node.output)
        self._constants = scopes[0].constants - open_
        captured = {name for scope in scopes[1:] for name in scope.free}
        self._fixed = captured | {value.name for value in model.graph.output}
        self._readers: dict[str, list[int]] = {}
        for number, reads in enumerate(self._scope.reads):
            for name in reads:
                self._readers.setdefault(name, []).append(number)
        self._made: dict[str, Array] = {}
        self._uses: Counter[str] = Counter()

    def merge(self) -> dict[str, str]:
        """Make scales part of weights in place; return what was made before, with what is made now."""
        merged: dict[str, str] = {}
        gone: set[int] = set()
        convolutions = self._convolutions()
        while convolutions:
            alike: dict[tuple[object, ...], list[_Pair]] = {}
            for pair in self._pairs(convolutions):
                alike.setdefault(self._told(pair), []).append(pair)
            # What follows a scale may be one, too.
            convolutions = []
            for pairs in alike.values():
                made = self._scaled(pairs[0])
                if made is None:
                    continue
                names = self._store(self._node(pairs[0].convolution), *made)
                for pair in pairs:
                    node, scale = self._node(pair.convolution), self._node(pair.scale)
                    merged[node.output[0]] = scale.output[0]
                    self._read_instead(node, names)
                    node.output[0] = scale.output[0]
                    gone.add(pair.scale)
                    convolutions.append(pair.convolution)
            convolutions.sort()
        self._write(gone)
        return merged

    def _node(self, number: int) -> NodeProto:
        return self._nodes[number]

    def _convolutions(self) -> list[int]:
        steps = zip(self._nodes, self._scope.writes, self._scope.constant_node, strict=True)
        return [
            number
            for number, (node, writes, is_constant) in enumerate(steps)
            if node.op_type == "Conv" and node.domain in {"", "ai.onnx"} and not is_constant and len(writes) == 1
        ]

    def _pairs(self, convolutions: Sequence[int]) -> Iterator[_Pair]:
        for number in convolutions:
            node = self._node(number)
            made = node.output[0]
            by = [] if made in self._fixed else self._readers.get(made, [])
            if len(by) == 1 and self._is_scale(self._node(by[0]), made) and self._are_constant(node.input[1:]):
                yield _Pair(number, by[0])

    def _is_scale(self, node: NodeProto, read: str) -> bool:
        """Whether a node may be part of the convolution whose output it reads, as far as names tell."""
        if node.domain not in {"", "ai.onnx"} or node.input[0] != read or not self._are_constant(node.input[1:]):
            return False
        if node.op_type == "BatchNormalization":
            stated = {one.name: one.i for one in node.attribute}
            plain = not stated.get("training_mode", 0) and stated.get("spatial", 1)
            return bool(plain) and sum(map(bool, node.output)) == 1
        # Before version 7 of the operator set attributes said how shapes fit.
        old = any(one.name in {"axis", "broadcast"} for one in node.attribute)
        return node.op_type in {"Add", "Mul"} and not old

    def _are_constant(self, names: Sequence[str]) -> bool:
        return all(name in self._constants for name in names)

    def _told(self, pair: _Pair) -> tuple[object, ...]:
        """Return what decides which weights a pair would get."""
        node, scale = self._node(pair.convolution), self._node(pair.scale)
        return tuple(node.input[1:]), scale.op_type, tuple(scale.input[1:]), _epsilon(scale)

    def _scaled(self, pair: _Pair) -> tuple[Array, Array | None] | None:
        """Return the weights and the bias of both; None where the runtime would not do so, or values are unknown."""
        node, scale = self._node(pair.convolution), self._node(pair.scale)
        own = [self._value(name) for name in node.input[1:]]
        given = [self._value(name) for name in scale.input[1:]]
        values = [value for value in (*own, *given) if value is not None and value.dtype == np.float32]
        if len(values) < len(own) + len(given) or not 0 < len(own) < 3 or values[0].ndim < min(Axes.SPATIAL):
            return None
        weights, bias = values[0], values[1] if len(own) > 1 else None
        if bias is not None and bias.shape != weights.shape[:1]:
            return None
        with np.errstate(all="ignore"):  # as the runtime does
            if scale.op_type == "BatchNormalization":
                return _normalised(weights, bias, values[len(own) :], _epsilon(scale))
            return _by_channel(scale.op_type, weights, bias, values[-1])

    def _value(self, name: str) -> Array | None:
        """Return a constant's value; None where the file does not hold it, or a node computes more than its form."""
        if name in self._made:
            return self._made[name]
        try:
            return self._values.get(name)
        except NoValueError:
            return None

    def _store(self, node: NodeProto, weights: Array, bias: Array | None) -> list[str]:
        names = []
        for value, base in ((weights, f"{node.input[1]}_scaled"), (bias, f"{node.input[1]}_bias")):
            if value is not None:
                names.append(self._names.new(base))
                self._made[names[-1]] = value
        self._constants.update(names)
        return names

    def _read_instead(self, node: NodeProto, names: Sequence[str]) -> None:
        """Have a convolution read other weights; those that were made and that nothing reads any more are forgotten."""
        self._uses.update(names)
        for name in node.input[1:]:
            self._uses[name] -= 1
            if not self._uses[name]:
                self._made.pop(name, None)
        del node.input[1:]
        node.input.extend(names)

    def _write(self, gone: set[int]) -> None:
        """Store what was made, and leave out nodes."""
        if gone:
            left = [node for number, node in enumerate(self._nodes) if number not in gone]
            del self._graph.node[:]
            self._graph.node.extend(left)
        made = [numpy_helper.from_array(value, name) for name, value in self._made.items()]
        self._graph.initializer.extend(made)


def _epsilon(node: NodeProto) -> float:
    unstated: float = defs.get_schema("BatchNormalization").attributes["epsilon"].default_value.f
    return next((one.f for one in node.attribute if one.name == "epsilon"), unstated)


def _normalised(
    weights: Array, bias: Array | None, given: Sequence[Array], epsilon: float
) -> tuple[Array, Array] | None:
    """Return weights and bias with a normalization in them: ``given`` is its scale, shift, mean and variance."""
    if len(given) != len(_STATISTICS) or any(value.shape != weights.shape[:1] for value in given):
        return None
    scale, shift, mean, variance = given
    factor = scale / np.sqrt(variance + np.float32(epsilon))
    moved = shift - mean * factor if bias is None else (bias - mean) * factor + shift
    return weights * _along(factor, weights), moved


def _by_channel(kind: str, weights: Array, bias: Array | None, value: Array) -> tuple[Array, Array | None] | None:
    """Return weights and bias with a product or a sum by channel in them."""
    channels, axes = weights.shape[0], weights.ndim
    lead = value.ndim - (axes - 1)
    by_channel = lead in {0, 1} and value.shape == (1,) * lead + (channels,) + (1,) * (axes - 2)
    # ONNX Runtime multiplies and adds to weights of images and volumes alone.
    if axes <= min(Axes.SPATIAL) or not (by_channel or (kind == "Mul" and value.ndim == 0)):
        return None
    factor = value.reshape(-1)
    if kind == "Add":
        return weights, factor if bias is None else bias + factor
    return weights * _along(factor, weights), None if bias is None else bias * factor


def _along(factor: Array, weights: Array) -> Array:
    """Return a vector by output channel, or one value, so that it is multiplied with weights along these."""
    return factor.reshape(-1, *(1,) * (weights.ndim - 1))
