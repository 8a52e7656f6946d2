"""onnxsim's memory planner on the given order and on ours: it plans addresses and does not reorder."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import memsched
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, chosen, option
from scripts.bench.runner.models import built
from scripts.bench.runner.text import kilobytes, percent
from scripts.networks.catalogue import NAMES

__all__ = ["ABSENT", "BENCH", "INSTALL", "interpreter", "plan", "table"]

ABSENT = "Skipped: onnxsim is not installed; `--install` fetches it into an environment that is thrown away."
INSTALL = option("--install", action="store_true", help="fetch onnxsim for this run alone")

_COLUMNS = (
    "network",
    "file order: peak",
    "file order: arena",
    "file order: onnxsim's arena",
    "our order: peak",
    "our order: arena",
    "our order: onnxsim's arena",
    "onnxsim's arena saved by our order",
)
_RUNNER = Path(__file__).with_name("onnxsim_peer.py")
_TARGET = "ideal"


def table(names: Sequence[str], *, install: bool) -> Iterator[Part]:
    """Yield the lines of the table, or one that says why there is none.

    Args:
        install: Fetch onnxsim from the package index into a virtual environment that is thrown away.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = interpreter(folder, install=install)
        if python is None:
            yield ABSENT
            return
        yield f"Target {_TARGET}: views and in-place writes count nothing, in both planners. KB of 1024 bytes.\n"
        yield Heading(*_COLUMNS)
        for network in names:
            yield _row(network, python, folder)


def interpreter(folder: Path, *, install: bool) -> Path | None:
    """Return a Python that has onnxsim; None where there is none."""
    found = subprocess.run(
        [sys.executable, "-I", "-c", "import onnxsim.memory_planning"], capture_output=True, check=False
    )
    if not found.returncode:
        return Path(sys.executable)
    if not install:
        return None
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    done = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "onnxsim>=0.8"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"onnxsim cannot be installed: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return python


def _row(name: str, python: Path, folder: Path) -> tuple[object, ...]:
    data = built(name)
    result = memsched.optimize(data, target=_TARGET, verify=False)
    paths = [folder / f"{name}.onnx", folder / f"{name}_memsched.onnx"]
    for path, content in zip(paths, (data, result.model), strict=True):
        path.write_bytes(content)
    before, after = plan(python, paths)
    given = result.report["original"]["schedule"]
    sizes = [
        given["peak_bytes"],
        given["arena_bytes"],
        before["arena"],
        result.schedule.peak,
        result.allocation.arena,
        after["arena"],
    ]
    return name, *(kilobytes(size) for size in sizes), percent(1 - after["arena"] / before["arena"])


def plan(python: Path, models: Sequence[Path]) -> list[dict[str, Any]]:
    """Return what onnxsim plans for each of ``models``, as `onnxsim_peer` prints it.

    Raises:
        SystemExit: It failed.
    """
    # Isolated: this module's folder, in which it is "onnxsim" itself, is no place to import from.
    done = subprocess.run([python, "-I", _RUNNER, *models], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"onnxsim: exit {done.returncode}: {done.stderr.strip()}")
    return [json.loads(text) for text in done.stdout.splitlines()]


def tables(values: Values) -> Iterator[Part]:
    """Yield the table."""
    return table(values.names or NAMES, install=values.install)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        chosen("network", NAMES, "all"),
        INSTALL,
    ),
    docs="docs/benchmarks/order.md",
)
