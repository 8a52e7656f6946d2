"""Kill `memsched optimize` at random moments: its outputs are then the old ones, or the new ones, whole.

    python -m scripts.kill_runs --runs 200

Each run starts over outputs of an earlier version, or over none, is killed with SIGKILL after a random share of the
time that a whole run takes, and its files are compared with both. Files under temporary names may be left behind: a
killed process cannot remove them; how many is printed.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

_MODEL = Path(__file__).resolve().parents[1] / "models" / "nasnetmobile_int8.tflite"


def main() -> int:
    """Run and judge; 1 where a file was neither old nor new."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path, default=_MODEL)
    args = parser.parse_args()
    rng = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        started = time.monotonic()
        _start(args.model, folder / "whole").wait()
        seconds = time.monotonic() - started
        new = _contents(folder / "whole")
        found: Counter[str] = Counter()
        for run in range(args.runs):
            found.update(_killed(args.model, folder / str(run), seconds, new, rng))
    print(f"{args.runs} runs of {args.model.name} killed within {seconds:.1f} s each: {_described(found)}")
    return found["damaged"] > 0


def _start(model: Path, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "memsched", "optimize", str(model), "-o", str(folder / "out.bin"), "--no-verify"]
    command += ["--report", str(folder / "out.json"), "--header", str(folder / "out.h"), "--quiet", "--force"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("out.*"))}


def _killed(model: Path, folder: Path, seconds: float, new: dict[str, bytes], rng: random.Random) -> Counter[str]:
    """Kill one run; return what became of its files."""
    folder.mkdir()
    old = {name: b"old " + name.encode() for name in new} if rng.random() < 0.5 else {}
    for name, before in old.items():
        (folder / name).write_bytes(before)
    process = _start(model, folder)
    # Half of the runs are killed near the end, where files are written.
    time.sleep(seconds * (rng.uniform(0.9, 1.05) if rng.random() < 0.5 else rng.uniform(0, 1.05)))
    ended = process.poll() is not None
    process.send_signal(signal.SIGKILL)
    process.wait()
    found: Counter[str] = Counter()
    left = _contents(folder)
    states = set()
    for name, expected in new.items():
        data = left.get(name)
        # A report states how long it took: it is whole when it ends as JSON does.
        whole = data == expected or (name.endswith(".json") and data is not None and data.endswith(b"}\n"))
        states.add("old" if data == old.get(name) else "new" if whole else "damaged")
    found["damaged" if "damaged" in states else "mixed" if len(states) > 1 else states.pop()] += 1
    found["ended before the kill"] += ended
    found["temporary files left"] += len(list(folder.glob(".memsched-*")))
    return found


def _described(found: Counter[str]) -> str:
    words = ("old", "new", "mixed", "damaged", "ended before the kill", "temporary files left")
    return ", ".join(f"{found[word]} {word}" for word in words)


if __name__ == "__main__":
    sys.exit(main())
