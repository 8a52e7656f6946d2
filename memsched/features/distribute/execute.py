"""A plan executed: its outputs compared with the whole model's, its bytes with the plan's, its memory measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from memsched.base.errors import InternalError, ModelError, VerificationError
from memsched.base.frozen import FrozenValue
from memsched.features.distribute.follow import ResolvedPlan
from memsched.features.distribute.step_models import StepModel, given_sends, program_of
from memsched.formats.module import Module
from memsched.graph.distribution import Distribution
from memsched.graph.model import Tensor
from memsched.report.outputs import TOLERANCE
from memsched.runtimes.child import run_in_child
from memsched.runtimes.devices.measured import ClusterRun, ThrottledRun
from memsched.runtimes.devices.parent import run_cluster, run_each, time_cluster
from memsched.runtimes.devices.program import Throttle
from memsched.runtimes.known import row_runner_of
from memsched.runtimes.special import Special, judged, mixed_feed, rng_of, tried
from memsched.runtimes.values import INTEGER_BOUNDS

if TYPE_CHECKING:
    import numpy as np

__all__ = ["DistributedRun", "PlanExecution", "execute"]

_ROOM: Final = 12.0
"""How many times as long as it takes by itself a throttled run is to take, so that the throttles decide."""

_LEAST_STEP: Final = 0.04
"""Seconds that a step of a throttled run is to take on average: a busy machine makes processes wait."""

_REFERENCE: Final = "memsched.runtimes.devices.worker:reference"


class DistributedRun(FrozenValue, frozen=True):
    """A plan that was executed, and the model in one session beside it.

    Attributes:
        equal: Whether all outputs are equal bit for bit.
        max_abs_error: Largest difference of any element.
        relative_error: Largest difference of any output by that output's largest magnitude.
        activations: Most bytes that the one session had in use, inputs included; None where it does not say.
        throttled: What a throttled run took; None where there was none.
        special: What `memsched.runtimes.special.judged` says of special values; None where other ones differ.
    """

    run: ClusterRun
    equal: bool
    max_abs_error: float
    relative_error: float
    activations: int | None
    throttled: ThrottledRun | None = None
    special: Mapping[str, Any] | None = None


class PlanExecution(FrozenValue, frozen=True):
    """How a plan is run.

    Attributes:
        seed: Of the inputs.
        patience_seconds: The longest that loading, or one step, may take.
        on_start: Called with the ids of the processes once they run.
        throttles: What the processes are held to in a run of their own, beside the one that is compared.
    """

    seed: int = 0
    patience_seconds: float = 120.0
    on_start: Callable[[Sequence[int]], None] | None = None
    throttles: Sequence[Throttle] = ()


_ONCE: Final = PlanExecution()


def execute(
    module: Module,
    source: str | bytes,
    followed: ResolvedPlan,
    models: Sequence[Sequence[StepModel | None]],
    part: Callable[[int, int], bytes],
    how: PlanExecution = _ONCE,
) -> DistributedRun:
    """Run the model in one session and the plan in one process per device, on the same random inputs, and compare.

    Args:
        source: The model's file, or its bytes where it has no other files.
        models: What each device computes in each step.
        part: (device, step) -> that model's file.
        how: How it is run.

    Raises:
        VerificationError: The model does not run, or the plan does not.
        ModelError: An input, or what has to be sent, has a type that numpy does not have.
        InternalError: The bytes at the sockets are not those of the plan.
    """
    feeds = _feeds([followed.graph.tensors[tensor] for tensor in followed.graph.inputs], how.seed, module.path)
    names = [followed.graph.tensors[tensor].name for tensor in followed.graph.outputs]
    runner = row_runner_of(module.format)
    asked = {"runtime": runner.parts, "names": runner.row_request(module).get("names", ())}
    request = {**asked, "model": source, "feeds": feeds, "outputs": names}
    whole = _whole(module, request, how)
    programs = [program_of(followed, device, models[device]) for device in range(followed.plan.devices)]
    sends, feed, patience = given_sends(followed), feeds[whole["feed"]], how.patience_seconds
    run = run_cluster(
        programs, sends, part, feed, runtime=runner.parts, patience_seconds=patience, on_start=how.on_start
    )
    check_bytes(followed.plan, run)
    found = _compared(run, whole["outputs"], [run.outputs[name] for name in names], whole["activations"])
    if found.relative_error <= TOLERANCE:

        def run_all(fed: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
            outputs = run_each(programs, sends, part, fed, runtime=runner.parts, patience_seconds=patience)
            return [[one[name] for name in names] for one in outputs]

        pair = _ClusterPair({**request, "feeds": [feed]}, how.seed, 10 * patience, run_all)
        found = replace(found, special=judged(tried(pair, bounds=(0,), tolerance=TOLERANCE)))
    if not how.throttles:
        return found
    throttled = time_cluster(
        programs,
        sends,
        part,
        feed,
        how.throttles,
        runtime=runner.parts,
        slower=_slow_motion(followed.plan, run.seconds, how.throttles),
        patience_seconds=patience,
    )
    return replace(found, throttled=throttled)


def _whole(module: Module, request: Mapping[str, Any], how: PlanExecution) -> Mapping[str, Any]:
    """Return what the model as given computes in one session."""
    whole = run_in_child(_REFERENCE, request, 10 * how.patience_seconds)
    if not whole.ok:
        problem = f"{row_runner_of(module.format).name} does not run the model as given: {_short(whole.reason)}"
        raise VerificationError(problem, code="not-run", location=module.path)
    found: Mapping[str, Any] = whole.value
    return found


class _ClusterPair:
    """The model in one session and the plan, as a `memsched.runtimes.special.SpecialPair`.

    Args:
        request: What `_REFERENCE` takes; of its feeds, which are one, those with special values are made.
        run_all: Runs the plan on several feeds, and returns the outputs.
    """

    def __init__(
        self,
        request: Mapping[str, Any],
        seed: int,
        timeout: float,
        run_all: Callable[[Sequence[Mapping[str, Any]]], list[list[Any]]],
    ) -> None:
        self._request, self._seed, self._timeout, self._run_all = request, seed, timeout, run_all
        self._fed: dict[Special, Mapping[str, Any]] = {}
        self._found: dict[Special, list[Any]] = {}

    def given(self, special: Special, bound: int) -> list[Any]:
        """Return the outputs of the model in one session."""
        del bound
        feed = mixed_feed(self._request["feeds"][0], special, rng_of(self._seed, special))
        result = run_in_child(_REFERENCE, {**self._request, "feeds": [feed]}, self._timeout)
        if not result.ok:
            raise ValueError(result.reason)
        self._fed[special] = feed
        outputs: list[Any] = result.value["outputs"]
        return outputs

    def written(self, special: Special, bound: int) -> list[Any]:
        """Return those of the plan, whose processes run all feeds that the model runs on."""
        del bound
        if not self._found:
            self._found = dict(zip(self._fed, self._run_all(list(self._fed.values())), strict=True))
        return self._found[special]

    def again(self, special: Special, bound: int) -> list[list[Any]]:
        """Return nothing: sessions here have one thread each."""
        del special, bound
        return []


def _slow_motion(plan: Distribution, seconds: float, throttles: Sequence[Throttle]) -> int:
    """Return how much slower a throttled run has to be: this machine's cores are shared by all processes."""
    predicted = max(plan.latency, 1e-9)
    rates = any(one.seconds for one in throttles)
    room = _ROOM * (seconds / predicted if rates else max(one.cores for one in throttles))
    return max(1, math.ceil(max(room, _LEAST_STEP * len(plan.steps) / predicted)))


def _compared(run: ClusterRun, wanted: Sequence[Any], found: Sequence[Any], activations: int | None) -> DistributedRun:
    from memsched.runtimes.compare import compare, relative_error

    equal, error = compare(wanted, found)
    return DistributedRun(run, equal, error, relative_error(wanted, found), activations)


def check_bytes(plan: Distribution, run: ClusterRun) -> None:
    """Check that what went through the sockets is what the plan says.

    Raises:
        InternalError: It is not.
    """
    transfers = [one for step in plan.exchanges() for one in step]
    for device in range(-1, plan.devices):
        mine = [one for one in transfers if one.source == device]
        sent, once = (
            (run.given, run.given_once) if device < 0 else (run.devices[device].sent, run.devices[device].sent_once)
        )
        received = 0 if device < 0 else run.devices[device].received
        pairs = (
            (sent, sum(one.size * len(one.targets) for one in mine)),
            (once, sum(one.size for one in mine)),
            (received, sum(one.size for one in transfers if device in one.targets)),
        )
        if any(counted != planned for counted, planned in pairs):
            problem = f"device {device} sent and received {pairs} bytes (counted, planned)"
            raise InternalError(problem, code="bytes-differ")


def _feeds(inputs: Sequence[Tensor], seed: int, path: str) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Return random inputs, and others with smaller integers in case the model cannot run on the first."""
    import numpy as np

    from memsched.runtimes.inputs import random_values

    for tensor in inputs:
        if tensor.dtype not in np.sctypeDict or tensor.shape is None:
            problem = f"no random values can be made for input '{tensor.name}'"
            raise ModelError(problem, code="no-random-inputs", location=path, action="use --no-run")
    integers = any(np.dtype(tensor.dtype).kind in "iu" for tensor in inputs)
    found = []
    for bound in INTEGER_BOUNDS if integers else INTEGER_BOUNDS[:1]:
        rng = np.random.default_rng(seed)
        found.append({one.name: random_values(one.dtype, one.shape or (), rng, high=bound) for one in inputs})
    return found


def _short(reason: str | None) -> str:
    return " ".join((reason or "it did not run").split())[:400]
