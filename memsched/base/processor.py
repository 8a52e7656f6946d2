"""The processor at hand: runtimes choose kernels by its features, and kernels set how weights are packed."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Final

__all__ = ["processor_flags", "processor_kind", "processor_name"]

_X86_LEVELS: Final = (
    ("v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("v3", {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}),
    ("v2", {"popcnt", "sse4_1", "sse4_2", "ssse3"}),
)
"""Levels of the x86-64 ABI, highest first, with their flags in /proc/cpuinfo."""

_KERNELS: Final = ("avx512_vnni", "avx_vnni", "amx_tile", "asimddp", "i8mm", "sve")
"""Further features with separate kernels in ONNX Runtime, which pack weights differently."""


@cache
def _described() -> dict[str, str]:
    """Return what Linux says of the first processor, by the names of the lines; nothing elsewhere."""
    source = Path("/proc/cpuinfo")
    lines = source.read_text(encoding="utf-8", errors="replace").splitlines() if source.exists() else []
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        found.setdefault(name.strip(), value.strip())
    return found


@cache
def processor_flags() -> frozenset[str]:
    """Return the features that Linux lists, such as ``avx2``; none on other systems."""
    described = _described()
    return frozenset(described.get("flags", described.get("Features", "")).split())


def processor_kind() -> str:
    """Return the features of this processor that select kernels, such as "x86-64-v4-avx512_vnni"."""
    flags, base = processor_flags(), platform.machine() or "unknown"
    if base in {"x86_64", "AMD64"}:
        level = next((name for name, wanted in _X86_LEVELS if wanted <= flags), "v1")
        base = f"x86-64-{level}"
    return "-".join((base, *(one for one in _KERNELS if one in flags)))


def processor_name() -> str:
    """Return the processor's name, or its architecture if the system gives no name."""
    return _described().get("model name") or platform.processor() or platform.machine()
