"""Hold what memsched prints against what the runtimes show, model by model, in fresh processes.

    python -m tests.tools.claims models/*.tflite models/networks/unetpp.onnx --effort 5
    python -m tests.tools.claims text.onnx --options text.onnx="--dim N=128"

Each model goes through `analyze`, `optimize` by default, with `--may-change opening` or `rounding`, with `--allow all`,
and with three budgets. The written file is then opened as the report says. ONNX Runtime runs it twice with exactly the
printed options, and 20 times in a fresh process for each session that the report measured. LiteRT runs it 20 times in a
fresh process of its default interpreter; for `litert-reference`, without delegates. What processes take is partly
chance (layouts, free memory that is kept): up to six processes are asked where the first contradicts. A time that lies
between those of two of them holds: a tenth of a millisecond takes 0.6 or 0.9 times as long by chance. The wheel of
TensorFlow Lite Micro runs both models on the same inputs, each twice in a row. A row tells the claim, the measurement,
and how far they are apart. The exit code is 1 if they are more than 2% apart (5% for processes and times), if outputs
differ, if a written file does not run although the original does, or if a command fails without a reason.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import itertools
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx

import memsched
from memsched.cli.options import parse_dims, parse_shapes
from memsched.runtimes.child import ChildResult, run_in_child
from memsched.runtimes.inputs import random_values
from memsched.runtimes.onnxruntime.inputs import compared_with

__all__ = ["MOST_APART", "TARGETS", "Case", "Row", "apart"]

_COMMANDS: Mapping[str, tuple[str, ...]] = {
    "analyze": (),
    "optimize": (),
    "opening": ("--may-change", "opening"),
    "rounding": ("--may-change", "rounding"),
    "all": ("--allow", "all"),
    **{f"{percent}%": ("--allow", "all", "--keep-best", "--budget", f"{percent}%") for percent in (75, 50, 25)},
}
TARGETS = {".onnx": ("onnxruntime",), ".tflite": ("litert", "litert-reference", "tflm")}
MOST_APART = 2.0
MOST_APART_PROCESS = 5.0
_SECONDS = 1200.0
_PROCESSES: Final = 6
_REASON = 110


@dataclass(frozen=True, slots=True)
class Row:
    """What one command claimed and what was measured, in bytes; ``wrong`` is empty where all is well."""

    model: str
    target: str
    command: str
    exit_code: int
    claimed: int | None = None
    measured: int | None = None
    said: str = ""
    wrong: str = ""

    def line(self) -> str:
        """Return the row of the table."""
        figures = ["" if one is None else f"{one:,}" for one in (self.claimed, self.measured)]
        off = "" if self.claimed is None or self.measured is None else f"{apart(self.claimed, self.measured):.2f} %"
        remark = f"**{self.wrong}**: {self.said}" if self.wrong else self.said
        cells = [self.model, self.target, self.command, str(self.exit_code), *figures, off, remark[:_REASON]]
        return "| " + " | ".join(cells) + " |"


def apart(claimed: int, measured: int) -> float:
    """Return by how many percent of what was measured the claim is off."""
    return 100 * abs(claimed - measured) / max(measured, 1)


@dataclass(frozen=True, slots=True)
class Case:
    """A model for a target, with the options that state its sizes and those that limit each search."""

    model: Path
    target: str
    options: tuple[str, ...]
    limits: tuple[str, ...]
    commands: tuple[str, ...] = tuple(_COMMANDS)
    times: bool = True
    """Whether times are judged too: they say something on an idle machine alone."""

    def rows(self, folder: Path) -> Iterator[Row]:
        """Yield what each command claimed and what was measured."""
        for name in self.commands:
            yield self.row(name, _COMMANDS[name], folder)

    def row(self, name: str, options: Sequence[str], folder: Path) -> Row:
        """Return what one command claimed and what was measured; ``folder`` then has its report.json."""
        written, report = folder / f"out{self.model.suffix}", folder / "report.json"
        for old in (written, report):
            old.unlink(missing_ok=True)
        command = [sys.executable, "-m", "memsched", "analyze" if name == "analyze" else "optimize", str(self.model)]
        command += ["--target", self.target, *self.options, *options, "--report", str(report), "--quiet"]
        if name != "analyze":
            command += ["-o", str(written), *self.limits]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        said = next(iter(reversed(done.stderr.strip().splitlines())), "")
        row = Row(self.model.name, self.target, name, done.returncode, said=said)
        if done.returncode not in {0, 3} or (done.returncode == 3 and "--budget" not in options):
            reasoned = done.returncode == 1 and said.startswith("memsched: error: ")
            return row if reasoned else dataclasses.replace(row, wrong=f"failed: {said or 'without a reason'}")
        if name == "analyze":
            return row
        return self._held(row, json.loads(report.read_text(encoding="utf-8")), written)

    def _held(self, row: Row, report: Mapping[str, Any], written: Path) -> Row:
        """Return ``row`` with the claim of the report and what the runtime shows for the file that was written."""
        if self.target == "tflm":
            return self._held_by_tflm(row, report, written)
        verification = report["sections"]["verification"]
        if verification is None or verification["outputs_equal"] is None:
            said = "; ".join(report["verdict"]["notes"]) if verification is None else verification["reason"]
            return dataclasses.replace(row, said=f"not verified: {said}")
        if self.target == "litert":
            return self._held_by_interpreter(row, report["sections"]["interpreter"], written)
        if self.target == "litert-reference":
            claimed, measured = (verification[f"{kind}_peak_after_bytes"] for kind in ("predicted", "measured"))
            return _judged(row, claimed, measured, verification["reason"] or "")
        if report["sections"]["mapped"] is not None:
            lines = report["output"]["guarantee"]["session_options"]
            return self._held_by_mapped(row, report["sections"]["mapped"], {"given": [], "written": lines}, written)
        claimed = verification["predicted_peak_after_bytes"] or verification["measured_peak_after_bytes"]
        held = self._held_by_onnxruntime(row, report["output"]["guarantee"]["session_options"], claimed, written)
        return held if held.wrong else self._held_by_sessions(held, report["sections"]["sessions"], written)

    def _held_by_sessions(self, row: Row, sessions: Sequence[Mapping[str, Any]], written: Path) -> Row:
        """Return ``row``, or the first process or time of a session that a fresh process of 20 runs contradicts."""
        paths = {"given": str(self.model.resolve()), "written": str(written)}
        for one in sessions:
            request = {"path": paths[one["file"]], "session": one, "feeds": self._feeds()}
            what = f"the file {one['file']}, level {one['level']}, pattern {one['mem_pattern']}, after 20 runs"
            if one["process_bytes"] is not None and one["settled"]:
                judged = _judged_process(row, one["process_bytes"], request, what)
                if judged.wrong:
                    return judged
            if self.times and one["cpu_ratio"] is not None:
                wrong = _wrong_time(one["cpu_ratio"], "turns_of_sessions", original=paths["given"], **request)
                if wrong:
                    return dataclasses.replace(row, wrong=f"{what}: {wrong}")
        return row

    def _held_by_mapped(
        self, row: Row, section: Mapping[str, Any], lines: Mapping[str, Sequence[str]], written: Path
    ) -> Row:
        """Return ``row`` with the first figure of mapped weights that fresh processes contradict, or the last.

        Args:
            lines: By which each of both files is opened.
        """
        paths = {"given": str(self.model.resolve()), "written": str(written)}
        for file, kind in itertools.product(paths, ("private_bytes", "peak_bytes")):
            request = {"path": paths[file], "options": lines[file], "kind": kind, "feeds": self._feeds()}
            row = _judged_process(row, section[file][kind], request, f"{kind} of the file {file}", "run_told_session")
            if row.wrong:
                return row
        if self.times and section["time_ratio"] is not None:
            both = {"original": paths["given"], "path": paths["written"], "options": lines["written"]}
            wrong = _wrong_time(section["time_ratio"], "turns_of_told_sessions", feeds=self._feeds(), **both)
            row = dataclasses.replace(row, wrong=wrong)
        return row

    def _held_by_interpreter(self, row: Row, section: Mapping[str, Any] | None, written: Path) -> Row:
        """Return ``row`` with the first figure that fresh default interpreters of 20 runs contradict, or the last."""
        if section is None:
            return row
        paths = {"given": self.model.resolve(), "written": written}
        kinds = ("private_bytes", "peak_bytes")
        for file, kind in itertools.product((one for one in paths if section[one] is not None), kinds):
            what, request = f"{kind} of the file {file}", {"path": str(paths[file]), "kind": kind}
            row = _judged_process(row, section[file][kind], request, what, "run_default_interpreter")
            if row.wrong:
                return row
        if not self.times or section["time_ratio"] is None:
            return row
        both = [str(path) for path in paths.values()]
        return dataclasses.replace(
            row, wrong=_wrong_time(section["time_ratio"], "turns_of_default_interpreter", paths=both)
        )

    def _held_by_tflm(self, row: Row, report: Mapping[str, Any], written: Path) -> Row:
        inputs = len(memsched.load(str(self.model)).graph.inputs)
        found = _child("run_tflm", paths=[str(self.model.resolve()), str(written)], inputs=inputs)
        if not found.ok:
            alone = _child("run_tflm", paths=[str(self.model.resolve())] * 2, inputs=inputs)
            why = " ".join((found.stderr or found.reason or "").split())[-_REASON:]
            return dataclasses.replace(row, said=f"TFLM: {why}", wrong=f"only as written: {why}" if alone.ok else "")
        if not found.value["same"]:
            return dataclasses.replace(row, wrong="outputs differ in TFLM")
        said = "" if found.value["vary"] else "outputs do not vary"
        head = _judged(row, report["sections"]["tflm"]["head_bytes"], _allocated(found.stderr, "head"), said)
        arena = (report["sections"]["verification"] or {}).get("arena_after")
        if head.wrong or not arena or arena["predicted_total_bytes"] is None:
            return head
        both = _judged(row, arena["predicted_total_bytes"], _allocated(found.stderr, "total"), said)
        return both if both.wrong else _judged(row, arena["predicted_least_bytes"], found.value["least"], said)

    def _held_by_onnxruntime(self, row: Row, options: Sequence[str], claimed: int | None, written: Path) -> Row:
        paths = [str(self.model.resolve()), str(written)]
        found = _child("run_onnxruntime", paths=paths, options=list(options), claimed=claimed, feeds=self._feeds())
        if not found.ok:
            return dataclasses.replace(row, wrong=f"it does not run: {found.reason}")
        if not found.value["same"]:
            return dataclasses.replace(row, wrong="outputs differ in ONNX Runtime")
        return _judged(row, claimed, found.value["peaks"][1], "" if options else "unchanged")

    def _feeds(self) -> bytes:
        """Return random inputs of the sizes that the options state, as an npz file's bytes."""
        stated: dict[str, list[str]] = {"--dim": [], "--shape": []}
        for option, value in zip(self.options[::2], self.options[1::2], strict=True):
            stated[option].append(value)
        graph = memsched.load(
            str(self.model), dims=parse_dims(stated["--dim"]), input_shapes=parse_shapes(stated["--shape"])
        ).graph
        random = np.random.default_rng(1)
        tensors = [graph.tensors[number] for number in graph.inputs]
        file = io.BytesIO()
        values = {one.name: random_values(one.dtype, one.shape or (), random, high=2) for one in tensors}
        choices = compared_with(onnx.load(self.model, load_external_data=False).graph)
        values.update((name, random.choice(given, values[name].shape)) for name, given in choices.items())
        np.savez(file, **values)  # type: ignore[arg-type]  # its keywords are the arrays' names
        return file.getvalue()


def _allocated(text: str, part: str) -> int:
    """Return the bytes that TensorFlow Lite Micro's recording allocator printed last for a part of the arena."""
    return int(re.findall(rf"Arena allocation {part} (\d+) bytes", text)[-1])


def _child(function: str, **request: Any) -> ChildResult:
    return run_in_child(f"tests.tools.claims.sessions:{function}", request, _SECONDS)


def _several(function: str, is_near: Callable[[Any], bool], **request: Any) -> list[Any] | str:
    """Return what fresh processes measure until one is near what was claimed, or why one failed.

    Layouts and places in memory differ by chance, so that several have to contradict.
    """
    found = list[Any]()
    while len(found) < _PROCESSES and not any(map(is_near, found)):
        child = _child(function, **request)
        if not child.ok:
            return str(child.reason)
        found.append(child.value)
    return found


def _judged_process(
    row: Row, claimed: int, request: Mapping[str, Any], what: str, function: str = "run_session"
) -> Row:
    """Return what fresh processes contradict."""
    found = _several(function, lambda one: apart(claimed, one) <= MOST_APART_PROCESS, **request)
    if isinstance(found, str):
        return dataclasses.replace(row, wrong=f"{what}: {found}")
    nearest = min(found, key=lambda one: apart(claimed, one))
    chance = f", of {len(found)} processes that took {min(found):,} to {max(found):,} B" if len(found) > 1 else ""
    return _judged(row, claimed, nearest, f"process of {what}{chance}", MOST_APART_PROCESS)


def _wrong_time(said: float, function: str, **request: Any) -> str:
    """Return what contradicts a ratio of times; nothing if it could not be measured."""

    def is_near(one: float) -> bool:
        return 100 * abs(one / said - 1) <= MOST_APART_PROCESS

    found = _several(function, is_near, **request)
    if isinstance(found, str) or any(map(is_near, found)) or min(found) < said < max(found):
        return ""
    return f"{said:.3f} x the time was said, {min(found):.3f} to {max(found):.3f} x was measured"


def _judged(row: Row, claimed: int | None, measured: int | None, said: str, most: float = MOST_APART) -> Row:
    row = dataclasses.replace(row, claimed=claimed, measured=measured, said=said)
    if claimed is None or measured is None:
        return row
    wrong = "contradicted" if apart(claimed, measured) > most else ""
    return dataclasses.replace(row, wrong=wrong)


def main() -> int:
    """Print the table that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--effort", type=float, default=3.0, help="work of each search")
    parser.add_argument("--options", action="append", default=[], metavar="NAME=OPTIONS", help="sizes of a model")
    parser.add_argument("--targets", default="", help="some of those of the format, as litert,tflm")
    parser.add_argument("--commands", default=",".join(_COMMANDS), help="some of the default's, as optimize,all,50%%")
    given = parser.parse_args()
    stated = dict(one.split("=", 1) for one in given.options)
    wrong = 0
    print("| model | target | command | exit | claimed, B | measured, B | apart | |", flush=True)
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for model in given.models:
            for target in given.targets.split(",") if given.targets else TARGETS[model.suffix]:
                options = tuple(shlex.split(stated.get(model.name, "")))
                limits = ("--effort", f"{given.effort:g}")
                for row in Case(model, target, options, limits, tuple(given.commands.split(","))).rows(Path(folder)):
                    wrong += bool(row.wrong)
                    print(row.line(), flush=True)
    print(f"\n{wrong} rows are wrong")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
