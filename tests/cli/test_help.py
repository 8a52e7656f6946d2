"""Help, examples, completion and what is proposed for a mistyped name."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from memsched.cli.examples import ENTRY, EXAMPLES
from memsched.cli.groups import OPTIMIZE, GroupedCommand
from memsched.cli.main import cli
from memsched.cli.optimize import command as optimize
from tests import small_models
from tests.cli.conftest import Run

COMMANDS = cli.list_commands(click.Context(cli))
LINES = [line for name, lines in EXAMPLES.items() if name in COMMANDS for _, line in lines]
PAGE = 60
"""Lines that a terminal of a usual size shows."""
PROGRAM = Path(sys.executable).with_name("memsched")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_ends_with_examples_and_exit_codes(run: Run, name: str) -> None:
    text = run(name, "--help").out
    assert EXAMPLES[name][0][1] in text
    assert "Examples:" in text
    assert re.search(r"Exit codes: 0 ", " ".join(text.split()))


def test_the_entry_s_examples(run: Run) -> None:
    text = run("--help").out
    assert all(line in text for _, line in ENTRY)


@pytest.mark.parametrize("line", LINES)
def test_an_example_is_understood(line: str) -> None:
    """Its words are a command, its options and arguments; values are checked as when it is run."""
    name, *words = shlex.split(line.partition("|")[0].partition(">")[0])[1:]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    command.make_context(name, words)


@pytest.mark.parametrize("columns", [60, 80, 160])
@pytest.mark.parametrize("name", COMMANDS)
def test_help_keeps_to_the_terminal(name: str, columns: int) -> None:
    env = {**os.environ, "COLUMNS": str(columns)}
    done = subprocess.run(
        [sys.executable, "-m", "memsched", name, "--help"], capture_output=True, text=True, check=True, env=env
    )
    # Examples are to be copied, so they are never broken.
    wrapped = [line for line in done.stdout.splitlines() if not line.lstrip().startswith("$ ")]
    assert max(map(len, wrapped)) <= columns


def options_in(text: str) -> set[str]:
    return set(re.findall(r"(?m)^  (?:-\w, )?(--[a-z-]+)", text))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_one_page_and_help_all_has_every_option(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    texts = []
    for flag in ("--help", "--help-all"):
        done = CliRunner().invoke(command, [flag], terminal_width=80)
        assert done.exit_code == 0
        texts.append(done.output)
    short, full = texts
    assert len(short.splitlines()) <= PAGE
    declared = {one.opts[-1] for one in command.params if isinstance(one, click.Option) and one.opts[-1][:2] == "--"}
    assert options_in(short) <= options_in(full) == {*declared, "--help"}
    assert "--help-all" in options_in(short)


def test_help_of_optimize_shows_what_most_people_need(run: Run) -> None:
    found = options_in(run("optimize", "--help").out)
    assert {"--target", "--budget", "--max-slowdown", "--shape", "--dim", "--output", "--report"} <= found
    assert {"--time-limit", "--effort", "--json", "--quiet", "--verbose", "--force", "--help"} <= found
    assert not {"--solver", "--seed", "--partitions", "--order-guarantee"} & found


def complete(words: list[str], **env: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "memsched"],
        capture_output=True,
        text=True,
        check=False,
        env={
            **os.environ,
            "_MEMSCHED_COMPLETE": "bash_complete",
            "COMP_WORDS": " ".join(words),
            "COMP_CWORD": str(len(words) - 1),
            **env,
        },
    )
    return done.stdout.split()


def test_completion_of_commands_options_and_values() -> None:
    assert "plain,optimize" in complete(["memsched", "opt"])
    assert complete(["memsched", "optimize", "--budg"]) == ["plain,--budget", "plain,--budget-for"]
    assert complete(["memsched", "optimize", "--target", "tflm-c"]) == [
        "plain,tflm-cmsis-nn",
        "plain,tflm-cmsis-nn-mve",
    ]
    assert complete(["memsched", "targets", "on"]) == ["plain,onnxruntime"]
    assert complete(["memsched", "optimize", "--target", "my"]) == ["file,my"]
    assert complete(["memsched", "optimize", "mod"]) == ["file,mod"]
    assert complete(["memsched", "verify", "a.onnx", "b"]) == ["file,b"]
    assert complete(["memsched", "analyze", "--report", "r"]) == ["file,r"]
    assert complete(["memsched", "optimize", "--allow", "reorder,t"]) == ["plain,reorder,tile"]
    assert "plain,exact" in complete(["memsched", "optimize", "--solver", ""])


@pytest.mark.parametrize(("shell", "sign"), [("bash", "complete -o nosort"), ("zsh", "compdef"), ("fish", "complete ")])
def test_the_script_of_each_shell(run: Run, shell: str, sign: str) -> None:
    done = run("--completion", shell)
    assert done.code == 0
    assert sign in done.out
    assert "_MEMSCHED_COMPLETE" in done.out


def test_a_shell_that_is_not_known(run: Run) -> None:
    run("--completion", "tcsh").failed("bad-parameter", "--completion", "'tcsh'", "'bash', 'zsh', 'fish'")


def test_completion_in_a_real_bash() -> None:
    script = f"""
eval "$({shlex.quote(str(PROGRAM))} --completion bash)"
COMP_WORDS=(memsched optimize --target tfl) COMP_CWORD=3
_memsched_completion memsched
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    env = {**os.environ, "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, env=env)
    assert done.stdout.split() == ["tflm", "tflm-cmsis-nn", "tflm-cmsis-nn-mve", "tflm-esp-nn-s3", "tflm-reference"], (
        done.stderr
    )


def test_proposals(run: Run, tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(small_models.branches(side="rows"))
    for arguments, proposal in {
        ("optimise", str(model)): "'optimize'",
        ("optimize", str(model), "--target", "onnxruntme", "--dim", "rows=1"): "'onnxruntime'",
        ("optimize", str(model), "--dim", "rows=1", "--dim", "row=1"): "'rows'",
        ("optimize", str(model), "--dim", "rows=1", "--shape", "mena0=1"): "'mean0'",
        ("optimize", str(model), "--allow", "reoder"): "'reorder'",
    }.items():
        done = run(*arguments)
        assert f"{proposal}?" in str(done.error)
        assert done.err.count("\n") == 1
    run("optimize", model, "--time-limt", "1").failed("no-such-option", "--time-limit")


def test_options_of_optimize_are_in_groups(run: Run) -> None:
    text = run("optimize", "--help-all").out
    titles = re.findall(r"^([A-Z][a-z ]+):$", text, re.MULTILINE)
    assert [title for title in titles if title != "Examples"] == list(OPTIMIZE)
    names = [name for group in OPTIMIZE.values() for name in group]
    declared = [one.name for one in optimize.params if isinstance(one, click.Option)]
    assert sorted(names) == sorted([*declared, "help"])


def test_an_option_in_no_group_comes_last(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(GroupedCommand, "groups", {"Files": ("output",)})
    text = run("optimize", "--help-all").out
    assert re.search(r"^Files:$.*--output.*^[A-Z][a-z ]+:$.*--report", text, re.DOTALL | re.MULTILINE)
