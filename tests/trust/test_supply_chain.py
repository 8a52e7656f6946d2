"""What the package never does: run code or objects out of files, start a shell, open a connection unasked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.lowest import lowest_of
from tests.trust.conftest import ROOT

PACKAGE = sorted((ROOT / "memsched").rglob("*.py"))

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml", "code", "codeop", "pty"}
MODULES |= {"urllib.request", "http", "requests", "httpx", "ftplib", "smtplib", "telnetlib", "webbrowser", "xmlrpc"}
CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.startfile", "os.execv", "os.execvp"}
CALLS |= {"os.spawnv", "subprocess.getoutput", "subprocess.getstatusoutput", "numpy.load", "np.load", "torch.load"}

SOCKETS = {"memsched/runtimes/cluster.py", "memsched/runtimes/cluster_wire.py", "memsched/runtimes/cluster_worker.py"}
"""`distribute --run`: sockets between its own processes on 127.0.0.1."""

NATIVE = {"memsched/runtimes/litert_probe.py", "memsched/runtimes/onnxruntime_sessions.py"}
"""In the child process that verifies: the runtime's own memory is read, and nothing is called that a file names."""

POOLS = {"memsched/schedule/parallel.py", "memsched/allocate/rounds.py"}
"""Processes of multiprocessing. It pickles what this program itself made, over pipes of its own children.

Dask does the same between machines, for those who name a cluster with ``--dask``: it is not imported otherwise.
"""

DASK = {"memsched/cluster.py", "memsched/batch_cluster.py"}


def imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("path", PACKAGE, ids=[str(path.relative_to(ROOT)) for path in PACKAGE])
def test_no_code_out_of_files(path: Path) -> None:
    name, tree = str(path.relative_to(ROOT)), ast.parse(path.read_text(encoding="utf-8"))
    imported = {part for module in imports(tree) for part in (module, module.partition(".")[0])}
    assert "ctypes" not in imported or name in NATIVE
    assert not imported & MODULES, f"{name} imports {imported & MODULES}"
    assert "socket" not in imported or name in SOCKETS
    assert "multiprocessing" not in imported or name in POOLS | SOCKETS
    assert not imported & {"distributed", "dask"} or name in DASK
    for called, call in calls(tree):
        assert called not in CALLS, f"{name}:{call.lineno} calls {called}"
        for keyword in call.keywords:
            shell = keyword.arg == "shell"
            assert not shell, f"{name}:{call.lineno} starts a shell"
            assert keyword.arg != "allow_pickle" or ast.unparse(keyword.value) == "False"


def test_every_lower_bound_is_in_the_list() -> None:
    listed = (ROOT / "requirements/lowest.txt").read_text(encoding="utf-8").split("\n")
    wanted = lowest_of((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert [line for line in listed if line and not line.startswith("#")] == wanted


def test_lower_bounds_become_versions() -> None:
    project = """
[project]
name = "n"
dependencies = ["a>=1.2", "b-c>=3; python_version < '3.11'"]
[project.optional-dependencies]
x = ["n[y]", "d>=0.1"]
y = ["a>=1.2"]
"""
    assert lowest_of(project) == ["a==1.2", "b-c==3; python_version < '3.11'", "d==0.1"]


def test_a_dependency_without_a_lower_bound_is_refused() -> None:
    with pytest.raises(SystemExit, match="states no lower bound"):
        lowest_of('[project]\nname = "n"\ndependencies = ["a"]\n')


def test_the_lock_names_a_version_and_hashes_for_everything() -> None:
    lines = (ROOT / "requirements/dev.lock").read_text(encoding="utf-8").split("\n")
    pinned = [line for line in lines if line and not line.startswith(("#", " "))]
    assert len(pinned) > 20
    assert all("==" in line for line in pinned)
