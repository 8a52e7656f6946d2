"""What other programs read: the action, whose shell really runs, the hook, tasks for VS Code, image and citation."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml

import memsched
from tests import small_models
from tests.formats import tflite_builder

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(memsched.__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
MEMSCHED = Path(sys.executable).with_name("memsched")

PIP = """#!/bin/sh
# Stands for a Python that makes environments: what it is told to install is noted, and memsched is the one under test.
if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; ln -s {memsched} "$3/bin/memsched"; exit 0; fi
echo "$@" >> {log}
"""


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with models and reports, and the programs that a job of GitHub Actions has."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temp").mkdir()
    (tmp_path / "small.onnx").write_bytes(small_models.branches(count=4))
    (tmp_path / "large.onnx").write_bytes(small_models.branches(count=8))
    subprocess.run([MEMSCHED, "analyze", "small.onnx", "--report", "small.json", "-q"], check=True)
    python = tmp_path / "python"
    python.write_text(PIP.format(memsched=MEMSCHED, log=tmp_path / "pip.log"))
    python.chmod(0o755)
    return tmp_path


def act(folder: Path, **given: str) -> tuple[int, dict[str, str], str]:
    """Run the action's steps as a runner does; return the exit code, the outputs and the summary."""
    inputs = {name: given.get(name.replace("-", "_"), one.get("default", "")) for name, one in ACTION["inputs"].items()}
    inputs["python"] = str(folder / "python")
    known = {f"inputs.{name}": value for name, value in inputs.items()}
    known |= {"github.action_path": str(ROOT), "runner.temp": str(folder / "temp")}
    files = {"GITHUB_OUTPUT": folder / "output", "GITHUB_STEP_SUMMARY": folder / "summary"}
    for file in files.values():
        file.write_text("")
    code = 0
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        filled = {
            name: re.sub(r"\$\{\{ (.+?) \}\}", lambda one: known[one[1]], text) for name, text in step["env"].items()
        }
        assert "${{" not in step["run"], "what people write must reach the shell as variables, never as its text"
        environment = {**os.environ, **filled, **{name: str(file) for name, file in files.items()}}
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        code = subprocess.run(command, env=environment, check=False).returncode
        if code:
            break
    text = files["GITHUB_OUTPUT"].read_text()
    outputs = {
        name: value for name, _, value in re.findall(r"^(\w+)<<(\S+)\n(.*?)\n\2$", text, re.DOTALL | re.MULTILINE)
    }
    outputs |= dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    return code, outputs, files["GITHUB_STEP_SUMMARY"].read_text()


def test_the_action_compares_and_says_so(runner: Path) -> None:
    code, outputs, summary = act(runner, old="small.json", new="large.onnx")
    assert code == 3
    assert outputs["regression"] == "true"
    assert outputs["table"].strip() == summary.strip()
    assert re.search(r"^\| required \| [\d,]+ \| [\d,]+ \| \+\d+\.\d\d % \|$", summary, re.MULTILINE)
    assert set(outputs) == set(ACTION["outputs"])
    assert (runner / "pip.log").read_text() == f"-m pip install --quiet {ROOT}\n"


def test_the_action_passes_where_nothing_grew(runner: Path) -> None:
    code, outputs, summary = act(runner, old="large.onnx", new="small.json")
    assert (code, outputs["regression"]) == (0, "false")
    assert "no regression" in summary
    code, outputs, _ = act(runner, old="small.json", new="large.onnx", fail_on_regression="")
    assert (code, outputs["regression"]) == (0, "false")


def test_the_action_fails_where_there_is_no_report(runner: Path) -> None:
    code, outputs, summary = act(runner, old="none.json", new="large.onnx")
    assert (code, outputs, summary) == (1, {}, "")


def test_what_people_write_never_reaches_the_shell_as_text(runner: Path) -> None:
    name = "a$(touch broken);touch broken '.onnx"
    (runner / name).write_bytes(small_models.branches())
    assert act(runner, old=name, new=name)[0] == 0
    assert not (runner / "broken").exists()


def hook_of(text: str) -> dict[str, Any]:
    [hook] = yaml.safe_load(text)
    assert isinstance(hook, dict)
    return hook


def test_the_hook_runs_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hook = hook_of((ROOT / ".pre-commit-hooks.yaml").read_text())
    page = (ROOT / "docs/diff.md").read_text()
    shown = hook_of(next(block for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "- repo:" in block))
    [used] = shown["hooks"]
    assert used["id"] == hook["id"]
    assert hook["entry"].split()[0] in PROJECT["scripts"]
    assert re.search(hook["files"], "models/net.tflite")
    command = [str(MEMSCHED), *hook["entry"].split()[1:], *used["args"]]
    for number, expected in ((3, 0), (6, 3)):
        Path("models").mkdir(exist_ok=True)
        Path("models/net.tflite").write_bytes(tflite_builder.build(tflite_builder.branches(number)))
        if number == 3:
            accept = next(one for one in re.findall(r"`(memsched analyze [^`]+)`", page))
            subprocess.run([MEMSCHED, *shlex.split(accept)[1:], "-q"], check=True)
        assert subprocess.run(command, check=False, capture_output=True).returncode == expected


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model and its report, as VS Code opens it."""
    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("models/net.tflite").write_bytes(tflite_builder.build(tflite_builder.branches(3)))
    command = [str(MEMSCHED), "analyze", "models/net.tflite", "--report", "models/net.json", "-q"]
    subprocess.run(command, check=True)
    return tmp_path


@pytest.mark.parametrize("number", range(3))
def test_a_task_of_vs_code_runs_and_its_problems_are_found(workspace: Path, number: int) -> None:
    tasks = json.loads((ROOT / "docs" / "examples" / "vscode" / "tasks.json").read_text())
    assert tasks["version"] == "2.0.0"
    assert len(tasks["tasks"]) == 3
    task = tasks["tasks"][number]
    assert task["command"] in PROJECT["scripts"]
    pattern = task["problemMatcher"]["pattern"]
    model = workspace / "models" / "net.tflite"

    def run(**given: str) -> tuple[int, list[tuple[str, str]]]:
        """Run the task with the open model; return the exit code and the problems, each with its file."""
        known = {"file": str(model), "fileBasename": model.name, "workspaceFolder": str(workspace)}
        known |= {f"input:{one['id']}": given.get(one["id"], one["default"]) for one in tasks["inputs"]}
        words = [re.sub(r"\$\{(.+?)\}", lambda name: known[name[1]], word) for word in task["args"]]
        done = subprocess.run([MEMSCHED, *words], capture_output=True, text=True, check=False)
        found = [re.search(pattern["regexp"], line) for line in (done.stdout + done.stderr).splitlines()]
        return done.returncode, [(one[pattern["file"]], one[pattern["message"]]) for one in found if one]

    assert run() == (0, [])
    model.write_bytes(tflite_builder.build(tflite_builder.branches(6)))
    code, [(file, said)] = run(budget="100")
    assert code == 3
    assert file in {"budget exceeded", "regression"}
    assert " grew by " in said or " B too many" in said
    if number:
        model.unlink()
    else:
        model.write_bytes(b"nonsense")
    code, [(file, said)] = run()
    assert (code, (workspace / file).resolve()) == (1, model)
    assert said


def test_the_image_gets_what_it_is_built_from() -> None:
    text = (ROOT / "Dockerfile").read_text()
    copied = [word for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE) for word in line.split()[:-1]]
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line]
    for name in copied:
        assert (ROOT / name).exists(), name
        assert f"!{name}" in ignored, f".dockerignore keeps {name} out"
    # What the wheel is made of: the build's own files, and all that pyproject.toml names.
    wheel = {"pyproject.toml", "hatch_build.py", PROJECT["readme"], *PROJECT["license-files"], "memsched"}
    assert set(copied) == wheel
    assert not any(fnmatch(name, pattern) for name in copied for pattern in ignored if pattern not in {"*", f"!{name}"})
    extras = re.search(r"'\.\[(.+)\]'", text)
    assert extras is not None
    assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])
    assert '"/opt/memsched/bin/memsched"' in text


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["version"] == PROJECT["version"] == memsched.__version__
    assert citation["license"] == PROJECT["license"]


def test_the_changelog_goes_by_version() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    versions = [heading.partition(" ")[0] for heading in headings if heading != "Unreleased"]
    assert headings[0] in {"Unreleased", f"{memsched.__version__}"} or headings[0].startswith(memsched.__version__)
    assert versions[0] == memsched.__version__
    assert versions == sorted(versions, key=lambda one: tuple(map(int, one.split("."))), reverse=True)


def test_security_names_a_way_to_report() -> None:
    text = (ROOT / "SECURITY.md").read_text()
    command = re.search(r"`(git log [^`]+)`", text)
    assert command is not None
    done = subprocess.run(shlex.split(command[1]), cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        assert "@" in done.stdout
