"""The commands and programs that README.md and docs/ show, run in a folder like a reader's, and compared with the page.

A page's blocks are run in one folder, from top to bottom. ``console`` blocks hold commands after "$ " with what they
print, where "[...]" stands for anything; ``sh`` blocks commands alone; ``python`` blocks whole programs. A ``toml``
block that begins with "# NAME.toml" is that file.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = [
    "PAGES",
    "ROOT",
    "SLOW",
    "TASKS",
    "TIMED",
    "Command",
    "class_of",
    "command_with",
    "commands",
    "follow",
    "matches",
    "mentioned",
    "run",
]

ROOT = Path(__file__).parents[1]
PAGES = tuple(
    str(path.relative_to(ROOT)) for path in sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")], key=str)
)

CHECKED = (
    r"make ",
    r"pip install ",
    r"python -m (scripts|tests\.tools)\.",
    r".*--dask ",
    r".*memsched --completion ",
)
"""Looked at only, as they take long, change the machine, or need a cluster: are there such targets and options?"""

SLOW = (
    ("docs/remat.md", "-o again.onnx"),
    ("docs/tasks/onnxruntime.md", "memsched optimize models/networks/nasnet_a.onnx --order-guarantee session --allow"),
)
"""Page and part of commands that take more than some seconds, or need what those write: `make test-docs`."""

TIMED = (
    ("docs/distribute.md", "python -m scripts.bench cluster_runs resnet50 --save"),
    ("docs/distribute.md", "memsched distribute resnet50.onnx"),
    ("docs/remat.md", "memsched analyze models/networks/nasnet_a.onnx --frontier"),
    ("docs/tasks/onnxruntime.md", "memsched analyze models/networks/nasnet_a.onnx --frontier"),
)
"""As slow, and a time limit ends their search: what is found depends on the machine, and only the exit code holds."""

TASKS = ("docs/diff.md", "docs/tasks/microcontroller.md", "docs/tasks/own-pass.md", "docs/tasks/own-target.md")
"""Pages that tests/tasks follows, and goes on from there."""

RUN = r"(memsched|python -c|python examples/\S+\.py|ls|sed|grep|mkdir) "
"""All others must begin so, with what every machine has, and are run by `make test`."""

Class = Literal["checked", "run", "slow", "timed"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a page.

    Attributes:
        line: Of the page.
        python: It is a program, and ``text`` its source.
        shown: What the page says that it prints.
        code: The exit code that the page says or implies; None: 1 or 2.
    """

    page: str
    line: int
    text: str
    python: bool
    shown: tuple[str, ...]
    code: int | None


# Reading pages -------------------------------------------------------------------------------------------------------

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_MENTION = re.compile(r"`((?:memsched [a-z]|make [a-z]|python -m (?:scripts|tests\.tools)\.)[^`]*)`")


def _blocks(page: str) -> Iterator[tuple[str, int, list[str]]]:
    text = (ROOT / page).read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        yield found[1], text.count("\n", 0, found.start(2)) + 1, found[2].splitlines()


def commands(page: str) -> list[Command]:
    """Return all commands and programs of a page."""
    result: list[Command] = []
    for language, line, body in _blocks(page):
        if language == "python":
            result.append(Command(page, line, "\n".join(body), True, (), 0))
        elif language == "sh":
            result += [Command(page, line + n, text, False, (), 0) for n, text in enumerate(body) if text]
        elif language == "console":
            assert body[0].startswith("$ "), f"{page}:{line}: a console block begins with a command"
            result += _of_console(page, line, body)
    return result


def _of_console(page: str, line: int, body: list[str]) -> Iterator[Command]:
    starts = [n for n, text in enumerate(body) if text.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(body)], strict=True):
        text, shown = body[start][2:], body[start + 1 : end]
        if text == "echo $?":
            continue
        asked = end < len(body) and body[end] == "$ echo $?"
        code = int(body[end + 1]) if asked else _implied("\n".join(shown))
        yield Command(page, line + start, text, False, tuple(shown), code)


def mentioned(page: str) -> list[Command]:
    """Return the commands that the text of a page mentions in passing."""
    text = (ROOT / page).read_text(encoding="utf-8")
    prose = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    return [
        Command(page, prose.count("\n", 0, found.start()) + 1, " ".join(found[1].split()), False, (), 0)
        for found in _MENTION.finditer(prose)
    ]


def command_with(page: str, part: str) -> str:
    """Return the one command that a page shows or mentions with this part.

    Raises:
        AssertionError: There is none, or there are several.
    """
    found = {command.text for command in (*commands(page), *mentioned(page)) if part in command.text}
    assert len(found) == 1, f"{page}: '{part}' is in {sorted(found)}"
    return found.pop()


def _implied(shown: str) -> int | None:
    if "memsched: error: " in shown:
        return None
    return 3 if "budget exceeded: " in shown or "regression: " in shown else 0


def files_of(page: str) -> dict[str, str]:
    """Return the files that a page shows under their names."""
    toml = [body for language, _, body in _blocks(page) if language == "toml"]
    return {body[0][2:]: "\n".join(body) + "\n" for body in toml if re.fullmatch(r"# \w+\.toml", body[0])}


def class_of(command: Command) -> Class:
    """Return what is done with a command.

    Raises:
        AssertionError: It is in none of the lists above.
    """
    if _listed(command, TIMED):
        return "timed"
    if _listed(command, SLOW):
        return "slow"
    if command.python:
        return "run"
    if any(re.match(pattern, command.text) for pattern in CHECKED):
        return "checked"
    assert re.match(RUN, command.text), f"{command.page}:{command.line}: '{command.text}' is in no list of {__file__}"
    return "run"


def _listed(command: Command, entries: Iterable[tuple[str, str]]) -> bool:
    return any(command.page == page and part in command.text for page, part in entries)


# Folders -------------------------------------------------------------------------------------------------------------

MODEL = {"model.onnx": "networks/bifpn_d0.onnx", "model.tflite": "micro_speech_quantized.tflite"}
"""What stands for models that a page leaves open."""

BUFFERS = "id,lower,upper,size\ninput,0,6,4096\nqueue,4,9,6000\ncache,7,12,5000\n"


def folder_for(page: str, folder: Path) -> None:
    """Fill ``folder`` with what commands of the page find in a reader's."""
    for path in (ROOT / "models").rglob("*.*"):
        target = folder / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(path)
    (folder / "examples").symlink_to(ROOT / "examples")
    for name, model in MODEL.items():
        (folder / name).symlink_to(ROOT / "models" / model)
    (folder / "buffers.csv").write_text(BUFFERS)
    for name, text in files_of(page).items():
        (folder / name).write_text(text)
    if page in _BEFORE:
        _BEFORE[page](folder)


def _damaged_zoo(folder: Path) -> None:
    """The models that the page on batches has."""
    whole = [folder / "models" / name for name in ("person_detect.tflite", "nasnetmobile_int8.tflite")]
    for path in [path for path in (folder / "models").rglob("*") if path.is_symlink() and path not in whole]:
        path.unlink()
    more = folder / "models" / "more"
    more.mkdir()
    (more / "randwire1.onnx").symlink_to(ROOT / "models" / "networks" / "randwire1.onnx")
    data = (ROOT / "models" / "person_detect.tflite").read_bytes()
    (more / "damaged.tflite").write_bytes(data[: len(data) // 2])
    (folder / "models.txt").write_text("models/person_detect.tflite\n")


def _two_reports(folder: Path) -> None:
    """The reports that the page on differences compares."""
    for name, more in (("old", ()), ("new", ("--solver", "file"))):
        model = "models/nasnetmobile_int8.tflite"
        done = run(
            folder,
            shlex.join(
                [
                    "memsched",
                    "optimize",
                    model,
                    "-o",
                    "out.tflite",
                    "--force",
                    *more,
                    "--no-verify",
                    "--target",
                    "litert-reference",
                ]
            ),
        )
        assert done.code == 0
        (folder / "out.json").rename(folder / f"{name}.json")


def _tiny_cluster(folder: Path) -> None:
    """The cluster of little memory of the page on distributions."""
    text = (ROOT / "memsched" / "clusters" / "pi4x4.toml").read_text(encoding="utf-8")
    (folder / "tiny.toml").write_text(re.sub(r"memory_bytes = .*", 'memory_bytes = "20MB"', text))


def _float_model(folder: Path) -> None:
    """The model of floats that the page on borders has."""
    from scripts.networks.mobilenet_tflite import mobilenet_v2

    (folder / "vww.tflite").write_bytes(mobilenet_v2(0.35, 96, 2, floats=True))


_BEFORE: dict[str, Callable[[Path], None]] = {
    "docs/batch.md": _damaged_zoo,
    "docs/border.md": _float_model,
    "docs/diff.md": _two_reports,
    "docs/distribute.md": _tiny_cluster,
}


# Running -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    """What a command did."""

    code: int
    text: str


def run(folder: Path, command: str, *, python: bool = False, limit: float = 900.0) -> Done:
    """Run a command in ``folder`` as a reader would, who has memsched on the path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HOME": str(folder), "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    environment.pop("COLUMNS", None)
    done = subprocess.run(
        [sys.executable, "-c", command] if python else ["sh", "-c", command],
        check=False,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit,
    )
    return Done(done.returncode, done.stdout)


def follow(page: str, folder: Path, classes: Collection[Class]) -> None:
    """Run the commands of a page that are of these classes, and compare what they do with what the page shows.

    Raises:
        AssertionError: They do something else.
    """
    folder_for(page, folder)
    for command in commands(page):
        kind = class_of(command)
        if kind not in classes:
            continue
        where = f"{page}:{command.line}: {command.text}"
        done = run(folder, command.text, python=command.python)
        assert done.code in ({1, 2} if command.code is None else {command.code}), f"{where}\n{done.text}"
        wrong = matches(command.shown, done.text) if command.shown and kind != "timed" else None
        assert wrong is None, f"{where}\n{wrong}; printed was:\n{done.text}"


# Comparing -----------------------------------------------------------------------------------------------------------

_CHANGING = (
    (re.compile(r"\b\d+\.\d+\.\d+\b"), "VERSION"),
    (re.compile(r"\b\d+(\.\d+)? s\b"), "SECONDS"),
    (re.compile(r"(?m)^\[\d+/\d+\] .*\n"), ""),
    (re.compile(r"(?m)[ \t]+$"), ""),
)
"""What differs from machine to machine or from run to run: versions, seconds, and in which order models end."""


def _stable(text: str) -> str:
    for pattern, replacement in _CHANGING:
        text = pattern.sub(replacement, text)
    return text


def matches(shown: tuple[str, ...], printed: str) -> str | None:
    """Return None where ``printed`` is what the page shows, and otherwise the first line that is not."""
    lines = _stable("".join(f"{line}\n" for line in shown)).splitlines()
    text = _stable(printed)
    patterns = [_pattern(line) for line in lines]
    if re.fullmatch("".join(patterns), text):
        return None
    for count in range(len(lines), 0, -1):
        if re.match("".join(patterns[:count]), text):
            return "more was printed" if count == len(lines) else f"'{lines[count]}' was not printed there"
    return f"'{lines[0]}' was not printed there"


def _pattern(line: str) -> str:
    if line == "[...]":
        return r"(?:.*\n)*?"
    return ".*".join(map(re.escape, line.split("[...]"))) + r"\n"
