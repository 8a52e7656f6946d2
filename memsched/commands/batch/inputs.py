"""Which models a batch consists of, and what their outputs are called."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath

from memsched.base.errors import ModelError
from memsched.base.frozen import FrozenValue
from memsched.formats.staging import overwrites

__all__ = ["EXTENSIONS", "BatchModel", "check_apart", "find_models", "read_list"]

EXTENSIONS = (".onnx", ".tflite")
"""Extensions of the files that are taken from folders; files that are named may have any."""

_SUFFIX = "_memsched"


class BatchModel(FrozenValue, frozen=True):
    """One model of a batch.

    Attributes:
        path: As it was given, or as it was found below a folder that was given.
        name: Of no other model of the batch: the file's stem, with as much of its path as tells it apart.
    """

    path: str
    name: str

    @property
    def output(self) -> str:
        """Return the name of the file to write."""
        return f"{self.name}{_SUFFIX}{PurePath(self.path).suffix}"

    @property
    def report(self) -> str:
        """Return the name of the report to write."""
        return f"{self.name}{_SUFFIX}.json"


def read_list(path: str) -> tuple[str, ...]:
    """Return the paths that a file lists, one per line; empty lines and those that begin with "#" are left out.

    Raises:
        ModelError: It cannot be read, or is not UTF-8 text.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason, code = (
            (error.strerror, "unreadable") if isinstance(error, OSError) else ("it is not UTF-8 text", "not-text")
        )
        raise ModelError(f"list '{path}' cannot be read: {reason}", code=code) from None
    return tuple(line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))


def find_models(paths: Iterable[str], *, leave_out: str) -> tuple[BatchModel, ...]:
    """Return the models that files and folders stand for, each once, folders searched to the bottom in order of name.

    Args:
        leave_out: The folder of the outputs: what an earlier batch wrote is no input of this one.

    Raises:
        ModelError: There is none.
    """
    given = tuple(paths)
    found: dict[str, str] = {}
    for path in given:
        for model in _below(path, _real(leave_out)) if _is_folder(path) else (path,):
            found.setdefault(_real(model), model)
    if not found:
        where = ", ".join(f"'{path}'" for path in given) or "the list"
        raise ModelError(f"there is no {' or '.join(EXTENSIONS)} file in {where}", code="no-models")
    models = tuple(found.values())
    return tuple(BatchModel(model, name) for model, name in zip(models, _names(models), strict=True))


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except (OSError, ValueError):  # no path of anything, such as a name that is too long: a model that fails
        return False


def _real(path: str | Path) -> str:
    """Return the path without links; of what can be no path the text itself."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return str(path)


def _below(folder: str, leave_out: str) -> Iterator[str]:
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if _real(Path(root, name)) != leave_out)
        yield from (str(Path(root, name)) for name in sorted(files) if name.lower().endswith(EXTENSIONS))


def _names(paths: Sequence[str]) -> list[str]:
    """Return a name for each path: its stem, or where that is taken its file's name and as many folders as it takes."""
    names = [PurePath(path).stem or "model" for path in paths]
    parts = [PurePath(os.path.abspath(path)).parts[1:] or ("model",) for path in paths]  # noqa: PTH100 - links are kept
    length = 1
    while (clashing := _clashing(names)) and length <= max(map(len, parts)):
        for index in clashing:
            names[index] = "-".join(parts[index][-length:]).replace(".", "-")
        length += 1
    for index in clashing:
        names[index] = f"{names[index]}-{index + 1}"
    return names


def _clashing(names: Sequence[str]) -> list[int]:
    # Not case-sensitive: some file systems are not.
    counts = Counter(name.casefold() for name in names)
    return [index for index, name in enumerate(names) if counts[name.casefold()] > 1]


def check_apart(models: Sequence[BatchModel], folder: str, others: Iterable[str]) -> None:
    """Refuse a folder in which an output would overwrite an input.

    Args:
        others: Names of what is written into ``folder`` beside models and reports.

    Raises:
        OutputError: It would.
    """
    inputs = {_identity(model.path) for model in models}
    names = [name for model in models for name in (model.output, model.report)]
    for name in (*names, *others):
        path = Path(folder, name)
        if _identity(path) in inputs:
            raise overwrites(path, "an input", "name another folder with -o")


def _identity(path: str | Path) -> tuple[int, int] | str:
    """Return what two names of one file have in common."""
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return _real(path)
    return found.st_dev, found.st_ino
