"""What is said where the tool that an integration is for is not installed."""

from __future__ import annotations

__all__ = ["missing_tool"]


def missing_tool(error: ModuleNotFoundError, package: str, source: str) -> ModuleNotFoundError:
    """Return the error to raise instead of ``error``: it names the package and what pip installs it from."""
    text = f"{package} cannot be imported: pip install {source} (module '{error.name}' was not found)"
    return ModuleNotFoundError(text, name=error.name)
