"""Run every command on every model of some folders: each ends well, or with one line that says why not.

    python -m tests.tools.every_command models models/networks
    python -m tests.tools.every_command folder --effort 0.5 --timeout 300 --only optimize,report

A table shows what became of each: `ok`, `refused` (one line, exit code 1, 2 or 3), `left out` (a file was written
without a candidate that failed), or what is wrong: a traceback, an internal error, a second line of an error, exit code
4, no file, or no end within --timeout. The last line counts; the exit code is 1 if anything is wrong. A folder with a
`dims.json` ({"file.onnx": ["--dim", "N=64"]}) says which options a model needs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from memsched.commands.failures import DEFECTS

_MEMSCHED = (sys.executable, "-m", "memsched")
_LEVELS = ((), ("-O2",), ("-O3",), ("--allow", "all"))
_TFLITE_TARGETS = ("tflm", "tflm-reference", "litert")
_OPENINGS = (
    ("--order-guarantee", "session"),
    ("--order-guarantee", "pins"),
    ("--order-guarantee", "default"),
    ("--session", "default"),
)
_WRONG = ("Traceback (most recent call last)", "internal error")


@dataclass(frozen=True, slots=True)
class Case:
    """A command line, and the files that it writes if it succeeds.

    Attributes:
        many: Whether it goes on after a model that is refused, and says so in that model's line of progress.
    """

    name: str
    words: tuple[str, ...]
    writes: tuple[Path, ...] = ()
    many: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command ended.

    Attributes:
        wrong: What must not happen; None if nothing of that did.
        told: The kind of end, for the table.
    """

    told: str
    wrong: str | None
    seconds: float


def cases(model: Path, folder: Path, options: Sequence[str], effort: float) -> Iterator[Case]:
    """Yield what is run on a model; reports are shown after what makes them."""
    tflite = model.suffix == ".tflite"
    limit = ("--effort", f"{effort:g}")
    targets = [("--target", name) for name in _TFLITE_TARGETS] if tflite else [()]
    for target in targets:
        yield Case(f"analyze {' '.join(target)}", ("analyze", str(model), *target, *options))
    for target in targets:
        for number, level in enumerate((*_LEVELS, *(() if tflite else _OPENINGS))):
            out = folder / f"{number}{''.join(target[1:])}{model.suffix}"
            report = out.with_suffix(".json")
            words = ("optimize", str(model), "-o", str(out), "--report", str(report), *target, *level, *limit, *options)
            yield Case(f"optimize {' '.join((*target, *level))}", words, (out, report))
            yield Case("report", ("report", str(report), "-o", str(out.with_suffix(".html"))))
    yield Case("pipeline", ("pipeline", str(model), "--stages", "2", "-o", str(folder / "pipeline"), *options))
    distribute = ("distribute", str(model), "--cluster", "pi4x4", "--method", "even", "--no-run")
    yield Case("distribute", (*distribute, "-o", str(folder / "distribute"), *options))
    if tflite:
        relay = ("relay", str(model), "-o", str(folder / "relay"), "--target", "tflm", *limit)
        yield Case("relay", (*relay, *options))


def run(case: Case, timeout: float) -> Ending:
    """Run a command as a user does."""
    started = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name != DEFECTS}
    try:
        done = subprocess.run(
            [*_MEMSCHED, *case.words],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env=environment,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return Ending("no end", f"no end within {timeout:g} s", timeout)
    return judge(case, done.returncode, done.stdout, done.stderr, time.monotonic() - started)


def judge(case: Case, code: int, out: str, err: str, seconds: float) -> Ending:
    """Return what a command's end means."""
    wrong = next((line for line in (out + err).splitlines() if any(sign in line for sign in _WRONG)), None)
    errors = [line for line in err.splitlines() if line.startswith("memsched: error:")]
    if wrong is None and code not in {0, 1, 2, 3}:
        wrong = f"exit code {code}"
    if wrong is None and code in {1, 2} and not case.many and (len(errors) != 1 or len(err.splitlines()) != 1):
        wrong = f"{len(err.splitlines())} lines of error, exit code {code}"
    if wrong is None and code == 0 and (missing := [path.name for path in case.writes if not path.exists()]):
        wrong = f"exit code 0 without {', '.join(missing)}"
    if wrong is not None:
        return Ending("wrong", wrong, seconds)
    if code in {1, 2}:
        return Ending("refused", None, seconds)
    return Ending("left out" if "was left out" in out else "ok", None, seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 1 if anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of models, or models")
    parser.add_argument("--effort", type=float, default=1.0)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds for each command")
    parser.add_argument("--only", default="", help="names of commands, separated by commas")
    asked = parser.parse_args(arguments)
    only = frozenset(asked.only.split(",")) - {""}
    count: Counter[str] = Counter()
    for place in asked.folders:
        models = sorted([*place.glob("*.onnx"), *place.glob("*.tflite")]) if place.is_dir() else [place]
        known = place / "dims.json"
        options = json.loads(known.read_text()) if known.is_file() else {}
        with tempfile.TemporaryDirectory(prefix="every-") as scratch:
            for number, model in enumerate(models):
                folder = Path(scratch) / str(number)
                folder.mkdir()
                for case in cases(model, folder, options.get(model.name, ()), asked.effort):
                    if only and case.words[0] not in only:
                        continue
                    if case.words[0] == "report" and not Path(case.words[1]).exists():
                        continue
                    ending = run(case, asked.timeout)
                    count[ending.told] += 1
                    line = f"{ending.told:9} {ending.seconds:6.1f} s  {model.name}: {case.name}"
                    print(f"{line}  {ending.wrong}" if ending.wrong else line, flush=True)
            if place.is_dir() and (not only or "batch" in only):
                words = ("batch", str(place), "-o", f"{scratch}/batch", "--effort", f"{asked.effort:g}")
                ending = run(Case("batch", words, many=True), asked.timeout * max(1, len(models)))
                count[ending.told] += 1
                print(f"{ending.told:9} {ending.seconds:6.1f} s  {place}: batch  {ending.wrong or ''}".rstrip())
    print(", ".join(f"{times} {told}" for told, times in sorted(count.items())))
    return int(count["wrong"] + count["no end"] > 0)


if __name__ == "__main__":
    sys.exit(main())
