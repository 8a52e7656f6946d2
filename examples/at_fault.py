"""Read all reports below a folder, and list per model the tensors that make up its peak, and how long each is kept.

memsched batch models -o optimized
python examples/at_fault.py optimized
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import memsched

MOST = 3
"""Tensors shown per model."""


def lines_of(report: Mapping[str, Any]) -> list[str]:
    """Return what is to be said of one model."""
    steps = len(report["written"]["steps"])
    proof = report["proof"]
    lines = [f"{report['model']['path']}: peak {proof['bytes']:,} B, {proof['status']}"]
    for tensor in report["written"]["at_fault"][:MOST]:
        share = 100 * tensor["size_bytes"] / max(1, proof["bytes"])
        kept = f"steps {tensor['first_step']} to {tensor['last_step']} of {steps}"
        lines.append(f"{tensor['size_bytes']:>12,}  {share:3.0f} %  {tensor['tensor']}, {kept}")
    return lines


def main() -> int:
    """Do what the command line says and return the exit code."""
    parser = argparse.ArgumentParser(description="List what is at fault in each report below a folder.")
    parser.add_argument("folder")
    arguments = parser.parse_args()
    found = 0
    for path in sorted(Path(arguments.folder).rglob("*.json")):
        try:
            report = memsched.load_report(str(path))
        except memsched.MemschedError as error:
            print(f"left out: {error}", file=sys.stderr)
            continue
        if report["command"] == "batch":  # the summary beside the reports
            continue
        found += 1
        print("\n".join(lines_of(report)))
    print(f"{found} reports")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
