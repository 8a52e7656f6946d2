"""Files read by content, and written whole or not at all."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from memsched.formats.files import read_source
from memsched.formats.known import format_in
from memsched.formats.staging import check_new_files, check_writable, describe, is_regular, same_file, staged_files
from tests.failures import fails


def test_a_format_is_told_by_its_content() -> None:
    assert format_in(b"\0\0\0\0TFL3....").name == "tflite"
    for other in (b"", b"TFL3", b"\x08\x09\x12\x00"):
        assert format_in(other).name == "onnx"


def test_read_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\x08abc")
    assert read_source(path) == (b"\x08abc", str(path))
    assert read_source(b"xyz") == (b"xyz", "-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x08in")))
    assert read_source("-") == (b"\x08in", "-")
    with fails("empty-file", describe("-")):
        read_source("-")


def test_nothing_changes_before_the_commit(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.write_bytes(b"old")
    with staged_files() as files:
        temporary = Path(files.add(old, b"new"))
        files.add(tmp_path / "other", b"other")
        assert temporary.parent == tmp_path
        assert temporary.read_bytes() == b"new"
        assert old.read_bytes() == b"old"
        assert not (tmp_path / "other").exists()
    assert sorted(tmp_path.iterdir()) == [old]
    with staged_files() as files:
        files.add(old, b"new")
        files.add(tmp_path / "other", b"other")
        files.commit()
    assert (old.read_bytes(), (tmp_path / "other").read_bytes()) == (b"new", b"other")
    assert len(list(tmp_path.iterdir())) == 2


def test_an_error_inside_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with staged_files() as files:
            files.add(tmp_path / "a", b"a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_links_are_followed(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    with staged_files() as files:
        files.add(link, b"new")
        files.commit()
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_pipes_are_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_writable(str(pipe))
        with staged_files() as files:
            files.add(pipe, b"through")
            files.commit()
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert not is_regular(str(pipe))


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for target, code in (
        (tmp_path, "output-is-folder"),
        (tmp_path / "file" / "none" / "a", "not-a-folder"),
        (tmp_path / "file" / "a", "not-a-folder"),
        (tmp_path / ("a" * 300), "unwritable"),
        ("a\0b", "unwritable"),
    ):
        with fails(code, str(target)):
            check_writable(str(target))
        with fails(code, str(target)), staged_files() as files:
            files.add(target, b"data")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_same_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    os.link(tmp_path / "a", tmp_path / "b")
    (tmp_path / "c").symlink_to(tmp_path / "a")
    for other in ("a", "b", "c", "./a", "../" + tmp_path.name + "/a"):
        assert same_file(tmp_path / "a", tmp_path / other)
    assert not same_file(tmp_path / "a", tmp_path / "d")
    assert same_file(tmp_path / "d", tmp_path / "." / "d")


def test_new_files_are_each_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0
    real = os.path.realpath

    def counting(path: str) -> str:
        nonlocal calls
        calls += 1
        return real(path)

    monkeypatch.setattr(os.path, "realpath", counting)
    check_new_files([str(tmp_path / f"part_{number}") for number in range(200)], str(tmp_path / "model"))
    assert calls <= 3 * 201


def test_new_files_that_are_one_another_or_the_model(tmp_path: Path) -> None:
    model, link, other = tmp_path / "model", tmp_path / "link", tmp_path / "other"
    model.write_bytes(b"")
    link.hardlink_to(model)
    with fails("would-overwrite", "link'"):
        check_new_files([str(tmp_path / "new"), str(link)], str(model))
    with fails("written-twice", "link'"):
        check_new_files([str(model), str(link)], "-")
    other.symlink_to(tmp_path / "new")
    with fails("written-twice", "new'"):
        check_new_files([str(other), str(tmp_path / "new")], str(model))
    check_new_files([str(tmp_path / "new"), str(tmp_path / "newer")], str(model))
