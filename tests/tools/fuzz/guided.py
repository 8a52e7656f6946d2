"""Fuzz by coverage: `python -m tests.tools.fuzz.guided --kind tflite --seconds 300` (needs atheris: the extra `fuzz`).

What a changed file newly reaches in the readers decides whether it is changed further (libFuzzer by way of atheris).
The changes are those of `tests.tools.fuzz`, and libFuzzer's own to bytes; so are the valid files and the verdict. What
ends a run, a defect, is kept as a file, and the next run begins: `--case FILE` executes such a file again.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import random
import re
import resource
import subprocess
import sys
import time
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from tests.tools.fuzz.execute import HANG_SECONDS, execute
from tests.tools.fuzz.kinds import KINDS

_READERS: dict[str, tuple[str, ...]] = {
    "onnx": ("memsched.formats.files", "memsched.formats.onnx_*"),
    "tflite": ("memsched.formats.files", "memsched.formats.tflite_*"),
    "csv": ("memsched.formats.buffers_csv", "memsched.commands.allocate"),
    "target": ("memsched.targets.load", "tomllib._parser"),
    "cluster": ("memsched.targets.cluster", "tomllib._parser"),
    "report": ("memsched.report.reading", "memsched.report.page"),
    "diff": ("memsched.commands.diff", "memsched.report.diff"),
    "plan": ("memsched.features.distribute.report",),
    "list": ("memsched.commands.batch.inputs",),
}
"""Modules whose coverage guides, with all of memsched that they import at once."""

_PACKAGES = ["memsched", "tomllib"]
_STRUCTURED = 0.6
"""Of the changes: the others are libFuzzer's."""
_ANEW = 0.25
"""Of the former: they begin from a valid file, not from what was reached."""
_LONGEST = 1 << 16
_MEMORY_MB = 2048
_TOLD = 500
"""Executions between two counts."""
_STATUS = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
_EXECUTIONS = re.compile(r"^#(\d+)\s", re.MULTILINE)


def main() -> int:
    """Fuzz the kinds that the command line names; 1 where a defect was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", help="by default all, one after the other")
    parser.add_argument("--seconds", type=int, default=300, help="per kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("build/fuzz/guided"), help="folder for corpora and defects")
    parser.add_argument("--case", type=Path, help="execute this file again, as of the one --kind, and say what happens")
    parser.add_argument("--work", nargs=3, metavar=("KIND", "SEED", "SECONDS"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        data = args.case.read_bytes()
        outcome, message = execute((args.kind or ["onnx"])[0], data, _number(data))
        print(f"{outcome}: {message}")
        return outcome == "defect"
    if importlib.util.find_spec("atheris") is None:
        parser.error("needs atheris, which is not installed: pip install atheris (Linux, Python before 3.14)")
    if args.work:
        _work(args.work[0], int(args.work[1]), int(args.work[2]), args.out)
    found = [_guide(kind, args.seconds, args.seed, args.out) for kind in args.kind or KINDS]
    return any(one["defects"] for one in found)


def _number(data: bytes) -> int:
    """Return the number that decides how a file is read: of its bytes, so that it is the same whenever it is read."""
    return zlib.crc32(data)


def _guide(kind: str, seconds: int, seed: int, out: Path) -> dict[str, Any]:
    """Run workers until the time is over; each ends with the first defect that it finds."""
    folder = out / kind
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for place, data in enumerate(KINDS[kind].seeds()):
        (corpus / f"seed-{place}").write_bytes(data)
    started = time.monotonic()
    counts: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    reached, executed, runs = {"edges": 0, "features": 0, "corpus": 0}, 0, 0
    while (left := round(seconds - (time.monotonic() - started))) > 0:
        log = folder / f"log-{runs}.txt"
        command = [sys.executable, "-m", "tests.tools.fuzz.guided", "--out", str(out)]
        command += ["--work", kind, str(seed + runs), str(left)]
        with log.open("wb") as errors:
            code = subprocess.run(
                command, stdout=subprocess.DEVNULL, stderr=errors, cwd=Path(__file__).resolve().parents[3], check=False
            ).returncode
        text = log.read_text(errors="replace")
        executed += max((int(found) for found in _EXECUTIONS.findall(text)), default=0)
        for edges, features, files in _STATUS.findall(text)[-1:]:
            reached = {"edges": int(edges), "features": int(features), "corpus": int(files)}
        counts.update(json.loads(_counts(folder).read_text()))
        runs += 1
        if code:
            lines = [line for line in text.split("\n") if line.strip() and not line.startswith(("INFO", "#"))]
            reason = next((line for line in lines if line.startswith("defect: ")), f"the process ended with {code}")
            messages[reason[:200]] += 1
            print(f"  {kind}: {reason[:200]} (log {log})", flush=True)
    result = {
        "seconds": round(time.monotonic() - started),
        "executions": executed,
        **reached,
        **{outcome: counts[outcome] for outcome in ("accepted", "refused")},
        "defects": sum(messages.values()),
        "messages": dict(messages),
    }
    (folder / "summary.json").write_text(json.dumps(result, indent=2) + "\n")
    shown = ", ".join(f"{name} {value:,}" for name, value in result.items() if isinstance(value, int))
    print(f"{kind}: {shown}", flush=True)
    return result


def _counts(folder: Path) -> Path:
    return folder / "counts.json"


def _modules(kind: str) -> list[str]:
    names = []
    for pattern in _READERS[kind]:
        package, _, module = pattern.rpartition(".")
        folder = Path(__file__).resolve().parents[3].joinpath(*package.split("."))
        found = sorted(path.stem for path in folder.glob(f"{module}.py"))
        names += [f"{package}.{stem}" for stem in found] or [pattern]
    return names


def _work(kind: str, seed: int, seconds: int, out: Path) -> None:
    """Fuzz until the time is over or a defect was found; does not return."""
    import atheris

    for name in [name for name in sys.modules if name.partition(".")[0] == "tomllib"]:
        del sys.modules[name]  # so that it is imported again, under instruments; the mutations keep theirs
    with atheris.instrument_imports(include=_PACKAGES):
        for name in _modules(kind):
            importlib.import_module(name)
    folder = out / kind
    seeds = list(KINDS[kind].seeds())
    counts: Counter[str] = Counter()
    _counts(folder).write_text("{}")

    def test_one(data: bytes) -> None:
        outcome, message = execute(kind, data, _number(data))
        counts[outcome] += 1
        if sum(counts.values()) % _TOLD == 0 or outcome == "defect":
            _counts(folder).write_text(json.dumps(counts))
        if outcome == "defect":
            last = [line for line in message.split("\n") if line.strip()][-1:]
            print(f"{message}\ndefect: {''.join(last)}", file=sys.stderr, flush=True)
            raise AssertionError("a defect")

    def mutate(data: bytes, longest: int, number: int) -> bytes:
        rng = random.Random(number)
        if rng.random() < _STRUCTURED:
            try:
                valid = rng.random() < _ANEW
                changed = KINDS[kind].mutated(rng.choice(seeds) if valid else data, rng)
            except Exception:  # what coverage made of a valid file need not be one that can be taken apart
                changed = b""
            if 0 < len(changed) <= longest:
                return changed
        result: bytes = atheris.Mutate(data, longest)
        return result

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    options = [
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={_LONGEST}",
        f"-timeout={3 * HANG_SECONDS}",
        f"-rss_limit_mb={_MEMORY_MB}",
        f"-artifact_prefix={folder}/",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(folder / "corpus")], test_one, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
