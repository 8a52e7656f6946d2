"""A short run of the fuzzer, and every file that once did harm."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from scripts.bench import hostile_scale
from tests.tools.fuzz import guided
from tests.tools.fuzz.execute import execute
from tests.tools.fuzz.kinds import KINDS, case

KEPT = sorted(
    path for path in (Path(__file__).resolve().parents[1] / "data" / "fuzz").iterdir() if path.name != "README.md"
)
SHORT = {
    "onnx": 150,
    "tflite": 300,
    "csv": 400,
    "target": 400,
    "cluster": 300,
    "report": 150,
    "diff": 150,
    "plan": 100,
    "list": 200,
}


def kind_of(path: Path) -> str:
    """The kind that a kept file is of: NAME.onnx, NAME.diff.json."""
    return path.name.split(".")[1]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
@pytest.mark.parametrize("number", [1, 100], ids=["read", "used"])
def test_files_that_once_did_harm(path: Path, number: int) -> None:
    outcome, message = execute(kind_of(path), path.read_bytes(), number)
    assert outcome != "defect", message


@pytest.mark.parametrize(("kind", "cases"), SHORT.items())
def test_a_short_run(kind: str, cases: int) -> None:
    outcomes = [execute(kind, case(kind, number), number) for number in range(cases)]
    assert [(number, message) for number, (outcome, message) in enumerate(outcomes) if outcome == "defect"] == []
    assert len({outcome for outcome, _ in outcomes}) == 2, "some are accepted, some refused"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_is_changed_is_valid(kind: str) -> None:
    assert kind in SHORT
    seeds = list(KINDS[kind].seeds())
    outcomes = [execute(kind, seed, 1) for seed in (seeds if len(seeds) < 50 else seeds[::50])]
    assert {outcome for outcome, _ in outcomes} == {"accepted"}, outcomes


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_case_is_the_same_whenever_it_is_asked_for(kind: str) -> None:
    assert case(kind, 17) == case(kind, 17)
    assert len({case(kind, number) for number in range(20)}) > 10


def test_what_is_no_refusal_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def harm(_data: bytes, _number: int) -> None:
        raise KeyError("lost")

    monkeypatch.setitem(KINDS, "csv", type(KINDS["csv"])(KINDS["csv"].seeds, KINDS["csv"].mutated, harm))
    outcome, message = execute("csv", b"", 0)
    assert outcome == "defect"
    assert "KeyError: 'lost'" in message


def test_a_kept_file_is_read_again_by_the_guided_fuzzer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = next(path for path in KEPT if kind_of(path) == "diff")
    monkeypatch.setattr(sys, "argv", ["guided", "--kind", "diff", "--case", str(path)])
    assert guided.main() == 0
    assert capsys.readouterr().out.startswith("refused: 'new.json' ")


def test_the_guided_fuzzer_says_what_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    monkeypatch.setattr(sys, "argv", ["guided", "--kind", "csv"])
    with pytest.raises(SystemExit):
        guided.main()
    assert "pip install atheris" in capsys.readouterr().err


@pytest.mark.parametrize("name", hostile_scale.CASES)
def test_many_of_anything_are_read(name: str) -> None:
    write, what, extension = hostile_scale.CASES[name]
    small, large = write(3, what), write(300, what)
    assert len(large) > len(small)
    outcome, message = execute(extension[1:], large, 1)
    assert outcome == "accepted", message
