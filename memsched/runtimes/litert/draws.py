"""TFLite models that draw random numbers: the same numbers in several files, and whether each draw is in all of them.

LiteRT seeds the generator of an operator when a model is loaded, by the options ``seed`` and ``seed2`` unless both are
0. Copies in memory get seeds where the files have none.
"""

from __future__ import annotations

import contextlib
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from memsched.base.errors import ModelError
from memsched.formats.tflite.model import FileOperator, parse
from memsched.ops.tflite import SEEDED, by_type

__all__ = ["count_draws", "draw_mismatch", "with_same_seeds"]


def count_draws(data: bytes) -> int:
    """Return how many operators of a file draw, those of all subgraphs included."""
    return len(list(_draws_in(data)))


def draw_mismatch(before: bytes, after: Sequence[bytes]) -> str | None:
    """Return how other files together draw otherwise than the first; None if they do not."""
    given = Counter(operator.type for _, _, operator in _draws_in(before))
    found = Counter(operator.type for data in after for _, _, operator in _draws_in(data))
    wrong = next((kind for kind in sorted({*given, *found}) if given[kind] != found[kind]), None)
    return None if wrong is None else f"{found[wrong]} {wrong} draw random numbers instead of {given[wrong]}"


def with_same_seeds(models: Sequence[bytes]) -> list[bytes]:
    """Return copies of models in which operators that draw have seeds, by the names of their outputs.

    A model without such operators, and one whose buffers lie outside the flatbuffer, is returned as it is.
    """
    return [_seeded(data) for data in models]


def _draws_in(data: bytes) -> Iterator[tuple[int, int, FileOperator]]:
    """Yield the operators that draw, each after the numbers of its subgraph and of itself; none of a damaged file."""
    with contextlib.suppress(ModelError):  # LiteRT says what is wrong with it
        for number, subgraph in enumerate(parse(data).subgraphs):
            for place, operator in enumerate(subgraph.operators):
                if by_type(operator.type).random:
                    yield number, place, operator


def _seeded(data: bytes) -> bytes:
    wanted = [one for one in _draws_in(data) if one[2].type in SEEDED]
    model = parse(data) if wanted else None
    if model is None or any(buffer.outside for buffer in model.buffers):
        return data
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    file: Any = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    for number, place, operator in wanted:
        found = file.subgraphs[number].operators[place]
        stated = found.builtinOptions
        if stated is None or not (stated.seed or stated.seed2):
            made = next((tensor for tensor in operator.outputs if tensor >= 0), -1)
            name = model.subgraphs[number].tensors[made].name if made >= 0 else ""
            found.builtinOptionsType = schema.BuiltinOptions.RandomOptions
            found.builtinOptions = schema.RandomOptionsT()
            found.builtinOptions.seed = 1 + zlib.crc32(f"{operator.type} {name}".encode()) % (1 << 24)
    builder = flatbuffers.Builder(len(data))
    builder.Finish(file.Pack(builder), b"TFL3")
    return bytes(builder.Output())
