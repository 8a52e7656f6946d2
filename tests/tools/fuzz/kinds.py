"""What is fuzzed: for every kind of file its valid ones, how they are changed, and what reads them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.tools.fuzz import onnx_mutations, readers, text_mutations, tflite_mutations, tree_mutations

__all__ = ["KINDS", "Kind", "case"]

_ROOT = Path(__file__).resolve().parents[3]
_LARGEST_SEED = 20_000
"""Bytes of a valid model that is changed: what is small is read often."""

_SEEDS = Path(__file__).with_name("seeds")
"""Reports as their commands wrote them: what a case is must not depend on the version that makes it."""

_TABLE = b"""id,lower,upper,size,alignment,hint,gaps,offset
a,0,4,1024,16,-1,,
b,1,3,512,1,-1,1-2,
c,2,8,4096,4,0,3-4@0:128 6-7,
d,5,9,100,1,-1,,0
"""


_LIST = b"# models\nmodels/hello_world_int8.tflite\n\n  examples/one.onnx  \nmodels/networks\nexamples/two.onnx\n"


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
    own = (_SEEDS / "memories.toml").read_bytes()
    return own, *(path.read_bytes() for path in sorted((_ROOT / "memsched" / "targets").glob("*.toml")))


@cache
def _cluster_seeds() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted((_ROOT / "memsched" / "clusters").glob("*.toml")))


@cache
def _table_seeds() -> tuple[bytes, ...]:
    return _TABLE, b"id,lower,upper,size\na,0,2,3\nb,1,4,5\n", (_ROOT / "tests/data/packing/twelve.csv").read_bytes()


@cache
def _reports(*names: str) -> tuple[bytes, ...]:
    return tuple((_SEEDS / f"{name}.json").read_bytes() for name in names)


def _single_reports() -> tuple[bytes, ...]:
    return _reports("optimize", "pieces", "repeated", "pools", "frontier", "tflm", "conditional")


KINDS = {
    "onnx": Kind(_onnx_seeds, onnx_mutations.mutated, readers.read_model),
    "tflite": Kind(_tflite_seeds, tflite_mutations.mutated, readers.read_model),
    "csv": Kind(_table_seeds, text_mutations.mutated, readers.read_table),
    "target": Kind(_target_seeds, tree_mutations.toml_mutated, readers.read_target),
    "cluster": Kind(_cluster_seeds, tree_mutations.toml_mutated, readers.read_cluster),
    "report": Kind(_single_reports, tree_mutations.json_mutated, readers.read_report),
    "diff": Kind(lambda: (*_single_reports(), *_reports("batch")), tree_mutations.json_mutated, readers.read_compared),
    "plan": Kind(lambda: _reports("plan"), tree_mutations.json_mutated, readers.read_plan),
    "list": Kind(lambda: (_LIST,), text_mutations.mutated, readers.read_list),
}
