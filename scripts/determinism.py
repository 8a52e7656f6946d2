"""The same bytes twice: every command on a few models under other hash seeds, locales, time zones, folders, workers.

python -m scripts.determinism
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[1]
_VARYING = {"seconds", "scheduling_seconds", "workers"}
"""What a report says of the run itself."""


@dataclass(frozen=True, slots=True)
class _World:
    """What a run must not depend on."""

    name: str
    environment: dict[str, str]
    folder: str
    workers: int


_WORLDS = (
    _World("plain", {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"}, "here", 1),
    _World("hash seed", {"PYTHONHASHSEED": "12345", "LC_ALL": "C", "TZ": "UTC"}, "here", 1),
    _World("locale", {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "LANG": "de_DE.UTF-8", "TZ": "UTC"}, "here", 1),
    _World("time zone", {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "Asia/Kathmandu"}, "here", 1),
    _World("folder", {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC"}, "a folder ü", 1),
    _World("workers", {"PYTHONHASHSEED": "random", "LC_ALL": "C", "TZ": "UTC"}, "here", 2),
)


def main() -> int:
    """Compare; 1 where two worlds give other bytes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="default: the small ones of models/ and the onnx package")
    args = parser.parse_args()
    differing = 0
    for model in args.models or _models():
        for label, arguments in _commands(model.name).items():
            found = {world.name: _files(model, arguments, world) for world in _WORLDS}
            reference = found["plain"]
            other = sorted(name for name, files in found.items() if files != reference)
            differing += bool(other)
            verdict = f"DIFFERS: {', '.join(other)}" if other else "same"
            print(f"{model.name:28} {label:22} {len(reference)} files: {verdict}", flush=True)
    print(f"{differing} differ")
    return differing > 0


def _models() -> list[Path]:
    import onnx

    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    names = ("micro_speech_quantized", "mobilenetv2_035_96_int8", "nasnetmobile_int8")
    return [*(_ROOT / "models" / f"{name}.tflite" for name in names), *sorted(light.glob("*.onnx"))]


def _commands(name: str) -> dict[str, list[str]]:
    return {
        "optimize": ["optimize", name, "-o", "out.bin", "--report", "out.json", "--no-verify"],
        "optimize tile,remat": [
            *("optimize", name, "-o", "out.bin", "--report", "out.json", "--no-verify", "--time-limit", "1000"),
            *("--allow", "reorder,inplace,tile,remat", "--budget", "1"),
        ],
        "pipeline": ["pipeline", name, "--stages", "3", "--no-verify", "--report", "out.json"],
    }


def _files(model: Path, arguments: list[str], world: _World) -> dict[str, str]:
    """Return the files that a command wrote, as digests of what does not tell of the run itself."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base) / world.folder
        folder.mkdir()
        shutil.copy(model, folder / model.name)
        command = [sys.executable, "-m", "memsched", *arguments, "--workers", str(world.workers), "--quiet"]
        environment = {**os.environ, "PYTHONPATH": str(_ROOT), **world.environment}
        result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
        if result.returncode not in {0, 3}:
            return {"error": result.stderr.decode(errors="replace")}
        paths = [path for path in sorted(folder.iterdir()) if path.name != model.name]
        return {path.name: hashlib.sha256(_stable(path)).hexdigest() for path in paths}


def _stable(path: Path) -> bytes:
    if path.suffix != ".json":
        return path.read_bytes()
    return json.dumps(_without_time(json.loads(path.read_bytes())), sort_keys=True).encode()


def _without_time(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_time(inner) for key, inner in value.items() if key not in _VARYING}
    return [_without_time(inner) for inner in value] if isinstance(value, list) else value


if __name__ == "__main__":
    sys.exit(main())
