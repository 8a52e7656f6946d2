"""Sizes for what an ONNX model leaves open: from its weights and tables, or usual ones that do not contradict it."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from onnx import GraphProto, ModelProto, NodeProto

from memsched.base.errors import MemschedError
from memsched.base.frozen import FrozenValue
from memsched.formats.module import AssumedSize, LoadOptions
from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.blocks.probes import refuse_conflicts
from memsched.formats.onnx.decoder import open_decoder
from memsched.formats.onnx.guesses import (
    IMAGE,
    LENGTH,
    OpenInput,
    Place,
    Role,
    axis_name,
    open_inputs_of,
    statements,
    usual_length,
)
from memsched.formats.onnx.reader import lightened, parse
from memsched.formats.onnx.shapes import infer
from memsched.formats.onnx.structure import analyse, op_type
from memsched.formats.onnx.tables import longest_position, weights_along

__all__ = ["candidates"]

_IMAGES: Final = (IMAGE, 256, 320, 416, 512, 640, 28, 32, 64, 96, 128, 160, 192, 299, 384, 448, 800, 1024)
_LENGTHS: Final = (LENGTH, 512, 256, 64, 32, 16, 1024, 16_000, 8, 1)
"""Usual sizes, in the order in which they are tried."""

_LONGEST: Final = 1024
"""Tokens that are assumed at most: a run of the model at its longest length may take gigabytes."""

_MOST_TRIED: Final = 24
_PAST_TOKENS: Final = LENGTH
_PAST: Final = re.compile(r"(?i)past|cache|(^|[^a-z])kv([^a-z]|$)")
_METADATA_IMAGE: Final = re.compile(r"(?i)img_?sz|image_?size|input_?size")
_METADATA_LENGTH: Final = re.compile(r"(?i)max(imum)?_?(seq|position|len|context)|context_?len|seq(uence)?_?len")


class _Choice(FrozenValue, frozen=True):
    """A size, and where it comes from."""

    size: int
    reason: str


def candidates(data: bytes, path: str, options: LoadOptions) -> Iterator[LoadOptions]:
    """Yield ``options`` with sizes for everything that the inputs leave open, the likeliest first.

    Further ones are for models that do not run with the first. A model that cannot be read gets no sizes: reading it
    says why.
    """
    try:
        inputs = open_inputs_of(parse(data, path).graph, options)
        if not inputs:
            yield options
            return
        found = _decoder(data, path, options, inputs)
        if found is not None:
            yield found
            return
        assumptions = _Assumptions(lightened(data, path)[0], inputs, options)
    except Exception:  # what is damaged, and how, is for the reader to say
        yield options
        return
    yield from assumptions.candidates()


def _decoder(data: bytes, path: str, options: LoadOptions, inputs: Sequence[OpenInput]) -> LoadOptions | None:
    """Return sizes for a decoder with past keys and values; None if the model is not one."""
    if options.input_shapes or not any(_PAST.search(one.name) and len(one.dims) > 2 for one in inputs):
        return None
    try:
        decoder = open_decoder(data, path, options.dims, None)
    except MemschedError:
        return None
    known = decoder.sizes_at(_PAST_TOKENS, 1)
    names = {place: axis_name(one, place[1]) for one in inputs for place, _ in one.places()}
    if not known.keys() >= set(names.values()):
        return None
    along = {"past": "tokens in the caches", "new": "new token", "all": "tokens in the caches, and the new one"}
    chosen = {place: _Choice(known[name], along.get(str(decoder.dims[name]), "open")) for place, name in names.items()}
    # Every length runs in place by another command; a file for one of them is of no use.
    free = {place for place, name in names.items() if not isinstance(decoder.dims[name], int)}
    return _stated(options, inputs, chosen, free, decoder=True)


def _stated(
    options: LoadOptions,
    inputs: Sequence[OpenInput],
    chosen: Mapping[Place, _Choice],
    free: set[Place],
    *,
    decoder: bool = False,
) -> LoadOptions:
    found = statements(inputs, {place: one.size for place, one in chosen.items()})
    rows: dict[tuple[str, int], AssumedSize] = {}
    for one in inputs:
        for place, _ in one.places():
            choice, name = chosen[place], axis_name(one, place[1])
            rows.setdefault(
                (name, choice.size), AssumedSize(name, choice.size, choice.reason, free=place in free, decoder=decoder)
            )
    return options.assuming(found.input_shapes, found.dims, tuple(rows.values()))


class _Assumptions:
    """What is assumed of a model.

    Args:
        light: The model without its weights.
        inputs: Those that are open.
        options: What is stated.
    """

    def __init__(self, light: ModelProto, inputs: Sequence[OpenInput], options: LoadOptions) -> None:
        self._light, self._inputs, self._options = light, inputs, options
        self._scopes = analyse(light.graph, folded=options.folded)
        self._fixed: dict[Place, _Choice] = {}
        self._roles: dict[Place, Role] = {}
        ranks = {one.name: len(one.dims) for one in inputs if one.ranked}
        told = weights_along(light.graph, ranks)
        for places in _of_one_length(inputs):
            role: Role = next((role for role in places.values() if role != "batch"), "batch")
            known = next((told[place] for place in places if place in told), None)
            if role != "batch" and known is not None:
                self._fixed.update(dict.fromkeys(places, _Choice(*known)))
            elif role in {"image", "length"}:
                self._roles.update(dict.fromkeys(places, role))
            else:
                choice = _Choice(usual_length(role), "open" if role == "batch" else "usual size")
                self._fixed.update(dict.fromkeys(places, choice))
        self._metadata = {one.key: one.value for one in light.metadata_props}
        self._rows = longest_position(light.graph) if "length" in self._roles.values() else None

    def candidates(self) -> Iterator[LoadOptions]:
        """Yield statements; if something may have several sizes, those at which nothing contradicts."""
        if not self._roles:
            yield _stated(self._options, self._inputs, self._fixed, set())
            return
        images = self._images() if "image" in self._roles.values() else [_Choice(0, "")]
        lengths = self._lengths() if "length" in self._roles.values() else [_Choice(0, "")]
        tried = list(itertools.islice(itertools.product(images, lengths), _MOST_TRIED))
        fitting = (one for one in tried if self._fits(self._at(*one)))
        first = next(fitting, None)
        if first is None:
            yield from (self._at(*one) for one in tried)
            return
        second = next(fitting, None)
        if second is None and len(tried) > 1:
            image, length = first
            only = _Choice(image.size, "the only usual size that fits"), _Choice(length.size, _only(length))
            yield self._at(*only, free=False)
            return
        yield from (self._at(*one) for one in itertools.chain([first], [second] if second else [], fitting))

    def _images(self) -> list[_Choice]:
        """Return sides of images: those of the metadata, or of the other side, then usual ones."""
        told = [
            _Choice(int(number), f"{key} in the metadata")
            for key, value in self._metadata.items()
            if _METADATA_IMAGE.search(key)
            for number in re.findall(r"\d{1,5}", value)[:1]
        ]
        sides = [
            _Choice(dim, "the other side")
            for one in self._inputs
            if len(one.dims) == 4
            for dim in one.dims[1:]
            if isinstance(dim, int) and dim >= min(_IMAGES) and "image" in one.roles
        ]
        return [*told, *sides, *(_Choice(size, "usual size") for size in _IMAGES)]

    def _lengths(self) -> list[_Choice]:
        """Return numbers of tokens: the longest that the model's positions or metadata permit, then usual ones."""
        rows = self._rows
        if rows is not None:
            reason = f"positional table has {rows:,} rows"
            shorter = (size for size in sorted(_LENGTHS, reverse=True) if size < rows and size <= _LONGEST)
            return [_Choice(min(rows, _LONGEST), reason), *(_Choice(size, reason) for size in shorter)]
        told = [
            _Choice(min(int(value), _LONGEST), f"{key} in the metadata")
            for key, value in self._metadata.items()
            if _METADATA_LENGTH.search(key) and value.isdigit() and 0 < len(value) < 9 and int(value)
        ]
        return [*told, *(_Choice(size, "usual size") for size in _LENGTHS)]

    def _at(self, image: _Choice, length: _Choice, *, free: bool = True) -> LoadOptions:
        named = {"image": image, "length": length}
        chosen = {**self._fixed, **{place: named[role] for place, role in self._roles.items()}}
        return _stated(self._options, self._inputs, chosen, set(self._roles) if free else set())

    def _fits(self, options: LoadOptions) -> bool:
        """Whether the model does not contradict itself with these sizes."""
        try:
            shapes = infer(self._light, self._scopes, options)
            known = {name: lengths for name, one in shapes.types[0].items() if (lengths := one.lengths()) is not None}
            refuse_conflicts(self._light, known, options.dims)
        except MemschedError:
            return False
        graph = self._light.graph
        made = {name for node in graph.node for name in node.output}
        if any(0 in known[name] for name in made & known.keys()):
            return False
        if any("ncompatible" in reason for reason in shapes.reasons.values()):
            return False
        return not _differs(graph, known, options.dims) and not any(_contradicts(node, known) for node in graph.node)


def _of_one_length(inputs: Sequence[OpenInput]) -> list[dict[Place, Role]]:
    """Return the open axes, those of one name together; a name for several things in one input says nothing."""
    groups: dict[str, dict[Place, Role]] = {}
    fillers: set[str] = set()
    for one in inputs:
        meant: dict[str, Role] = {}
        for place, role in one.places():
            name = axis_name(one, place[1])
            groups.setdefault(name, {})[place] = role
            if meant.setdefault(name, role) != role:
                fillers.add(name)
    alone = [{place: role} for name in fillers for place, role in groups[name].items()]
    return [*(group for name, group in groups.items() if name not in fillers), *alone]


def _only(length: _Choice) -> str:
    return length.reason if length.reason.startswith("positional") else "the only usual size that fits"


def _differs(graph: GraphProto, known: Mapping[str, tuple[int, ...]], named: Mapping[str, int]) -> bool:
    """Whether an output has another length than the file declares, as a number or by a name."""
    for value in graph.output:
        dims = value.type.tensor_type.shape.dim
        for dim, length in zip(dims, known.get(value.name, ()), strict=False):
            if (dim.dim_value if dim.dim_value > 0 else named.get(dim.dim_param, length)) != length:
                return True
    return False


def _contradicts(node: NodeProto, known: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether a node's inputs do not fit each other, or its output, which inference lets pass."""
    kind = op_type(node)
    if kind not in {"Reshape", "Gemm", "MatMul"} or len(node.input) < 2:
        return False
    first, second, made = (known.get(name) for name in (node.input[0], node.input[1], node.output[0]))
    if kind == "Reshape":
        return first is not None and made is not None and math.prod(first) != math.prod(made)
    if first is None or second is None or not first or not second:
        return False
    if kind == "MatMul":
        return first[-1] != second[-2 if len(second) > 1 else -1]
    if len(first) != 2 or len(second) != 2:
        return False
    return first[0 if attribute_of(node, "transA", 0) else 1] != second[1 if attribute_of(node, "transB", 0) else 0]
