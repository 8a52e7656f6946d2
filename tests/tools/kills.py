"""Kill memsched at random moments: its outputs are then the old ones, or the new ones, whole, in the order promised.

    python -m tests.tools.kills --runs 200
    python -m tests.tools.kills --command pipeline --runs 50

Each run starts over outputs of an earlier version, or over none, and is killed with SIGKILL: half of the runs after a
random share of the time that a whole run takes, the others while they write. Files that belong together take their
names one after the other, the one that describes them (report, plan.json, batch.json) behind those that it names: new
ones then stand before old ones, which is counted as `mixed`. Anything else is a defect: a file that is neither, a new
file behind an old one. Temporary files may be left behind: a killed process cannot remove them; how many is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

_MODELS = Path(__file__).resolve().parents[2] / "models"
_TEMPORARY = ".memsched-"
_POLL_SECONDS = 0.0005

Groups = list[list[str]]


@dataclass(frozen=True, slots=True)
class _Command:
    """What is run and killed.

    Attributes:
        arguments: Of a run that writes into a folder.
        groups: The names of the outputs that belong together, in the order in which they take their names.
    """

    arguments: Callable[[str], list[str]]
    groups: Callable[[Sequence[str]], Groups]


def _optimize(folder: str) -> list[str]:
    outputs = ["-o", f"{folder}/out.tflite", "--report", f"{folder}/out.json", "--header", f"{folder}/out.h"]
    return ["optimize", str(_MODELS / "nasnetmobile_int8.tflite"), *outputs, "--no-verify", "--force"]


def _pipeline(folder: str) -> list[str]:
    model = str(_MODELS / "networks/unetpp.onnx")
    return ["pipeline", model, "--stages", "4", "-o", folder, "--no-verify"]


def _distribute(folder: str) -> list[str]:
    model = str(_MODELS / "networks/unetpp.onnx")
    return ["distribute", model, "--cluster", "pi4x4", "--method", "even", "--no-run", "-o", folder, "--force"]


def _batch(folder: str) -> list[str]:
    models = [
        str(_MODELS / f"{name}.tflite") for name in ("hello_world_int8", "micro_speech_quantized", "person_detect")
    ]
    return ["batch", *models, "-o", folder, "--no-verify"]


def _last(name: str) -> Callable[[Sequence[str]], Groups]:
    """Return what puts all files into one group, that of the given ending last."""
    return lambda names: [sorted(names, key=lambda one: (one.endswith(name), one))]


def _of_batch(names: Sequence[str]) -> Groups:
    stems = sorted({Path(name).stem for name in names if "_memsched." in name})
    return [*([f"{stem}.tflite", f"{stem}.json"] for stem in stems), ["batch.csv", "batch.html", "batch.json"]]


_COMMANDS = {
    "optimize": _Command(_optimize, lambda _: [["out.tflite", "out.json", "out.h"]]),
    "pipeline": _Command(_pipeline, _last("_pipeline.json")),
    "distribute": _Command(_distribute, _last("plan.json")),
    "batch": _Command(_batch, _of_batch),
}


@dataclass(frozen=True, slots=True)
class _Whole:
    """A run that nothing kills: what it writes, and its seconds until the first temporary file and until its end."""

    contents: dict[str, bytes]
    until_writing: float
    seconds: float


def main() -> int:
    """Run and judge; 1 where a file was neither old nor new, or new behind an old one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", choices=_COMMANDS, default="optimize")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    command = _COMMANDS[args.command]
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        whole = _whole(command, folder / "whole")
        for run in range(args.runs):
            found.update(_killed(command, folder / str(run), whole, rng))
    print(
        f"{args.runs} runs of {args.command}, {len(whole.contents)} files, {whole.seconds:.1f} s: {_described(found)}"
    )
    return found["damaged"] + found["out of order"] > 0


def _start(command: _Command, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    arguments = [sys.executable, "-m", "memsched", *command.arguments(str(folder)), "--quiet"]
    return subprocess.Popen(arguments, stderr=subprocess.DEVNULL)


def _whole(command: _Command, folder: Path) -> _Whole:
    started = time.monotonic()
    process = _start(command, folder)
    _wait_for_writing(process, folder)
    writing = time.monotonic()
    if process.wait():
        raise SystemExit(f"the command ends with {process.returncode}")
    return _Whole(_contents(folder), writing - started, time.monotonic() - started)


def _wait_for_writing(process: subprocess.Popen[bytes], folder: Path) -> None:
    while process.poll() is None and not any(entry.name.startswith(_TEMPORARY) for entry in os.scandir(folder)):
        time.sleep(_POLL_SECONDS)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.startswith(_TEMPORARY)}


def _killed(command: _Command, folder: Path, whole: _Whole, rng: random.Random) -> Counter[str]:
    """Kill one run; return what became of its files."""
    folder.mkdir()
    old = {name: b"old " + name.encode() for name in whole.contents} if rng.random() < 0.5 else {}
    for name, before in old.items():
        (folder / name).write_bytes(before)
    process = _start(command, folder)
    if rng.random() < 0.5:
        _wait_for_writing(process, folder)
        time.sleep(rng.uniform(0, whole.seconds - whole.until_writing))
    else:
        time.sleep(whole.seconds * rng.uniform(0, 1.05))
    ended = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    found = Counter([_judged(command.groups(list(whole.contents)), old, whole.contents, _contents(folder))])
    found["ended before the kill"] += ended
    found["temporary files left"] += sum(1 for _ in folder.glob(f"{_TEMPORARY}*"))
    return found


def _judged(groups: Groups, old: dict[str, bytes], new: dict[str, bytes], left: dict[str, bytes]) -> str:
    if set(left) - set(new):
        return "damaged"
    states = [[_state(name, left.get(name), old.get(name), new[name]) for name in group] for group in groups]
    every = [state for group in states for state in group]
    if "damaged" in every:
        return "damaged"
    if any(group != sorted(group) for group in states):  # "new" is before "old" in the alphabet, too
        return "out of order"
    return every[0] if len(set(every)) == 1 else "mixed"


def _state(name: str, data: bytes | None, old: bytes | None, new: bytes) -> str:
    if data == old:
        return "old"
    return "new" if data == new or (data is not None and _is_whole(name, data, new)) else "damaged"


def _is_whole(name: str, data: bytes, new: bytes) -> bool:
    """Return whether a file that states how long its making took has an end."""
    if name.endswith(".json"):
        with contextlib.suppress(ValueError):
            return bool(json.loads(data))
    if name.endswith(".html"):
        return data.endswith(new[-8:])
    return name.endswith(".csv") and data.endswith(b"\n") and data.count(b"\n") == new.count(b"\n")


def _described(found: Counter[str]) -> str:
    words = ("old", "new", "mixed", "out of order", "damaged", "ended before the kill", "temporary files left")
    return ", ".join(f"{found[word]} {word}" for word in words)


if __name__ == "__main__":
    sys.exit(main())
