"""Write requirements/lowest.txt: every lower bound of pyproject.toml as the version to install; see `make lowest`."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["lowest_of"]

_ROOT = Path(__file__).resolve().parents[1]
_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9.]+)\s*(;.*)?")
_LEFT_OUT = {"respect", "browser", "fuzz"}
"""Extras for training, fuzzing and tests in a browser, which the smoke tests do not touch."""

_HEAD = "# The lower bounds of pyproject.toml as versions, by `python -m scripts.lowest`; tested by `make lowest`."


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
        found.add(f"{name}=={version}.*{marker or ''}")
    return sorted(found)


def main() -> int:
    """Write the file, or with ``--check`` say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where the file is out of date")
    args = parser.parse_args()
    path = _ROOT / "requirements/lowest.txt"
    text = "\n".join([_HEAD, *lowest_of((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))]) + "\n"
    if args.check:
        return int(not path.is_file() or path.read_text(encoding="utf-8") != text)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
