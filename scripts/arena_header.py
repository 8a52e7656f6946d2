"""Write a C header with the bytes of activations that a memsched report gives, for a firmware build."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

TEMPLATE = """\
// Generated from {report}; do not edit.
#ifndef {guard}
#define {guard}

#include <stddef.h>

// What the activations of {model} need, target {target}: {arena} bytes ({status}).
// An interpreter keeps data of its own beside them: add that to the array that it is given
// (TFLite Micro: what arena_used_bytes() reports above this, and room for planning).
#define {name}_ACTIVATION_BYTES ((size_t){arena}u)
#define {name}_MODEL_SHA256 "{sha256}"

#endif  // {guard}
"""


def header(report: dict[str, object], source: str) -> str:
    """Return the text of the header for ``report``, which was read from ``source``."""
    model, output, result, target = (report[key] for key in ("model", "output", "result", "target"))
    path = Path(str(model["path"]))  # type: ignore[index]
    name = re.sub(r"\W", "_", path.stem.upper(), flags=re.ASCII)
    return TEMPLATE.format(
        report=source,
        guard=f"{name}_ARENA_H_",
        model=path.name,
        target=target["name"],  # type: ignore[index]
        arena=result["arena_bytes"],  # type: ignore[index]
        status=result["status"],  # type: ignore[index]
        name=name if not name[:1].isdigit() else f"MODEL_{name}",
        sha256=output["sha256"],  # type: ignore[index]
    )


def main() -> None:
    """Read the report named on the command line and write the header."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="JSON report of memsched optimize")
    parser.add_argument("--output", type=Path, required=True, help="header to write")
    arguments = parser.parse_args()
    report = json.loads(arguments.report.read_text(encoding="utf-8"))
    arguments.output.write_text(header(report, arguments.report.name), encoding="utf-8")


if __name__ == "__main__":
    main()
