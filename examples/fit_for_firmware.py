"""Fit a TFLite model into a budget for TensorFlow Lite Micro; write the model, its report and a C header.

    python examples/fit_for_firmware.py models/person_detect.tflite 72KB build/person

The order of the operators is tried first; layers are computed piece by piece only where that does not suffice.
Exit code 3: it does not fit, and no file is written.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import memsched


def main() -> int:
    """Do what the command line says and return the exit code."""
    parser = argparse.ArgumentParser(description="Fit a TFLite model into a budget and write a C header.")
    parser.add_argument("model", help="a .tflite file")
    parser.add_argument("budget", help="what the arena may take, such as 72KB")
    parser.add_argument("output", help="files to write, without their ending")
    arguments = parser.parse_args()
    path = str(Path(arguments.output).with_suffix(".tflite"))
    try:
        hooks = memsched.Hooks(output=path)
        result = memsched.optimize(arguments.model, hooks=hooks, target="tflm", budget=arguments.budget, level=2)
        if result.budget_met:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            result.save(path)
            stem = arguments.output
            result.report.save(f"{stem}.json", header_path=f"{stem}_arena.h")
    except memsched.MemschedError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    report = result.report
    budget, tiling = report["budget"], report["sections"]["tile"]
    print(f"the arena takes {budget['required_bytes']:,} of {budget['budget_bytes']:,} B")
    if tiling is not None and tiling["applied"]:
        print(f"groups of layers in pieces: {len(tiling['groups'])}, {tiling['extra_macs_percent']:.1f} % more work")
    if not budget["met"]:
        for tensor in report["written"]["at_fault"]:
            print(f"{tensor['size_bytes']:>12,}  {tensor['tensor']}")
    return 0 if budget["met"] else 3


if __name__ == "__main__":
    sys.exit(main())
