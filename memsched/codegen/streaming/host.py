"""A program around C that streams, which runs it on the machine that made it: inputs come in, outputs go out."""

from __future__ import annotations

from memsched.base.templates import fill
from memsched.codegen.streaming.plan import StreamPlan

__all__ = ["host_program"]


def host_program(plan: StreamPlan) -> str:
    """Return C99 that reads inputs of bytes from standard input, and writes what the model makes of each.

    With a number as its argument it calls the model as often once more, and writes the processor time of one call,
    seconds, to standard error.
    """
    names = [f"made{number}" for number in range(len(plan.network.outputs))]
    sizes = [f"MODEL_OUTPUT{number or ''}_BYTES" for number in range(len(names))]
    blocks = {
        "buffers": [f"static int8_t {name}[{size}];" for name, size in zip(names, sizes, strict=True)],
        "writes": [f"        fwrite({name}, 1, sizeof {name}, stdout);" for name in names],
    }
    values: dict[str, str | int] = {"by_rows": int(plan.given == "rows"), "outputs": ", ".join(names)}
    return fill("memsched.codegen.streaming", "host.c", values, blocks)
