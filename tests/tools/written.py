"""What commands write, as digests of all that does not tell of the run itself: seconds and workers."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["PLAIN", "ROOT", "Case", "Outcome", "World", "cases", "fix_time", "outcome", "run"]

ROOT = Path(__file__).resolve().parents[2]
_VARYING = {"seconds", "scheduling_seconds", "workers"}
"""What reports and tables say of the run itself."""

_WORKERS = re.compile(r" --workers \d+")

_SECONDS_SHOWN = re.compile(rb'[\d.,]+ s(?=; memsched)|(?<=<td class="n">)[\d.,]+(?=</td></tr>)')
"""In the page of a batch: those of the whole, and the last column of its table."""

_LIMIT = ("--time-limit", "1000")
_PATIENCE = 300.0
"""Seconds after which a run counts as a search that does not end by itself."""

PLAIN = {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC", "TERM": "dumb", "COLUMNS": "80"}


@dataclass(frozen=True, slots=True)
class World:
    """What a run must not depend on, but for ``root``, the checkout whose memsched runs."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "here"
    workers: int = 1
    umask: int = 0o022
    root: Path = ROOT


@dataclass(frozen=True, slots=True)
class Case:
    """A command with the files that it is given, and whether it has ``--workers``."""

    name: str
    arguments: tuple[str, ...]
    given: tuple[Path, ...]
    workers: bool = True


def _rewritten(base: Path) -> Iterator[Path]:
    """Yield models that are computed in pieces, and one of which a value is computed again."""
    from tests.commands.optimize.test_choose import convolutions, skip_connection
    from tests.rewrites.tile.test_tokens import attention

    for make in (convolutions, attention, skip_connection):
        path = base / f"{make.__name__}.onnx"
        path.write_bytes(make())
        yield path


def cases(base: Path, world: World) -> list[Case]:
    """Return every command that writes files, on models whose searches end by themselves; ``base`` gets a report."""
    import onnx

    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    models = ROOT / "models"
    speech, hello = models / "micro_speech_quantized.tflite", models / "hello_world_int8.tflite"
    mobilenet, nasnet = models / "mobilenetv2_035_96_int8.tflite", models / "nasnetmobile_int8.tflite"
    squeeze, shuffle = light / "light_squeezenet.onnx", light / "light_shufflenet.onnx"
    inception, dense = light / "light_inception_v1.onnx", light / "light_densenet121.onnx"
    packing = ROOT / "tests" / "data" / "packing" / "twelve.csv"
    report = base / "report.json"
    run(["analyze", str(nasnet), "--report", str(report), "--quiet"], base, world)
    fix_time(report)
    cases = [_optimize("optimize", one) for one in (mobilenet, nasnet, squeeze, shuffle, inception, dense)]
    cases += [_optimize("optimize, verified", one, "--verify", "on") for one in (hello, squeeze)]
    cases += [
        _optimize("optimize for tflm", one, "--target", "tflm", "--header", "out.h") for one in (speech, mobilenet)
    ]
    cases += [
        _optimize("optimize in pieces, again", one, "--allow", "reorder,inplace,tile,remat", "--max-extra-macs", "60")
        for one in (hello, speech, *_rewritten(base))
    ]
    for one in (mobilenet, squeeze):
        cases.append(
            Case("analyze", ("analyze", one.name, "--report", "out.json", "--header", "out.h"), (one,), workers=False)
        )
        cases.append(Case("analyze --json", ("analyze", one.name, "--json"), (one,), workers=False))
    for one in (mobilenet, inception):
        cut = ("pipeline", one.name, "--stages", "3", "--no-verify", "-o", "out", "--report", "out.json")
        cases.append(Case("pipeline", cut, (one,)))
    learned = ("pipeline", squeeze.name, "--stages", "4", "--no-verify", "--scheduler", "respect")
    cases.append(Case("pipeline, learned", (*learned, "--report", "out.json"), (squeeze,)))
    shared = ("distribute", squeeze.name, "--cluster", "pi4x4-wifi", "-o", "out", "--no-run", *_LIMIT)
    cases.append(Case("distribute", shared, (squeeze,)))
    packed = ("allocate", packing.name, "-o", "out.csv", "--report", "out.json", *_LIMIT)
    zoo = ("batch", ".", "-o", "out", "--no-verify", *_LIMIT)
    return [
        *cases,
        Case("allocate", packed, (packing,)),
        Case("batch", zoo, (hello, speech, squeeze)),
        Case("report as a page", ("report", report.name, "-o", "out.html"), (report,), workers=False),
    ]


def _optimize(name: str, model: Path, *options: str) -> Case:
    verified = () if "--verify" in options else ("--no-verify",)
    options = tuple(one for one in options if one not in {"--verify", "on"})
    written = ("-o", f"out{model.suffix}", "--report", "out.json", *_LIMIT)
    return Case(name, ("optimize", model.name, *written, *verified, *options), (model,))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left.

    Attributes:
        code: The exit code; None where the run did not end in time.
        said: Standard error, and with ``--json`` nothing of standard output.
        files: What was written, by the path below the folder; without seconds, and JSON with its keys sorted.
    """

    code: int | None
    said: str
    files: Mapping[str, bytes]

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of every file."""
        return {name: hashlib.sha256(data).hexdigest() for name, data in self.files.items()}


def outcome(case: Case, world: World, *, printed: bool = False) -> Outcome:
    """Return what a command leaves in a world; with ``printed`` also all that it says, seconds apart, as a file."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / world.folder
        folder.mkdir()
        for path in case.given:
            shutil.copy(path, folder / path.name)
        if "-o" in case.arguments and case.arguments[case.arguments.index("-o") + 1] == "out":
            (folder / "out").mkdir()
        workers = ["--workers", str(world.workers)] if case.workers else []
        quiet = [] if "--json" in case.arguments or printed else ["--quiet"]
        try:
            result = run([*case.arguments, *workers, *quiet], folder, world)
        except subprocess.TimeoutExpired:
            return Outcome(None, f"does not end within {_PATIENCE:.0f} s", {})
        given = {path.name for path in case.given}
        found = {
            str(path.relative_to(folder)): _stable(path.suffix, path.read_bytes())
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name not in given
        }
        if "--json" in case.arguments and not result.returncode:
            found["standard output"] = _stable(".json", result.stdout)
        elif printed:
            found["standard output"] = _without_seconds(result.stdout)
        said = result.stderr.decode(errors="replace")
        if printed:
            found["standard error"] = _without_seconds(result.stderr)
        return Outcome(result.returncode, said.strip(), found)


def run(arguments: Sequence[str], folder: Path, world: World) -> subprocess.CompletedProcess[bytes]:
    """Run a command in the surroundings of a world, and nothing of this process's own locale, terminal or home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "XDG_"))}
    return subprocess.run(
        [sys.executable, "-m", "memsched", *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(world.root), **PLAIN, **world.environment},
        capture_output=True,
        check=False,
        umask=world.umask,
        timeout=_PATIENCE,
    )


def fix_time(report: Path) -> None:
    """Write a report anew in which everything took a second, for commands whose results show what a report says."""
    report.write_text(json.dumps(_varying(json.loads(report.read_bytes()), 1)), encoding="utf-8")


def _stable(suffix: str, data: bytes) -> bytes:
    if suffix == ".json":
        return json.dumps(_varying(json.loads(data), None), sort_keys=True, indent=1).encode()
    if suffix == ".csv":
        rows = list(csv.DictReader(io.StringIO(data.decode())))
        return json.dumps(_varying(rows, None), indent=1).encode()
    return _SECONDS_SHOWN.sub(b"", data) if suffix == ".html" else data


def _without_seconds(data: bytes) -> bytes:
    # The width of a column may depend on how many digits the seconds have.
    text = re.sub(r"[\d.,]+ (m?s|min)\b", "N s", data.decode())
    return re.sub("[ ─-]+", " ", text).encode()


def _varying(value: Any, replacement: int | None) -> Any:
    """Return ``value`` with the figures of the run itself replaced, or left out for None."""
    if isinstance(value, dict):
        kept = {key: _varying(inner, replacement) for key, inner in value.items() if key not in _VARYING}
        if isinstance(kept.get("command"), str):
            # What is suggested is the run's own command with more permitted.
            kept["command"] = _WORKERS.sub("", kept["command"])
        return kept if replacement is None else {**kept, **{key: replacement for key in value if key in _VARYING}}
    return [_varying(inner, replacement) for inner in value] if isinstance(value, list) else value
