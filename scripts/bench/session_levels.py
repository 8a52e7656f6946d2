"""Compare what ONNX Runtime's sessions should request with what they do, at three levels of graph optimisation.

For each model and level: the model as given in a session of that level, buffers handed on or not, as predicted from the
graph that the runtime makes of it, in the order in which its profile shows it executed; and that graph in memsched's
order, opened with the lines that are printed. Each figure is of a process of its own. Peaks in bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from memsched.commands.optimize.optimize import optimize
from memsched.formats.files import load_module
from memsched.formats.module import LoadOptions
from memsched.graph.dag import predecessors
from memsched.graph.model import Graph
from memsched.lowering.apply import apply_target
from memsched.runtimes.child import run_in_child
from memsched.runtimes.onnxruntime.executed import LEVELS, executed_model, executed_rules
from memsched.runtimes.onnxruntime.executed_names import NUMBERED
from memsched.runtimes.onnxruntime.reuse import PlannerGraph, simulate_reuse
from memsched.runtimes.sessions import SessionPoint
from memsched.targets.load import load_target
from scripts.bench.runner.declare import Benchmark, Heading, Part, Values, Verdict, effort, option, positional
from scripts.bench.runner.models import shipped_networks
from scripts.bench.runner.onnx_files import LISTED, STATED, model_file, stated_shapes

__all__ = ["BENCH", "SESSIONS", "LevelRow", "profile", "rows"]

SESSIONS: Final = ("default", "extended", "basic")
_FAR: Final = 0.02
_EFFORT: Final = 5.0
_TRIES: Final = 200_000
_NOTHING: Final = LoadOptions()


@dataclass(frozen=True, slots=True)
class LevelRow:
    """A session's figure.

    Attributes:
        how: The file, and whether buffers are handed on.
    """

    model: str
    session: str
    how: str
    predicted: int
    measured: int

    @property
    def error(self) -> float:
        """By how much the prediction is off, as a part of what was measured."""
        return self.predicted / max(1, self.measured) - 1


def profile(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a session requested in its first run, "peak", and its nodes as executed: the child's side.

    Args:
        request: "bytes"; "options": a `SessionPoint`; "seed", "input_shapes", "dims".
    """
    import numpy as np
    import onnx

    from memsched.runtimes.onnxruntime.inputs import random_feed
    from memsched.runtimes.onnxruntime.opened import opened, profile_of, profiled, read_profile

    session = opened(request["bytes"], msgspec.convert(request["options"], SessionPoint), change=profiled)
    proto = onnx.load_model_from_string(request["bytes"])
    session.run(None, random_feed(session, proto, request, np.random.default_rng(request["seed"]), 2))
    events = profile_of(session)
    nodes = []
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            shapes = [next(iter(one.values())) for one in event["args"].get("output_type_shape", ())]
            nodes.append([event["name"].removesuffix("_kernel_time"), event["args"]["op_name"], shapes])
    return {"peak": read_profile(events)["peak_bytes"], "nodes": nodes}


def _named(data: bytes) -> bytes:
    """Return a model with a name for each node, by which its profile is read."""
    import onnx

    model = onnx.load_model_from_string(data)
    for node in model.graph.node:
        node.name = node.name or next(filter(None, node.output), "")
    return bytes(model.SerializeToString())


def _order(graph: Graph, nodes: Sequence[Sequence[Any]]) -> list[int] | None:
    """Return which op of ``graph`` each node is; None where that cannot be told.

    Names that the runtime made up differ from process to process: such a node is one whose inputs are there, and of
    several that whose reader comes first. Where that leads nowhere, the last choice is made otherwise.
    """
    matching = _Matching(graph, nodes)
    choices: list[list[int]] = []
    for _ in range(_TRIES):
        if len(choices) == len(nodes):
            return matching.order if len(matching.order) == len(graph.ops) else None
        choices.append(matching.fitting(len(choices)))
        while not choices[-1]:
            choices.pop()
            if not choices:
                return None
            matching.take_back()
        matching.take(choices[-1].pop())
    return None


class _Matching:
    """Ops that the first nodes are taken for."""

    def __init__(self, graph: Graph, nodes: Sequence[Sequence[Any]]) -> None:
        self._graph, self._nodes = graph, nodes
        self._comes = {name: at for at, (name, _, _) in enumerate(nodes)}
        self._names = {op.name: number for number, op in enumerate(graph.ops)}
        self._waiting = [len(set(before)) for before in predecessors(graph)]
        self._after: list[set[int]] = [set() for _ in graph.ops]
        for number, before in enumerate(predecessors(graph)):
            for one in before:
                self._after[one].add(number)
        self.order: list[int] = []
        self._done: set[int] = set()

    def take(self, number: int) -> None:
        """Take the next node for an op."""
        self.order.append(number)
        self._done.add(number)
        for one in self._after[number]:
            self._waiting[one] -= 1

    def take_back(self) -> None:
        """Undo the last `take`."""
        number = self.order.pop()
        self._done.discard(number)
        for one in self._after[number]:
            self._waiting[one] += 1

    def fitting(self, at: int) -> list[int]:
        """Return the ops that a node may be, the likeliest last."""
        name, kind, shapes = self._nodes[at]
        known = self._names.get(name) if not NUMBERED.fullmatch(name) else None
        if known is not None and self._is(known, kind, None):
            return [known]
        wanted = [tuple(shape) for shape in shapes]
        found = [one for one in range(len(self._waiting)) if self._is(one, kind, wanted)]
        return sorted(found, key=lambda one: (self._read(one), one), reverse=True)

    def _read(self, number: int) -> int:
        last = len(self._nodes)
        return min((self._comes.get(self._graph.ops[to].name, last) for to in self._after[number]), default=0)

    def _is(self, number: int, kind: str, shapes: Sequence[tuple[int, ...]] | None) -> bool:
        """Whether an op whose inputs are there, and that has not run, is of a kind and makes these shapes."""
        op = self._graph.ops[number]
        made = [self._graph.tensors[tensor].shape for tensor in op.outputs]
        fits = op.type.rpartition(".")[2] == kind and (shapes is None or made[:1] == list(shapes[:1]))
        return fits and number not in self._done and not self._waiting[number]


def rows(
    path: Path, work: float = _EFFORT, sessions: Sequence[str] = SESSIONS, stated: LoadOptions = _NOTHING
) -> Iterator[LevelRow]:
    """Yield the figures of one model; those of sessions that cannot be compared are left out.

    Args:
        work: Of the search for its order, as ``--effort`` has it.
        stated: Sizes that the model leaves open.
    """
    data = _named(path.read_bytes())
    rules = executed_rules(load_target("onnxruntime"))
    sizes: dict[str, Any] = {"input_shapes": dict(stated.input_shapes), "dims": dict(stated.dims)}
    for session in sessions:
        executed = executed_model(data, str(path), stated, session, seed=0, fix=False)
        graph = apply_target(load_module(executed.data, str(path), executed.options).graph, rules)
        for reuse in (True, False):
            options = asdict(SessionPoint(LEVELS[session], reuse=reuse, pattern=False))
            request = {"bytes": data, "options": options, "seed": 0, **sizes}
            shown = run_in_child("scripts.bench.session_levels:profile", request, 600.0)
            order = _order(graph, shown.value["nodes"]) if shown.ok else None
            if order is not None:
                predicted = simulate_reuse(PlannerGraph.of(graph), order, reuse=reuse).requested_peak
                how = "given" if reuse else "given, no reuse"
                yield LevelRow(path.stem, session, how, predicted, shown.value["peak"])
        result = optimize(path, session=session, effort=work, **sizes)  # type: ignore[arg-type]
        found = result.verification
        if found is not None and found.measured_peak_after_bytes is not None:
            predicted = found.predicted_peak_after_bytes or 0
            yield LevelRow(path.stem, session, "ordered", predicted, found.measured_peak_after_bytes)


def _tables(values: Values) -> Iterator[Part]:
    models = values.models or shipped_networks()
    yield Heading("model", "session", "file", ">predicted", ">measured", ">off by")
    far: list[str] = []
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            path = model_file(str(model), Path(folder))
            for row in rows(path, values.effort or _EFFORT, values.sessions, stated_shapes(values)):
                count += 1
                cells = (row.model, row.session, row.how, f"{row.predicted:,}", f"{row.measured:,}")
                yield *cells, f"{100 * row.error:+.2f} %"
                if abs(row.error) > _FAR:
                    far.append(f"{row.model} ({row.session}, {row.how})")
    within = count - len(far)
    yield Verdict(f"\nwithin 2 %: {within} of {count}{': not ' + ', '.join(far) if far else ''}", bool(far))


BENCH = Benchmark(
    shows=__doc__,
    tables=_tables,
    options=(
        positional(
            "models",
            help=f"ONNX files, or of {', '.join(LISTED)}; without any those of models/networks",
            metavar="MODEL",
        ),
        option("--sessions", nargs="+", choices=SESSIONS, default=SESSIONS, help=""),
        *STATED,
        effort(),
    ),
    docs="docs/benchmarks/runtimes.md",
)
