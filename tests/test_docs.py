"""Whatever README.md and docs/ show can be typed: commands, what they print, programs, links; and the site builds."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from scripts.bench.runner.command import listed, parser_of
from tests.documents import PAGES, ROOT, SLOW, TASKS, TIMED, Command, class_of, commands, follow, matches, mentioned

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EVERY = [command for page in PAGES for command in commands(page)]
CHECKED = [command for command in EVERY if class_of(command) == "checked"]
MENTIONED = {command.text: command for page in PAGES for command in mentioned(page)}


# Commands ------------------------------------------------------------------------------------------------------------


FOLLOWED = dict.fromkeys(command.page for command in EVERY if class_of(command) == "run" and command.page not in TASKS)


QUICK = ("README.md", "docs/border.md", "docs/pipeline.md", "docs/tools/vela.md")


@pytest.mark.parametrize("page", [pytest.param(page, marks=[pytest.mark.quick] * (page in QUICK)) for page in FOLLOWED])
def test_what_a_page_shows_is_what_happens(page: str, tmp_path: Path) -> None:
    follow(page, tmp_path, {"run"})


@pytest.mark.parametrize("page", TASKS)
def test_a_page_that_is_not_followed_here_is_followed_as_a_task(page: str) -> None:
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "tasks").glob("test_*.py"))
    [name] = re.findall(rf'(?m)^(\w+) = "{page}"$', tests)
    assert re.search(rf"follow\({name}, \w+, \{{\"run\"\}}\)", tests)


def test_every_slow_command_is_still_there() -> None:
    for page, part in (*SLOW, *TIMED):
        assert any(one.page == page and part in one.text for one in EVERY), (page, part)


@cache
def help_of(command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "memsched", command, "--help-all"], capture_output=True, text=True, check=True
    )
    return done.stdout


@cache
def source_of(script: str) -> str:
    """Return the source of a script, or of all modules of a package."""
    path = ROOT / script.replace(".", "/")
    files = sorted(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return "".join(file.read_text(encoding="utf-8") for file in files)


def makefile_targets() -> set[str]:
    files = (ROOT / "Makefile", ROOT / "docs" / "examples" / "Makefile")
    return {target for file in files for target in re.findall(r"(?m)^([\w-]+):", file.read_text(encoding="utf-8"))}


def is_valid(text: str) -> bool:
    """Whether there are such targets, extras, programs and options."""
    words = shlex.split(text.replace('eval "$(memsched', "memsched").replace(')"', ""), comments=True)
    if words[0] == "make":
        return "/" in words[1] or words[1] in makefile_targets()
    if words[:2] == ["pip", "install"]:
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
            "optional-dependencies"
        ]
        found = re.search(r"\[(.*)\]", words[2])
        return found is None or set(found[1].split(",")) <= set(extras)
    if words[:2] == ["memsched", "--completion"]:
        return words[2] in {"bash", "zsh", "fish"}
    if words[0] == "memsched":
        return all(re.search(rf"{option}\b", help_of(words[1])) for option in options(words))
    if words[2] == "scripts.bench":
        return is_benchmark(words[3:])
    source = source_of(words[2])
    return all(f'"{option}"' in source for option in options(words))


def is_benchmark(words: Sequence[str]) -> bool:
    """Whether there is such a benchmark, takes such options, and memsched those that it passes on."""
    own, forwarded = (words[: words.index("--")], words[words.index("--") :]) if "--" in words else (words, [])
    if not own:
        return True
    if own[0] not in listed():
        return False
    try:
        parser_of(own[0]).parse_args(words[1:])
    except SystemExit:
        return False
    return all(option in help_of("optimize") for option in options(forwarded) if option != "--")


def options(words: Sequence[str]) -> list[str]:
    return [word.partition("=")[0] for word in words if word.startswith("--")]


@pytest.mark.parametrize("command", [*CHECKED, *MENTIONED.values()], ids=lambda one: f"{one.page}:{one.line}")
def test_what_is_not_run_is_valid(command: Command) -> None:
    assert is_valid(command.text)


@pytest.mark.parametrize(
    "text",
    [
        "make nonsense",
        "pip install '.[nonsense]'",
        "python -m scripts.bench nonsense",
        "python -m scripts.bench remat --nonsense",
        "python -m scripts.bench schedule.cells --nodes many",
        "python -m scripts.bench schedule.determinism -- --nonsense",
        "python -m tests.tools.kills --nonsense",
        "memsched batch models --dask tcp://host:1 --nonsense",
    ],
)
def test_what_is_invalid_is_found(text: str) -> None:
    assert not is_valid(text)


def test_what_is_in_no_list_is_found() -> None:
    with pytest.raises(AssertionError, match="rm -rf build"):
        class_of(Command("README.md", 1, "rm -rf build", False, (), 0))


def test_what_was_not_printed_is_found() -> None:
    assert matches(("a 1 B", "[...]", "z in 2.5 s"), "a 1 B\nb\nc\nz in 3.7 s\n") is None
    assert matches(("[...]", "b[...]3", "[...]"), "a\nb 1 2 3\nc\n") is None
    assert matches(("runtime 1.2.3",), "runtime 1.20.3\n") is None
    assert "'a 1 B'" in (matches(("a 1 B", "[...]"), "a 2 B\n") or "")
    assert matches(("a",), "a\nb\n") is not None
    assert "'a'" in (matches(("[...]", "b", "a"), "a\nb\n") or "")


# The site ------------------------------------------------------------------------------------------------------------


LOADED = re.compile(r"""<(?:(?:script|img|iframe|source)[^>]*\bsrc|link[^>]*\bhref)=["']?(?:https?:)?//""")
LOADED_BY_STYLES = re.compile(r"""(?:url\(|@import\s+)["']?(?:https?:)?//""")


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, check=False, cwd=root, capture_output=True, text=True)


def test_the_site_builds_and_needs_no_network(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        if page.startswith("docs/"):
            assert (tmp_path / page.removeprefix("docs/")).with_suffix(".html").is_file()
    for path in tmp_path.rglob("*.html"):
        assert not LOADED.search(path.read_text(encoding="utf-8")), path
    for path in tmp_path.rglob("*.css"):
        assert not LOADED_BY_STYLES.search(path.read_text(encoding="utf-8")), path


@pytest.mark.parametrize("link", ["nowhere.md", "../nowhere.json", "start.md#nowhere", "/start.md"])
def test_a_broken_link_breaks_the_build(link: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "mkdocs.yml").write_text((ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0])
    (tmp_path / "scripts").symlink_to(ROOT / "scripts")
    (tmp_path / "docs" / "start.md").write_text("# Start\n")
    page = tmp_path / "docs" / "index.md"
    page.write_text("# Home\n\n[start](start.md#start), [more](../mkdocs.yml)\n")
    assert build(tmp_path, tmp_path / "site").returncode == 0
    page.write_text(f"# Home\n\n[broken]({link})\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "index.md" in done.stderr


def test_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8")):
        assert (ROOT / target).exists(), target
