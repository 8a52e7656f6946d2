"""Sessions of ONNX Runtime as an `Opener`: files are opened so to be measured and timed, each in a fresh process."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from memsched.runtimes.measure import LEAST_RUNS, Arena, Opener, OwnFigures
from memsched.runtimes.onnxruntime.opened import opened, optimized, profile_of, profiled, read_profile, runtime
from memsched.runtimes.sessions import DEFAULT, SessionPoint
from memsched.search.heap import give_back_at_once

__all__ = ["SessionOpener"]


class SessionOpener(Opener, frozen=True):
    """A session on a file, and the inputs that it runs on.

    Attributes:
        path: Of the file.
        feeds: Files of inputs (.npz), one for each size.
        point: How the session is opened.
        folder: Where weights lie that the file names, if not beside it.
        whole: Whether what the runtime takes once it is loaded counts.
        even: Whether the process gives back what is freed at once, so that chance has no part in what it takes.
        asked: What the runtime is asked for: what was requested of its arena, or that and how the memory is split.
    """

    path: str
    feeds: tuple[str, ...]
    point: SessionPoint = DEFAULT
    folder: str | None = None
    whole: bool = False
    even: bool = False
    asked: Literal["nothing", "requested", "split"] = "nothing"

    @property
    def sizes(self) -> int:
        """How many sizes take turns."""
        return len(self.feeds)

    def prepare(self) -> Callable[[], _OpenSession]:
        """Load the inputs, and the runtime unless it counts; return what opens the session."""
        if self.even:
            give_back_at_once()
        from memsched.runtimes.onnxruntime.inputs import read_arrays

        feeds = [read_arrays(one) for one in self.feeds]
        if not self.whole:
            runtime()

        def opens() -> _OpenSession:
            if self.whole:
                importlib.import_module("onnx")  # which made the file: figures have always counted it
            return _OpenSession(opened(self.path, self.point, folder=self.folder), feeds, self.point)

        return opens

    def own_figures(self) -> OwnFigures:
        """Return what a profile shows of a session of its own, and the weights of its graph where that is asked for."""
        if self.asked == "nothing":
            return OwnFigures()
        from memsched.runtimes.onnxruntime.inputs import read_arrays

        feed, told = read_arrays(self.feeds[0]), _run_options(self.point)
        session = opened(self.path, self.point, folder=self.folder, change=profiled)
        for _ in range(LEAST_RUNS):
            session.run(None, feed, told)
        events = profile_of(session)
        weights = self._weights() if self.asked == "split" else 0
        return OwnFigures(read_profile(events)["lasting_bytes"], weights, _arena(events))

    def _weights(self) -> int:
        """Return the bytes of weights in the graph that the session makes of the file, folded and external ones too."""
        import onnx

        try:
            made = onnx.load_model_from_string(optimized(self.path, self.point, folder=self.folder))
        except Exception:  # the runtime raises classes of its own; some graphs cannot be saved
            made = onnx.load_model(self.path, load_external_data=False)
        values = [
            one.t
            for node in made.graph.node
            if node.op_type == "Constant"
            for one in node.attribute
            if one.name == "value"
        ]
        kinds = [one for one in (*made.graph.initializer, *values) if one.data_type != onnx.TensorProto.STRING]
        return sum(math.prod(one.dims) * _item_bytes(one.data_type) for one in kinds)


class _OpenSession:
    """A session, as an `RunnableModel`."""

    def __init__(self, session: Any, feeds: Sequence[Mapping[str, Any]], point: SessionPoint) -> None:
        self._session, self._feeds, self._told = session, feeds, _run_options(point)

    def start(self, size: int) -> None:
        """Do nothing: inputs are there."""

    def run(self, size: int) -> None:
        """Run once."""
        self.outputs(size)

    def outputs(self, size: int) -> Sequence[Any]:
        """Run once and return the outputs."""
        outputs: Sequence[Any] = self._session.run(None, self._feeds[size], self._told)
        return outputs


def _run_options(point: SessionPoint) -> Any:
    options = runtime().RunOptions()
    if point.shrinkage:
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    return options


def _arena(events: Sequence[Mapping[str, Any]]) -> Arena | None:
    """Return what of the arena is in use at rest, what at most, and what it holds in the end; None if not shown."""
    shown = [event["args"] for event in events if "mem_arena_held" in event.get("args", {})]
    if not shown:
        return None
    first = shown[0]
    return Arena(
        rest=int(first["mem_bytes_in_use"]) - int(first["mem_in_use_delta"]),
        highest=max(int(one["mem_bytes_in_use"]) for one in shown),
        held=int(shown[-1]["mem_arena_held"]),
    )


def _item_bytes(kind: int) -> int:
    import onnx

    return int(onnx.helper.tensor_dtype_to_np_dtype(kind).itemsize)
