"""Print what TensorFlow Lite Micro's arena takes: as given, in our order, with our plan, with tensors sharing bytes.

Figures are heads of the arena in bytes, simulated as TFLM plans them; the file with the plan has passed the
independent check. Orders are searched for up to ``--time-limit`` seconds per model and target.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODELS = (
    "person_detect",
    "micro_speech_quantized",
    "hello_world_int8",
    "mobilenetv2_035_96_int8",
    "nasnetmobile_int8",
)


def heads(model: Path, target: str, time_limit: float) -> dict[str, Any]:
    """Return the section ``tflm`` of the report for ``model``."""
    from memsched.compiler import optimize

    done = optimize(str(model), target=target, tflm_plan=True, verify=False, time_limit=time_limit)
    section: dict[str, Any] = done.report["tflm"]
    return section


def table(models: Sequence[Path], time_limit: float) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| model | as given | our order | our order and plan | and tensors over each other | seconds |"
    yield "|---|---|---|---|---|---|"
    for model in models:
        started = time.perf_counter()
        plain, shared = (heads(model, target, time_limit) for target in ("tflm", "tflm-reference"))
        cells = [plain["file_head_bytes"], plain["order_head_bytes"], plain["plan_head_bytes"]]
        shown = [f"{cell:,}" for cell in (*cells, shared["plan_head_bytes"])]
        yield f"| {model.stem} | {' | '.join(shown)} | {time.perf_counter() - started:.1f} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table for the given models, or for those in ``models/``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", type=Path, help="TFLite files")
    parser.add_argument("--time-limit", type=float, default=60.0, metavar="SECONDS")
    given = parser.parse_args(arguments)
    for line in table(given.models or [ROOT / "models" / f"{name}.tflite" for name in MODELS], given.time_limit):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
