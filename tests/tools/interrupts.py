"""How long `memsched optimize` goes on after Ctrl-C, and what it does then.

    python -m tests.tools.interrupts --moments 2 5 10 20 --busy 2

Each run gets SIGINT after so many seconds. It has to end with 130 and the best result so far whole, or with 130, one
line and nothing written. Until it ends, it is asked twenty times a second where it is: what most of that time went into
comes last, as the place among the pipelines and the function of the package that it called.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_EVERY_SECONDS = 0.05
_SITE = """
import faulthandler, signal
signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # what is left of it when Python ends
faulthandler.register(signal.SIGUSR1, file=open({path!r}, "w"), all_threads=True)
"""
_FRAME = re.compile(r'  File ".*/memsched/(\S+)\.py", line (\d+) in (\S+)')
_SPIN = "while True: pass"


def main() -> int:
    """Measure and print; 1 where a run ended otherwise than promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=float, nargs="+", default=[2.0, 5.0, 10.0, 20.0], metavar="SECONDS")
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside")
    parser.add_argument("--model", type=Path, default=_ROOT / "models/nasnetmobile_int8.tflite")
    parser.add_argument("--budget", default="1KB")
    args = parser.parse_args()
    spinning = [subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(args.busy)]
    wrong = False
    try:
        for moment in args.moments:
            with tempfile.TemporaryDirectory() as name:
                wrong |= _interrupted(args.model, args.budget, moment, Path(name))
    finally:
        for process in spinning:
            process.kill()
    return wrong


def _interrupted(model: Path, budget: str, moment: float, folder: Path) -> bool:
    """Interrupt one run, print what became of it, and return whether that was not as promised."""
    (folder / "site").mkdir()
    (folder / "outputs").mkdir()
    stacks = folder / "stacks"
    (folder / "site/sitecustomize.py").write_text(_SITE.format(path=str(stacks)))
    command = [sys.executable, "-m", "memsched", "optimize", str(model), "--budget", budget, "--keep-best", "--quiet"]
    command += ["--allow", "reorder,inplace,tile,remat", "--time-limit", "300", "--no-verify"]
    command += ["-o", str(folder / "outputs" / f"out{model.suffix}")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(folder / "site"), str(_ROOT)))}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        time.sleep(moment)
        ended = process.poll() is not None
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        while process.poll() is None:
            time.sleep(_EVERY_SECONDS)
            process.send_signal(signal.SIGUSR1)
        seconds = time.monotonic() - started
        errors = process.stderr.read() if process.stderr is not None else ""
    written = sorted(path.name for path in (folder / "outputs").iterdir())
    whole = written == ["out.json", f"out{model.suffix}"] or (not written and errors.endswith("nothing was written\n"))
    wrong = not ended and not (process.returncode == 130 and whole and errors.count("\n") in {1, 2})
    places = "; ".join(f"{count * _EVERY_SECONDS:.1f} s {place}" for place, count in _places(stacks).most_common(6))
    print(
        f"{model.name} after {moment:g} s{' (ended before)' if ended else ''}: {seconds:.1f} s more, code "
        f"{process.returncode}{', NOT AS PROMISED: ' + errors if wrong else ''}, {len(written)} files; {places}",
        flush=True,
    )
    return wrong


def _places(stacks: Path) -> Counter[str]:
    """Count where the main thread was: its innermost frame beside compiler.py, and what that called."""
    found: Counter[str] = Counter()
    if not stacks.exists():
        return found
    for stack in re.split(r"\n(?=(?:Current t|T)hread)", stacks.read_text()):
        frames = _FRAME.findall(stack)
        if not any(module == "cli/main" for module, _, _ in frames):
            continue
        at = next((index for index, frame in enumerate(frames) if "/" not in frame[0]), 0)
        (module, line, function), called = frames[at], frames[max(0, at - 1)]
        found[f"{module}:{line} {function} > {called[0]} {called[2]}"] += 1
    return found


if __name__ == "__main__":
    sys.exit(main())
