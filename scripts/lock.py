"""Write requirements/dev.lock: what `pip install '.[dev]'` takes today, with versions and hashes.

Install from it with `pip install --require-hashes -r requirements/dev.lock`, then the package with `--no-deps`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["lock_of"]

_ROOT = Path(__file__).resolve().parents[1]


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


def main(arguments: Sequence[str] = ()) -> int:
    """Ask pip what it would install, and write it down."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    asked = subprocess.run([*command, *arguments, ".[dev]"], cwd=_ROOT, stdout=subprocess.PIPE, check=True)
    report = json.loads(asked.stdout)
    where = f"Python {report['environment']['python_version']} on {report['environment']['sys_platform']}"
    head = [f"# For {where}; written by `python -m scripts.lock`.", *lock_of(report, "memsched")]
    path = _ROOT / "requirements/dev.lock"
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(head) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
