"""What TensorFlow Lite Micro takes of a block of memory in which several files are executed one after the other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from memsched.base.errors import InternalError, ModelError
from memsched.base.frozen import FrozenValue
from memsched.formats.module import Module
from memsched.formats.segment import Segment
from memsched.formats.staging import describe
from memsched.formats.tflite.model import FileModel, parse
from memsched.formats.tflite.reader import TfliteNative
from memsched.formats.tflite.state import operator_effects
from memsched.graph.border import Border
from memsched.runtimes.arena_facts import round_up
from memsched.runtimes.borders import told
from memsched.runtimes.child import TIMEOUT, run_in_child
from memsched.runtimes.package import TFLM
from memsched.runtimes.runtime import ArenaNeeds, RelayRun
from memsched.runtimes.special import SPECIALS, compared_on, worth_trying
from memsched.runtimes.tflm.limits import refusals
from memsched.runtimes.tflm.persistent import estimates, least_kept, tail_in_wheel, unknown_kernels
from memsched.runtimes.tflm.plan import inline_bodies, kernel_scratch, predict
from memsched.runtimes.tflm.resolver import resolver
from memsched.runtimes.tflm.verification import LEAST_ARENA
from memsched.runtimes.values import RUNS, Verification

__all__ = ["RelayRules"]

_SESSION: Final = "memsched.runtimes.tflm.relay_session:run"
_SPECIAL: Final = "memsched.runtimes.tflm.relay_session:special"


class RelayRules(FrozenValue, frozen=True):
    """Says what a runtime takes of one block of memory in which it executes several files one after the other.

    Attributes:
        bits: Of a pointer of the target's processor.
        kernels: As a target names them.
    """

    bits: int
    kernels: str

    def check(self, module: Module) -> None:
        """Check that nothing of ``module`` outlives its stage, and that all that it needs is known.

        Raises:
            ModelError: It is not so.
        """
        model = _native(module)
        reason = _state(model) or _output(model) or _unfit(model, self.kernels)
        if reason:
            raise ModelError(f"{describe(module.path)} cannot be cut into stages: {reason}", code="no-stages")

    def needs(self, data: bytes) -> ArenaNeeds:
        """Return what the arena of a file must hold.

        Raises:
            ModelError: The runtime would refuse it.
        """
        model = parse(data)
        found, predicted = estimates(model, self.kernels), predict(model, kernel_scratch(model, self.kernels))
        return ArenaNeeds(
            predicted.head,
            {bits: one.persistent for bits, one in found.items()},
            {bits: one.planning for bits, one in found.items()},
            tuple(predicted.offsets.get((0, tensor), 0) for tensor in model.subgraphs[0].outputs),
        )

    def least_kept(self, module: Module) -> tuple[int, ...]:
        """Return per op of the main graph bytes that its stage keeps for it, or more."""
        native = module.native
        model = _native(module)
        kept = [least_kept(subgraph, self.bits) for subgraph in model.subgraphs]
        found = []
        for number in native.mappings[0].operators:
            bodies = inline_bodies(model.subgraphs[0].operators[number])
            found.append(kept[0][number] + sum(sum(kept[body]) for body in bodies))
        return tuple(found)

    def execute(
        self,
        module: Module,
        whole: bytes,
        segments: Sequence[Segment],
        files: Sequence[bytes],
        *,
        seed: int,
        tolerance: float = 0.0,
        seconds: float | None = None,
        borders: Sequence[Border] = (),
    ) -> RelayRun:
        """Run a model, and its stages one after the other, on the same random inputs, each twice in a row.

        Then once on each kind of special values.

        Args:
            module: What was cut.
            whole: The model as given, which may have other inputs and outputs.
            borders: What stands between those of both.
            tolerance: Relative error that is permitted.
            seconds: Where so many are too few for all inputs, it is done with fewer, but one at least.

        Raises:
            RuntimeUnavailableError: The runtime is not installed.
        """
        runtime = TFLM.require()
        names = [tensor.name for tensor in module.graphs[0].tensors]
        request = {
            "whole": whole,
            "stages": list(files),
            "runs": RUNS,
            "seconds": seconds,
            "seed": seed,
            "borders": told(borders),
            "inputs": [names[tensor] for tensor in module.graphs[0].inputs],
            "outputs": [names[tensor] for tensor in module.graphs[0].outputs],
            "reads": [list(one.inputs) for one in segments],
            "makes": [list(one.outputs) for one in segments],
            # The tail grows down from the arena's end, which the figures take to be a multiple of 16.
            "arena": round_up(LEAST_ARENA + 2 * max(self.needs(data).total(64) for data in (whole, *files))),
        }
        started = time.monotonic()
        result = run_in_child(_SESSION, request, TIMEOUT)
        took = time.monotonic() - started
        if not result.ok:
            return RelayRun(Verification(runtime, 0, None, None, None, None, None, result.explained()))
        found = _judged(runtime, result.value, [parse(data) for data in files])
        kinds = len(SPECIALS)
        if seconds is not None:
            # Each input ran twice, and was started for once.
            kinds = int(max(0.0, seconds - took) / (took / (2 * found.verification.runs)))
        if not kinds or not worth_trying(found.verification, tolerance):
            return found
        request |= {"tolerance": tolerance, "kinds": SPECIALS[:kinds]}
        alone = {**request, "stages": [], "reads": [], "makes": []}
        return replace(found, verification=compared_on(found.verification, _SPECIAL, request, alone, runtime))

    def resolver_calls(self, files: Sequence[bytes]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the calls that register the operators of all files, and the custom operators that it does not have."""
        calls: dict[str, None] = {}
        custom: dict[str, None] = {}
        for data in files:
            one = resolver(parse(data))
            calls.update(dict.fromkeys(call for call in one.calls if not call.startswith("AddCustom(")))
            custom.update(dict.fromkeys(one.custom))
        return tuple(sorted(calls)), tuple(sorted(custom))


def _judged(runtime: str, found: Mapping[str, Any], files: Sequence[FileModel]) -> RelayRun:
    equal = bool(found["equal"]) and bool(found["twice_equal"])
    reason = None if equal else f"outputs differ by up to {found['max_abs_error']:g}"
    if found["equal"] and not equal:
        reason = "the second run on an input gives other outputs than the first"
    verification = Verification(
        runtime=runtime,
        runs=found["runs"],
        outputs_equal=equal,
        max_abs_error=found["max_abs_error"],
        measured_peak_before_bytes=sum(found["arenas"][0]),
        measured_peak_after_bytes=max(head + tail for head, tail in found["arenas"][1:]),
        executed_order_matches=None,
        reason=reason,
        relative_error=found["relative_error"],
        outputs_vary=found["vary"],
        notes=() if found["runs"] == RUNS else (f"there was time to run {found['runs']} of {RUNS} inputs",),
    )
    arenas = []
    for model, (head, tail) in zip(files, found["arenas"][1:], strict=True):
        expected = predict(model, kernel_scratch(model)).head, tail_in_wheel(model)
        arenas.append((head, (head, tail) == expected))
    return RelayRun(verification, bool(found["twice_equal"]), tuple(arenas), found["time_ratio"])


def _native(module: Module) -> FileModel:
    native = module.native
    if not isinstance(native, TfliteNative):
        raise InternalError(
            "only a file for TensorFlow Lite Micro is executed in one block of memory", code="needs-tflite"
        )
    return native.model


def _state(model: FileModel) -> str:
    """Return what would have to outlive an inference, as nothing of a stage does; "" where there is nothing."""
    lost = "keeps a state from one inference to the next, which is lost when its stage is allocated anew"
    for subgraph, effects in zip(model.subgraphs, operator_effects(model), strict=True):
        for tensor in subgraph.tensors:
            if tensor.variable:
                return f"variable '{tensor.name}' {lost}"
        for operator, effect in zip(subgraph.operators, effects, strict=True):
            if effect.stateful:
                return f"an operator {operator.type.removeprefix('CUSTOM:')} {lost}"
    return ""


def _output(model: FileModel) -> str:
    """Return why an output cannot be handed out by a stage; "" where all can."""
    main = model.subgraphs[0]
    for number in main.outputs:
        if main.tensors[number].has_data:
            return f"its output '{main.tensors[number].name}' is a constant"
        if main.outputs.count(number) > 1:
            return f"it hands out '{main.tensors[number].name}' twice"
    return ""


def _unfit(model: FileModel, kernels: str) -> str:
    """Return why TFLM does not execute it, or why its arena is not known; "" where neither holds."""
    if found := refusals(model):
        return f"TensorFlow Lite Micro refuses {found[0].type} '{found[0].name}': {found[0].reason}"
    if lacking := resolver(model).unsupported:
        return f"TensorFlow Lite Micro does not have {', '.join(lacking)}"
    if unknown := unknown_kernels(model, kernels):
        return f"what the kernels of {', '.join(unknown)} keep is not known"
    return ""
