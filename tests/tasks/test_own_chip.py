"""A chip of one's own: its memories as a file, and what of a model lies where; a copy of a target with other rules."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

from tests.documents import command_with, follow, run

PAGE = "docs/tasks/own-target.md"


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two buffers share bytes of one memory at one time."""
    return bool(
        one["pool"] == other["pool"]
        and one["first_step"] <= other["last_step"]
        and other["first_step"] <= one["last_step"]
        and one["offset_bytes"] < other["offset_bytes"] + other["size_bytes"]
        and other["offset_bytes"] < one["offset_bytes"] + one["size_bytes"]
    )


def test_a_model_lies_in_the_chip_s_memories(tmp_path: Path) -> None:
    follow(PAGE, tmp_path, {"run"})
    report = json.loads((tmp_path / "placed.json").read_text())
    ends = dict.fromkeys(("fast", "slow"), 0)
    for one in report["written"]["buffers"]:
        ends[one["pool"]] = max(ends[one["pool"]], one["offset_bytes"] + one["size_bytes"])
    assert 0 < ends["fast"] <= 64 * 1024 < ends["slow"] <= 256 * 1024
    assert not any(overlap(one, other) for one, other in combinations(report["written"]["buffers"], 2))
    # A rule that the README tells to print, changed: only what it says is another.
    assert run(tmp_path, command_with("README.md", "> mychip.toml")).code == 0
    chip = tmp_path / "mychip.toml"
    chip.write_text(chip.read_text().replace("alignment_bytes = 16", "alignment_bytes = 4096"))
    planned = {}
    for target in ("tflm", "mychip.toml"):
        done = run(tmp_path, f"memsched analyze models/micro_speech_quantized.tflite --target {target} --json --quiet")
        found = json.loads(done.text)
        planned[target] = found["written"]["schedule"]["arena_bytes"]
        assert all(one["offset_bytes"] % found["target"]["alignment_bytes"] == 0 for one in found["written"]["buffers"])
    assert planned["mychip.toml"] % 4096 == 0 < planned["tflm"] < planned["mychip.toml"]
