"""The same bytes twice: what every command writes, in surroundings that must not matter.

python -m tests.tools.determinism            a quarter of an hour on one core
python -m tests.tools.determinism optimize   only commands whose names begin so

Searches end by themselves here: what a time limit cuts off depends on the machine. Figures of the run itself (seconds,
workers) do not count. A locale that writes decimal commas is built with localedef where it is not installed, and
sitecustomize sets it, as a program that embeds Python may.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.tools.written import ROOT, Case, World, cases, outcome

_GERMAN = "de_DE.UTF-8"


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
        for case in cases(Path(base), worlds[0]):
            if not case.name.startswith(args.command):
                continue
            since = time.monotonic()
            found = {world.name: _left(case, world) for world in worlds}
            verdict = _verdict(found)
            total, wrong = total + 1, wrong + (verdict != "same")
            files, seconds = len(next(iter(found.values()))), time.monotonic() - since
            given = ", ".join(path.stem for path in case.given)
            print(f"| {case.name} | {given} | {files} | {seconds:.0f} | {verdict} |", flush=True)
    print(f"{total} cases in {len(worlds)} worlds: {wrong} wrong")
    return wrong > 0


def _left(case: Case, world: World) -> dict[str, str]:
    found = outcome(case, world)
    return {"error": found.said} if found.code != 0 else found.digests()


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


def _worlds(base: Path) -> list[World]:
    worlds = [
        World("plain"),
        World("hash seed", {"PYTHONHASHSEED": "12345"}),
        World("time zone, terminal", {"TZ": "Asia/Kathmandu", "TERM": "xterm-256color", "COLUMNS": "200"}),
        # Not even root can write into /proc.
        World("folder, umask, home", {"HOME": "/proc/nobody", "XDG_CACHE_HOME": ""}, "a folder ü", 1, 0o077),
        World("random hash seed, two workers", {"PYTHONHASHSEED": "random"}, workers=2),
        World("without the compiled core", {"MEMSCHED_CORE": "0"}),
    ]
    german = _german(base)
    if german:
        worlds.append(World(f"locale {_GERMAN} with decimal commas", german))
    else:
        print(f"{_GERMAN} is not installed, nor can localedef make it: no locale but C was tried")
        worlds.append(World("locale C.UTF-8", {"LC_ALL": "C.UTF-8"}))
    return worlds


def _german(base: Path) -> dict[str, str] | None:
    """Return the environment in which that locale is really in force; None where there is none."""
    locales, site = base / "locales", base / "site"
    locales.mkdir()
    site.mkdir()
    (site / "sitecustomize.py").write_text("import locale\n\nlocale.setlocale(locale.LC_ALL, '')\n", encoding="utf-8")
    environment = {"LC_ALL": _GERMAN, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"}
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


if __name__ == "__main__":
    sys.exit(main())
