"""Models as child processes read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["described"]


def described(model: str | Path | bytes, data_folder: str | Path | None) -> dict[str, Any]:
    """Describe a model to a child process; "folder" is where its external data lies."""
    if isinstance(model, bytes):
        return {"bytes": model, "folder": None if data_folder is None else str(Path(data_folder).absolute())}
    path = Path(model).absolute()
    return {"path": str(path), "folder": str(path.parent)}
