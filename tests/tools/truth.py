"""One table of models: what memsched predicts of each runtime's memory, and what the runtime shows.

    python -m tests.tools.truth models --out docs/truth.md

Folders are searched for .onnx and .tflite files. Each model goes through `memsched optimize`, its own file and the one
that was written through the runtime, in fresh processes, as `python -m tests.tools.claims` does. Rows in which the two
are more than 2 % apart, or anything else is wrong, are red; then the exit code is 1 and no page is written.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from onnx import TensorProto, helper
from rich.console import Console

from tests.tools.claims.__main__ import MOST_APART, Case, apart

__all__ = ["RUNTIMES", "TARGETS", "TruthRow", "main", "models_in"]

TARGETS = {".onnx": ("onnxruntime",), ".tflite": ("litert-reference", "tflm")}
RUNTIMES = {"onnxruntime": "ONNX Runtime", "litert-reference": "LiteRT", "tflm": "TensorFlow Lite Micro"}
_OPTIONS = {"onnxruntime": ("--session", "default"), "litert-reference": (), "tflm": ()}
"""For ONNX Runtime the graph that a session without options executes, of which figures are promised for every model."""
_EFFORT = ("--effort", "5")
"""Limits that count work: the same files, and so the same figures, on every machine."""

_HEAD = (
    "| model | runtime | as given: predicted, B | measured | written: predicted, B | measured | predicted / measured |"
)
_PAGE = """# Predicted and measured

Every model of the repository through `memsched optimize`, in bytes: of ONNX Runtime what a session requests for
activations, the given file's without options, the written one's with those that are printed (`--session default`); of
LiteRT its arena without delegates; of TensorFlow Lite Micro the whole arena, 64 bit. All were measured in fresh
processes, on the file written. `make truth` remakes this page, and fails where a row is over 2 % off;
`MODELS=folder` prints your models' table.

{table}

With {versions} on a processor with blocks of {channels} channels.
"""


_Pair = tuple[int | None, int | None]


@dataclass(frozen=True, slots=True)
class TruthRow:
    """A model in a runtime; each pair is predicted and measured, bytes, None where there is no such figure.

    Attributes:
        version: Of the runtime.
        wrong: In words; empty where all is well.
    """

    model: str
    runtime: str
    version: str
    given: _Pair
    written: _Pair
    said: str
    wrong: str

    @property
    def off(self) -> float:
        """The larger of both distances, in percent of what was measured."""
        return max((apart(*pair) for pair in self._pairs()), default=0.0)

    @property
    def red(self) -> bool:
        """Whether the row contradicts memsched."""
        return bool(self.wrong) or self.off > MOST_APART

    def line(self) -> str:
        """Return the row of the table."""
        cells = ["" if figure is None else f"{figure:,}" for figure in (*self.given, *self.written)]
        ratios = dict.fromkeys(f"{claimed / max(measured, 1):.3f}" for claimed, measured in self._pairs())
        verdict = self.wrong or ", ".join(ratios) or ": ".join(self.said.split(": ")[:2]) or "not predicted"
        return f"| {self.model} | {self.runtime} | {' | '.join(cells)} | {verdict} |"

    def _pairs(self) -> Iterator[tuple[int, int]]:
        for claimed, measured in (self.given, self.written):
            if claimed is not None and measured is not None:
                yield claimed, measured


def models_in(paths: Iterable[str]) -> Iterator[Path]:
    """Yield the models that are named, and those in folders, sorted."""
    for path in map(Path, paths):
        found = sorted(one for one in path.rglob("*") if one.suffix in TARGETS) if path.is_dir() else [path]
        yield from found


def row_of(model: Path, target: str, folder: Path) -> TruthRow:
    """Return the row of a model in the runtime of ``target``."""
    report = folder / "report.json"
    row = Case(model, target, (), _EFFORT, times=False).row("optimize", _OPTIONS[target], folder)
    found: Mapping[str, Any] = json.loads(report.read_text(encoding="utf-8")) if report.exists() else {}
    verification = found.get("sections", {}).get("verification") or {}
    given = (verification.get("predicted_peak_before_bytes"), verification.get("measured_peak_before_bytes"))
    # A claim that only repeats a measurement of memsched's own is none.
    claimed = None if verification.get("predicted_peak_after_bytes") is None else row.claimed
    written = (claimed, row.measured)
    version = verification.get("runtime") or ""
    return TruthRow(model.name, RUNTIMES[target], version, given, written, row.said, row.wrong)


def page_of(rows: Sequence[TruthRow]) -> str:
    """Return the page of the documentation."""
    table = [_HEAD, "|---|---|---:|---:|---:|---:|---:|", *(row.line() for row in rows)]
    versions = ", ".join(dict.fromkeys(row.version for row in rows if row.version))
    return _PAGE.format(table="\n".join(table), versions=versions, channels=_channels())


def _channels() -> int:
    """Return the channels of the blocks in which ONNX Runtime computes convolutions here: figures depend on them."""
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(Path(folder) / "blocked.onnx")
        # Filters for one channel are padded to a block.
        filters = helper.make_tensor("w", TensorProto.FLOAT, (1, 16, 1, 1), [1.0] * 16)
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, None, 4, 4)) for name in ("x", "y")]
        graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [filters])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        stored = onnx.load(options.optimized_model_filepath).graph.initializer
    return max(int(one.dims[0]) for one in stored)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL|FOLDER")
    parser.add_argument("--out", type=Path, help="page to write")
    given = parser.parse_args(arguments)
    console = Console(width=int(os.environ.get("COLUMNS", "160")), soft_wrap=True, highlight=False, markup=False)
    console.print(_HEAD)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model in models_in(given.models):
            for target in TARGETS[model.suffix]:
                rows.append(row_of(model, target, Path(folder)))
                console.print(rows[-1].line(), style="red" if rows[-1].red else None)
    wrong = sum(row.red for row in rows)
    console.print(
        f"{len(rows)} rows, {wrong} of them wrong, at most {max((row.off for row in rows), default=0):.2f} % off"
    )
    if given.out is not None and not wrong:
        given.out.write_text(page_of(rows), encoding="utf-8")
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
