"""What is fuzzed: for every kind of file its valid ones, how they are changed, and what reads them."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from scripts.fuzz import onnx_mutations, text_mutations, tflite_mutations

__all__ = ["KINDS", "Kind", "case"]

_ROOT = Path(__file__).resolve().parents[2]
_LARGEST_SEED = 20_000
"""Bytes of a valid model that is changed: what is small is read often."""

_OPTIMIZED = 50
"""One model in so many goes through the whole of `optimize`, not just through reading and analysis."""

_TABLE = b"""id,lower,upper,size,alignment,hint,gaps,offset
a,0,4,1024,16,-1,,
b,1,3,512,1,-1,1-2,
c,2,8,4096,4,0,3-4@0:128 6-7,
d,5,9,100,1,-1,,0
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of file.

    Attributes:
        seeds: Valid files.
        mutated: Returns a file with some changes.
        read: Reads the file as memsched does; raises what memsched raises. It is given the case's number too.
    """

    seeds: Callable[[], Sequence[bytes]]
    mutated: Callable[[bytes, random.Random], bytes]
    read: Callable[[bytes, int], None]


def case(name: str, number: int) -> bytes:
    """Return case ``number`` of a kind: the same bytes wherever and whenever it is asked for."""
    kind = KINDS[name]
    rng = random.Random(f"{name} {number}")
    return kind.mutated(rng.choice(kind.seeds()), rng)


@cache
def _onnx_seeds() -> tuple[bytes, ...]:
    import onnx

    folder = Path(onnx.__file__).parent / "backend" / "test" / "data"
    paths = sorted(path for path in folder.rglob("*.onnx") if path.stat().st_size <= _LARGEST_SEED)
    return tuple(path.read_bytes() for path in paths)


@cache
def _tflite_seeds() -> tuple[bytes, ...]:
    paths = sorted(path for path in (_ROOT / "models").glob("*.tflite") if path.stat().st_size <= _LARGEST_SEED)
    return tuple(path.read_bytes() for path in paths)


@cache
def _target_seeds() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted((_ROOT / "memsched" / "targets").glob("*.toml")))


@contextmanager
def _file(data: bytes, suffix: str) -> Iterator[str]:
    descriptor, path = tempfile.mkstemp(suffix=suffix)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        yield path
    finally:
        Path(path).unlink()


def _read_model(data: bytes, number: int) -> None:
    from memsched.compiler import analyze, optimize

    if number % _OPTIMIZED:
        analyze(data)
    else:
        rewrite = number % (2 * _OPTIMIZED) == 0
        optimize(data, time_limit=2.0, tile=rewrite, remat=rewrite, verify=False, seed=number)


def _read_table(data: bytes, number: int) -> None:
    from memsched.packing import allocate_buffers

    allocate_buffers(data, capacity=10_000 if number % 2 else None, time_limit=0.2)


def _read_target(data: bytes, _number: int) -> None:
    from memsched.targets.load import load_target

    with _file(data, ".toml") as path:
        load_target(path)


KINDS = {
    "onnx": Kind(_onnx_seeds, onnx_mutations.mutated, _read_model),
    "tflite": Kind(_tflite_seeds, tflite_mutations.mutated, _read_model),
    "csv": Kind(lambda: (_TABLE,), text_mutations.mutated, _read_table),
    "target": Kind(_target_seeds, text_mutations.mutated, _read_target),
}
