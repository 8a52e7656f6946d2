"""What ONNX says about a value: its element type and its dimensions, and how many bytes that makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.base.units import LARGEST, MOST_DIGITS
from memsched.formats.onnx.standard import ElementType

if TYPE_CHECKING:
    from onnx import TypeProto

__all__ = [
    "SHAPE_ELEMENTS",
    "ValueType",
    "element_bits",
    "element_name",
    "element_type",
    "is_element",
    "is_symbol",
    "merge",
    "tensor_bytes",
    "value_type",
]


# TensorProto.DataType -> (name in numpy's words, bits per element). Strings have no size of their own.
_ELEMENTS: Final[Mapping[int, tuple[str, int]]] = {
    1: ("float32", 32),
    2: ("uint8", 8),
    3: ("int8", 8),
    4: ("uint16", 16),
    5: ("int16", 16),
    6: ("int32", 32),
    7: ("int64", 64),
    8: ("string", 0),
    9: ("bool", 8),
    10: ("float16", 16),
    11: ("float64", 64),
    12: ("uint32", 32),
    13: ("uint64", 64),
    14: ("complex64", 64),
    15: ("complex128", 128),
    16: ("bfloat16", 16),
    17: ("float8_e4m3fn", 8),
    18: ("float8_e4m3fnuz", 8),
    19: ("float8_e5m2", 8),
    20: ("float8_e5m2fnuz", 8),
    21: ("uint4", 4),
    22: ("int4", 4),
    23: ("float4_e2m1fn", 4),
    24: ("float8_e8m0fnu", 8),
    25: ("uint2", 2),
    26: ("int2", 2),
    27: ("float6_e2m3fn", 6),
    28: ("float6_e3m2fn", 6),
}
SHAPE_ELEMENTS: Final = frozenset({6, 7})
"""int32 and int64: the element types that shapes are stated in."""


class ValueType(FrozenValue, frozen=True):
    """The type of a value as far as it is known.

    Attributes:
        kind: "tensor", or in words what else it is ("a sequence", "strings"): such a value has no known size.
        element: TensorProto.DataType; 0 when unknown.
        dims: Per axis its length, the name of a symbolic length, or "" when nothing is known; None: unknown rank.
    """

    kind: str = "tensor"
    element: int = 0
    dims: tuple[int | str, ...] | None = None

    def known(self) -> bool:
        """Return whether all dimensions are numbers."""
        return self.lengths() is not None

    def lengths(self) -> tuple[int, ...] | None:
        """Return the dimensions, or None when one of them is unknown."""
        if self.dims is None or str in map(type, self.dims):
            return None
        return cast("tuple[int, ...]", self.dims)


_OTHER_KINDS: Final = {
    "sequence_type": "a sequence",
    "optional_type": "an optional",
    "map_type": "a map",
    "sparse_tensor_type": "a sparse tensor",
    "opaque_type": "an opaque value",
}


def value_type(declared: TypeProto) -> ValueType:
    """Return the type that ``declared`` states.

    Raises:
        ModelError: A dimension is negative and not -1 (which old exporters write for unknown).
    """
    if not declared.HasField("tensor_type"):
        which = declared.WhichOneof("value")
        return ValueType(kind=_OTHER_KINDS.get(which, "an opaque value")) if which else ValueType()
    tensor = declared.tensor_type
    dims = tuple(map(_dim, tensor.shape.dim)) if tensor.HasField("shape") else None
    return ValueType("strings" if tensor.elem_type == ElementType.STRING else "tensor", tensor.elem_type, dims)


def _dim(dim: Any) -> int | str:
    if not dim.HasField("dim_value"):
        return str(dim.dim_param)
    value: int = dim.dim_value
    if value == -1:
        return ""
    if value < 0:
        raise ModelError(f"a shape holds the negative dimension {value}", code="negative-dimension")
    return value


def is_symbol(name: str) -> bool:
    """Return whether a dimension's name stands for one length; exporters write "?" for each that they do not know."""
    # protobuf gives bytes where a damaged file's name is no UTF-8.
    return any(character.isalnum() for character in str(name))


def length_of(name: object, known: Mapping[str, int]) -> int | None:
    """Return the length of a dimension by its name, or by those in a sum, as exporters write "past + 1"; or None."""
    # protobuf gives bytes where a damaged file's name is no UTF-8.
    if not isinstance(name, str):
        return None
    if name in known:
        return known[name]
    total = 0
    for part in name.split("+") if "+" in name else ():
        word = part.strip()
        if word not in known and not (word.isascii() and word.isdigit() and len(word) <= MOST_DIGITS):
            return None
        total += known[word] if word in known else int(word)
    return total or None


def merge(first: ValueType, second: ValueType) -> ValueType:
    """Return ``first`` with what it leaves open filled in from ``second``; where they differ ``first`` holds."""
    if first.kind != "tensor" or first.known():
        return first
    if second.kind != "tensor":
        return second if not first.element and first.dims is None else first
    element = first.element or second.element
    if first.dims is None or second.dims is None or len(first.dims) != len(second.dims):
        return ValueType("tensor", element, second.dims if first.dims is None else first.dims)
    pairs = zip(first.dims, second.dims, strict=True)
    return ValueType("tensor", element, tuple(b if isinstance(a, str) and b != "" else a for a, b in pairs))


def element_name(element: int) -> str:
    """Return the element type in numpy's words; "" when unknown."""
    return _ELEMENTS.get(element, ("", 0))[0]


def element_type(name: str) -> int:
    """Return the TensorProto.DataType that `element_name` calls ``name``; 0 (undefined) when there is none."""
    return next((element for element, (known, _) in _ELEMENTS.items() if known == name), 0)


def is_element(element: int) -> bool:
    """Return whether an element type has this number."""
    return element in _ELEMENTS


def element_bits(element: int) -> int:
    """Return the bits of an element; 0 for strings.

    Raises:
        ModelError: The number is no element type.
    """
    if element not in _ELEMENTS:
        raise ModelError(f"{element} is not the number of an ONNX element type", code="no-such-type")
    return _ELEMENTS[element][1]


def tensor_bytes(element: int, dims: Sequence[int]) -> int:
    """Return elements x element bits, rounded up to whole bytes.

    Raises:
        ModelError: A dimension is negative or the size is absurd.
    """
    bits = element_bits(element)
    for dim in dims:
        if dim < 0:
            raise ModelError(f"a shape holds the negative dimension {dim}", code="negative-dimension")
        bits *= dim
        if bits >> 3 > LARGEST and 0 not in dims:
            raise ModelError(
                f"a tensor of shape [{', '.join(map(str, dims[:8]))}] would need more than 2^62 bytes",
                code="absurd-size",
            )
    return (bits + 7) // 8
