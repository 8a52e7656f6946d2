"""How much longer a file may take: one rule, whoever measures."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

import memsched
from memsched.commands.optimize.time_at_sizes import SlowFile, most_at_sizes
from memsched.runtimes.race import most_times


@pytest.mark.parametrize(("slowdown", "most"), [(0.0, 1.05), (5.0, 1.05), (10.0, 1.1), (100.0, 2.0), (None, math.inf)])
def test_what_is_permitted_and_no_less_than_chance(slowdown: float | None, most: float) -> None:
    assert most_times(slowdown) == pytest.approx(most)
    assert most_at_sizes(slowdown)[0] == most_times(slowdown)


@pytest.mark.parametrize("where", ["", " at a short one"])
@pytest.mark.parametrize("ratio", [1.12, 1.3, 2.5])
def test_what_is_named_for_a_slow_file_permits_it(ratio: float, where: str) -> None:
    slow = SlowFile(1, ratio, where)
    assert most_at_sizes(slow.slowdown)[bool(where)] > ratio
    assert most_at_sizes(slow.slowdown - 10)[bool(where)] < ratio


def test_the_rule_is_written_once() -> None:
    """Percentages of time become ratios in one module; others estimate time, and measure nothing."""
    folder = Path(memsched.__file__).parent
    stated = re.compile(r"\b(?:1|1\.0) \+ [^\n]*slowdown / 100")
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*.py") if stated.search(path.read_text())}
    assert found == {"runtimes/race.py", "commands/optimize/final_model.py"}
