"""Files that cannot be meant are refused by their beginning, in little memory, however large they are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor

from memsched.formats.known import FORMATS

LARGE = 5 << 30
MOST_KILOBYTES = 300_000
"""Of resident memory, the interpreter and the packages that a command imports included."""

BEGINNINGS = {"zeros": b"", "an ONNX model": b"\x08\x08", "a TFLite model": b"\x1c\0\0\0TFL3", "text": b"<html>"}


_WATCHED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[2:])
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(done.returncode)
"""
"""Runs a command. A process's greatest memory counts that of the process that started it: this one is small."""


def refused(folder: Path, *words: str, stdin: Path | None = None) -> str:
    """Run a command and return the one line with which it is refused; check its code, and what memory it took."""
    command = [sys.executable, "-S", "-c", _WATCHED, str(folder / "most"), sys.executable, "-m", "memsched", *words]
    with (stdin or Path(os.devnull)).open("rb") as stream:
        done = subprocess.run(command, stdin=stream, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert int((folder / "most").read_text()) < MOST_KILOBYTES
    (folder / "most").unlink()
    return done.stderr


@pytest.mark.parametrize("name", BEGINNINGS)
def test_a_large_file_that_is_no_model(tmp_path: Path, name: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(BEGINNINGS[name])
    os.truncate(path, LARGE)
    assert "net.onnx" in refused(tmp_path, "optimize", str(path), "--no-verify")
    assert [one.name for one in tmp_path.iterdir()] == ["net.onnx"]


@pytest.mark.parametrize("words", [("analyze",), ("report", "-o", "-"), ("allocate", "--capacity", "1MB")])
def test_a_device_without_an_end(tmp_path: Path, words: tuple[str, ...]) -> None:
    assert "/dev/zero" in refused(tmp_path, words[0], "/dev/zero", *words[1:])
    more = ("-o", "-") if words[0] == "allocate" else ()
    assert "standard input" in refused(tmp_path, words[0], "-", *words[1:], *more, stdin=Path("/dev/zero"))


def test_a_comparison_with_a_device_without_an_end(tmp_path: Path) -> None:
    assert "/dev/zero" in refused(tmp_path, "diff", "/dev/zero", "/dev/zero")
    assert "/dev/zero" in refused(tmp_path, "verify", "/dev/zero", "/dev/zero")


def test_every_field_of_a_model_can_come_first() -> None:
    form = next(one for one in FORMATS if one.name == "onnx")
    model = onnx.ModelProto()
    for field in model.DESCRIPTOR.fields:
        kind = 0 if field.type == FieldDescriptor.TYPE_INT64 else 2
        tag, begin = field.number << 3 | kind, bytearray()
        while tag > 127:
            begin.append(tag & 127 | 128)
            tag >>= 7
        begin.append(tag)
        assert form.begins(bytes(begin) + b"\x01"), field.name
    assert not any(form.begins(bytes([first]) * 8) for first in (0, 1, 3, 4, 0x3C, 0xFF))
