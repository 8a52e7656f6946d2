"""What `pip install memsched` brings without extras is enough: models are optimised, and run before and after."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from packaging.requirements import Requirement

import memsched
from memsched.runtimes.package import LITERT, ONNXRUNTIME, TFLM
from tests import small_models
from tests.formats import tflite_builder
from tests.outcomes import line_with

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(memsched.__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

HIDE = """
from importlib.machinery import PathFinder

find = PathFinder.find_spec

def without(name, path=None, target=None):
    return None if name.partition(".")[0] in {names} else find(name, path, target)

PathFinder.find_spec = without
"""
"""A sitecustomize.py: no Python process that has it in its path finds modules of these names."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def brought() -> set[str]:
    """Return the distributions that pip installs with memsched where no extra is asked for."""
    waiting, found = list(PROJECT["dependencies"]), set[str]()
    while waiting:
        one = Requirement(waiting.pop())
        if normal(one.name) not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found.add(normal(one.name))
            waiting += metadata.requires(one.name) or []
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of processes that only find what a plain installation has."""
    kept = brought() | {"memsched"}
    hidden = {
        module
        for module, owners in metadata.packages_distributions().items()
        if not kept & {normal(owner) for owner in owners}
    }
    assert {"ai_edge_litert", "pytest", "jinja2"} <= hidden
    folder = tmp_path_factory.mktemp("plain")
    (folder / "sitecustomize.py").write_text(HIDE.format(names=hidden), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}


def memsched_runs(environment: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memsched", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_packages_that_were_asked_for_are_dependencies() -> None:
    assert {"onnx", "onnxruntime", "tflite", "click", "ortools", "rich"} <= brought()


def test_an_onnx_model_is_verified(plain: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(small_models.branches())
    done = memsched_runs(plain, "optimize", path, "--may-change", "opening")
    assert done.returncode == 0, done.stderr
    assert line_with(done.stdout, "outputs bit-equal")


def test_shapes_that_only_the_runtime_infers_are_known(plain: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy")
    # ONNX itself knows nothing of this operator, so that the shape of "a" is ONNX Runtime's (and SymPy's) to tell.
    nodes = [helper.make_node("Gelu", ["x"], ["a"], domain="com.microsoft"), helper.make_node("Relu", ["a"], ["y"])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "net", [x], [y]), opset_imports=opsets, ir_version=9), path)
    done = memsched_runs(plain, "analyze", path)
    assert done.returncode == 0, done.stderr
    assert "session requests" in done.stdout


def test_a_tflite_model_is_not_written_unverified(plain: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(tflite_builder.build(tflite_builder.branches(3)))
    done = memsched_runs(plain, "optimize", path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "pip install ai-edge-litert" in done.stderr
    assert list(tmp_path.iterdir()) == [path]
    assert memsched_runs(plain, "optimize", path, "--no-verify").returncode == 0
    assert (tmp_path / "net_memsched.tflite").is_file()


def test_what_is_said_to_be_installed_is_what_an_extra_installs() -> None:
    """No index of packages has the name memsched: what a message names is a distribution of its own."""
    extras = PROJECT["optional-dependencies"].values()
    known = {
        normal(Requirement(one).name) for one in (*PROJECT["dependencies"], *(x for extra in extras for x in extra))
    }
    known -= {"memsched"}
    found: set[str] = set()
    for path in (*ROOT.glob("memsched/**/*.py"), *ROOT.glob("scripts/**/*.py")):
        for line in re.findall(r"pip install ([^\n\"`]+)", path.read_text(encoding="utf-8")):
            words = re.split(r"[ ,;:]", line.partition(" (")[0])
            found |= {word for word in words if re.fullmatch(r"[a-z][a-z0-9-]+|'memsched.*", word)}
            assert "memsched[" not in line, (path, line)
    assert {"matplotlib", "distributed", "pymoo"} <= found & known
    for package in (ONNXRUNTIME, LITERT, TFLM):
        assert normal(package.source.partition(" ")[0]) in known


def test_install_lines_of_before_go_on_working() -> None:
    extras = PROJECT["optional-dependencies"]
    assert extras["onnxruntime"] == []
    assert extras["runtimes"] == ["memsched[litert]"]
    assert {"litert", "html", "bench", "distribute", "dask", "docs", "dev"} <= set(extras)
