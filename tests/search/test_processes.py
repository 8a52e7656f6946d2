"""A process that is started finds what this one finds, and how it died can be told."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from memsched.search.messages import Channel, LostError
from memsched.search.processes import Death, start_process

MODULE = """
import os, signal, sys
print("first")
print("the last", "line", flush=True)
if sys.argv[1] == "kill":
    os.kill(os.getpid(), int(sys.argv[2]))
if sys.argv[1] == "read":
    from memsched.search.messages import Channel
    channel = Channel.inherited(sys.argv[3])
    channel.tell([channel.hear(), os.getpgid(0) == os.getpid()])
if sys.argv[1] == "wait":
    from memsched.search.messages import Channel
    from memsched.search.processes import end_with_parent
    end_with_parent(Channel.inherited(sys.argv[3]), print)
    signal.pause()
sys.exit(int(sys.argv[2]))
"""


def begun(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str, own_group: bool = False
) -> tuple[subprocess.Popen[bytes], Channel]:
    """Start the module, which lies where this process finds modules and not where the new one works."""
    (folder / "modules").mkdir()
    (folder / "modules" / "spoken.py").write_text(MODULE)
    (folder / "here").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend("modules")
    with Path("log").open("wb") as log:
        return start_process("spoken", *words, folder=folder / "here", log=log, own_group=own_group)


def ended(folder: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> Death:
    process, channel = begun(folder, monkeypatch, *words)
    process.wait(60)
    channel.close()
    return Death(process.returncode, folder / "log")


def test_one_that_leaves_has_a_code_and_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = ended(tmp_path, monkeypatch, "leave", "7")
    assert (end.code, end.signal, end.out_of_memory()) == (7, None, False)
    assert (end.last_words(5), end.last_line(8), end.last_words()) == ("line\n", "the last", "first\nthe last line\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_one_that_is_killed_has_a_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    end = ended(tmp_path, monkeypatch, "kill", str(int(number)))
    assert end.signal == signal.Signals(number).name
    assert end.out_of_memory() == (number == signal.SIGKILL)


def test_signals_without_a_name_and_processes_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"")
    end = Death(-99, tmp_path / "log")
    assert (end.signal, end.last_line(10), end.last_words(10)) == ("signal 99", "", "")


@pytest.mark.parametrize("own", [True, False])
def test_both_speak_and_its_group_is_its_own_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    process, channel = begun(tmp_path, monkeypatch, "read", "0", own_group=own)
    channel.tell({"said": (1, b"2")})
    assert channel.hear() == [{"said": (1, b"2")}, own]
    with pytest.raises(LostError):
        channel.hear()
    assert process.wait(60) == 0
    with pytest.raises(LostError):
        channel.tell("more")
    channel.close()


def test_one_that_listens_ends_with_the_conversation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    process, channel = begun(tmp_path, monkeypatch, "wait", "0")
    channel.tell("wait")
    channel.close()
    assert process.wait(60) == 1
