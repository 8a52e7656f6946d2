"""Which constants each op of a model reads, and how large they are in the file."""

from __future__ import annotations

from memsched.base.frozen import FrozenValue
from memsched.formats.known import format_of
from memsched.formats.module import Module

__all__ = ["Weights", "weights"]


class Weights(FrozenValue, frozen=True):
    """The constants that the ops of a model's main graph read.

    Attributes:
        names: Of the constants, each once, in the order of the ops that read them first.
        sizes: Bytes of each.
        per_op: Per op of the main graph the constants that it reads, as ascending indices into ``names``.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    per_op: tuple[tuple[int, ...], ...]


def weights(module: Module) -> Weights:
    """Return the constants that the ops of ``module``'s main graph read.

    An op reads what its bodies read as well: what they capture, and constants of their own, whose names are then
    "body/name". A constant that ONNX nodes compute from constants counts with its own size, as runtimes fold it, and as
    those that it comes from where its size is unknown; one that TFLite operators compute always counts as those that
    it comes from, because LiteRT holds these. In a TFLite file tensors that share a buffer are one constant. What ONNX
    functions hold that could not be inlined is not counted.

    Raises:
        ModelError: A constant's shape is negative or absurd.
    """
    per_op, sizes = format_of(module).constants_read(module)
    names = dict.fromkeys(name for read in per_op for name in read)
    number = {name: at for at, name in enumerate(names)}
    return Weights(
        names=tuple(names),
        sizes=tuple(sizes[name] for name in names),
        per_op=tuple(tuple(sorted([number[name] for name in set(read)])) if read else () for read in per_op),
    )
