"""A solver of one's own: an order found outside memsched and written back, and `--solver` with one name more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.documents import ROOT, follow
from tests.test_contributing import SOLVER, extend

PAGE = "docs/tasks/own-pass.md"


def test_an_order_of_one_s_own_is_judged_written_and_run(tmp_path: Path) -> None:
    follow(PAGE, tmp_path, {"run"})


def test_a_solver_of_one_s_own_is_a_name_of_the_option(tmp_path: Path) -> None:
    extend(SOLVER, tmp_path)
    found = re.search(r"`--solver (\w+)`", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert found is not None
    words = ("--target", "ideal", "--effort", "1", "--no-verify", "-O0", "--json", "--quiet")

    def memsched(*given: object) -> str:
        """Run the copy that was extended."""
        command = [sys.executable, "-m", "memsched", "optimize", *map(str, given)]
        environment = {**os.environ, "COLUMNS": "200"}
        environment.pop("PYTHONPATH", None)
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert f"|{found[1]}|" in memsched("--help-all")
    model = ROOT / "models" / "networks" / "randwire2.onnx"
    results = [
        json.loads(memsched(model, "--solver", solver, "-o", f"{solver}.onnx", *words))["written"]["schedule"]
        for solver in ("greedy", found[1])
    ]
    assert results[1]["method"] == found[1]
    assert results[1]["peak_bytes"] < results[0]["peak_bytes"]
