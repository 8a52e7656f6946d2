"""Models compared in sessions, whose profiles tell peaks and orders. The child process's side of `verification`.

Requests and answers are plain values, as ``memsched.runtimes.child`` can pass them.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import onnx

from memsched.base.frozen import FrozenValue
from memsched.formats.onnx.structure import analyse
from memsched.runtimes.borders import BorderFormulas
from memsched.runtimes.compare import close, compare, relative_error, vary
from memsched.runtimes.inputs import DRAWS, Draw
from memsched.runtimes.measure import PROCESSES
from memsched.runtimes.onnxruntime.draws import same_draws
from memsched.runtimes.onnxruntime.float_twin import float_twin
from memsched.runtimes.onnxruntime.inputs import random_feed, read_feeds
from memsched.runtimes.onnxruntime.opened import (
    opened,
    profile_of,
    profiled,
    read_profile,
    run_once,
    runtime,
)
from memsched.runtimes.onnxruntime.pins import shape_nodes
from memsched.runtimes.sessions import SessionPoint
from memsched.runtimes.values import INTEGER_BOUNDS, one_line

__all__ = ["execute", "load_proto"]

_NODE_NAME = "memsched_node_"
_EVENT = re.compile(rf"{_NODE_NAME}(\d+)_kernel_time")
_PIN = "memsched_pin_"
# Integers are often indices: where the first choice is out of bounds, smaller ones may not be.
_NO_RESULTS = {"peak_bytes": None, "lasting_bytes": None, "least_bytes": None, "order": None}
_SESSIONS_IN_DOUBT = 12


class _Failure(FrozenValue, frozen=True):
    """A session that could not be made, or was loaded but could not run on these inputs."""

    session: int
    message: str
    loaded: bool


def execute(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run sessions on the same random inputs, compare their outputs, read their profiles.

    A session gets the model's own bytes and only the stated options, profiling on, and logging off.

    Args:
        request: "models": each {"path": absolute path} or {"bytes": model}, with "folder": where its external data
            lies, or None; "sessions": each {"model": index, "options": a `SessionPoint`, "required":
            whether a failure ends it all, "reference": the session whose outputs are compared with}; "runs", "seed",
            "feeds": a file of inputs or None, "input_shapes", "dims", "rtol", "atol"; "borders": what stands between
            the inputs and outputs of the first model and the others, as `memsched.runtimes.borders.told` has it;
            "pinned": whether pins keep the order; "float_from": errors from which a float twin is run, or None;
            "expected": the node names of the last model in the order wanted, or None for its own file order.

    Returns:
        "version"; "failed": the number of the session that could not run, or None, with its "message" and
        "loaded": whether it was loaded;
        "random": an op that draws random numbers and takes no seed, or None; "draws": as `Draws.told` gives it;
        "float_errors": of the last two sessions, by which they are off the first model's float twin, or None;
        "vary": whether the first session's outputs vary from input to input, None for a single run; "sessions": each
        {"peak_bytes", "lasting_bytes", "least_bytes", "order": as `read_profile` gives them, "equal", "close",
        "max_abs_error", "relative_error", "message": why it has no results}; "models": each {"nodes": [name, op type],
        "free": positions whose order means nothing, "expected"}.
    """
    first, *others = (load_proto(onnx, model) for model in request["models"])
    draws = same_draws(first, others)
    protos, request = draws.models, draws.seeded(request)
    models = [_describe(proto, request) for proto in protos]
    answer = {
        "version": runtime().__version__,
        "random": draws.unseeded,
        "draws": draws.told(),
        "models": models,
        "failed": None,
        "message": None,
        "vary": None,
    }
    for bound in INTEGER_BOUNDS:
        run = _SessionAttempt(request, protos, bound, draws=draws.count > 0)
        failure = run.all()
        if failure is None:
            shown = {"sessions": run.results, "vary": run.vary, "float_errors": run.float_errors()}
            return {**answer, "failed": None, **shown}
        # Other inputs may help the first model only; what it runs on, the others must run on too.
        if failure.session or answer["failed"] is None:
            answer.update(failed=failure.session, message=failure.message, loaded=failure.loaded)
        if failure.session or not failure.loaded:
            break
    return {**answer, "sessions": []}


def load_proto(onnx: Any, model: Mapping[str, Any]) -> Any:
    """Return a model of a request as a protobuf message."""
    if "bytes" in model:
        return onnx.load_model_from_string(model["bytes"])
    return onnx.load_model(model["path"], load_external_data=False)


def _graphs(proto: Any) -> list[Any]:
    """Return everything in a model that holds nodes: the main graph first, then bodies, then functions."""
    holders = [proto.graph, *proto.functions]
    for holder in holders:
        for node in holder.node:
            for attribute in node.attribute:
                holders.extend([attribute.g] if attribute.HasField("g") else [])
                holders.extend(attribute.graphs)
    return holders


def _describe(proto: Any, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's nodes, those whose order means nothing, and the wanted order as file positions."""
    nodes = proto.graph.node
    scope = analyse(proto.graph)[0]
    free = {at for at, node in enumerate(nodes) if scope.constant_node[at] or node.name.startswith(_PIN)}
    if request["pinned"]:
        free.update(shape_nodes(proto))
    expected = request["expected"]
    order = list(range(len(nodes))) if expected is None else _positions(nodes, expected)
    return {"nodes": [[node.name, node.op_type] for node in nodes], "free": sorted(free), "expected": order}


def _positions(nodes: Sequence[Any], names: Sequence[str]) -> list[int]:
    """Return the positions of the nodes with these names; a node without a name of its own has one of its outputs."""
    count = Counter(node.name for node in nodes)
    places = {name: at for at, node in enumerate(nodes) for name in node.output}
    places.update((node.name, at) for at, node in enumerate(nodes) if count[node.name] == 1)
    taken = {places[name] for name in names if name in places}
    for at, node in enumerate(nodes):
        if at not in taken:
            places.setdefault(node.name, at)
    return list(dict.fromkeys(places[name] for name in names if name in places))


def _rename(proto: Any) -> None:
    """Name each main node by its file position, so that events tell which it was; names may be missing or double."""
    for holder in _graphs(proto)[1:]:
        for node in holder.node:
            node.name = ""
    for at, node in enumerate(proto.graph.node):
        node.name = f"{_NODE_NAME}{at}"


class _SessionAttempt:
    """One attempt at all sessions of a request, with integer inputs below ``bound``.

    Args:
        draws: The models draw random numbers: each input has a session of its own, so that generators begin anew.
    """

    def __init__(self, request: Mapping[str, Any], protos: Sequence[Any], bound: int, *, draws: bool = False) -> None:
        self._draws = draws
        self._request, self._protos, self._bound = request, protos, bound
        self._feeds: list[dict[str, Any]] = []
        self._outputs: list[list[list[Any]]] = []
        self.results: list[dict[str, Any]] = []
        self.vary: bool | None = None
        self._formulas = BorderFormulas(request["borders"])

    def all(self) -> _Failure | None:
        """Run the sessions one after another; return the required one that could not, if any."""
        for number, wanted in enumerate(self._request["sessions"]):
            session: Any = None
            outputs: list[list[Any]] = []
            try:
                session = self._open(wanted)
                outputs, events = self._run(session, wanted)
                profile = self._largest(wanted, read_profile(events, self._places(wanted)))
                if self._hides_nodes(wanted):
                    profile["order"] = self._order_of_copy(wanted)
            except Exception as error:  # the runtime raises classes of its own, all of them results here
                if wanted["required"]:
                    return _Failure(number, one_line(error), session is not None)
                self.results.append({**_NO_RESULTS, "message": one_line(error)})
            else:
                reference = self._outputs[wanted["reference"]] if number else outputs
                compared = _compare_runs(reference, outputs, self._request)
                self.results.append({**profile, **compared, "message": None})
                self._look_again(wanted)
            self._outputs.append(outputs)
        return None

    def float_errors(self) -> list[float] | None:
        """Return by how much the last two sessions are off the first model's float twin; None if none is asked for."""
        least = self._request["float_from"]
        apart = [one["relative_error"] for one in self.results[-2:] if one["message"] is None]
        if least is None or len(apart) < len(self.results[-2:]) or max(apart) <= least:
            return None
        twin = float_twin(self._protos[0])
        if twin is None:
            return None
        folder = self._request["models"][0]["folder"]
        try:
            session = opened(twin.SerializeToString(), SessionPoint("disabled"), folder=folder)
            expected = [run_once(session, feed) for feed in self._feeds]
        except Exception:  # the runtime raises classes of its own, and protobuf others
            return None
        pairs = [zip(expected, outputs, strict=False) for outputs in self._outputs[-2:]]
        return [max(relative_error(*pair) for pair in one) for one in pairs]

    def _open(self, wanted: Mapping[str, Any], renamed: bytes | None = None) -> Any:
        """Open a session on the model's own bytes, or on those of its copy."""
        model = self._request["models"][wanted["model"]]
        point = msgspec.convert(wanted["options"], SessionPoint)
        source = renamed or model.get("bytes") or model["path"]
        return opened(source, point, folder=model["folder"], change=profiled)

    def _run(self, session: Any, wanted: Mapping[str, Any]) -> tuple[list[list[Any]], Sequence[Any]]:
        """Run on all inputs; return outputs and the profile.

        The profile has the first run, before the arena keeps anything, and where the session makes a memory pattern
        in it, the next one, which uses that.
        """
        first = not self._feeds
        if first:
            self._feeds = self._draw(session, wanted, "noise")
        feeds, formulas = self._feeds, self._formulas
        if wanted["model"]:
            feeds = [formulas.feed(feed) for feed in feeds]
        outputs = [_copied(run_once(session, feeds[0]))]
        if wanted["options"]["pattern"]:
            run_once(session, feeds[0])
        events = profile_of(session)
        outputs.extend(self._run_again(session, wanted, feed) for feed in feeds[1:])
        if first and len(feeds) > 1:
            outputs = self._varied(session, wanted, outputs)
        return [formulas.outputs(one) for one in outputs] if wanted["model"] else outputs, events

    def _run_again(self, session: Any, wanted: Mapping[str, Any], feed: Mapping[str, Any]) -> list[Any]:
        """Run a further input in the session, or in a new one if generators must begin anew."""
        if not self._draws:
            return run_once(session, feed)
        fresh = self._open(wanted)
        outputs = run_once(fresh, feed)
        profile_of(fresh)
        return outputs

    def _largest(self, wanted: Mapping[str, Any], profile: dict[str, Any]) -> dict[str, Any]:
        """Return the profile with the largest peaks of several sessions, where chance decides what one of them does."""
        for _ in range(PROCESSES if self._by_chance(wanted) else 0):
            profile = self._larger(wanted, profile)
        return profile

    def _by_chance(self, wanted: Mapping[str, Any]) -> bool:
        """Whether the order of execution may differ from session to session.

        Layouts of convolutions are changed node by node in such an order, and the order of execution follows it.
        """
        model = self._protos[wanted["model"]]
        return wanted["options"]["level"] == "all" and any(node.op_type == "Conv" for node in model.graph.node)

    def _larger(self, wanted: Mapping[str, Any], profile: dict[str, Any]) -> dict[str, Any]:
        """Return the profile with the peaks of one more session where those are larger."""
        feed = self._formulas.feed(self._feeds[0]) if wanted["model"] else self._feeds[0]
        session = self._open(wanted)
        run_once(session, feed)
        run_once(session, feed)
        return _with_larger(profile, read_profile(profile_of(session), self._places(wanted)))

    def _look_again(self, wanted: Mapping[str, Any]) -> None:
        """Open the session that the last one is compared with more often, where chance may have kept its peak low.

        Whether a file needs more than another would otherwise differ from time to time.
        """
        other = self._request["sessions"][wanted["reference"]]
        if other["model"] == wanted["model"] or not self._by_chance(other) or other["options"] != wanted["options"]:
            return
        last, known = self.results[-1], self.results[wanted["reference"]]
        for _ in range(_SESSIONS_IN_DOUBT):
            if known["lasting_bytes"] is None or known["lasting_bytes"] >= (last["lasting_bytes"] or 0):
                break
            known = self._larger(other, known)
        self.results[wanted["reference"]] = known

    def _varied(self, session: Any, wanted: Mapping[str, Any], outputs: list[list[Any]]) -> list[list[Any]]:
        """Draw other inputs where the outputs are the same for all; return the outputs of those that are kept."""
        self.vary = vary(outputs)
        for draw in () if self.vary else DRAWS[1:]:
            feeds = self._draw(session, wanted, draw)
            found: list[list[Any]] = []
            with contextlib.suppress(Exception):  # it may not run on such inputs, but on others it did
                found = [self._run_again(session, wanted, feed) for feed in feeds]
            if found and vary(found):
                self._feeds, self.vary = feeds, True
                return found
        return outputs

    def _draw(self, session: Any, wanted: Mapping[str, Any], draw: Draw) -> list[dict[str, Any]]:
        if self._request["feeds"] is not None:
            return [read_feeds(self._request["feeds"], [value.name for value in session.get_inputs()])]
        rng, proto = np.random.default_rng(self._request["seed"]), self._protos[wanted["model"]]
        return [
            random_feed(session, proto, self._request, rng, self._bound, draw) for _ in range(self._request["runs"])
        ]

    def _places(self, wanted: Mapping[str, Any]) -> list[tuple[int, str]]:
        """Return position and type of the nodes that ONNX Runtime numbers; it turns Constant nodes into weights."""
        nodes = self._protos[wanted["model"]].graph.node
        return [(at, node.op_type) for at, node in enumerate(nodes) if node.op_type != "Constant"]

    def _hides_nodes(self, wanted: Mapping[str, Any]) -> bool:
        """Whether nodes of bodies or functions have the numbers of main nodes in a profile."""
        return len(_graphs(self._protos[wanted["model"]])) > 1

    def _order_of_copy(self, wanted: Mapping[str, Any]) -> list[int]:
        """Return the order of the main graph's nodes in a copy in which their names tell them from all others."""
        copy = onnx.ModelProto()
        copy.CopyFrom(self._protos[wanted["model"]])
        _rename(copy)
        session = self._open(wanted, copy.SerializeToString())
        run_once(session, self._formulas.feed(self._feeds[0]) if wanted["model"] else self._feeds[0])
        events = profile_of(session)
        found = (_EVENT.fullmatch(event["name"]) for event in events if event.get("cat") == "Node")
        return [int(one.group(1)) for one in found if one]


def _with_larger(profile: dict[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile with the larger peaks of two sessions, and the lesser of what they requested least."""
    chosen = (("peak_bytes", max), ("lasting_bytes", max), ("least_bytes", min))
    known = [(name, choose) for name, choose in chosen if None not in (profile[name], further[name])]
    return profile | {name: choose(profile[name], further[name]) for name, choose in known}


def _copied(outputs: Sequence[Any]) -> list[Any]:
    """Return outputs that do not keep the session's memory."""
    return [value.copy() if isinstance(value, np.ndarray) else value for value in outputs]


def _compare_runs(reference: Sequence[Any], outputs: Sequence[Any], request: Mapping[str, Any]) -> dict[str, Any]:
    pairs = [compare(one, other) for one, other in zip(reference, outputs, strict=False)]
    near = [close(one, other, request["rtol"], request["atol"]) for one, other in zip(reference, outputs, strict=False)]
    return {
        "equal": all(same for same, _ in pairs),
        "close": all(near),
        "max_abs_error": max((error for _, error in pairs), default=0.0),
        "relative_error": max((relative_error(a, b) for a, b in zip(reference, outputs, strict=False)), default=0.0),
    }
