"""Programs as an older processor runs them, if the system can hide what this one has."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from memsched.base.processor import processor_flags

_SOURCE = Path(__file__).with_suffix(".c")
_HAS_COMPILER = shutil.which("cc") is not None

needs_compiler = pytest.mark.skipif(not _HAS_COMPILER, reason="no C compiler")
needs_old_processor = pytest.mark.skipif(
    not (_HAS_COMPILER and processor_flags() >= {"cpuid_fault", "avx512f"}),
    reason="no C compiler, or the system cannot hide what the processor has",
)


def built(folder: Path, source: Path = _SOURCE) -> Path:
    """Return a library for LD_PRELOAD; by default, the one that hides what an older processor lacks."""
    library = folder / f"{source.stem}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


def run_on_old(library: Path, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a command there."""
    return subprocess.run(["env", f"LD_PRELOAD={library}", *command], capture_output=True, text=True, check=False)
