"""What is said where the tool that an integration is for is not installed."""

from __future__ import annotations

__all__ = ["missing_tool"]


def missing_tool(error: ModuleNotFoundError, package: str, extra: str) -> ModuleNotFoundError:
    """Return the error to raise instead of ``error``: it names the package and the extra that installs it."""
    text = f"{package} cannot be imported: pip install 'memsched[{extra}]' (module '{error.name}' was not found)"
    return ModuleNotFoundError(text, name=error.name)
