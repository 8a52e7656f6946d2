"""Mutation testing of the meaning of memory and the checkers: `python -m tests.tools.mutants --all`.

Every mutant is one small change of one module: another comparison, constant, operator or condition. It is executed in
a process of its own, in which (as in those that it starts) the import system gets the changed module instead of the
file; the tests that know the module run until the first one fails. What no test notices is a survivor: a hole in the
tests, or a change that means the same. `--out` writes them to a file, of which `--survivors` runs no others again: with
`--suite quick` first and `--suite all` then, it shows what the tests that `make test` leaves out would have noticed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType

__all__ = ["MODULES", "Mutant", "Result", "mutants_of", "replace_module"]

_ROOT = Path(__file__).resolve().parents[2]

MODULES: dict[str, tuple[str, ...]] = {
    "check/schedule": ("tests/check/test_schedule.py", "tests/graph/test_addresses.py", "tests/graph/test_parts.py"),
    "check/algebra": ("tests/check/test_algebra.py", "tests/rewrites/algebra/test_identities.py"),
    "check/border": ("tests/commands/optimize/test_border.py",),
    "check/stages": ("tests/check/test_stages.py",),
    "check/packing": ("tests/check/test_packing.py",),
    "check/rewrite": (
        "tests/check/test_rewrite.py",
        "tests/formats/onnx/test_folded.py",
        "tests/check/test_loop.py",
        "tests/rewrites/tile/test_rewrite.py",
        "tests/rewrites/recompute/test_rewrite.py",
    ),
    "check/distribution": ("tests/check/test_distribution.py",),
    "check/pools": ("tests/solve/allocate/test_pools.py",),
    "graph/border": ("tests/commands/optimize/test_border.py", "tests/runtimes/test_borders.py"),
    "graph/loop": (
        "tests/check/test_loop.py",
        "tests/rewrites/tile/test_loop.py",
        "tests/rewrites/tile/test_loop_search.py",
    ),
    "graph/dialect": ("tests/rewrites/tile/test_loop.py", "tests/rewrites/tile/test_rewrite.py"),
    "lowering/prices": ("tests/rewrites/tile/test_search.py", "tests/commands/optimize/test_whole_arena.py"),
    "graph/replacement": (
        "tests/graph/test_replacement.py",
        "tests/rewrites/tile/test_rewrite.py",
        "tests/rewrites/recompute/test_rewrite.py",
    ),
    "graph/liveness": ("tests/graph/test_liveness.py", "tests/graph/test_parts.py", "tests/graph/test_uses.py"),
    "graph/uses": ("tests/graph/test_uses.py",),
    "frozen": ("tests/test_frozen.py",),
    "graph/fixed_point": ("tests/graph/test_fixed_point.py", "tests/codegen/test_emitted.py"),
    "graph/kernel": ("tests/codegen/test_emitted.py",),
    "graph/stages": ("tests/check/test_stages.py",),
    "graph/addresses": ("tests/graph/test_addresses.py",),
    "graph/contraction": ("tests/graph/test_contraction.py",),
    "graph/dag": ("tests/graph/test_dag.py", "tests/graph/test_liveness.py"),
    "graph/packing": ("tests/check/test_packing.py", "tests/solve/allocate/test_greedy.py"),
    "graph/parts": ("tests/graph/test_parts.py",),
    "targets/pool_plan": ("tests/solve/allocate/test_pools.py",),
    "graph/model": ("tests/graph/test_model.py",),
    "runtimes/onnxruntime/reuse": ("tests/runtimes/onnxruntime/test_reuse.py",),
    "runtimes/onnxruntime/orders": ("tests/runtimes/onnxruntime/test_orders.py",),
    "lowering/apply": ("tests/lowering/test_apply.py", "tests/lowering/test_execution.py"),
    "lowering/sharing": ("tests/lowering/test_apply.py", "tests/lowering/test_execution.py"),
    "lowering/slices": ("tests/lowering/test_apply.py", "tests/lowering/test_execution.py"),
    "graph/effects": ("tests/ops/test_effects.py", "tests/formats/onnx/test_effects.py", "tests/check/test_effects.py"),
    "ops/geometry": ("tests/ops/test_ranges.py", "tests/ops/test_cuts.py"),
    "ops/indices": ("tests/ops/test_ranges.py", "tests/rewrites/tile/test_rewrite.py"),
    "ops/macs": ("tests/ops/test_macs.py",),
    "ops/movement": (
        "tests/ops/test_ranges.py",
        "tests/rewrites/tile/test_rewrite.py",
        "tests/rewrites/tile/test_reshapes.py",
    ),
    "ops/ranges": ("tests/ops/test_ranges.py", "tests/rewrites/tile/test_rewrite.py"),
    "ops/values": (
        "tests/ops/test_ranges.py",
        "tests/rewrites/tile/test_rewrite.py",
        "tests/formats/onnx/blocks/test_one_table.py",
    ),
    "ops/windows": ("tests/ops/test_ranges.py", "tests/rewrites/tile/test_rewrite.py"),
    "formats/onnx/blocks/cuts": (
        "tests/formats/onnx/blocks/test_cuts.py",
        "tests/formats/onnx/blocks/test_one_table.py",
        "tests/formats/onnx/blocks/test_tokens.py",
    ),
    "formats/onnx/blocks/open_rules": (
        "tests/formats/onnx/blocks/test_cuts.py",
        "tests/formats/onnx/blocks/test_one_table.py",
        "tests/formats/onnx/blocks/test_rules.py",
    ),
    "formats/onnx/blocks/rows/rules": ("tests/formats/onnx/blocks/rows/test_rows.py",),
    "runtimes/measure": ("tests/runtimes/test_measure.py",),
    "runtimes/race": ("tests/runtimes/test_race.py",),
    "ops/onnx": ("tests/ops/test_effects.py", "tests/formats/onnx/test_effects.py", "tests/ops/test_rewrites.py"),
    "ops/tflite": ("tests/ops/test_effects.py", "tests/formats/tflite/test_effects.py", "tests/ops/test_rewrites.py"),
    "formats/onnx/writer": ("tests/formats/onnx/test_writer.py",),
    "formats/onnx/rewriter": ("tests/formats/onnx/test_rewriter.py", "tests/rewrites/tile/test_rewrite.py"),
    "formats/tflite/writer": ("tests/formats/tflite/test_writer.py", "tests/formats/tflite/test_rewriter.py"),
    "formats/tflite/rewriter": ("tests/formats/tflite/test_rewriter.py", "tests/rewrites/tile/test_rewrite.py"),
    "rewrites/algebra/apply": ("tests/rewrites/algebra/test_identities.py",),
    "rewrites/algebra/exchange": ("tests/rewrites/algebra/test_identities.py",),
    "rewrites/algebra/moves": ("tests/rewrites/algebra/test_identities.py",),
    "search/limits": ("tests/search/test_limits.py",),
    "search/cpsat": ("tests/search/test_cpsat.py",),
    "search/workers": ("tests/search/test_workers.py",),
}
"""Modules that can be changed, and the tests that are meant to notice what is wrong with them."""

_SLOW = "not 100000 and not test_every_node_of_a_chain_separates"
"""Tests of speed say nothing about a mutant that the others do not."""

_COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLS = {"max": "min", "min": "max", "any": "all", "all": "any"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of a module.

    Attributes:
        line: Where it is, from 1.
        column: Where in the line it begins, from 0.
        text: The line before the change.
        change: What stands there before and after it.
        source: The module with it.
    """

    line: int
    column: int
    text: str
    change: str
    source: str

    def told(self) -> dict[str, object]:
        """Return what a file says of it; the number of its line may change without making it another one."""
        return {"line": self.line, "column": self.column, "text": self.text, "change": self.change}

    def is_told(self, told: Mapping[str, object]) -> bool:
        """Whether it is the one that a file tells of."""
        return (self.column, self.text, self.change) == (told["column"], told["text"], told["change"])


def mutants_of(source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module, in the order of the text."""
    tree = ast.parse(source)
    lines = source.splitlines()
    left_out = _left_out(tree)
    places = [place for place in _places(tree) if id(place.node) not in left_out]
    for place in sorted(places, key=lambda one: (one.node.lineno, one.node.col_offset)):
        node = place.node
        for changed in _changes(node):
            change = f"{_short(ast.unparse(node))} -> {_short(ast.unparse(changed))}"
            place.put(changed)
            yield Mutant(node.lineno, node.col_offset, lines[node.lineno - 1].strip(), change, ast.unparse(tree))
            place.put(node)


_Node = ast.expr | ast.stmt


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a node stands: a field of its parent, or an entry of a list that such a field is."""

    node: _Node
    parent: ast.AST
    field: str
    index: int | None

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node


def _places(tree: ast.Module) -> Iterator[_Place]:
    for parent in ast.walk(tree):
        for field, value in ast.iter_fields(parent):
            for index, node in enumerate(value if isinstance(value, list) else [value]):
                if isinstance(node, ast.expr | ast.stmt):
                    yield _Place(node, parent, field, index if isinstance(value, list) else None)


def _left_out(tree: ast.Module) -> set[int]:
    """Return the nodes, by `id`, that stay: annotations, imports, messages of errors, how classes are made."""
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise):
            # Without its condition it never raises either.
            left_out.add(id(node.body[0]))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            left_out.add(id(node))
        if isinstance(node, ast.Raise | ast.ImportFrom | ast.Import):
            left_out.update(id(inner) for inner in ast.walk(node) if inner is not node)
        for name in ("annotation", "returns"):
            annotation = getattr(node, name, None)
            if annotation is not None:
                left_out.update(id(inner) for inner in ast.walk(annotation))
        for decorator in getattr(node, "decorator_list", ()):
            left_out.update(id(inner) for inner in ast.walk(decorator))
        for keyword in node.keywords if isinstance(node, ast.ClassDef) else ():
            left_out.update(id(inner) for inner in ast.walk(keyword))
    return left_out


def _changes(node: _Node) -> list[ast.AST]:
    """Return what may stand in the place of ``node``."""
    found: list[ast.AST] = []
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        kinds = _COMPARISONS.get(type(node.ops[0]), ())
        found.extend(ast.Compare(node.left, [kind()], node.comparators) for kind in kinds)
    elif isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            other = _COMPARISONS[type(operator)][0]()
            ops = [other if at == index else one for at, one in enumerate(node.ops)]
            found.append(ast.Compare(node.left, ops, node.comparators))
    elif isinstance(node, ast.BoolOp):
        found.append(ast.BoolOp(ast.And() if isinstance(node.op, ast.Or) else ast.Or(), node.values))
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        found.append(ast.BinOp(node.left, _OPERATORS[type(node.op)](), node.right))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        found.append(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        found.append(ast.Constant(not node.value if isinstance(node.value, bool) else node.value + 1))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        found.append(ast.Call(ast.Name(_CALLS[node.func.id], ast.Load()), node.args, node.keywords))
    elif isinstance(node, ast.IfExp):
        found.append(ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse))
    elif isinstance(node, ast.AugAssign) and type(node.op) in _OPERATORS:
        found.append(ast.AugAssign(node.target, _OPERATORS[type(node.op)](), node.value))
    elif isinstance(node, ast.If | ast.While):
        found.append(type(node)(ast.Constant(value=False), node.body, node.orelse))
    elif isinstance(node, ast.Continue):
        found.append(ast.Break())
    elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        found.append(ast.Pass())
    return found


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 70 else line[:67] + "..."


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module other code than its file's."""

    def __init__(self, name: str, path: Path, code: CodeType) -> None:
        self._name, self._path, self._code = name, path, code

    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        return importlib.util.spec_from_loader(name, self, origin=str(self._path))

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(self._path)
        exec(self._code, module.__dict__)  # noqa: S102


def replace_module(module: str, text: str) -> None:
    """Let this process execute the file ``text`` where it imports ``module`` of memsched."""
    path = _path(module)
    code = compile(Path(text).read_text(encoding="utf-8"), str(path), "exec")
    sys.meta_path.insert(0, _Finder(f"memsched.{module.replace('/', '.')}", path, code))


def _path(module: str) -> Path:
    return _ROOT / "memsched" / f"{module}.py"


@dataclass(frozen=True, slots=True)
class Result:
    """What became of the mutants of a module.

    Attributes:
        mutants: How many were tested.
        timeouts: How many of them the tests did not get through in time, which counts as noticed.
        survivors: Those that no test noticed.
        seconds: Time spent.
    """

    mutants: int
    timeouts: int
    survivors: tuple[Mutant, ...]
    seconds: float

    @property
    def killed(self) -> int:
        """How many a test noticed."""
        return self.mutants - len(self.survivors)

    @property
    def percent(self) -> float:
        """Of all that were tested."""
        return 100 * self.killed / self.mutants if self.mutants else 100.0

    def row(self, name: str) -> str:
        """Return a row of a table: the module, mutants, killed ones, percent, timeouts among them, seconds."""
        figures = f"{self.mutants} | {self.killed} | {self.percent:.1f} % | {self.timeouts} | {self.seconds:.0f}"
        return f"| {name} | {figures} |"

    def told(self) -> dict[str, object]:
        """Return what a file says of it."""
        survivors = [mutant.told() for mutant in self.survivors]
        return {"mutants": self.mutants, "killed": self.killed, "timeouts": self.timeouts, "survivors": survivors}


def _tested(module: str, mutant: Mutant | None, tests: Sequence[str], seconds: float) -> str:
    """Return "killed", "timeout" or "survived" for one mutant (None: the module as it is), tested in a fork."""
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            _child(module, mutant, tests, Path(folder))
        end = time.monotonic() + seconds
        status = None
        while status is None and time.monotonic() < end:
            pid, code = os.waitpid(child, os.WNOHANG)
            status = code if pid else None
            time.sleep(0.02)
        # Processes that a test started, too.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)
        if status is None:
            os.waitpid(child, 0)
            return "timeout"
        return "killed" if status else "survived"


def _child(module: str, mutant: Mutant | None, tests: Sequence[str], folder: Path) -> None:
    import pytest

    code = 1
    try:
        os.setpgid(0, 0)
        # Commands in the background may have been told to ignore it, and tests ask who does.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        if mutant is not None:
            _put(module, mutant, folder)
        arguments = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        code = int(pytest.main([*arguments, "-k", _SLOW, *tests]))
    finally:
        os._exit(code)


def _put(module: str, mutant: Mutant, folder: Path) -> None:
    """Put the mutant in the module's place, in this process and in those that it starts."""
    text = folder / "mutant.txt"
    text.write_text(mutant.source, encoding="utf-8")
    start = f"from tests.tools.mutants import replace_module\nreplace_module({module!r}, {str(text)!r})\n"
    (folder / "sitecustomize.py").write_text(start, encoding="utf-8")
    paths = [str(folder), str(_ROOT)]
    os.environ["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    sys.path[:0] = paths
    replace_module(module, str(text))


def _chosen(module: str, share: float, seed: int, earlier: Sequence[Mapping[str, object]] | None) -> list[Mutant]:
    """Return the mutants to test: those that survived earlier, or a share of all drawn at random."""
    mutants = list(mutants_of(_path(module).read_text(encoding="utf-8")))
    if earlier is not None:
        mutants = [mutant for mutant in mutants if any(mutant.is_told(told) for told in earlier)]
    if share < 1:
        drawn = random.Random(seed).sample(range(len(mutants)), round(share * len(mutants)))
        mutants = [mutants[number] for number in sorted(drawn)]
    return mutants


def _run(module: str, mutants: Sequence[Mutant], slack: float, suite: str) -> Result:
    tests = [f"--suite={suite}", *MODULES[module]]
    started = time.monotonic()
    if _tested(module, None, tests, 600) != "survived":
        raise SystemExit(f"the tests of {module} fail as it is")
    limit = slack + 4 * (time.monotonic() - started)
    survivors, slow = [], 0
    for mutant in mutants:
        outcome = _tested(module, mutant, tests, limit)
        slow += outcome == "timeout"
        if outcome == "survived":
            survivors.append(mutant)
            print(f"  survived: {module}.py:{mutant.line}:{mutant.column}: {mutant.change}", flush=True)
    found = Result(len(mutants), slow, tuple(survivors), time.monotonic() - started)
    print(found.row(module), flush=True)
    return found


def main() -> int:
    """Test the mutants of the modules that the command line names; 1 where fewer of one are killed than asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--module", choices=MODULES, action="append", help="such as graph/liveness; several are possible"
    )
    parser.add_argument("--all", action="store_true", help="all of them")
    parser.add_argument("--share", type=float, default=1.0, help="of the mutants, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="of that draw")
    parser.add_argument("--least", type=float, default=85.0, help="percent that must be killed, of every module")
    parser.add_argument("--slack", type=float, default=20.0, help="seconds beside four times what the tests take")
    parser.add_argument("--suite", choices=("quick", "all"), default="all", help="the tests: see tests/suites.py")
    parser.add_argument("--out", type=Path, help="JSON file for counts and survivors")
    parser.add_argument("--survivors", type=Path, help="such a file: test only the survivors that it names")
    args = parser.parse_args()
    earlier = None if args.survivors is None else json.loads(args.survivors.read_text(encoding="utf-8"))
    names = list(MODULES) if args.all else args.module or list(earlier or ())
    if not names:
        parser.error("name modules with --module, or ask for --all")
    # What every child needs is imported once, before the forks; memsched itself is not.
    for needed in ("pytest", "hypothesis", "numpy", "onnx", "_pytest.assertion.rewrite"):
        importlib.import_module(needed)
    # And children need not look through it for garbage.
    gc.freeze()
    found: dict[str, Result] = {}
    for name in names:
        told = None if earlier is None else earlier.get(name, {"survivors": []})["survivors"]
        found[name] = _run(name, _chosen(name, args.share, args.seed, told), args.slack, args.suite)
        if args.out is not None:
            told_of = {module: one.told() for module, one in found.items()}
            args.out.write_text(json.dumps(told_of, indent=2) + "\n", encoding="utf-8")
    every = [one for result in found.values() for one in result.survivors]
    count, slow = sum(one.mutants for one in found.values()), sum(one.timeouts for one in found.values())
    total = Result(count, slow, tuple(every), sum(one.seconds for one in found.values()))
    print("\n| module | mutants | killed | | by time | s |\n|---|--:|--:|--:|--:|--:|")
    for name in sorted(found):
        print(found[name].row(name))
    print(total.row("all"))
    return int(any(one.percent < args.least for one in found.values()))


if __name__ == "__main__":
    sys.exit(main())
