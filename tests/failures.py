"""What tests check of an error: its code, and the names, options and numbers that it tells; not its wording."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from memsched.base.errors import MemschedError
from memsched.ops.rules import Refusal

__all__ = ["check_failure", "check_refusal", "fails"]


@contextlib.contextmanager
def fails(
    code: str, *about: str, kind: type[MemschedError] = MemschedError
) -> Iterator[pytest.ExceptionInfo[MemschedError]]:
    """Expect an error.

    Args:
        code: Of the error.
        about: What its text has to name, such as a tensor, an option or a number of bytes.
        kind: Its class, where several have errors of this code.
    """
    with pytest.raises(kind) as caught:
        yield caught
    check_failure(caught.value, code, *about)


def check_failure(error: BaseException | None, code: str, *about: str) -> None:
    """Check the code of an error, and what its text names."""
    assert isinstance(error, MemschedError), f"no error, where '{code}' is expected"
    assert error.code == code, f"{error.code}: {error}"
    missing = [one for one in about if one not in str(error)]
    assert not missing, f"'{error}' does not name {missing}"


def check_refusal(found: object, code: str, *about: str) -> None:
    """Check why something cannot be tiled, and what the reason names."""
    assert isinstance(found, Refusal), f"{found}, where the refusal '{code}' is expected"
    assert found.code == code, found
    assert [one for one in about if one not in found.reason] == [], found.reason
