"""Which rows of its inputs a node needs for some rows of its output; rows are axis 2 of an image, or of a sequence.

A body computes a node on a range of its input's rows as if that were the whole image. At an end where rows were cut
off, some rows of the output are wrong; so many more are computed, and they are dropped at the end of the body. Nothing
is padded, and at the ends of the image itself the node's own padding is right.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from onnx import NodeProto

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.blocks.cuts import Cut, needs
from memsched.formats.onnx.blocks.open_rules import OpenRules
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.standard import Axes, ElementType
from memsched.formats.onnx.structure import op_type
from memsched.ops.rules import POINTWISE, Merge, Reflection, Rule, Subdivision, TransposedWindow, Window
from memsched.ops.table import SHAPED, families

__all__ = ["RowRule", "enlargement", "is_float_image", "is_image", "rule_of"]

# TensorProto.DataType
_ELEMENTS: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13})
"""Types of which ONNX Runtime joins and cuts blocks: numbers of whole bytes, and bool."""


class RowRule(FrozenValue, frozen=True):
    """How rows of an output follow from rows of the inputs that are images.

    Attributes:
        images: The numbers of these inputs; all are read at the same rows.
        up: Rows that one row becomes.
        down: Rows that become one; this or ``up`` is 1.
        padding: Rows that are put above and below the image.
        window: Rows of the input that one row of the output reads, where ``up`` is 1.
        wrong: Rows of the output that are wrong above and below where the input was cut, where ``up`` is not 1.
        spare: More rows of the input to read at both ends.
        whole: It takes no rows but multiples of ``down``.
    """

    images: tuple[int, ...]
    up: int = 1
    down: int = 1
    padding: tuple[int, int] = (0, 0)
    window: int = 1
    wrong: tuple[int, int] = (0, 0)
    spare: int = 0
    whole: bool = False

    @property
    def rate(self) -> Fraction:
        """Rows of the output per row of the input."""
        return Fraction(self.up, self.down)

    @property
    def is_pointwise(self) -> bool:
        """Whether each row follows from the same row alone."""
        return self == RowRule(self.images)

    def above(self, rows: int) -> int:
        """Return the rows of the input that are needed above a block for ``rows`` above it of the output."""
        if self.up > 1:
            return -(-(rows + self.wrong[0]) // self.up) + self.spare
        return self.down * (rows - -self.padding[0] // self.down) + self.spare

    def below(self, rows: int) -> int:
        """Return the same below a block."""
        if self.up > 1:
            return -(-(rows + self.wrong[1]) // self.up) + self.spare
        return max(self.down * (rows - 1) - self.padding[0] + self.window, 0) + self.spare


def is_image(name: str, values: OpenValues) -> bool:
    """Return whether a value has rows whose number is open."""
    shape = values.shapes.get(name, ())
    if len(shape) not in Axes.SPATIAL or any(one is None for one in shape):
        return False
    rows = shape[Axes.ROWS]
    return rows is not None and rows.constant() is None and values.elements.get(name) in _ELEMENTS


def is_float_image(name: str, values: OpenValues) -> bool:
    """Return whether it has elements of single precision, too: statistics are found of these alone."""
    return is_image(name, values) and values.elements.get(name) == ElementType.FLOAT


def rule_of(node: NodeProto, rules: OpenRules, typical: OpenRules) -> RowRule | None:
    """Return how rows of a node's outputs follow; None where that is not known, or they have no rows.

    Args:
        rules: At generic sizes.
        typical: At sizes that occur, where windows fit.
    """
    kind, values = op_type(node), rules.values
    outputs = [name for name in node.output if name]
    if not outputs or not all(is_image(name, values) for name in outputs):
        return None
    if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
        return None
    if kind in SHAPED:
        return None
    return _pointwise(node, rules) or _spatial(node, typical)


def _pointwise(node: NodeProto, rules: OpenRules) -> RowRule | None:
    wanted, values = needs(node, Cut(Axes.ROWS), rules), rules.values
    if wanted is None:
        return None
    images = tuple(number for number, cut in enumerate(wanted) if cut is not None)
    same = all(
        wanted[number] == Cut(Axes.ROWS)
        and is_image(node.input[number], values)
        and _rows(node.input[number], values) == _rows(node.output[0], values)
        for number in images
    )
    return RowRule(images) if images and same else None


def _follows(rule: RowRule, node: NodeProto, values: OpenValues) -> bool:
    """Whether a node's other inputs are no images: a convolution's weights do not depend on open dimensions."""
    return all(
        all(one is not None and one.constant() is not None for one in values.shapes.get(name, (None,)))
        for number, name in enumerate(node.input)
        if name and number not in rule.images
    )


def _rows(name: str, values: OpenValues) -> Polynomial | None:
    return values.shapes[name][Axes.ROWS]


def _spatial(node: NodeProto, rules: OpenRules) -> RowRule | None:
    """Return the rule of a node that reads rows around those that it makes."""
    image, values = node.input[0], rules.values
    if len(node.output) != 1 or not is_image(image, values):
        return None
    found = _resized(node, values) if op_type(node) in families("resize") else _of_window(node, rules)
    return found if found is None or _follows(found, node, values) else None


def _of_window(node: NodeProto, rules: OpenRules) -> RowRule | None:
    geometries = rules.of(node)
    if not geometries or Axes.ROWS in geometries[0].fixed:
        return None
    geometry = geometries[0]
    along = [place for place, maps in geometry.operands.items() if any(one.output == Axes.ROWS for one in maps)]
    if along != [0] or geometry.operands[0][Axes.ROWS].output != Axes.ROWS:
        return None
    rule = geometry.operands[0][Axes.ROWS].rule
    if isinstance(rule, Window):
        # With a stride, the padding that SAME means would depend on the number of rows.
        same = attribute_of(node, "auto_pad", b"NOTSET").startswith(b"SAME") and rule.stride > 1
        return None if same else RowRule((0,), down=rule.stride, padding=_pads(rule), window=_reach(rule))
    if isinstance(rule, TransposedWindow):
        return _transposed(rule, geometry.shapes[0][Axes.ROWS], geometry.shape[Axes.ROWS])
    return _moved(rule)


def _pads(rule: Window | Reflection) -> tuple[int, int]:
    return rule.pad_before, rule.pad_after


def _reach(rule: Window | TransposedWindow) -> int:
    return (rule.kernel - 1) * rule.dilation + 1


def _transposed(rule: TransposedWindow, given: int, made: int) -> RowRule:
    up, window, above = rule.stride, _reach(rule), rule.pad_before
    below = (given - 1) * up + window - above - made
    if up == 1:
        # As of a convolution with the kernel turned round.
        return RowRule((0,), padding=(window - 1 - above, window - 1 - below), window=window, spare=window)
    missing = up + above + below - window
    return RowRule((0,), up=up, wrong=(max(window - up - above, 0), max(above, missing, 0)))


def _moved(rule: Rule) -> RowRule | None:
    if isinstance(rule, Reflection):
        # The body has more rows than are reflected.
        return RowRule((0,), padding=_pads(rule), spare=sum(_pads(rule)) + 1)
    if isinstance(rule, Merge):
        return RowRule((0,), down=rule.size, window=rule.size, whole=True)
    if isinstance(rule, Subdivision):
        return RowRule((0,), up=rule.size)
    return RowRule((0,)) if rule == POINTWISE else None


def _resized(node: NodeProto, values: OpenValues) -> RowRule | None:
    mode = attribute_of(node, "mode", b"nearest")
    placed = attribute_of(node, "coordinate_transformation_mode", b"half_pixel")
    nearest = attribute_of(node, "nearest_mode", b"round_prefer_floor")
    modes = {b"nearest", b"linear", b"cubic"} if is_float_image(node.input[0], values) else {b"nearest"}
    known = placed in {b"half_pixel", b"asymmetric"} and mode in modes
    if not known or attribute_of(node, "axes", None) or attribute_of(node, "antialias", 0):
        return None
    before, after = values.shapes[node.input[0]], values.shapes[node.output[0]]
    if len(before) != len(after) or before[: Axes.ROWS] != after[: Axes.ROWS]:
        return None
    ratios = [enlargement(first, second) for first, second in zip(before[Axes.ROWS :], after[Axes.ROWS :], strict=True)]
    if any(one is None for one in ratios):
        return None
    up = ratios[0] or 1
    own = mode == b"nearest" and (placed, nearest) in {
        (b"asymmetric", b"floor"),
        (b"half_pixel", b"round_prefer_floor"),
        (b"half_pixel", b"round_prefer_ceil"),
    }
    if up == 1:
        return RowRule((0,)) if own else None
    wrong = 0 if own else 2 * up if mode == b"cubic" else up
    return RowRule((0,), up=up, wrong=(wrong, wrong))


def enlargement(before: Polynomial | None, after: Polynomial | None) -> int | None:
    """Return the whole number of times that one length is as long as another; None where there is none."""
    if before is None or after is None:
        return None
    if before == after:
        return 1
    if len(before.terms) != len(after.terms) or not before.terms:
        return None
    ratios = {
        second / first if one == other and first else Fraction(1, 2)
        for (one, first), (other, second) in zip(before.terms, after.terms, strict=True)
    }
    ratio = ratios.pop()
    return int(ratio) if not ratios and ratio.denominator == 1 and ratio > 0 else None
