"""Lower bounds: write requirements/lowest.txt, the bounds of pyproject.toml as versions, or test with exactly these.

python -m scripts.lowest
python -m scripts.lowest --test build/lowest
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["lowest_of"]

_ROOT = Path(__file__).resolve().parents[1]
_PATH = _ROOT / "requirements/lowest.txt"
_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9.]+)\s*(;.*)?")
_LEFT_OUT = {"respect", "browser", "fuzz", "docs", "dask", "tflm", "onnx-ir", "olive", "executorch"}
_TOOLS = {"codespell", "mypy", "ruff"}
"""Extras and tools that the smoke tests do not touch, so that they would prove nothing about their versions; tflm's
package has daily builds only, of which old ones go away."""

_PYTHONS = ((3, 10), (3, 13))
"""The first and the last Python for which all these versions exist as wheels."""

_HEAD = "# The lower bounds of pyproject.toml as versions, by `python -m scripts.lowest`; tested by `make lowest`."

_SMOKE = (
    "tests/search/test_cpsat.py",
    "tests/solve/fusion/test_conditions.py",
    "tests/solve/schedule/test_exact.py",
    "tests/solve/allocate/test_exact.py::test_each_solver_agrees_at_each_capacity",
    "tests/solve/joint/test_cpsat.py",
    "tests/formats/onnx/test_reader.py",
    "tests/formats/onnx/test_shapes.py",
    "tests/formats/onnx/test_writer.py",
    "tests/formats/tflite/test_package.py",
    "tests/formats/tflite/test_reader.py",
    "tests/formats/tflite/test_writer.py",
    "tests/runtimes/test_compare.py",
    "tests/runtimes/litert/test_probe.py",
    "tests/features/distribute/test_search.py::test_genetic_search_is_never_worse_than_its_seeds_and_repeats",
    "tests/commands/optimize/test_optimize.py",
    "tests/cli/test_optimize.py",
    "tests/cli/test_pipeline.py",
    "tests/cli/test_pages.py",
)
"""What touches each dependency: whole optimisations run in ONNX Runtime and LiteRT, pipelines, pages among them."""


def lowest_of(project: str) -> list[str]:
    """Return the requirements of a pyproject.toml with each lower bound as the only version, sorted.

    Raises:
        SystemExit: A requirement states no lower bound.
    """
    values: dict[str, Any] = tomllib.loads(project)["project"]
    extras: dict[str, list[str]] = values.get("optional-dependencies", {})
    stated = [
        *values["dependencies"],
        *(one for extra, ones in extras.items() if extra not in _LEFT_OUT for one in ones),
    ]
    found = set()
    for requirement in stated:
        if requirement.startswith(f"{values['name']}["):
            continue
        match = _BOUND.fullmatch(requirement)
        if match is None:
            raise SystemExit(f"'{requirement}' states no lower bound")
        name, version, marker = match.groups()
        if name not in _TOOLS:
            found.add(f"{name}=={version}{marker or ''}")
    return sorted(found)


def main() -> int:
    """Write the file; with ``--check`` say whether it is up to date, with ``--test`` install from it and test."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where the file is out of date")
    parser.add_argument("--test", type=Path, metavar="VENV", help="install the versions into this folder and run tests")
    args = parser.parse_args()
    text = "\n".join([_HEAD, *lowest_of((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))]) + "\n"
    current = _PATH.is_file() and _PATH.read_text(encoding="utf-8") == text
    if args.check or args.test:
        if not current:
            print("requirements/lowest.txt is out of date: python -m scripts.lowest", file=sys.stderr)
            return 1
        return _test(args.test) if args.test else 0
    _PATH.parent.mkdir(exist_ok=True)
    _PATH.write_text(text, encoding="utf-8")
    return 0


def _test(folder: Path) -> int:
    """Return pytest's exit status in a new environment of the lowest versions."""
    here, (first, last) = sys.version_info[:2], _PYTHONS
    if not first <= here <= last:
        known = " to ".join(".".join(map(str, one)) for one in _PYTHONS)
        print(f"NOT TESTED: the lower bounds have wheels for Python {known}, and this is {here[0]}.{here[1]}")
        return 0
    python = folder.resolve() / "bin/python"
    install: list[str | Path] = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands: tuple[list[str | Path], ...] = (
        [sys.executable, "-m", "venv", "--clear", folder],
        [*install, "--only-binary", ":all:", "--requirement", _PATH],
        [*install, "--no-deps", "--editable", _ROOT],
        [python, "-m", "pip", "check"],
    )
    for command in commands:
        subprocess.run(command, check=True)
    return subprocess.run([python, "-m", "pytest", "-n", "auto", *_SMOKE], cwd=_ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
