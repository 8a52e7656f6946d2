"""The command line in a process of its own, as a user runs it, with its seconds, its memory and what it wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.bench.runner.declare import ROOT

__all__ = ["Ended", "Optimized", "ended", "optimized"]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a process ended.

    Attributes:
        seconds: From its start to its end, by the clock.
        processor: Seconds of the processor.
        memory: Bytes of resident memory at most.
    """

    code: int
    errors: str
    seconds: float
    processor: float
    memory: int


def ended(arguments: Sequence[str], *, environment: Mapping[str, str] | None = None) -> Ended:
    """Run memsched in the checkout's folder until it ends."""
    command = [sys.executable, "-m", "memsched", *arguments]
    with tempfile.TemporaryFile("w+") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=errors, cwd=ROOT, env={**os.environ, **(environment or {})}
        )
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        said = errors.read().strip()
    # Linux counts in KB, macOS in bytes.
    memory = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Ended(process.returncode, said, seconds, used.ru_utime + used.ru_stime, memory)


@dataclass(frozen=True, slots=True)
class Optimized:
    """A run of ``memsched optimize``: the exit code, the report, the model written (or given), seconds in all."""

    name: str
    code: int
    report: dict[str, Any]
    model: bytes
    seconds: float


def optimized(
    model: Path,
    options: Sequence[str],
    *,
    codes: Collection[int] = (0,),
    environment: Mapping[str, str] | None = None,
) -> Optimized:
    """Run ``memsched optimize`` on a file, whose outputs are thrown away afterwards.

    Raises:
        SystemExit: It ended with none of ``codes``.
    """
    with tempfile.TemporaryDirectory() as name:
        output, report = Path(name) / f"out{model.suffix}", Path(name) / "report.json"
        written = ["-o", str(output), "--report", str(report), "--keep-best", "--quiet"]
        done = ended(["optimize", str(model.resolve()), *written, *options], environment=environment)
        if done.code not in codes:
            raise SystemExit(f"{model.name}: exit {done.code}: {done.errors}")
        data = output.read_bytes() if output.exists() else model.read_bytes()
        found = json.loads(report.read_text(encoding="utf-8"))
    return Optimized(model.stem, done.code, found, data, done.seconds)
