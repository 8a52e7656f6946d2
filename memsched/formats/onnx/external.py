"""External data: files beside the model that hold its weights. They are checked and copied, never loaded."""

from __future__ import annotations

import filecmp
import os
import shutil
import tempfile
from pathlib import Path, PurePosixPath, PureWindowsPath

from memsched.base.errors import ModelError, OutputError
from memsched.formats.module import Module
from memsched.formats.staging import TEMPORARY_PREFIX, TEMPORARY_SUFFIX, make_folders, remove_made

__all__ = ["copy_external_files", "external_files", "folder_of", "resolve"]


def folder_of(path: str) -> Path:
    """Return the folder that external data of the model at ``path`` lies in; the current one for standard input."""
    return Path() if path == "-" else Path(path).parent


def resolve(folder: Path, location: str) -> Path:
    """Return the file that ``location`` means, which need not exist.

    Raises:
        ModelError: The location is empty, absolute, contains "..", or leaves ``folder`` through a link.
    """
    windows = PureWindowsPath(location)
    if not location or "\0" in location:
        raise ModelError("an external-data location is empty or holds a zero byte", code="external-data")
    if PurePosixPath(location).is_absolute() or windows.drive or windows.root:
        raise ModelError(
            f"external data '{location}' is an absolute path",
            action="it must lie in the model's folder",
            code="external-data",
        )
    if ".." in windows.parts:
        raise ModelError(
            f"external data '{location}' contains '..'",
            action="it must lie in the model's folder",
            code="external-data",
        )
    try:
        root = folder.resolve()
        target = (root / location).resolve()
    except (OSError, RuntimeError) as error:
        raise ModelError(f"external data '{location}' cannot be looked up: {error}", code="external-data") from error
    if not target.is_relative_to(root):
        raise ModelError(
            f"external data '{location}' leaves the model's folder through a link", code="external-data-link"
        )
    return target


def external_files(module: Module) -> tuple[str, ...]:
    """Return the locations of the module's external data, relative to its folder, in order of first use."""
    return tuple(module.native.external)


def copy_external_files(module: Module, destination_folder: Path) -> tuple[Path, ...]:
    """Make the references to external data resolve from ``destination_folder`` too; return what was created.

    Files are copied; each appears whole under its name or not at all. A file that is missing beside the model is left
    out (the module's notes name it); one that is there with the same content is kept. Folders that are missing are
    made, and come before the files in them.

    Raises:
        ModelError: A location leaves the model's folder.
        OutputError: A different file of that name exists, or the folder cannot be written. Nothing is left behind.
    """
    created: list[Path] = []
    try:
        for location in external_files(module):
            source = resolve(folder_of(module.path), location)
            if source.is_file():
                target = destination_folder.resolve() / location
                if not _is_there(source, target):
                    make_folders(target.parent, created)
                    _copy(source, target)
                    created.append(target)
    except OSError as error:
        remove_made(created)
        reason = error.strerror or str(error)
        raise OutputError(f"external data cannot be written to {destination_folder}: {reason}") from error
    except OutputError:
        remove_made(created)
        raise
    return tuple(created)


def _is_there(source: Path, target: Path) -> bool:
    if not os.path.lexists(target):
        return False
    if target.is_file() and (target.samefile(source) or filecmp.cmp(source, target, shallow=False)):
        return True
    raise OutputError(
        f"{target} exists and is not the model's external data",
        action="choose another folder or remove it",
        code="other-file-there",
    )


def _copy(source: Path, target: Path) -> None:
    # No hard link: onnx refuses to load a file that has several, and the given model's would then have, too.
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=TEMPORARY_PREFIX, suffix=TEMPORARY_SUFFIX)
    os.close(handle)
    try:
        shutil.copyfile(source, temporary)
        shutil.copymode(source, temporary)
        Path(temporary).replace(target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
