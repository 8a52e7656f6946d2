"""Programs as an older processor runs them, if the system can hide what this one has."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_suffix(".c")


def _can_hide() -> bool:
    told = Path("/proc/cpuinfo")
    flags = told.read_text(encoding="utf-8").split() if told.exists() else []
    return "cpuid_fault" in flags and "avx512f" in flags and shutil.which("cc") is not None


needs_old_processor = pytest.mark.skipif(
    not _can_hide(), reason="no C compiler, or the system cannot hide what the processor has"
)


def built(folder: Path) -> Path:
    """Return the library that hides them, for LD_PRELOAD."""
    library = folder / "old_processor.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, _SOURCE], check=True)
    return library


def run_on_old(library: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command there."""
    return subprocess.run(["env", f"LD_PRELOAD={library}", *command], capture_output=True, text=True, check=False)
