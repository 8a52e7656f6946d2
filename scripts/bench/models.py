"""Optimise real models end to end and print a table: peaks, proofs, seconds, verification.

Each row is one run of the command line in a process of its own, imports included. Models: those in ``models/`` and the
light models that the installed onnx package carries.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Run:
    """One run of ``memsched optimize``: its report and how long the whole process took."""

    name: str
    report: dict[str, Any]
    seconds: float


def light_models() -> list[Path]:
    """Return the real architectures without weights that the onnx package ships."""
    import onnx

    return sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("*.onnx"))


def optimize(model: Path, folder: Path, options: list[str]) -> Run:
    """Optimise ``model`` into ``folder`` and return the report."""
    out = folder / f"{model.stem}_memsched{model.suffix}"
    report = folder / f"{model.stem}.json"
    command = [sys.executable, "-m", "memsched", "optimize", str(model), "-o", str(out), "--report", str(report)]
    started = time.perf_counter()
    done = subprocess.run([*command, "--force", *options], capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise SystemExit(f"{model.name}: exit {done.returncode}: {done.stderr.strip()}")
    return Run(model.stem, json.loads(report.read_text(encoding="utf-8")), seconds)


def kilobytes(size: int | None) -> str:
    """Return bytes as KB of 1024 with one decimal."""
    return "-" if size is None else f"{size / 1024:,.1f}"


def row(plain: Run, verified: Run) -> str:
    """Return one line of the Markdown table."""
    report, check = plain.report, verified.report["verification"] or {}
    baselines, result = report["baselines"], report["result"]
    search = sum(entry["seconds"] for entry in report["passes"])
    equal = {True: "bit-equal", False: "DIFFERENT", None: "not run"}[check.get("outputs_equal")]
    cells = [
        plain.name,
        f"{report['model']['ops']}",
        kilobytes(baselines["file_order"]["peak_bytes"]),
        kilobytes(baselines["reverse_post_order"]["peak_bytes"]),
        kilobytes(baselines["runtime_default_order"]["peak_bytes"]),
        f"**{kilobytes(result['peak_bytes'])}**",
        result["status"],
        kilobytes(result["arena_bytes"]),
        f"{search:.2f}",
        f"{plain.seconds:.2f}",
        equal,
    ]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Run every model and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="models to run instead of all")
    parser.add_argument("--target", help="target to optimise for; default: each format's own runtime")
    arguments = parser.parse_args()
    models = arguments.models or [*light_models(), *sorted((ROOT / "models").glob("*.tflite"))]
    target = ["--target", arguments.target] if arguments.target else []
    print("Peaks and arena in KB of 1024 bytes; seconds: planning / whole process without verification.\n")
    print(
        "| model | ops | file order | reverse post-order | runtime's own order | memsched | proof | arena "
        "| s | s | outputs |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            plain = optimize(model, Path(folder), [*target, "--no-verify"])
            verified = optimize(model, Path(folder), [*target, "--verify"])
            print(row(plain, verified), flush=True)


if __name__ == "__main__":
    main()
