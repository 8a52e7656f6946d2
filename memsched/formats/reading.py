"""Files read whole, after a look at their beginning: what cannot be meant takes no memory."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final

from memsched.formats.staging import STANDARD_STREAM

__all__ = ["HEAD_BYTES", "read_judged", "read_text"]

HEAD_BYTES: Final = 8
"""Bytes at the beginning of a file by which it is judged."""

Judge = Callable[[bytes, int], None]
"""Takes the first bytes of a file, and how many there are at least; raises where it cannot be meant."""


def read_judged(path: str, judge: Judge) -> bytes:
    """Return what a file holds, or standard input for "-".

    Raises:
        OSError: It cannot be read, or is a folder.
        ValueError: Its name cannot be one.
        Exception: What ``judge`` raises.
    """
    if path == STANDARD_STREAM:
        return _stream(sys.stdin.buffer, judge)
    with Path(path).open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return _stream(file, judge)
        judge(file.read(HEAD_BYTES), status.st_size)
    return Path(path).read_bytes()


def read_text(path: str) -> bytes:
    """Return what a file of text holds, or standard input for "-".

    Raises:
        OSError: It cannot be read, or is a folder.
        ValueError: It begins with zeros alone, as no text does, or its name cannot be one.
    """
    return read_judged(path, _judge_text)


def _judge_text(head: bytes, size: int) -> None:
    del size
    if head and not head.strip(b"\0"):
        raise ValueError("it begins with zeros, as no text does")


def _stream(stream: BinaryIO, judge: Judge) -> bytes:
    """Return what comes of a pipe or a device, which may never end."""
    head = stream.read(HEAD_BYTES)
    judge(head, len(head))
    found = io.BytesIO()
    found.write(head)
    while chunk := stream.read(io.DEFAULT_BUFFER_SIZE):
        found.write(chunk)
        judge(head, found.tell())
    return found.getvalue()
