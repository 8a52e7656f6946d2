"""No result may change with the number of workers or with the seed of Python's hashes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench.schedule.common import heading, line
from scripts.networks.randwire import random_cell

__all__ = ["SETTINGS", "Outcome", "models", "outcomes", "table"]

SETTINGS = ((1, "0"), (1, "1"), (2, "4242"), (4, "random"))
"""Pairs of --workers and PYTHONHASHSEED."""

_COLUMNS = ("model", "runs", "different files", "different reports", "sha256 of the file")
_ROOT = Path(__file__).resolve().parents[3]
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
    return [*sorted((_ROOT / "models/networks").glob("*.onnx")), _ROOT / "models/nasnetmobile_int8.tflite", parallel]


def outcomes(model: Path, folder: Path, settings: Sequence[tuple[int, str]], options: Sequence[str]) -> list[Outcome]:
    """Run ``memsched optimize`` on ``model`` once for each of ``settings``.

    Raises:
        SystemExit: A run failed.
    """
    return [_run(model, folder, workers, seed, options) for workers, seed in settings]


def _run(model: Path, folder: Path, workers: int, seed: str, options: Sequence[str]) -> Outcome:
    out, report = folder / f"out{model.suffix}", folder / "report.json"
    command = [sys.executable, "-m", "memsched", "optimize", str(model), "-o", str(out), "--report", str(report)]
    done = subprocess.run(
        [*command, "--workers", str(workers), "--no-verify", "--quiet", *options],
        env={**os.environ, "PYTHONHASHSEED": seed},
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{model.name}: exit {done.returncode}: {done.stderr.strip()}")
    content = json.loads(report.read_text(encoding="utf-8"))
    return Outcome(out.read_bytes(), json.dumps(_lasting(content), sort_keys=True))


def _lasting(value: Any) -> Any:
    """Return a report without what may differ between runs."""
    if isinstance(value, dict):
        return {key: _lasting(item) for key, item in value.items() if key not in _VARYING}
    return [_lasting(item) for item in value] if isinstance(value, list) else value


def table(options: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the table; ``options`` are those of ``memsched optimize``."""
    settings = ", ".join(f"{workers} with {seed}" for workers, seed in SETTINGS)
    yield f"--workers and PYTHONHASHSEED: {settings}. Options: {' '.join(options) or 'none'}.\n"
    yield from heading(_COLUMNS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in models(folder):
            found = outcomes(model, folder, SETTINGS, options)
            files = len({outcome.model for outcome in found}) - 1
            reports = len({outcome.report for outcome in found}) - 1
            digest = hashlib.sha256(found[0].model).hexdigest()[:16]
            yield line([model.name, len(found), files or "none", reports or "none", digest])
