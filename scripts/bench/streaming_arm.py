"""Run C that streams in an emulated Cortex-M4, and measure its RAM, code and stack there.

The packages `ziglang` (a compiler) and `unicorn` (an emulator) have to be installed. RAM is what the linker counts as
data, and the painted stack of a run; outputs of four inputs, each twice in a row, are compared with the reference.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from memsched.codegen.streaming.emit import ram_bytes
from memsched.codegen.streaming.plan import InputPlace
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, option, positional
from scripts.bench.streaming import CALLS, in_micro, rows_of

__all__ = ["BENCH"]

_FLASH, _RAM, _STACK, _CALLER = 0x0800_0000, 0x2000_0000, 0x3000_0000, 0x6000_0000
_MEGABYTES: Final = 1 << 24
_STACK_BYTES: Final = 1 << 16
_PAINT: Final = 0xA5
_TIMES: Final = 2
_INPUTS: Final = 4

_LINKED: Final = """
ENTRY(run)
SECTIONS
{
    . = 0x08000000;
    .text : { *(.text*) *(.rodata*) }
    .ARM.exidx : { *(.ARM.exidx*) }
    . = 0x20000000;
    .data : { *(.data*) }
    .bss : { *(.bss*) *(COMMON) }
}
"""

_STRING: Final = """
#include <stddef.h>
void *memcpy(void *to, const void *from, size_t count);
void *memset(void *to, int value, size_t count);
"""

_LIBRARY: Final = """
#include <string.h>
void *memcpy(void *to, const void *from, size_t count)
{
    volatile char *a = to;
    const char *b = from;
    while (count--) *a++ = *b++;
    return to;
}
void *memset(void *to, int value, size_t count)
{
    volatile char *a = to;
    while (count--) *a++ = (char)value;
    return to;
}
"""


def _linked(files: Mapping[str, bytes], folder: Path, place: InputPlace, optimize: str) -> Path:
    """Compile and link for a Cortex-M4, without a library."""
    extra = {"calls.c": CALLS, "library.c": _LIBRARY, "string.h": _STRING, "link.ld": _LINKED}
    for name, data in {**files, **{name: text.encode() for name, text in extra.items()}}.items():
        (folder / name).write_bytes(data)
    target = ["-target", "thumb-freestanding-eabi", "-mcpu=cortex_m4", "-std=c99", f"-{optimize}", "-ffreestanding"]
    flags = ["-nostdlib", "-fno-unwind-tables", "-fno-builtin", "-fno-sanitize=all", f"-I{folder}"]
    macros = ["-DROWS"] if place == "rows" else []
    sources = [str(folder / name) for name in ("model.c", "calls.c", "library.c")]
    out = folder / "program.elf"
    command = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        *target,
        *flags,
        *macros,
        *sources,
        "-Wl,--entry=run",
        "-T",
        str(folder / "link.ld"),
    ]
    subprocess.run([*command, "-o", str(out)], check=True)
    return out


class _Program:
    """An executable, loaded: its segments, its symbols and the sizes of its sections."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()

        def word(at: int, size: int = 4) -> int:
            return int.from_bytes(data[at : at + size], "little")

        self.segments: list[tuple[int, bytes]] = []
        for number in range(word(44, 2)):
            at = word(28) + number * word(42, 2)
            if word(at) == 1:
                self.segments.append((word(at + 8), data[word(at + 4) : word(at + 4) + word(at + 16)]))
        headers = [word(32) + number * word(46, 2) for number in range(word(48, 2))]
        names = word(headers[word(50, 2)] + 16)
        self.sizes: dict[str, int] = {}
        self.symbols: dict[str, int] = {}
        for at in headers:
            name = data[names + word(at) :].split(b"\0", 1)[0].decode()
            self.sizes[name] = word(at + 20)
            if word(at + 4) == 2:
                texts = word(headers[word(at + 24)] + 16)
                for symbol in range(word(at + 16), word(at + 16) + word(at + 20), 16):
                    text = data[texts + word(symbol) :].split(b"\0", 1)[0].decode()
                    self.symbols[text] = word(symbol + 4)

    def run(self, inputs: Sequence[Any], made: int) -> tuple[list[Any], int]:
        """Return the outputs of each input, and the bytes of stack that one run used."""
        unicorn: Any = import_module("unicorn")
        arm: Any = import_module("unicorn.arm_const")
        machine = unicorn.Uc(unicorn.UC_ARCH_ARM, unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS)
        machine.ctl_set_cpu_model(arm.UC_CPU_ARM_CORTEX_M4)
        for begin, size in (
            (_FLASH - _MEGABYTES, 2 * _MEGABYTES),
            (_RAM, _MEGABYTES),
            (_STACK, _STACK_BYTES),
            (_CALLER, _MEGABYTES),
        ):
            machine.mem_map(begin, size)
        for begin, data in self.segments:
            if data:
                machine.mem_write(begin, data)
        found, used = [], 0
        given, taken, back = _CALLER, _CALLER + _MEGABYTES // 2, _FLASH - _MEGABYTES
        top = _STACK + _STACK_BYTES
        for values in inputs:
            machine.mem_write(_STACK, bytes([_PAINT]) * _STACK_BYTES)
            machine.mem_write(given, values.astype(np.int8).tobytes())
            for register, value in (
                (arm.UC_ARM_REG_SP, top),
                (arm.UC_ARM_REG_LR, back | 1),
                (arm.UC_ARM_REG_R0, given),
                (arm.UC_ARM_REG_R1, taken),
            ):
                machine.reg_write(register, value)
            machine.emu_start(self.symbols["run"] | 1, back)
            found.append(np.frombuffer(bytes(machine.mem_read(taken, made)), np.int8))
            stack = bytes(machine.mem_read(_STACK, _STACK_BYTES))
            used = max(used, len(stack.lstrip(bytes([_PAINT]))))
        return found, used


def _row(name: str, model: bytes, place: InputPlace, optimize: str) -> tuple[tuple[str, ...], bool]:
    from tests.codegen.streaming.harness import extremes, in_reference, streamed

    plan, code = streamed(model, place)
    inputs = extremes(plan.network.maps[0].size, _INPUTS)
    micro = in_micro(model)
    wanted = in_reference(model, inputs) if micro is None else [micro(one) for one in inputs]
    with tempfile.TemporaryDirectory() as folder:
        program = _Program(_linked(code.files, Path(folder), place, optimize))
    made = plan.network.maps[plan.network.outputs[0]].size
    found, stack = program.run([one for one in inputs for _ in range(_TIMES)], made)
    same = all(np.array_equal(one, wanted[number // _TIMES]) for number, one in enumerate(found))
    data = program.sizes.get(".bss", 0) + program.sizes.get(".data", 0)
    flash = program.sizes[".text"]
    cells = (
        name, place, f"{ram_bytes(plan.arena, code.state):,}", f"{data:,}", f"{stack:,}", f"{flash:,}",
        f"{len(model):,}",
        "equal" if same else "DIFFERENT",
    )  # fmt: skip
    return cells, same


def tables(values: Values) -> Iterator[Part]:
    """Yield a row for each model and place of the input."""
    yield Heading("model", "input", ">RAM, as said", ">data", ">stack", ">code and constants", ">file", "outputs")
    yield from rows_of(values, _row, 8)


BENCH = Benchmark(
    __doc__,
    tables,
    (
        positional("models", type=Path, help="TFLite files; default: four, and two networks with random weights"),
        option("--optimize", default="O2", help="of the compiler"),
    ),
    docs="docs/benchmarks/devices.md",
)
