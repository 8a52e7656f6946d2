"""A C program that runs streaming C on the host: it reads inputs and writes outputs."""

from __future__ import annotations

from memsched.base.templates import fill
from memsched.codegen.streaming.plan import StreamPlan

__all__ = ["host_program"]


def host_program(plan: StreamPlan) -> str:
    """Return a C99 program that reads 8-bit inputs from standard input and writes the outputs to standard output.

    Its optional argument is a number of calls: the program then also measures the processor time of a call and writes
    it to standard error in seconds.
    """
    names = [f"made{number}" for number in range(len(plan.network.outputs))]
    sizes = [f"MODEL_OUTPUT{number or ''}_BYTES" for number in range(len(names))]
    blocks = {
        "buffers": [f"static int8_t {name}[{size}];" for name, size in zip(names, sizes, strict=True)],
        "writes": [f"        fwrite({name}, 1, sizeof {name}, stdout);" for name in names],
    }
    values: dict[str, str | int] = {"by_rows": int(plan.given == "rows"), "outputs": ", ".join(names)}
    return fill("memsched.codegen.streaming", "host.c", values, blocks)
