"""Fuzz the readers: `python -m tests.tools.fuzz --executions 1000000`, or look at one case again with `--case onnx 17`.

Every case follows from its kind and number alone. A worker process that dies, hangs or takes more memory than
permitted is a defect of the case that it was at; it is started again behind it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.tools.fuzz.execute import HANG_SECONDS, execute, work
from tests.tools.fuzz.kinds import KINDS, case

_SHARES = {
    "onnx": 0.2,
    "tflite": 0.3,
    "csv": 0.1,
    "target": 0.1,
    "cluster": 0.1,
    "report": 0.1,
    "diff": 0.06,
    "plan": 0.02,
    "list": 0.02,
}
_CHUNK = 2_000
"""Cases per worker process: long enough that starting one costs little, short enough that leaks do not add up."""

_MEMORY = 2 * 2**30
"""Bytes of resident memory that a worker may reach."""

_ADDRESSES = 8 * 2**30
"""Bytes of address space: libraries map more than they use."""

_POLL_SECONDS = 0.2

_KEPT_ALIKE = 3
"""Defects with the same last line that are kept."""

_SHOWN = 200
"""Characters of a message that are shown."""


@dataclass(slots=True)
class _Found:
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    defects: list[dict[str, object]] = field(default_factory=list)


def main() -> int:
    """Run what the command line asks for; 1 where a defect was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--executions", type=int, default=10_000, help="over all kinds, by their shares")
    parser.add_argument("--kind", choices=sorted(KINDS), help="this kind alone")
    parser.add_argument("--first", type=int, default=0, help="number of the first case of every kind")
    parser.add_argument("--case", nargs=2, metavar=("KIND", "NUMBER"), help="execute one case and print what happens")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="folder for defects and the summary")
    parser.add_argument("--work", nargs=4, metavar=("KIND", "FIRST", "LAST", "PROGRESS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        resource.setrlimit(resource.RLIMIT_AS, (_ADDRESSES, _ADDRESSES))
        work(args.work[0], int(args.work[1]), int(args.work[2]), Path(args.work[3]))
        return 0
    if args.case:
        outcome, message = execute(args.case[0], case(args.case[0], int(args.case[1])), int(args.case[1]))
        print(f"{outcome}: {message}")
        return outcome == "defect"
    shares = {args.kind: 1.0} if args.kind else _SHARES
    args.out.mkdir(parents=True, exist_ok=True)
    started, defects, summary = time.monotonic(), 0, {}
    for name, share in shares.items():
        kind_started = time.monotonic()
        found = _fuzz(name, args.first, args.first + round(args.executions * share), args.out)
        defects += found.counts["defect"]
        seconds = time.monotonic() - kind_started
        summary[name] = {**found.counts, "seconds": round(seconds, 1), "defects_found": found.defects}
        counts = ", ".join(f"{count:,} {outcome}" for outcome, count in sorted(found.counts.items()))
        print(f"{name}: {counts}; {seconds:.0f} s", flush=True)
    (args.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    print(f"{defects} defects in {time.monotonic() - started:.0f} s; {args.out}/summary.json")
    return defects > 0


def _fuzz(name: str, first: int, last: int, out: Path) -> _Found:
    found = _Found()
    while first < last:
        end = min(first + _CHUNK, last)
        first = _run(name, first, end, out, found)
    return found


def _run(name: str, first: int, last: int, out: Path, found: _Found) -> int:
    """Run one worker on [first, last); return the case at which to go on."""
    with tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "progress"
        progress.touch()
        command = [sys.executable, "-m", "tests.tools.fuzz", "--work", name, str(first), str(last), str(progress)]
        with (Path(folder) / "errors").open("w+") as errors:
            worker = subprocess.Popen(command, stderr=errors, cwd=Path(__file__).resolve().parents[3])
            reason = _watch(worker, progress)
            errors.seek(0)
            text = errors.read()
        lines = progress.read_text().split("\n")
    done = [line.split() for line in lines if line]
    found.counts.update(words[0] for words in done if words[0] != "start")
    for number in [int(words[1]) for words in done if words[0] == "defect"]:
        trace = text.partition(f"--- {name} {number}\n")[2].partition("\n--- ")[0]
        _keep(name, number, trace, out, found)
    started = [int(words[1]) for words in done if words[0] == "start"]
    if reason is None:
        return last
    at = started[-1] if started else first
    if done and done[-1] == ["start", str(at)]:
        found.counts["defect"] += 1
        _keep(name, at, f"{reason}\n{text[-2000:]}", out, found)
    return at + 1


def _watch(worker: subprocess.Popen[bytes], progress: Path) -> str | None:
    """Wait for a worker; return why it ended early, None where it did not."""
    size, since = -1, time.monotonic()
    while worker.poll() is None:
        time.sleep(_POLL_SECONDS)
        now = progress.stat().st_size
        if now != size:
            size, since = now, time.monotonic()
        elif time.monotonic() - since > 3 * HANG_SECONDS:
            worker.kill()
            worker.wait()
            return f"no signal for {3 * HANG_SECONDS} s: it hangs inside native code"
        if _resident(worker.pid) > _MEMORY:
            worker.kill()
            worker.wait()
            return "more than 2 GB of memory"
    return None if worker.returncode == 0 else f"the process ended with {worker.returncode}"


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * resource.getpagesize()


def _keep(name: str, number: int, message: str, out: Path, found: _Found) -> None:
    """Note a defect; its file and traceback are kept for the first few with the same last line."""
    last = ([line for line in message.strip().split("\n") if line.strip()] or [""])[-1][:_SHOWN]
    found.kinds[last] += 1
    if found.kinds[last] > _KEPT_ALIKE:
        return
    found.defects.append({"case": number, "message": last})
    (out / f"{name}-{number}.bin").write_bytes(case(name, number))
    (out / f"{name}-{number}.txt").write_text(message)
    print(f"  defect: {name} {number}: {last}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
