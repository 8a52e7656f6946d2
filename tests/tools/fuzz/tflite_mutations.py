"""Changes to valid TFLite models: through the object API where the file stays a flatbuffer, and to raw offsets."""

from __future__ import annotations

import random
import struct
from typing import Any

__all__ = ["mutated"]

_NUMBERS = (-(2**31), -2, -1, 0, 1, 2, 3, 7, 100, 2**15, 2**30, 2**31 - 1)
_WORDS = (0, 1, 4, 8, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF, 0x10000)
_SHALLOW = 4
"""How deep a walk for something to change goes: model, subgraph, operator, options."""


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return the model in ``data`` with a few changes."""
    if rng.random() < 0.5:
        return _raw(data, rng)
    changed = _objects(data, rng)
    return _raw(data, rng) if changed is None else changed


def _raw(data: bytes, rng: random.Random) -> bytes:
    changed = bytearray(data)
    kind = rng.randrange(8)
    if kind == 0:
        return bytes(changed[: rng.randrange(len(changed))])
    if kind == 1:
        place = rng.randrange(len(changed))
        return bytes(changed[:place] + bytes(rng.randrange(1, 64)) + changed[place:])
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if kind <= 4 and len(changed) >= 8:
            place = 4 * rng.randrange(len(changed) // 4)
            word = rng.choice(_WORDS) if rng.random() < 0.5 else rng.randrange(-len(data), len(data)) & 0xFFFFFFFF
            struct.pack_into("<I", changed, place, word)
        else:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _objects(data: bytes, rng: random.Random) -> bytes | None:
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromObj(schema.Model.GetRootAs(data, 0))
    for _ in range(rng.choice((1, 1, 2, 4))):
        _change(model, rng)
    builder = flatbuffers.Builder(1024)
    try:
        builder.Finish(model.Pack(builder), b"TFL3")
    except Exception:
        return None
    return bytes(builder.Output())


def _change(model: Any, rng: random.Random) -> None:
    kind = rng.randrange(9)
    graph = rng.choice(model.subgraphs) if model.subgraphs else None
    if graph is None or kind == 0:
        _any_field(model, rng)
        return
    operators, tensors = list(graph.operators or ()), list(graph.tensors or ())
    if kind == 1 and operators:
        rng.shuffle(operators)
        graph.operators = operators
    elif kind == 2 and operators:
        graph.operators = [*operators, rng.choice(operators)]
    elif kind == 3 and operators:
        operator = rng.choice(operators)
        operator.opcodeIndex = rng.choice(_NUMBERS) & 0x7FFFFFFF
    elif kind == 4 and operators:
        operator = rng.choice(operators)
        operator.inputs = [*(operator.inputs if operator.inputs is not None else ()), rng.choice(_NUMBERS)]
    elif kind == 5 and tensors:
        tensor = rng.choice(tensors)
        tensor.shape = [rng.choice(_NUMBERS) for _ in range(rng.randrange(8))]
    elif kind == 6 and tensors:
        tensor = rng.choice(tensors)
        tensor.buffer = rng.choice(_NUMBERS) & 0x7FFFFFFF
        tensor.isVariable = rng.random() < 0.5
    elif kind == 7 and model.operatorCodes:
        code = rng.choice(model.operatorCodes)
        code.builtinCode = rng.randrange(0, 220)
        code.deprecatedBuiltinCode = rng.randrange(0, 127)
    else:
        _any_field(graph, rng)


def _any_field(thing: Any, rng: random.Random) -> None:
    """Change one field somewhere below ``thing``."""
    for _ in range(_SHALLOW):
        names = sorted(vars(thing))
        if not names:
            return
        name = rng.choice(names)
        value = getattr(thing, name)
        if isinstance(value, bool):
            setattr(thing, name, not value)
            return
        if isinstance(value, int):
            setattr(thing, name, rng.choice((0, 1, 2, 5, 100, 2**15)))
            return
        if isinstance(value, bytes | str):
            setattr(thing, name, rng.choice((b"", b"\xff\xfe", b"a\nb", b"<b>", b"n" * 4000)))
            return
        if isinstance(value, list) and value and hasattr(value[0], "__dict__"):
            if rng.random() < 0.3:
                del value[rng.randrange(len(value))]
                return
            thing = rng.choice(value)
        elif value is not None and hasattr(value, "__dict__"):
            thing = value
        elif value is not None and hasattr(value, "__len__") and len(value):
            setattr(thing, name, [rng.choice(_NUMBERS) for _ in range(rng.randrange(6))])
            return
