"""Write requirements/dev.lock: what `pip install '.[dev]'` takes today, with versions and hashes.

Install from it with `pip install --require-hashes -r requirements/dev.lock`, then the package with `--no-deps`.
`python -m scripts.lock --check` needs no network: it compares the lock with pyproject.toml and with what is installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["faults_of", "lock_of", "locked", "locked_for"]

_ROOT = Path(__file__).resolve().parents[1]
_PATH = _ROOT / "requirements/dev.lock"
_ENTRY = re.compile(r"([a-z0-9.-]+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)")
_SHIPPED = "dev"
_STATED_ELSEWHERE = {"tflite-micro": "Apache-2.0"}
"""Licences of packages that state none themselves: what the repository states that they say they are built from."""


def lock_of(report: Mapping[str, Any], name: str) -> list[str]:
    """Return the lines of a lock file for what pip's installation report lists, but for the package ``name`` itself."""
    lines: dict[str, list[str]] = {}
    for one in report["install"]:
        found = one["metadata"]
        key = found["name"].lower().replace("_", "-")
        if key == name:
            continue
        digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
        lines[key] = [f"{key}=={found['version']} \\", f"    --hash=sha256:{digest}"]
    return [line for key in sorted(lines) for line in lines[key]]


def locked(text: str) -> dict[str, str]:
    """Return the version of each package of a lock file.

    Raises:
        SystemExit: Something in it is no package with a version and hashes.
    """
    body = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    rest = _ENTRY.sub("", body).strip()
    if rest:
        raise SystemExit(f"requirements/dev.lock: no package with a version and hashes: {rest.splitlines()[0]}")
    return {name: version for name, version, _ in _ENTRY.findall(body)}


def locked_for(text: str) -> str:
    """Return the Python that a lock file is for, as "3.11"; "" where it does not say so."""
    found = re.match(r"# For Python (\S+) on ", text)
    return found[1] if found else ""


def faults_of(project: str, versions: Mapping[str, str], python: str) -> list[str]:
    """Return the requirements of a pyproject.toml, for development, that locked versions lack or do not satisfy.

    Args:
        python: The Python that was locked for, as "3.11".
    """
    from packaging.requirements import Requirement

    values: dict[str, Any] = tomllib.loads(project)["project"]
    extras: dict[str, list[str]] = values.get("optional-dependencies", {})
    waiting, seen, faults = [*values["dependencies"], *extras[_SHIPPED]], set[str](), []
    while waiting:
        text = waiting.pop()
        one = Requirement(text)
        if text in seen or (one.marker is not None and not one.marker.evaluate({"python_version": python})):
            continue
        seen.add(text)
        name = _normal(one.name)
        if name == values["name"]:
            waiting += [inner for extra in one.extras for inner in extras[extra]]
        elif name not in versions:
            faults.append(f"{name} is not locked")
        elif not one.specifier.contains(versions[name], prereleases=True):
            faults.append(f"{name} is locked at {versions[name]}, which is not {one.specifier}")
    return sorted(faults)


def _installed_faults(project: str, versions: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the distributions that are installed: others than locked, not locked, no licence."""
    from packaging.requirements import Requirement

    faults: list[str] = []
    waiting = [(metadata.distribution(tomllib.loads(project)["project"]["name"]), frozenset([_SHIPPED]))]
    seen: set[tuple[str, frozenset[str]]] = set()
    reached: set[str] = set()
    while waiting:
        found, extras = waiting.pop()
        for text in found.requires or []:
            one = Requirement(text)
            name, wanted = _normal(one.name), frozenset(one.extras)
            if one.marker and not any(one.marker.evaluate({"extra": extra}) for extra in extras or [""]):
                continue
            if (name, wanted) in seen:
                continue
            seen.add((name, wanted))
            try:
                waiting.append((metadata.distribution(name), wanted))
            except metadata.PackageNotFoundError:
                faults.append(f"{name} is not installed, but {found.name} needs it")
                continue
            if name != "memsched":
                reached.add(name)
    for name in sorted(reached):
        one_of = metadata.distribution(name)
        if name not in versions:
            faults.append(f"{name} is installed and not locked")
        elif one_of.version != versions[name]:
            faults.append(f"{name} is locked at {versions[name]}, and {one_of.version} is installed")
        if not _licence(one_of) and name not in _STATED_ELSEWHERE:
            faults.append(f"{name} states no licence")
    faults += [f"{name} is locked, but nothing that is installed needs it" for name in sorted(set(versions) - reached)]
    return faults


def _licence(found: metadata.Distribution) -> str:
    """Return what a distribution says of its licence; "" for nothing."""
    stated = found.metadata
    classifiers = [one for one in stated.get_all("Classifier") or [] if one.startswith("License ::")]
    given = [value for key in ("License-Expression", "License") for value in stated.get_all(key) or []]
    values = [*given, *classifiers, *_licence_files(found)]
    return next((one for one in values if one and one != "UNKNOWN"), "")


def _licence_files(found: metadata.Distribution) -> list[str]:
    return [str(path) for path in found.files or [] if re.match(r"(?i)licen[cs]e|copying", path.name)]


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _check() -> int:
    """Print what is wrong; 1 where anything is."""
    project, text = (_ROOT / "pyproject.toml").read_text(encoding="utf-8"), _PATH.read_text(encoding="utf-8")
    versions = {_normal(name): version for name, version in locked(text).items()}
    faults = faults_of(project, versions, locked_for(text))
    here = f"{sys.version_info[0]}.{sys.version_info[1]} on {sys.platform}"
    if text.startswith(f"# For Python {here};"):
        faults += _installed_faults(project, versions)
    else:
        print(f"NOT COMPARED with what is installed: {text.splitlines()[0].strip('# ')} This is Python {here}.")
    for fault in faults:
        print(fault)
    print(f"requirements/dev.lock: {len(versions)} packages with versions and hashes, {len(faults)} faults")
    pip = subprocess.run([sys.executable, "-m", "pip", "check"], check=False).returncode
    return int(bool(faults) or pip != 0)


def main(arguments: Sequence[str] = ()) -> int:
    """Ask pip what it would install, and write it down; with ``--check`` look for faults instead."""
    if list(arguments) == ["--check"]:
        return _check()
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    asked = subprocess.run([*command, *arguments, ".[dev]"], cwd=_ROOT, stdout=subprocess.PIPE, check=True)
    report = json.loads(asked.stdout)
    where = f"Python {report['environment']['python_version']} on {report['environment']['sys_platform']}"
    head = [f"# For {where}; written by `python -m scripts.lock`.", *lock_of(report, "memsched")]
    _PATH.parent.mkdir(exist_ok=True)
    _PATH.write_text("\n".join(head) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
