"""What ONNX Runtime requests as one block from the second run of a size on: its memory pattern.

The block holds the values of all nodes outside of loops, by their times of life; what callers own is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Final

from onnx import GraphProto, NodeProto

from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.regions import names_read
from memsched.formats.onnx.blocks.sizes import Monomial, Polynomial
from memsched.formats.onnx.structure import op_type
from memsched.formats.onnx.types import element_bits
from memsched.ops.table import families

__all__ = ["open_inputs", "pattern_bytes", "pattern_sizes"]

_VIEWS: Final = families("view")
_IN_PLACE: Final = frozenset({"Add", "Sub", "Mul", "Div", "Relu", "Sigmoid", "Tanh", "Erf", "Sqrt", "Neg", "Pow"})

_PARTS: Final = (1.0, 0.5, 0.25)
"""Shares of the typical lengths at which the block is compared with an input."""

_LONG: Final = 16
_DENOMINATOR: Final = 1 << 20


def pattern_bytes(graph: GraphProto, values: OpenValues, sizes: Mapping[str, int]) -> int:
    """Return about how many bytes the nodes of a graph request at once, without those in loops and without outputs.

    Args:
        sizes: Of every symbol in ``values``.
    """
    return _peak(graph, values, sizes)[0]


def _peak(graph: GraphProto, values: OpenValues, sizes: Mapping[str, int]) -> tuple[int, frozenset[str]]:
    """Return the bytes at the peak, and the values that are live there."""
    outside = {value.name for value in (*graph.output, *graph.input)}
    root: dict[str, str] = {}
    held: dict[str, int] = {}
    last: dict[str, int] = {}
    # Sessions compute them once, when they are opened.
    constants = {one.name for one in graph.initializer}
    for place, node in enumerate(graph.node):
        if constants.issuperset(names_read(node)):
            constants.update(node.output)
            continue
        for name in names_read(node):
            last[root.get(name, name)] = place
        if op_type(node) in _VIEWS:
            root[node.output[0]] = root.get(node.input[0], node.input[0])
            continue
        for name in node.output:
            width = _width(values, name)
            held[name] = 0 if name in outside or not width else values.bytes_of(name, sizes, width) or 0
    return _most(graph.node, {name: size for name, size in held.items() if size}, last, root)


def _most(
    nodes: Sequence[NodeProto], held: Mapping[str, int], last: Mapping[str, int], root: Mapping[str, str]
) -> tuple[int, frozenset[str]]:
    live: set[str] = set()
    size, most = 0, (0, frozenset[str]())
    for place, node in enumerate(nodes):
        read = {root.get(name, name) for name in names_read(node)}
        dying = {name for name in read & live if last.get(name) == place}
        made = {name for name in node.output if name in held}
        total = sum(map(held.__getitem__, made))
        reused = next((name for name in sorted(dying) if held[name] == total), None)
        over = {reused} if op_type(node) in _IN_PLACE and reused is not None else set()
        if size + total - sum(map(held.__getitem__, over)) > most[0]:
            most = size + total - sum(map(held.__getitem__, over)), frozenset(live - over | made)
        live = {name for name in live - dying | made if name in last}
        size = sum(map(held.__getitem__, live))
    return most


def _width(values: OpenValues, name: str) -> int:
    return element_bits(values.elements[name]) // 8 if name in values.elements else 0


def pattern_sizes(graph: GraphProto, values: OpenValues) -> tuple[Polynomial, ...]:
    """Return about the bytes of the block as functions of lengths of inputs, of which the largest counts.

    They are what is live at the peak of typical lengths, and of the longest: elsewhere the peak may be more. Where the
    bytes follow from lengths that nodes compute, they are a parabola over an input's elements instead: of the input
    with which the block grows most evenly.
    """
    inputs = {value.name for value in graph.input}
    longest = {name: span.most if span.named else values.typical[name] for name, span in values.ranges.items()}
    found = []
    for sizes in (values.typical, longest):
        live = _peak(graph, values, sizes)[1]
        found.append(_sum(_elements(values, name, Fraction(_width(values, name))) for name in sorted(live)))
    if all(values.places[symbol][0] in inputs for one in found for symbol in one.symbols()):
        return tuple(dict.fromkeys(found))
    # That of texts, not of their past.
    return (min((_parabola(graph, values, one) for one in open_inputs(graph, values)), key=lambda one: one[0])[1],)


def _elements(values: OpenValues, name: str, factor: Fraction) -> Polynomial:
    """Return a multiple of the elements of a value, whose shape is known."""
    return _product(Polynomial((((), factor),)), values.shapes[name])


def _product(start: Polynomial, lengths: Sequence[Polynomial | None]) -> Polynomial:
    for length in lengths:
        start = _multiplied(start, length if length is not None else Polynomial(()))
    return start


def _multiplied(one: Polynomial, other: Polynomial) -> Polynomial:
    terms = product(one.terms, other.terms)
    return _sum(Polynomial(((tuple(sorted((*a, *b))), x * y),)) for (a, x), (b, y) in terms)


def _sum(parts: Iterable[Polynomial]) -> Polynomial:
    terms: dict[Monomial, Fraction] = {}
    for part in parts:
        for monomial, factor in part.terms:
            terms[monomial] = terms.get(monomial, Fraction(0)) + factor
    return Polynomial(tuple(sorted((one, factor) for one, factor in terms.items() if factor)))


def open_inputs(graph: GraphProto, values: OpenValues) -> list[str]:
    """Return the inputs whose shapes have open dimensions."""
    held = {one.name for one in graph.initializer}
    shapes = {value.name: values.shapes.get(value.name, ()) for value in graph.input if value.name not in held}
    return [name for name, shape in shapes.items() if any(one is None or one.symbols() for one in shape)]


def _parabola(graph: GraphProto, values: OpenValues, name: str) -> tuple[float, Polynomial]:
    """Return how unevenly the block grows with the elements of an input, and about its bytes as a function of these.

    Both terms grow with the first axis as with a batch; where others are open, the second is a square in these.
    """
    whole = _elements(values, name, Fraction(1))
    rest = values.shapes[name][1:]
    alone = not any(length is None or length.symbols() for length in rest)
    one = whole if alone else _product(Polynomial((((), Fraction(1)),)), rest)
    points = []
    for part in _PARTS:
        sizes = {
            symbol: max(1, round(part * size)) if size > _LONG else size for symbol, size in values.typical.items()
        }
        elements = max(Fraction(1), whole.at(sizes))
        points.append((max(Fraction(1), one.at(sizes)), pattern_bytes(graph, values, sizes) / elements))
    (most, high), *_, (least, low) = points
    slope = max(Fraction(0), (high - low) / (most - least)) if most > least else Fraction(0)
    start = max(Fraction(0), min(rate - slope * length for length, rate in points))
    told = [float(rate / max(start + slope * length, Fraction(1, 10**9))) for length, rate in points]
    square = Polynomial(tuple((key, _rounded(slope * factor)) for key, factor in _multiplied(whole, one).terms))
    return max(told) / max(min(told), 1e-9), _sum([_elements(values, name, _rounded(start)), square])


def _rounded(factor: Fraction) -> Fraction:
    """Return a factor whose denominator leaves products of lengths within 64 bits."""
    return factor if factor.denominator == 1 else Fraction(int(factor * _DENOMINATOR), _DENOMINATOR)
