"""Files written whole or not at all: beside their place first, then moved there."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memsched.base.errors import OutputError, UsageError

__all__ = [
    "STANDARD_STREAM",
    "TEMPORARY_PREFIX",
    "TEMPORARY_SUFFIX",
    "StagedFiles",
    "check_apart",
    "check_new_files",
    "check_writable",
    "describe",
    "is_regular",
    "make_folder",
    "make_folders",
    "overwrites",
    "reason",
    "remove_made",
    "same_file",
    "staged_files",
]

STANDARD_STREAM = "-"
"""The path that means standard input or standard output."""

TEMPORARY_PREFIX, TEMPORARY_SUFFIX = ".memsched-", ".tmp"
"""How names of unfinished files begin and end; they lie beside what they become. A killed process leaves them."""


def describe(path: str) -> str:
    """Return how messages name ``path``."""
    return "standard input" if path == STANDARD_STREAM else f"'{path}'"


def same_file(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Return whether both paths name one file, through links too, or would if they existed."""
    try:
        return Path(first).samefile(second)
    except OSError:
        return os.path.realpath(first) == os.path.realpath(second)


def is_regular(path: str) -> bool:
    """Return whether ``path`` is a regular file or would become one: no device, pipe or folder."""
    return not os.path.exists(path) or os.path.isfile(path)  # noqa: PTH110, PTH113 - these never raise


def overwrites(path: str | os.PathLike[str], given: str, action: str) -> OutputError:
    """Return what is wrong with an output that would take the place of an input.

    Args:
        given: The input, in words.
        action: What the user can do.
    """
    return OutputError(f"'{os.fspath(path)}' is {given}", code="would-overwrite", action=action)


def check_apart(what: str, path: str, others: Iterable[str | None]) -> None:
    """Refuse a file that cannot be written, or that one of the other files of a command is.

    Args:
        what: The output, such as "page".
        others: None and "-" are no files.

    Raises:
        UsageError: It is one of the others.
        OutputError: It cannot be written.
    """
    files = [other for other in others if other is not None and other != STANDARD_STREAM]
    if is_regular(path) and any(same_file(path, other) for other in files):
        raise UsageError(f"the {what} would overwrite '{path}'", code="same-file", action="name another file")
    check_writable(path)


def check_writable(target: str, *, within: str | None = None) -> None:
    """Check, without writing anything, that a file can probably be written to ``target``.

    Args:
        within: A folder for several files, which may be missing.

    Raises:
        OutputError: It is a folder, something above it is none or is missing, or there is no permission.
    """
    try:
        path = os.path.realpath(target)
        folder = Path(path).parent
        if Path(path).is_dir():
            raise OutputError(
                f"'{target}' is a folder", code="output-is-folder", action="give the name of a file in it"
            )
        above = _check_folder(folder, within)
        if _mode(path) is not None and not os.access(above, os.W_OK):
            raise PermissionError(errno.EACCES, "its folder is write-protected")
    except (OSError, ValueError) as error:
        raise _output_error(target, error) from None


def _check_folder(folder: Path, within: str | None) -> Path:
    """Return ``folder``, or the nearest above it that exists where it may be made.

    Raises:
        OSError: One is a file, or is missing and is neither ``within`` nor in it: a path that was mistyped makes none.
    """
    missing: Path | None = None
    while not folder.exists():
        missing, folder = folder, folder.parent
    if not folder.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, f"'{folder}' is not a folder")
    home = None if within is None else Path(os.path.realpath(within))
    if missing is not None and (home is None or home not in {missing, *missing.parents}):
        raise FileNotFoundError(errno.ENOENT, f"folder '{missing}' does not exist; make it, or correct the path")
    return folder


def make_folder(folder: str) -> None:
    """Make a folder for several files where it is missing; the one above it must exist.

    Raises:
        OutputError: It cannot be made.
    """
    try:
        _check_folder(Path(os.path.realpath(folder)), folder)
        Path(folder).mkdir(exist_ok=True)
    except (OSError, ValueError) as error:
        raise OutputError(f"folder '{folder}' cannot be made: {reason(error)}", code=_code(error)) from None


def check_new_files(paths: Sequence[str], source: str, *, within: str | None = None) -> None:
    """Refuse files beside a model, or in a folder, that cannot be written, before any time is spent.

    Args:
        source: The model, or "-" for standard input.
        within: The folder for them, which may be missing.

    Raises:
        OutputError: A folder cannot be made or written, or a file would be the model itself or written twice.
    """
    given = frozenset[object]() if source == STANDARD_STREAM else _identities(source)
    known: set[object] = set()
    for path in paths:
        own = _identities(path)
        if not own.isdisjoint(given):
            raise overwrites(path, "the model itself", "give another folder with -o, or another --report")
        if not own.isdisjoint(known):
            raise OutputError(
                f"'{path}' would be written twice", code="written-twice", action="name another file with --report"
            )
        known |= own
        check_writable(path, within=within)


def _identities(path: str) -> frozenset[object]:
    """Return what two paths of one file have in common: its real path, and where it exists the file itself."""
    found: list[object] = [os.path.realpath(path)]
    with contextlib.suppress(OSError, ValueError):
        status = Path(path).stat()
        found.append((status.st_dev, status.st_ino))
    return frozenset(found)


def make_folders(folder: Path, made: list[Path]) -> None:
    """Make ``folder`` and what is missing above it; each that was made is appended to ``made``, the outermost first.

    Raises:
        OSError: One cannot be made, or is a file.
    """
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for one in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process made it meanwhile
            one.mkdir()
            made.append(one)


def remove_made(paths: Sequence[Path]) -> None:
    """Remove files, and folders where they are empty, the last one first; what cannot be removed stays."""
    for path in reversed(paths):
        with contextlib.suppress(OSError):
            path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)


@dataclass(slots=True)
class _TemporaryFile:
    """One file on its way: complete in ``temporary``, to be renamed to ``target``."""

    temporary: str
    target: str
    existed: bool


class StagedFiles:
    """Files written completely under temporary names beside their targets, then renamed together.

    Until `commit` nothing has changed under the targets' names; what was not committed is removed by `discard`, with
    the folders that were made for it.
    """

    def __init__(self) -> None:
        self._made: list[Path] = []
        self._staged: list[_TemporaryFile] = []
        self._direct: list[tuple[str, bytes]] = []

    def add(self, target: str | os.PathLike[str], data: bytes | Iterable[bytes]) -> str:
        """Write ``data``, whole or in pieces, under a temporary name, and return that name.

        It lies in the folder of ``target``, which is made where it vanished since `check_writable`.
        A target that exists and is no regular file (a device, a pipe) is written by `commit`, directly.

        Raises:
            OutputError: The disk is full, the target is a folder, or there is no permission.
        """
        try:
            path = os.path.realpath(target)
            mode = _mode(path)
            if mode is None:
                self._direct.append((path, b"".join(_pieces(data))))
                return path
            return self._write(os.fspath(target), path, data, mode)
        except (OSError, ValueError) as error:
            raise _output_error(os.fspath(target), error) from None

    def _write(self, target: str, path: str, data: bytes | Iterable[bytes], mode: int) -> str:
        if Path(path).is_dir():
            raise OutputError(
                f"'{target}' is a folder", code="output-is-folder", action="give the name of a file in it"
            )
        make_folders(Path(path).parent, self._made)
        descriptor, temporary = tempfile.mkstemp(
            prefix=TEMPORARY_PREFIX, suffix=TEMPORARY_SUFFIX, dir=Path(path).parent
        )
        self._staged.append(_TemporaryFile(temporary, path, Path(path).exists()))
        with os.fdopen(descriptor, "wb") as stream:
            stream.writelines(_pieces(data))
            stream.flush()
            Path(temporary).chmod(mode)
            os.fsync(stream.fileno())
        return temporary

    def take(self, made: Sequence[Path]) -> None:
        """Have `discard` remove these, too, which the caller has made already: files, and folders before them."""
        self._made += made

    def commit(self) -> None:
        """Rename all files to their targets; when one fails, those that did not exist before are removed again.

        Raises:
            OutputError: A rename or a direct write failed.
        """
        done: list[_TemporaryFile] = []
        try:
            for path, data in self._direct:
                current = path
                Path(path).write_bytes(data)
            for staged in self._staged:
                current = staged.target
                Path(staged.temporary).replace(staged.target)
                done.append(staged)
        except OSError as error:
            for staged in done:
                if not staged.existed:
                    Path(staged.target).unlink(missing_ok=True)
            self._staged = [staged for staged in self._staged if staged not in done]
            raise _output_error(current, error) from None
        self._made, self._staged, self._direct = [], [], []
        for folder in dict.fromkeys(str(Path(staged.target).parent) for staged in done):
            _sync_folder(folder)

    def discard(self) -> None:
        """Remove every file that was not committed, and every folder that was made and is empty."""
        for staged in self._staged:
            with contextlib.suppress(OSError):
                Path(staged.temporary).unlink(missing_ok=True)
        remove_made(self._made)
        self._made, self._staged, self._direct = [], [], []


@contextlib.contextmanager
def staged_files() -> Iterator[StagedFiles]:
    """Give a `StagedFiles` that discards uncommitted files on exit."""
    files = StagedFiles()
    try:
        yield files
    finally:
        files.discard()


def _pieces(data: bytes | Iterable[bytes]) -> Iterable[bytes]:
    return (data,) if isinstance(data, bytes) else data


def _mode(path: str) -> int | None:
    """Return the permissions that a file written to ``path`` gets; None for what is no regular file or folder."""
    try:
        existing = Path(path).stat().st_mode
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
    if stat.S_ISREG(existing):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "it exists and is write-protected")
        return stat.S_IMODE(existing)
    return 0o666 if stat.S_ISDIR(existing) else None


def _sync_folder(folder: str) -> None:
    """Make the renames themselves durable, where the system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_CODES: Final = {
    errno.EACCES: "no-permission",
    errno.EDQUOT: "disk-full",
    errno.EFBIG: "disk-full",
    errno.ENOENT: "no-such-folder",
    errno.ENOSPC: "disk-full",
    errno.ENOTDIR: "not-a-folder",
}
"""Codes of the errors that users can do something about; others are "unwritable"."""


def _output_error(path: str, error: Exception) -> OutputError:
    return OutputError(f"'{path}' cannot be written: {reason(error)}", code=_code(error))


def _code(error: Exception) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return "unwritable" if number is None else _CODES.get(number, "unwritable")


def reason(error: Exception) -> str:
    """Return why reading or writing failed, in the words of the system where it has any."""
    return (error.strerror if isinstance(error, OSError) and error.strerror else str(error)) or type(error).__name__
