"""Freeze what memsched writes and says, and later compare: a change of the code's shape changes none of it.

    python -m tests.tools.freeze --save build/frozen.json       before
    python -m tests.tools.freeze --compare build/frozen.json    after; lists what differs by command and file

Every command runs once, on the models of ``models/`` and ``models/networks/`` among others, where its search ends by
itself or by ``--effort``: the result does not depend on the machine. Models, reports, headers, tables, pages, exit
codes and what is printed count; seconds do not. ``--keep FOLDER`` keeps the files to look at, ``--checkout DIR``
freezes another checkout's memsched, ``--only PART`` takes commands in which that occurs. Ten minutes on one core;
``--folder`` adds the models of a folder, ``--random 200`` so many that nobody wrote: ten more.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path

from scripts.bench.runner.models import light_model
from tests.strangers.generated import generate
from tests.tools.written import ROOT, Case, World, cases, fix_time, outcome, run

__all__ = ["differences", "frozen_cases"]

Frozen = Mapping[str, Mapping[str, str]]
"""By command line: the digest of each file and of each section of each report, and the exit code as one of them."""

_PART = " / "
"""Between a report and one of its sections."""

_EFFORT = ("--effort", "2")
_ALL = ("--allow", "all", "--max-extra-macs", "50")
_NO_RUN = ("--no-verify",)
_TO_REPORT = ("--report", "out.json")
_TARGET = """\
extends = "tflm"
name = "two-memories"

[[pools]]
name = "fast"
size = "24KB"
cost = 1

[[pools]]
name = "slow"
cost = 10
"""


def main() -> int:
    """Freeze or compare; 1 where something differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--save", type=Path, metavar="FILE", help="write the digests there")
    asked.add_argument("--compare", type=Path, metavar="FILE", help="compare with the digests there")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep what was written, a folder per command")
    parser.add_argument("--checkout", type=Path, default=ROOT, help="whose memsched runs; default: this one's")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="commands side by side; default: 1")
    parser.add_argument("--only", default="", metavar="PART", help="only commands in which this occurs")
    parser.add_argument("--folder", type=Path, action="append", default=[], metavar="FOLDER", help="of further models")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="generated models")
    args = parser.parse_args()
    before: Frozen = json.loads(args.compare.read_text(encoding="utf-8")) if args.compare else {}
    after: dict[str, Mapping[str, str]] = {}
    since, wrong = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as base, ThreadPoolExecutor(args.jobs) as pool:
        world = World("plain", root=args.checkout.resolve())
        commands = {
            shlex.join(case.arguments): case
            for case in (*frozen_cases(Path(base), world), *_further(Path(base), args.folder, args.random))
            if args.only in shlex.join(case.arguments)
        }
        kept = [args.keep and args.keep / f"{number:03d}" for number in range(len(commands))]
        for command, digests in zip(commands, pool.map(_frozen, commands.values(), repeat(world), kept), strict=True):
            after[command] = digests
            if args.compare:
                found = differences({command: before[command]} if command in before else {}, {command: after[command]})
                wrong += bool(found)
                for line in found:
                    print(line, flush=True)
    if args.compare:
        gone = [command for command in before if command not in after and args.only in command]
        for command in gone:
            print(f"{command}: is not among the commands any more")
        print(f"{len(after)} commands in {time.monotonic() - since:.0f} s: {wrong + len(gone)} differ")
        return wrong + len(gone) > 0
    args.save.parent.mkdir(parents=True, exist_ok=True)
    args.save.write_text(json.dumps(after, indent=1) + "\n", encoding="utf-8")
    files = sum(len(digests) for digests in after.values())
    print(f"{args.save}: {len(after)} commands, {files} files and codes, in {time.monotonic() - since:.0f} s")
    return 0


def differences(before: Frozen, after: Frozen) -> list[str]:
    """Return a line for each file of each command that is not what it was, or is there only before or after."""
    found = []
    for command in sorted({*before, *after}):
        if command not in before or command not in after:
            found.append(f"{command}: {'new' if command in after else 'gone'}")
            continue
        old, new = before[command], after[command]
        names = [name for name in sorted({*old, *new}) if _PART not in name and old.get(name) != new.get(name)]
        found += [f"{command}: {name} {_how(name, old, new)}" for name in names]
    return found


def _how(name: str, old: Mapping[str, str], new: Mapping[str, str]) -> str:
    if name not in new or name not in old:
        return "is new" if name in new else "is gone"
    if name == "exit code":
        return f"differs ({old[name]}, now {new[name]})"
    parts = sorted(part for part in {*old, *new} if part.startswith(name + _PART) and old.get(part) != new.get(part))
    return f"differs in {', '.join(part.partition(_PART)[2] for part in parts)}" if parts else "differs"


def _frozen(case: Case, world: World, keep: Path | None) -> dict[str, str]:
    found = outcome(case, world, printed=True)
    if keep is not None:
        shutil.rmtree(keep, ignore_errors=True)
        for name, data in {**found.files, "command": shlex.join(case.arguments).encode()}.items():
            path = keep / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    return {"exit code": str(found.code), **found.digests(), **_parts(found.files)}


def _parts(files: Mapping[str, bytes]) -> dict[str, str]:
    """Return the digests of each section of each report, so that a difference can be told by its section."""
    digests = {}
    for name, data in files.items():
        if name.endswith(".json") and isinstance(report := json.loads(data), dict):
            for key, value in report.items():
                text = json.dumps(value, sort_keys=True)
                digests[f"{name}{_PART}{key}"] = hashlib.sha256(text.encode()).hexdigest()[:16]
    return digests


def frozen_cases(base: Path, world: World) -> Iterator[Case]:
    """Yield the commands; the reports and the target that some of them read are put into ``base``."""
    yield from cases(base, world)
    models = ROOT / "models"
    small, networks = sorted(models.glob("*.tflite")), sorted((models / "networks").glob("*.onnx"))
    for model in (*small, *networks):
        yield _analyze(model)
        yield _optimize(model)
    yield from _under_targets(base, models)
    yield from _rewritten(models)
    yield from _shared_out(models)
    yield from _told(base, models, world)
    yield from _refused(base, models)


def _further(base: Path, folders: Sequence[Path], generated: int) -> Iterator[Case]:
    """Yield models of folders, by default and with everything permitted, and generated ones."""
    given = [path for folder in folders for path in sorted(folder.iterdir()) if path.suffix in {".onnx", ".tflite"}]
    for number in range(generated):
        path = base / f"generated_{number:03}.onnx"
        path.write_bytes(generate(number).model)
        given.append(path)
    for path in given:
        yield _optimize(path)
        yield _optimize(path, *_ALL)


def _analyze(model: Path, *more: str) -> Case:
    return _case("analyze", model.name, *_TO_REPORT, *more, given=(model,))


def _optimize(model: Path, *more: str, given: tuple[Path, ...] = ()) -> Case:
    verified = () if "--verify" in more else _NO_RUN
    arguments = (model.name, "-o", f"out{model.suffix}", *_TO_REPORT, *_EFFORT, *verified, *more)
    return _case("optimize", *arguments, given=(model, *given))


def _case(*arguments: str, given: tuple[Path, ...]) -> Case:
    return Case(arguments[0], arguments, given, workers=False)


def _under_targets(base: Path, models: Path) -> Iterator[Case]:
    """Yield models under the targets, the ways of pinning an order, and a chip of two memories."""
    speech, detect = models / "micro_speech_quantized.tflite", models / "person_detect.tflite"
    mobilenet, unetpp = models / "mobilenetv2_035_96_int8.tflite", models / "networks/unetpp.onnx"
    randwire, hrnet = models / "networks/randwire2.onnx", models / "networks/hrnet_w18_small_v1.onnx"
    for model in (speech, detect, mobilenet):
        for target in ("ideal", "paper", "tflm", "tflm-reference"):
            yield _optimize(model, "--target", target)
            yield _analyze(model, "--target", target, "--header", "out.h")
        yield _optimize(model, "--target", "tflm", "--tflm-plan")
        yield _optimize(model, "--control-dependencies")
    yield _optimize(unetpp, "--target", "diannao")
    for model in (unetpp, randwire, hrnet):
        for target in ("ideal", "paper", "coral_edgetpu"):
            yield _optimize(model, "--target", target)
        for guarantee in ("none", "pins", "default"):
            yield _optimize(model, "--order-guarantee", guarantee)
    pools = base / "two-memories.toml"
    pools.write_text(_TARGET, encoding="utf-8")
    yield _optimize(detect, "--target", pools.name, given=(pools,))
    for solver in ("exact", "cpsat", "backtrack", "greedy", "file"):
        yield _optimize(unetpp, "--solver", solver)
    yield _optimize(randwire, "--partitions", "3")
    # What a session with default options takes is not the same twice for large models, as U-Net++ is.
    squeeze = light_model("light_squeezenet")
    for model, target in ((speech, "tflm"), (detect, "litert"), (squeeze, "onnxruntime")):
        yield _optimize(model, "--target", target, "--verify")
        yield _case("verify", model.name, model.name, "--json", given=(model,))


def _rewritten(models: Path) -> Iterator[Case]:
    """Yield models in pieces and with repetitions, with budgets that are met and one that is not."""
    detect, mobilenet = models / "person_detect.tflite", models / "mobilenetv2_035_96_int8.tflite"
    networks = models / "networks"
    for model in (detect, mobilenet):
        yield _optimize(model, "--allow", "reorder,inplace,tile")
    for model in (detect, mobilenet, networks / "unetpp.onnx", networks / "bifpn_d0.onnx"):
        yield _optimize(model, "--allow", "reorder,inplace,remat", "--max-extra-macs", "20")
    for model in (detect, mobilenet, networks / "unetpp.onnx"):
        yield _optimize(model, *_ALL, "--budget", "60%")
    yield _optimize(detect, "--target", "tflm", "--budget", "1KB")
    yield _optimize(networks / "transformer.onnx", "--allow", "reorder,inplace,tile", "--budget", "40%")
    yield _case("analyze", detect.name, "--frontier", *_EFFORT, *_TO_REPORT, given=(detect,))


def _shared_out(models: Path) -> Iterator[Case]:
    """Yield models in stages, and over the devices of clusters."""
    networks = models / "networks"
    for model in (networks / "bifpn_d0.onnx", networks / "unetpp.onnx", models / "person_detect.tflite"):
        for more in (("--scheduler", "heuristic"), ("--scheduler", "respect"), ("--children-together",)):
            yield _case(
                *("pipeline", model.name, "--stages", "3", "-o", "out", *_TO_REPORT, *_NO_RUN, *more), given=(model,)
            )
    for method in ("even", "single"):
        model = networks / "unetpp.onnx"
        yield _case(
            *("distribute", model.name, "--cluster", "mixed4", "--method", method, "-o", "out", "--no-run"),
            given=(model,),
        )


def _told(base: Path, models: Path, world: World) -> Iterator[Case]:
    """Yield pages and comparisons of reports of every kind, and what is said of targets."""
    speech, detect = models / "micro_speech_quantized.tflite", models / "person_detect.tflite"
    unetpp = models / "networks/unetpp.onnx"
    written = ("-o", "out.onnx", *_NO_RUN, *_EFFORT, "--quiet", "--report")
    made = {
        "before.json": ("analyze", str(unetpp), "--quiet", "--report"),
        "after.json": ("optimize", str(unetpp), *written),
        "tiled.json": ("optimize", str(detect), "--allow", "reorder,inplace,tile", "-o", "out.tflite", *written[2:]),
        "repeated.json": ("optimize", str(unetpp), *_ALL, "--budget", "60%", *written),
        "staged.json": ("pipeline", str(unetpp), "--stages", "3", "-o", "staged", *_NO_RUN, "--quiet", "--report"),
        "small.json": ("optimize", str(speech), "--target", "tflm", "-o", "out.tflite", *written[2:]),
    }
    (base / "staged").mkdir()
    for name, arguments in made.items():
        done = run([*arguments, name], base, world)
        path = base / name
        if not path.is_file():
            raise SystemExit(f"{' '.join(arguments)}: {done.stderr.decode()}")
        fix_time(path)
        yield _case("report", name, "-o", "out.html", given=(path,))
    old, new = base / "before.json", base / "after.json"
    for pair in ((old, new), (new, base / "repeated.json")):
        yield _case("diff", pair[0].name, pair[1].name, given=pair)
        yield _case("diff", pair[0].name, pair[1].name, "--json", given=pair)
    yield _case("diff", new.name, old.name, "--fail-on-regression", "1", given=(old, new))
    for name in (*("coral_edgetpu", "diannao", "ideal", "litert", "onnxruntime", "paper", "tflm", "tflm-reference"),):
        yield _case("targets", name, "--json", given=())
    for command in ("optimize", "analyze", "allocate", "pipeline", "report", "distribute", "batch", "diff", "verify"):
        yield _case(command, "--help", given=())
        yield _case(command, "--help-all", given=())
    yield _case("--help", given=())
    yield _case("--version", given=())


def _refused(base: Path, models: Path) -> Iterator[Case]:
    """Yield commands that end with a line on standard error, and write nothing."""
    speech = models / "micro_speech_quantized.tflite"
    damaged, table = base / "damaged.tflite", base / "damaged.csv"
    damaged.write_bytes(speech.read_bytes()[:9000])
    table.write_text("id,lower,upper,size\na,4,2,8\n", encoding="utf-8")
    for command in ("optimize", "analyze"):
        yield _case(command, damaged.name, given=(damaged,))
        yield _case(command, "missing.onnx", given=())
        yield _case(command, speech.name, "--target", "nothing", given=(speech,))
        yield _case(command, speech.name, "--target", "onnxruntime", given=(speech,))
    yield _case("optimize", speech.name, "--budget", "-1", given=(speech,))
    yield _case("optimize", speech.name, "--allow", "reorder,fly", given=(speech,))
    yield _case("optimize", speech.name, "-o", speech.name, given=(speech,))
    yield _case("allocate", table.name, given=(table,))
    yield _case("pipeline", speech.name, "--stages", "900", given=(speech,))
    yield _case("distribute", speech.name, "--cluster", "pi4x4", given=(speech,))
    yield _case("report", damaged.name, given=(damaged,))


if __name__ == "__main__":
    sys.exit(main())
