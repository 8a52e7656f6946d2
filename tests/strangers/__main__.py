"""Optimise models that strangers wrote, in every way, and run what comes out.

    python -m tests.strangers

Four suites: `backend`, the ONNX backend tests as whole models; `cells`, larger models around the operators of the node
tests; `packages`, the models that installed packages carry; `generated`, valid graphs that a solver chose. Right is a
file that computes the same, or a refusal in one line; all else is a failure, which is printed, and the command ends
with 1. It takes an hour on two cores: one in four cells and generated models; `--whole` runs them all. `--suites`,
`--match TEXT` and `--every N` run fewer.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tests.strangers import backend, generated, packages
from tests.strangers.judge import Subject, judge
from tests.strangers.ways import ONNX_WAYS, TFLITE_WAYS, VERIFIED, Way

SUITES: dict[str, Callable[[], Sequence[Subject]]] = {
    "backend": backend.whole,
    "cells": backend.celled,
    "packages": packages.carried,
    "generated": generated.graphs,
}

_EVERY = {"backend": 1, "cells": 4, "packages": 1, "generated": 4}
"""One in so many is judged, so that all suites take an hour."""

_VERIFIED_EVERY = {"backend": 8, "cells": 64, "packages": 1, "generated": 32}
"""One in so many is run by `optimize` itself, too."""

_OF_LARGE = {"all", "default"}
"""Of models with hundreds of megabytes of weights."""

_SECONDS = 900
"""After so long without a word a process is taken to hang."""


def main() -> int:
    """Run; 1 where a result was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suites", default=",".join(SUITES))
    parser.add_argument("--match", default="", help="only models whose name has this in it")
    parser.add_argument("--every", type=int, default=1, help="only one in so many of these")
    parser.add_argument("--whole", action="store_true", help="all cells and generated models (about four hours)")
    parser.add_argument("--unverified", action="store_true", help="leave out what `optimize` runs itself")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="every outcome, a line of JSON each")
    parser.add_argument("--child", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    chosen = args.suites.split(",")
    if args.child:
        _child(_subjects(chosen, args.match, args.every, whole=args.whole), *args.child, unverified=args.unverified)
        return 0
    started = time.monotonic()
    lines = _Lines(args.out)
    words = ["--suites", args.suites, "--match", args.match, "--every", str(args.every)]
    words += ["--whole"] if args.whole else []
    words += ["--unverified"] * args.unverified
    threads = [
        threading.Thread(target=_follow, args=(words, share, args.processes, lines)) for share in range(args.processes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _tell(chosen, lines)
    print(f"{time.monotonic() - started:.0f} s")
    return any(line["verdict"] == "FAILED" for line in lines)


class _Lines(list[dict[str, str]]):
    """Outcomes, which a file has at once."""

    def __init__(self, path: Path | None) -> None:
        super().__init__()
        self._path = path
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("", encoding="utf-8")

    def append(self, line: dict[str, str]) -> None:
        super().append(line)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(line)}\n")


def _subjects(suites: Sequence[str], match: str, every: int, *, whole: bool) -> list[tuple[int, Subject]]:
    steps = {suite: every if whole or match else every * _EVERY[suite] for suite in suites}
    return [
        (number, subject)
        for suite in suites
        for number, subject in enumerate(SUITES[suite]())
        if match in subject.name and number % steps[suite] == 0
    ]


def _ways(number: int, subject: Subject) -> tuple[Way, ...]:
    if subject.model[4:8] == b"TFL3":
        return TFLITE_WAYS
    if subject.name.startswith("light/"):
        return tuple(way for way in (*ONNX_WAYS, *VERIFIED) if way.name in _OF_LARGE)
    return (*ONNX_WAYS, *(VERIFIED if number % _VERIFIED_EVERY[subject.suite] == 0 else ()))


def _child(subjects: Sequence[tuple[int, Subject]], share: int, step: int, *, unverified: bool) -> None:
    """Judge every ``step``-th model from ``share`` on, and say before and after what becomes of it."""
    for place in range(share, len(subjects), step):
        number, subject = subjects[place]
        begun = {"suite": subject.suite, "model": subject.name, "place": str(place)}
        print(json.dumps(begun), flush=True)
        ways = [way for way in _ways(number, subject) if not (unverified and way.verified)]
        for way, outcome in zip(ways, judge(subject, ways), strict=True):
            told = {**begun, "way": way.name, "verdict": outcome.verdict, "reason": outcome.reason}
            print(json.dumps(told), flush=True)


def _follow(words: Sequence[str], share: int, step: int, lines: list[dict[str, str]]) -> None:
    """Read what a child says; where it ends in the middle, note the model that ended it and go on behind it."""
    place: int | None = share
    while place is not None:
        place = _until_it_ends(words, place, step, lines)


def _until_it_ends(words: Sequence[str], first: int, step: int, lines: list[dict[str, str]]) -> int | None:
    command = [sys.executable, "-m", "tests.strangers", *words, "--child", str(first), str(step)]
    begun: dict[str, str] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        heard: list[str] = []
        errors = threading.Thread(target=lambda: heard.extend(child.stderr or ()))
        errors.start()
        for text in _watched(child):
            if not text.startswith('{"suite"'):
                continue
            said = json.loads(text)
            if "verdict" not in said:
                begun = said
                continue
            lines.append(said)
            if said["verdict"] == "FAILED":
                print(f"--- {said['suite']} {said['model']} ({said['way']}): {said['reason']}", flush=True)
        errors.join()
    if child.returncode == 0 or not begun:
        if child.returncode:
            print("".join(heard[-20:]), file=sys.stderr)
            lines.append({"suite": "", "model": "", "way": "", "verdict": "FAILED", "reason": "no process started"})
        return None
    reason = f"the process ended with {child.returncode}: {''.join(heard[-3:])[:400]}"
    print(f"--- {begun['suite']} {begun['model']}: {reason}", flush=True)
    lines.append({**begun, "way": "any", "verdict": "FAILED", "reason": reason})
    return int(begun["place"]) + step


def _watched(child: subprocess.Popen[str]) -> Iterator[str]:
    """Yield what a process says, and end it where it says nothing for too long."""
    assert child.stdout is not None
    while True:
        silence = threading.Timer(_SECONDS, child.kill)
        silence.start()
        try:
            text = child.stdout.readline()
        finally:
            silence.cancel()
        if not text:
            return
        yield text


def _tell(suites: Sequence[str], lines: Sequence[dict[str, str]]) -> None:
    for suite in suites:
        own = [line for line in lines if line["suite"] == suite]
        counts = Counter(line["verdict"] for line in own)
        models = len({line["model"] for line in own})
        told = ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(counts.items()))
        print(f"{suite}: {models:,} models, {len(own):,} runs: {told}")
    reasons = Counter(_kind(line["reason"]) for line in lines if line["verdict"] == "refused")
    for reason, count in reasons.most_common(40):
        print(f"  {count:6,} refused: {reason}")


def _kind(reason: str) -> str:
    """Return a reason without its names and numbers."""
    return re.sub(r"\d[\d,.]*", "N", re.sub(r"'[^']*'|\"[^\"]*\"", "'...'", reason))[:160]


if __name__ == "__main__":
    sys.exit(main())
