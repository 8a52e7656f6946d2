"""Which rows of its inputs a node needs for some rows of its output; rows are axis 2 of an image, or of a sequence.

A body computes a node on a range of its input's rows as if that were the whole image. At an end where rows were cut
off, some rows of the output are wrong; so many more are computed, and they are dropped at the end of the body. Nothing
is padded, and at the ends of the image itself the node's own padding is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from memsched.formats.onnx.attributes import attribute_of
from memsched.formats.onnx.blocks.cuts import SHAPED, Cut, integers_of, needs
from memsched.formats.onnx.blocks.open_rules import OpenRules
from memsched.formats.onnx.blocks.probes import OpenValues
from memsched.formats.onnx.blocks.sizes import Polynomial
from memsched.formats.onnx.structure import op_type
from memsched.frozen import FrozenValue

if TYPE_CHECKING:
    from onnx import NodeProto

__all__ = ["ROWS", "RowRule", "enlargement", "is_image", "rule_of"]

ROWS: Final = 2
"""The axis that is cut."""

_RANKS: Final = (3, 4, 5)


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
    """Return whether a value has rows whose number is open, and elements of floating point."""
    from onnx import TensorProto

    shape = values.shapes.get(name, ())
    if len(shape) not in _RANKS or any(one is None for one in shape):
        return False
    rows = shape[ROWS]
    return rows is not None and rows.constant() is None and values.elements.get(name) == TensorProto.FLOAT


def rule_of(node: NodeProto, rules: OpenRules) -> RowRule | None:
    """Return how rows of a node's outputs follow; None where that is not known, or they have no rows."""
    kind, values = op_type(node), rules.values
    outputs = [name for name in node.output if name]
    if not outputs or not all(is_image(name, values) for name in outputs):
        return None
    if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
        return None
    if kind in _RULES:
        found = _RULES[kind](node, values) if len(outputs) == 1 and is_image(node.input[0], values) else None
        return found if found is None or _follows(found, node, values) else None
    if kind in SHAPED:
        return None
    return _pointwise(node, rules)


def _pointwise(node: NodeProto, rules: OpenRules) -> RowRule | None:
    wanted, values = needs(node, Cut(ROWS), rules), rules.values
    if wanted is None:
        return None
    images = tuple(number for number, cut in enumerate(wanted) if cut is not None)
    same = all(
        wanted[number] == Cut(ROWS)
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
    return values.shapes[name][ROWS]


def _kernel(node: NodeProto, values: OpenValues) -> Sequence[int] | None:
    kernel: Sequence[int] | None = attribute_of(node, "kernel_shape", None)
    if kernel is not None or len(node.input) < 2:
        return kernel
    lengths = [None if one is None else one.constant() for one in values.shapes.get(node.input[1], ())[ROWS:]]
    return [one for one in lengths if one is not None] or None


def _windowed(node: NodeProto, values: OpenValues) -> RowRule | None:
    """Return the rule of convolutions and pools."""
    kernel = _kernel(node, values)
    if not kernel:
        return None
    stride = _first(node, "strides", 1)
    window = (kernel[0] - 1) * _first(node, "dilations", 1) + 1
    padding = _padding(node, window, stride, len(kernel))
    return None if padding is None else RowRule((0,), down=stride, padding=padding, window=window)


def _padding(node: NodeProto, window: int, stride: int, axes: int) -> tuple[int, int] | None:
    automatic = attribute_of(node, "auto_pad", b"NOTSET")
    if automatic == b"VALID":
        return 0, 0
    if automatic in {b"SAME_UPPER", b"SAME_LOWER"}:
        less, more = (window - 1) // 2, window - 1 - (window - 1) // 2
        # With a stride, the padding would depend on the number of rows.
        return None if stride > 1 else (less, more) if automatic == b"SAME_UPPER" else (more, less)
    pads = attribute_of(node, "pads", None) or [0] * (2 * axes)
    return pads[0], pads[axes]


def _first(node: NodeProto, name: str, default: int) -> int:
    found: Sequence[int] | None = attribute_of(node, name, None)
    return found[0] if found else default


def _transposed(node: NodeProto, values: OpenValues) -> RowRule | None:
    kernel = _kernel(node, values)
    automatic = attribute_of(node, "auto_pad", b"NOTSET")
    if not kernel or automatic != b"NOTSET" or attribute_of(node, "output_shape", None):
        return None
    up = _first(node, "strides", 1)
    window = (kernel[0] - 1) * _first(node, "dilations", 1) + 1
    pads = attribute_of(node, "pads", None) or [0] * (2 * len(kernel))
    above, below = pads[0], pads[len(kernel)]
    if up == 1:
        # As of a convolution with the kernel turned round.
        return RowRule((0,), padding=(window - 1 - above, window - 1 - below), window=window, spare=window)
    missing = up + above + below - window - _first(node, "output_padding", 0)
    return RowRule((0,), up=up, wrong=(max(window - up - above, 0), max(above, missing, 0)))


def _resized(node: NodeProto, values: OpenValues) -> RowRule | None:
    mode = attribute_of(node, "mode", b"nearest")
    placed = attribute_of(node, "coordinate_transformation_mode", b"half_pixel")
    nearest = attribute_of(node, "nearest_mode", b"round_prefer_floor")
    known = placed in {b"half_pixel", b"asymmetric"} and mode in {b"nearest", b"linear", b"cubic"}
    if not known or attribute_of(node, "axes", None) or attribute_of(node, "antialias", 0):
        return None
    before, after = values.shapes[node.input[0]], values.shapes[node.output[0]]
    if len(before) != len(after) or before[:ROWS] != after[:ROWS]:
        return None
    ratios = [enlargement(first, second) for first, second in zip(before[ROWS:], after[ROWS:], strict=True)]
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


def _spread(node: NodeProto, values: OpenValues) -> RowRule | None:
    del values
    return RowRule((0,), up=attribute_of(node, "blocksize", 1))


def _gathered(node: NodeProto, values: OpenValues) -> RowRule | None:
    del values
    size = attribute_of(node, "blocksize", 1)
    return RowRule((0,), down=size, window=size, whole=True)


def _scaled(node: NodeProto, values: OpenValues) -> RowRule | None:
    del values
    return None if attribute_of(node, "training_mode", 0) else RowRule((0,))


def _padded(node: NodeProto, values: OpenValues) -> RowRule | None:
    rank = len(values.shapes[node.input[0]])
    pads = integers_of(node, 1, values)
    if pads is None or len(pads) != 2 * rank or (len(node.input) > 3 and node.input[3]):
        return None
    above, below = pads[ROWS], pads[rank + ROWS]
    if min(above, below) < 0 or attribute_of(node, "mode", b"constant") == b"wrap":
        return None
    # The body has more rows than are reflected.
    return RowRule((0,), padding=(above, below), spare=above + below + 1 if above or below else 0)


_RULES: Final[dict[str, Callable[[NodeProto, OpenValues], RowRule | None]]] = {
    "Conv": _windowed,
    "MaxPool": _windowed,
    "AveragePool": _windowed,
    "LpPool": _windowed,
    "ConvTranspose": _transposed,
    "Resize": _resized,
    "DepthToSpace": _spread,
    "SpaceToDepth": _gathered,
    "Pad": _padded,
    "BatchNormalization": _scaled,
}
