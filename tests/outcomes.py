"""What a command that ran in the process of the tests said; the fixture `run` calls it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memsched.base.errors import MemschedError
from tests.failures import check_failure

__all__ = ["Outcome", "Run", "check_lines", "line_with", "refused"]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str
    error: MemschedError | None = None

    def failed(self, code: str, *about: str) -> None:
        """Check that it ended with an error of this code, in one line that names what it is about."""
        check_failure(self.error, code, *about)
        assert self.error is not None
        assert self.code == self.error.exit_code
        assert self.err.splitlines()[-1].startswith("memsched: error: ")


def refused(done: Outcome, code: str, *about: str) -> None:
    """Check that a command said one line of an error with this code, and nothing else."""
    done.failed(code, *about)
    assert done.out == ""
    assert done.err.count("\n") == 1, done.err


def line_with(text: str, *about: str) -> str:
    """Return the only line of a text that has all of ``about``: figures, names, options, and no sentences."""
    found = [line for line in text.splitlines() if all(one in line for one in about)]
    assert len(found) == 1, f"{len(found)} lines with {about} in:\n{text}"
    return found[0]


def check_lines(lines: Sequence[str], *about: Sequence[str]) -> None:
    """Check that there is a line for each entry of ``about``, and that each has all of its own: figures and names."""
    missing = [[one for one in entry if one not in line] for line, entry in zip(lines, about, strict=False)]
    assert (len(lines), [entry for entry in missing if entry]) == (len(about), []), "\n".join(lines)


Run = Callable[..., Outcome]
