"""How long commands take beyond their time limit, alone and with other work on every core.

`python -m scripts.bench.limits --seconds 5 10 20 --busy 0 2`. The seconds are those of the whole process with
``--no-verify``; starting Python and importing, about a second, is in them.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_REWRITES = ["--allow", "reorder,inplace,tile,remat"]
_CASES = {
    "nasnetmobile_int8": ["models/nasnetmobile_int8.tflite"],
    "nasnetmobile_int8, 1 KB": ["models/nasnetmobile_int8.tflite", *_REWRITES, "--budget", "1KB"],
    "person_detect, 19353": ["models/person_detect.tflite", "--target", "tflm", *_REWRITES, "--budget", "19353"],
    "person_detect, 1 KB": ["models/person_detect.tflite", "--target", "tflm", *_REWRITES, "--budget", "1KB"],
}


def _spin() -> None:
    while True:
        pass


@contextlib.contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keep ``count`` processes computing nothing."""
    others = [multiprocessing.get_context("spawn").Process(target=_spin, daemon=True) for _ in range(count)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def _seconds(arguments: list[str], limit: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        name = Path(folder) / f"out{Path(arguments[0]).suffix}"
        command = [sys.executable, "-m", "memsched", "optimize", *arguments, "-o", str(name), "-q", "--no-verify"]
        started = time.monotonic()
        done = subprocess.run([*command, "--time-limit", str(limit)], cwd=_ROOT, capture_output=True, check=False)
        seconds = time.monotonic() - started
        if done.returncode not in {0, 3} or not name.is_file():
            raise SystemExit(f"{' '.join(command)}: {done.stderr.decode()}")
    return seconds


def main() -> int:
    """Print a table; 1 where a run took longer than its limit by more than a tenth and by more than two seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, nargs="+", default=[5.0, 10.0, 20.0], help="time limits")
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 2], help="processes that compute beside")
    args = parser.parse_args()
    late = 0
    print("| model, budget | limit, s | busy beside | took, s | beyond, s |\n|---|---|---|---|---|")
    for count in args.busy:
        with _busy(count):
            for name, arguments in _CASES.items():
                for limit in args.seconds:
                    took = _seconds(arguments, limit)
                    beyond = max(0.0, took - limit)
                    late += beyond > max(2.0, limit / 10)
                    print(f"| {name} | {limit:g} | {count} | {took:.1f} | {beyond:.1f} |", flush=True)
    return int(late > 0)


if __name__ == "__main__":
    sys.exit(main())
