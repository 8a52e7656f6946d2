"""Compiles the core while a wheel or an editable installation is made, where there is a C++ compiler.

Without one, or with MEMSCHED_CORE=0, the wheel is pure Python: all works, and large searches take longer.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_FOLDER = Path("memsched/core")
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC")
_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"


class CoreBuildHook(BuildHookInterface):
    """Adds the compiled core to a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the core beside its source; see `BuildHookInterface.initialize`."""
        if self.target_name != "wheel":
            return
        library = Path(self.root) / _FOLDER / f"core{_SUFFIX}"
        said = _compile(sorted(library.parent.glob("*.cpp")), library)
        if said:
            library.unlink(missing_ok=True)
            self.app.display_warning(f"memsched: no compiled core, large searches take longer: {said}")
            return
        if version != "editable":
            build_data["artifacts"].append(str(library.relative_to(self.root)))
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"


def _compile(sources: Sequence[Path], library: Path) -> str:
    """Compile ``sources`` into ``library`` and return why that cannot be; nothing where it was done."""
    if os.environ.get("MEMSCHED_CORE") == "0":
        return "MEMSCHED_CORE=0"
    if os.name == "nt":
        return "it is not built on Windows"
    command = shlex.split(os.environ.get("CXX", "c++"))
    if not command or shutil.which(command[0]) is None:
        return f"no C++ compiler {command[0] if command else ''}"
    made = library.with_suffix(".new")
    done = subprocess.run(
        [*command, *_FLAGS, "-o", str(made), *map(str, sources)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"{command[0]} ended with {done.returncode}"])[0]
    made.replace(library)
    return ""
