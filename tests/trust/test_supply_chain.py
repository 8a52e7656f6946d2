"""What the package never does: run code or objects out of files, start a shell, open a connection unasked."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from scripts.lock import faults_of, locked, locked_for
from scripts.lowest import lowest_of
from tests.outcomes import check_lines
from tests.sources import MODULES as PACKAGE
from tests.sources import tree_of
from tests.trust.conftest import ROOT

MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib", "yaml", "code", "codeop", "pty"}
MODULES |= {"urllib.request", "http", "requests", "httpx", "ftplib", "smtplib", "telnetlib", "webbrowser", "xmlrpc"}
CALLS = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "os.startfile", "os.execv", "os.execvp"}
CALLS |= {"os.spawnv", "subprocess.getoutput", "subprocess.getstatusoutput", "numpy.load", "np.load", "torch.load"}

SOCKETS = {
    "memsched/runtimes/devices/parent.py",
    "memsched/runtimes/devices/wire.py",
    "memsched/runtimes/devices/worker.py",
}
"""`distribute --run`: sockets between its own processes on 127.0.0.1."""

NATIVE = {
    *("memsched/runtimes/litert/probe.py", "memsched/runtimes/onnxruntime/opened.py"),
    "memsched/runtimes/litert/interpreter.py",
    *("memsched/core/library.py", "memsched/solve/schedule/compiled.py", "memsched/solve/allocate/compiled.py"),
    *("memsched/solve/fusion/compiled.py", "memsched/solve/fusion/compiled_monotonic.py"),
    *("memsched/rewrites/tile/compiled.py", "memsched/search/heap.py", "memsched/solve/schedule/compiled_orders.py"),
}
"""In the child process that verifies: the runtime's own memory is read. In the one that measures: all pages of the
runtime's libraries are mapped. The compiled core, which is this package's own.
And the heap of the C library that runs this process. Nothing is called that a file names.
"""

POOLS = {"memsched/search/workers.py", "memsched/solve/allocate/rounds.py", "memsched/solve/schedule/parallel.py"}
"""Processes of multiprocessing. It pickles what this program itself made, over pipes of its own children and in memory
shared with them.

Dask does the same between machines, for those who name a cluster with ``--dask``: it is not imported otherwise.
"""

CHANNELS = {"memsched/search/messages.py", "memsched/search/processes.py"}
"""Connections of multiprocessing to children of our own: they carry JSON and raw bytes, and nothing is pickled."""

DASK = {"memsched/search/dask.py", "memsched/commands/batch/dask.py"}

PERMITTED = (
    ({"ctypes"}, NATIVE),
    ({"socket"}, SOCKETS),
    ({"multiprocessing"}, POOLS | SOCKETS | CHANNELS),
    ({"distributed", "dask"}, DASK),
)
"""Modules, and who alone may import them."""


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


def _faults(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield what a module does that the package never does."""
    imported = {part for module in imports(tree) for part in (module, module.partition(".")[0])}
    yield from imported & MODULES
    for modules, users in PERMITTED:
        if name not in users:
            yield from imported & modules
    for called, call in calls(tree):
        keywords = {one.arg: ast.unparse(one.value) for one in call.keywords}
        if called in CALLS or "shell" in keywords or keywords.get("allow_pickle", "False") != "False":
            yield f"{called} in line {call.lineno}"


@pytest.mark.quick
def test_no_code_out_of_files() -> None:
    names = {path: path.relative_to(ROOT).as_posix() for path in PACKAGE}
    assert [(name, fault) for path, name in names.items() for fault in _faults(name, tree_of(path))] == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from urllib.request import urlopen",
        "def f():\n    import socket",
        "eval('1')",
        "run('ls', shell=True)",
        "numpy.load(path)",
        "archive.load(path, allow_pickle=True)",
    ],
)
def test_such_code_is_found(source: str) -> None:
    assert list(_faults("memsched/base/units.py", ast.parse(source)))


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
    with pytest.raises(SystemExit, match=r"'a' .*bound"):
        lowest_of('[project]\nname = "n"\ndependencies = ["a"]\n')


def test_the_lock_holds_what_development_needs() -> None:
    text = (ROOT / "requirements/dev.lock").read_text(encoding="utf-8")
    versions = locked(text)
    assert len(versions) > 50
    assert faults_of((ROOT / "pyproject.toml").read_text(encoding="utf-8"), versions, locked_for(text)) == []


HASH = f"    --hash=sha256:{'0' * 64}\n"


@pytest.mark.parametrize("text", ["a==1 \\\n", "a==1\n", f"a>=1 \\\n{HASH}", f"a==1 \\\n{HASH}b==2\n", HASH])
def test_a_lock_without_a_version_or_a_hash_is_refused(text: str) -> None:
    with pytest.raises(SystemExit, match=r"requirements/dev\.lock: .*hashes: "):
        locked(f"# For Python 3.11 on linux; written.\n{text}")


def test_what_a_lock_lacks_is_named() -> None:
    project = """
[project]
name = "n"
dependencies = ["a>=1.2", "old>=1; python_version < '3.11'"]
[project.optional-dependencies]
dev = ["n[x]", "c>=3"]
x = ["b>=2"]
"""
    versions = locked(f"# For Python 3.11 on linux; written.\na==1.1 \\\n{HASH}b==2.0 \\\n{HASH}")
    assert versions == {"a": "1.1", "b": "2.0"}
    check_lines(faults_of(project, versions, "3.11"), ("a ", " 1.1, ", ">=1.2"), ("c ",))
    check_lines(faults_of(project, versions, "3.10"), ("a ", " 1.1, ", ">=1.2"), ("c ",), ("old ",))
