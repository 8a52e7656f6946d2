"""No result may change with the number of workers or with the seed of Python's hashes."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench.runner.declare import ROOT, Benchmark, Heading, Part, Values, positional
from scripts.bench.runner.models import shipped_networks
from scripts.bench.runner.processes import optimized
from scripts.networks.randwire import random_cell

__all__ = ["BENCH", "SETTINGS", "Outcome", "models", "outcomes"]

SETTINGS = ((1, "0"), (1, "1"), (2, "4242"), (4, "random"))
"""Pairs of --workers and PYTHONHASHSEED."""

_COLUMNS = ("model", "runs", "different files", "different reports", "sha256 of the file")
_VARYING = frozenset({"seconds", "path"})


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run wrote: the model's bytes, and the report without seconds and paths."""

    model: bytes
    report: str


def models(folder: Path) -> list[Path]:
    """Return the stored models, and one written to ``folder`` whose parts are searched side by side in processes."""
    parallel = folder / "randwire_cells_3x48.onnx"
    parallel.write_bytes(random_cell(48, 1, stages=3).SerializeToString(deterministic=True))
    return [*shipped_networks(), ROOT / "models/nasnetmobile_int8.tflite", parallel]


def outcomes(model: Path, settings: Sequence[tuple[int, str]], options: Sequence[str]) -> list[Outcome]:
    """Run ``memsched optimize`` on ``model`` once for each of ``settings``.

    Raises:
        SystemExit: A run failed.
    """
    found = []
    for workers, seed in settings:
        asked = ["--workers", str(workers), "--no-verify", *options]
        done = optimized(model, asked, environment={"PYTHONHASHSEED": seed})
        found.append(Outcome(done.model, json.dumps(_lasting(done.report), sort_keys=True)))
    return found


def _lasting(value: Any) -> Any:
    """Return a report without what may differ between runs."""
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in _VARYING}
    return [_lasting(item) for item in value] if isinstance(value, list) else value


def tables(values: Values) -> Iterator[Part]:
    """Yield a row per model."""
    options = values.options
    settings = ", ".join(f"{workers} with {seed}" for workers, seed in SETTINGS)
    yield f"--workers and PYTHONHASHSEED: {settings}. Options: {' '.join(options) or 'none'}.\n"
    yield Heading(*_COLUMNS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in models(folder):
            found = outcomes(model, SETTINGS, options)
            files = len({outcome.model for outcome in found}) - 1
            reports = len({outcome.report for outcome in found}) - 1
            digest = hashlib.sha256(found[0].model).hexdigest()[:16]
            yield model.name, len(found), files or "none", reports or "none", digest


BENCH = Benchmark(
    __doc__,
    tables,
    (positional("options", help="options of memsched optimize, after --"),),
    docs="docs/benchmarks/order.md",
)
