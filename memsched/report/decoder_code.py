"""Python that runs a decoder whose caches are written in place."""

from __future__ import annotations

from collections.abc import Sequence

from memsched.formats.decoders import Decoder, TokenInput

__all__ = ["python_lines"]

_DTYPES = {"bfloat16": "ml_dtypes.bfloat16"}


def python_lines(path: str, decoder: Decoder, capacity: int, chunk: int) -> tuple[str, ...]:
    """Return lines of Python that open ``path``, bind each cache once, and compute tokens behind those so far."""
    shapes = sorted({(tuple(one.shape), one.dtype) for one in decoder.caches}, key=str)
    lines = ["import json", "", "import numpy as np", "import onnxruntime", ""]
    lines += [f"session = onnxruntime.InferenceSession({path!r})", f"capacity, chunk = {capacity}, {chunk}"]
    lines += ['caches = json.loads(session.get_modelmeta().custom_metadata_map["memsched.caches"])']
    lines += ["outputs = [one.name for one in session.get_outputs() if one.name not in caches.values()]"]
    if len(shapes) > 1:
        table = [f"    {one.past!r}: ({_shape(one.shape)}, {_dtype(one.dtype)})," for one in decoder.caches]
        lines += ["shapes = {", *table, "}"]
    lines += ["binding = session.io_binding()", "for past, present in caches.items():"]
    shape, dtype = shapes[0]
    taken = "shapes[past]" if len(shapes) > 1 else f"{_shape(shape)}, {_dtype(dtype)}"
    lines += [f"    shape, dtype = {taken}"]
    lines += ["    buffer = onnxruntime.OrtValue.ortvalue_from_shape_and_type(shape, dtype)"]
    lines += ["    binding.bind_ortvalue_input(past, buffer)", "    binding.bind_ortvalue_output(present, buffer)"]
    lines += ["", "", "def compute(feeds, past):", '    """Put new tokens behind ``past`` ones."""']
    lines += ["    for name, array in feeds.items():", "        binding.bind_cpu_input(name, array)"]
    if decoder.past_length is not None:
        lines += [f"    binding.bind_cpu_input({decoder.past_length!r}, np.array([past], np.int64))"]
    lines += ["    for name in outputs:", "        binding.bind_output(name)"]
    lines += ["    session.run_with_iobinding(binding)"]
    lines += ["    return [one.numpy() for one in binding.get_outputs()[-len(outputs) :]]"]
    lines += ["", "", "for begin in range(0, length, chunk):  # the prompt, of ``length`` tokens"]
    lines += ["    end = min(begin + chunk, length)"]
    feeds = ", ".join(f"{one.name!r}: {_cut(one)}" for one in decoder.others)
    return (*lines, f"    results = compute({{{feeds}}}, begin)")


def _cut(one: TokenInput) -> str:
    """Return what an input is for the tokens from ``begin`` to ``end``, of an array for the whole prompt."""
    name = "".join(letter if letter.isalnum() else "_" for letter in one.name)
    parts = {"new": "begin:end", "all": ":end", "past": ":begin"}
    cuts = [":" if isinstance(axis, int) else parts[axis] for axis in one.axes]
    while cuts and cuts[-1] == ":":
        cuts.pop()
    return f"{name}[{', '.join(cuts)}]" if cuts else name


def _shape(shape: Sequence[int | None]) -> str:
    return f"[{', '.join('capacity' if size is None else str(size) for size in shape)}]"


def _dtype(dtype: str) -> str:
    return _DTYPES.get(dtype, f"np.{dtype}")
