"""Pictures of the terminal: what `memsched optimize` and `memsched analyze` print, at several widths.

    python -m scripts.terminal_images [--folder docs/images] [--columns 60 80 160]

Each command runs in a real pseudo-terminal of that width; what it printed is drawn by rich's SVG export.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"

_SECONDS = 300.0
_OLD_LINES = re.compile(r"[^\n]*\x1b\[2K|\x1b\[\?25[lh]|\x1b\[1A")


def printed(arguments: list[str], columns: int, folder: Path, *, stdout_only: bool = True, **env: str) -> str:
    """Return what a command writes to a terminal of that many columns; what it writes to standard error is left out.

    Args:
        arguments: Of `memsched`.
        folder: To run in.
        stdout_only: Standard error is no terminal, so that there is no progress; otherwise both are one terminal.
    """
    controller, terminal = pty.openpty()
    _set_size(terminal, columns)
    environment = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", **env}
    for name in {"COLUMNS", "NO_COLOR", "FORCE_COLOR"} - set(env):
        environment.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-m", "memsched", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=subprocess.DEVNULL if stdout_only else terminal,
    )
    os.close(terminal)
    data, end = b"", time.monotonic() + _SECONDS
    try:
        while time.monotonic() < end:
            ready, _, _ = select.select([controller], [], [], 1.0)
            if not ready:
                continue
            try:
                more = os.read(controller, 65536)
            except OSError:  # Linux's way to say that the other side has closed
                break
            if not more:
                break
            data += more
    finally:
        if time.monotonic() >= end:
            process.kill()
        process.wait()
        os.close(controller)
    return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _set_size(terminal: int, columns: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))


def draw(text: str, columns: int, title: str) -> str:
    """Return an SVG picture of a terminal that shows ``text``, with its escape sequences, after its command."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=columns, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115, PTH123
    console.print(Text(f"$ {title}", style="bold"), soft_wrap=True)
    console.print(Text.from_ansi(_OLD_LINES.sub("", text)), soft_wrap=True)
    # Without the fonts that rich would load from the network: the reader's own does as well.
    picture = console.export_svg(title="memsched", unique_id=f"terminal{columns}")
    return re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)


def main() -> int:
    """Run the commands and write the pictures; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--columns", type=int, nargs="+", default=[60, 80, 160])
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    model = "nasnetmobile_int8.tflite"
    commands = {"optimize": ["optimize", model, "--budget", "1100KB"], "analyze": ["analyze", model]}
    for columns in options.columns:
        for name, arguments in commands.items():
            with tempfile.TemporaryDirectory() as folder:
                (Path(folder) / model).write_bytes((MODELS / model).read_bytes())
                text = printed(arguments, columns, Path(folder))
            path = options.folder / f"terminal_{name}_{columns}.svg"
            path.write_text(draw(text, columns, f"memsched {' '.join(arguments)}"), encoding="utf-8")
            print(f"{path}: the longest line has {max(map(len, _plain(text).splitlines()))} columns")
    return 0


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


if __name__ == "__main__":
    sys.exit(main())
