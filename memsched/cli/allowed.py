"""What `--allow` permits."""

from __future__ import annotations

__all__ = ["ALLOWED"]

ALLOWED = ("reorder", "inplace", "tile", "remat")
"""What ``--allow`` may name."""
