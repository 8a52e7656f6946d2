"""``--shapes-from-run`` on the command line."""

from __future__ import annotations

from pathlib import Path

from memsched.formats.onnx.shapes import OF_ONE_RUN
from tests.cli.conftest import Run
from tests.needs import recent_onnxruntime
from tests.outcomes import line_with
from tests.runtimes.onnxruntime.test_observation import feeds, half_zero, picked

pytestmark = recent_onnxruntime


def test_the_command_line(tmp_path: Path, run: Run) -> None:
    model, broken = tmp_path / "m.onnx", tmp_path / "broken.npz"
    model.write_bytes(picked())
    given = feeds(tmp_path, x=half_zero((8, 8)))
    broken.write_bytes(Path(given).read_bytes()[:100])
    done = run("analyze", str(model), "--shapes-from-run", given, "-v")
    assert done.code == 0
    assert line_with(done.out, f"{OF_ONE_RUN} ")
    done = run("optimize", str(model), "--shapes-from-run", given, "-v", "-o", str(tmp_path / "o.onnx"))
    assert done.code == 0
    assert line_with(done.out, "bit-equal", given)
    for path in (broken, tmp_path / "none.npz"):
        done = run("analyze", str(model), "--shapes-from-run", str(path))
        done.failed("fails-at-inputs", path.name)
        assert len(done.err.splitlines()) == 1
