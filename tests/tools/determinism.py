"""The same bytes twice: what every command writes, in surroundings that must not matter.

python -m tests.tools.determinism            a quarter of an hour on one core
python -m tests.tools.determinism optimize   only commands whose names begin so

Searches end by themselves here: what a time limit cuts off depends on the machine. Figures of the run itself (seconds,
workers) do not count. A locale that writes decimal commas is built with localedef where it is not installed, and
sitecustomize sets it, as a program that embeds Python may.
"""

from __future__ import annotations

import argparse
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
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_VARYING = {"seconds", "scheduling_seconds", "workers"}
"""What reports and tables say of the run itself."""

_SECONDS_SHOWN = re.compile(rb'[\d.,]+ s(?=; memsched)|(?<=<td class="n">)[\d.,]+(?=</td></tr>)')
"""In the page of a batch: those of the whole, and the last column of its table."""

_LIMIT = ("--time-limit", "1000")
_PATIENCE = 300.0
"""Seconds after which a run counts as a search that does not end by itself."""

_PLAIN = {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC", "TERM": "dumb", "COLUMNS": "80"}
_GERMAN = "de_DE.UTF-8"


@dataclass(frozen=True, slots=True)
class _World:
    """What a run must not depend on."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str = "here"
    workers: int = 1
    umask: int = 0o022


@dataclass(frozen=True, slots=True)
class _Case:
    """A command with the files that it is given, and whether it has ``--workers``."""

    name: str
    arguments: tuple[str, ...]
    given: tuple[Path, ...]
    workers: bool = True


def main() -> int:
    """Compare; 1 where two worlds give other bytes or a command fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", default="", help="only commands whose names begin so")
    args = parser.parse_args()
    wrong = total = 0
    with tempfile.TemporaryDirectory() as base:
        worlds = _worlds(Path(base))
        print("worlds: " + "; ".join(world.name for world in worlds), flush=True)
        print("| command | given | files | s | result |\n|---|---|--:|--:|---|", flush=True)
        for case in _cases(Path(base)):
            if not case.name.startswith(args.command):
                continue
            since = time.monotonic()
            found = {world.name: _files(case, world) for world in worlds}
            verdict = _verdict(found)
            total, wrong = total + 1, wrong + (verdict != "same")
            files, seconds = len(next(iter(found.values()))), time.monotonic() - since
            given = ", ".join(path.stem for path in case.given)
            print(f"| {case.name} | {given} | {files} | {seconds:.0f} | {verdict} |", flush=True)
    print(f"{total} cases in {len(worlds)} worlds: {wrong} wrong")
    return wrong > 0


def _verdict(found: Mapping[str, Mapping[str, str]]) -> str:
    (_, reference), *others = found.items()
    if "error" in reference:
        return f"FAILS: {reference['error']}"
    differing = [
        f"{name} ({', '.join(sorted(dict(files.items() ^ reference.items())))})"
        for name, files in others
        if files != reference
    ]
    return f"DIFFERS: {'; '.join(differing)}" if differing else "same"


def _worlds(base: Path) -> list[_World]:
    worlds = [
        _World("plain"),
        _World("hash seed", {"PYTHONHASHSEED": "12345"}),
        _World("time zone, terminal", {"TZ": "Asia/Kathmandu", "TERM": "xterm-256color", "COLUMNS": "200"}),
        # Not even root can write into /proc.
        _World("folder, umask, home", {"HOME": "/proc/nobody", "XDG_CACHE_HOME": ""}, "a folder ü", 1, 0o077),
        _World("random hash seed, two workers", {"PYTHONHASHSEED": "random"}, workers=2),
    ]
    german = _german(base)
    if german:
        worlds.append(_World(f"locale {_GERMAN} with decimal commas", german))
    else:
        print(f"{_GERMAN} is not installed, nor can localedef make it: no locale but C was tried")
        worlds.append(_World("locale C.UTF-8", {"LC_ALL": "C.UTF-8"}))
    return worlds


def _german(base: Path) -> dict[str, str] | None:
    """Return the environment in which that locale is really in force; None where there is none."""
    locales, site = base / "locales", base / "site"
    locales.mkdir()
    site.mkdir()
    (site / "sitecustomize.py").write_text("import locale\n\nlocale.setlocale(locale.LC_ALL, '')\n", encoding="utf-8")
    environment = {"LC_ALL": _GERMAN, "PYTHONPATH": f"{site}{os.pathsep}{_ROOT}"}
    code = "import locale; assert locale.localeconv()['decimal_point'] == ','"
    for given in ({}, {"LOCPATH": str(locales)}):
        if given and shutil.which("localedef"):
            made = ["localedef", "-i", "de_DE", "-f", "UTF-8", str(locales / _GERMAN)]
            subprocess.run(made, capture_output=True, check=False)
        tried = {**environment, **given}
        asked = subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, **tried}, capture_output=True, check=False
        )
        if asked.returncode == 0:
            return tried
    return None


def _rewritten(base: Path) -> Iterator[Path]:
    """Yield models that are computed in pieces, and one of which a value is computed again."""
    from tests.test_final import convolutions, skip_connection
    from tests.tiling.test_tokens import attention

    for make in (convolutions, attention, skip_connection):
        path = base / f"{make.__name__}.onnx"
        path.write_bytes(make())
        yield path


def _cases(base: Path) -> list[_Case]:
    """Return every command that writes files, on models whose searches end by themselves."""
    import onnx

    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    models = _ROOT / "models"
    speech, hello = models / "micro_speech_quantized.tflite", models / "hello_world_int8.tflite"
    mobilenet, nasnet = models / "mobilenetv2_035_96_int8.tflite", models / "nasnetmobile_int8.tflite"
    squeeze, shuffle = light / "light_squeezenet.onnx", light / "light_shufflenet.onnx"
    inception, dense = light / "light_inception_v1.onnx", light / "light_densenet121.onnx"
    packing = _ROOT / "tests" / "data" / "packing" / "twelve.csv"
    report = base / "report.json"
    _run(["analyze", str(nasnet), "--report", str(report), "--quiet"], base, _PLAIN)
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
            _Case("analyze", ("analyze", one.name, "--report", "out.json", "--header", "out.h"), (one,), workers=False)
        )
        cases.append(_Case("analyze --json", ("analyze", one.name, "--json"), (one,), workers=False))
    for one in (mobilenet, inception):
        cut = ("pipeline", one.name, "--stages", "3", "--no-verify", "-o", "out", "--report", "out.json")
        cases.append(_Case("pipeline", cut, (one,)))
    learned = ("pipeline", squeeze.name, "--stages", "4", "--no-verify", "--scheduler", "respect")
    cases.append(_Case("pipeline, learned", (*learned, "--report", "out.json"), (squeeze,)))
    shared = ("distribute", squeeze.name, "--cluster", "pi4x4-wifi", "-o", "out", "--no-run", *_LIMIT)
    cases.append(_Case("distribute", shared, (squeeze,)))
    packed = ("allocate", packing.name, "-o", "out.csv", "--report", "out.json", *_LIMIT)
    zoo = ("batch", ".", "-o", "out", "--no-verify", *_LIMIT)
    return [
        *cases,
        _Case("allocate", packed, (packing,)),
        _Case("batch", zoo, (hello, speech, squeeze)),
        _Case("report as a page", ("report", report.name, "-o", "out.html"), (report,), workers=False),
    ]


def _optimize(name: str, model: Path, *options: str) -> _Case:
    verified = () if "--verify" in options else ("--no-verify",)
    options = tuple(one for one in options if one not in {"--verify", "on"})
    written = ("-o", f"out{model.suffix}", "--report", "out.json", *_LIMIT)
    return _Case(name, ("optimize", model.name, *written, *verified, *options), (model,))


def _files(case: _Case, world: _World) -> dict[str, str]:
    """Return what a command wrote, standard output among it, as digests of what does not tell of the run itself."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / world.folder
        folder.mkdir()
        for path in case.given:
            shutil.copy(path, folder / path.name)
        if "-o" in case.arguments and case.arguments[case.arguments.index("-o") + 1] == "out":
            (folder / "out").mkdir()
        workers = ["--workers", str(world.workers)] if case.workers else []
        quiet = [] if "--json" in case.arguments else ["--quiet"]
        environment = {**_PLAIN, **world.environment}
        try:
            result = _run([*case.arguments, *workers, *quiet], folder, environment, world.umask)
        except subprocess.TimeoutExpired:
            return {"error": f"does not end within {_PATIENCE:.0f} s"}
        if result.returncode:
            return {"error": result.stderr.decode(errors="replace").strip()}
        given = {path.name for path in case.given}
        found = {
            str(path.relative_to(folder)): _stable(path.suffix, path.read_bytes())
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path.name not in given
        }
        if "--json" in case.arguments:
            found["standard output"] = _stable(".json", result.stdout)
        return {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}


def _run(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str], umask: int = 0o022
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in the surroundings of a world, and nothing of this process's own locale, terminal or home."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "XDG_"))}
    return subprocess.run(
        [sys.executable, "-m", "memsched", *arguments],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(_ROOT), **environment},
        capture_output=True,
        check=False,
        umask=umask,
        timeout=_PATIENCE,
    )


def _stable(suffix: str, data: bytes) -> bytes:
    if suffix == ".json":
        return json.dumps(_without_time(json.loads(data)), sort_keys=True).encode()
    if suffix == ".csv":
        rows = list(csv.DictReader(io.StringIO(data.decode())))
        return json.dumps(_without_time(rows)).encode()
    return _SECONDS_SHOWN.sub(b"", data) if suffix == ".html" else data


def _without_time(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_time(inner) for key, inner in value.items() if key not in _VARYING}
    return [_without_time(inner) for inner in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
