"""The runtimes that memsched knows, and what runs the files of each format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from memsched.base.errors import UsageError
from memsched.formats.known import format_named
from memsched.formats.module import FormatName, Module
from memsched.formats.staging import describe
from memsched.runtimes.firmware import FirmwareNeeds
from memsched.runtimes.litert.default_interpreter import DefaultInterpreter
from memsched.runtimes.litert.runner import LiteRtRunner
from memsched.runtimes.litert.runtime import LiteRt
from memsched.runtimes.offer import Offer
from memsched.runtimes.onnxruntime import generation, ranged
from memsched.runtimes.onnxruntime.inference_session import open_as_stated
from memsched.runtimes.onnxruntime.order_keeper import OrderKeeper
from memsched.runtimes.onnxruntime.runner import OnnxRuntimeRunner
from memsched.runtimes.onnxruntime.runtime import OnnxRuntime
from memsched.runtimes.onnxruntime.session_maker import SessionMaker
from memsched.runtimes.runner import RowRunner, Runner
from memsched.runtimes.runtime import AS_TOLD, CompiledModel, CompiledRun, Opening, Runtime
from memsched.runtimes.tflm.runner import TflmRunner
from memsched.runtimes.tflm.runtime import TensorFlowLiteMicro
from memsched.runtimes.values import RunnerName
from memsched.targets.load import default_target
from memsched.targets.model import Target

if TYPE_CHECKING:
    from memsched.runtimes.tflm.relay import RelayRules

__all__ = [
    "ORDER_KEEPER",
    "RUNNERS",
    "DefaultInterpreter",
    "OrderKeeper",
    "RelayRules",
    "SessionMaker",
    "check_runner",
    "check_target",
    "default_orders_of",
    "firmware_needs",
    "generation",
    "observer_of",
    "offers_for",
    "ranged",
    "relay_rules_of",
    "resized",
    "row_runner_of",
    "run_compiled",
    "runner_named",
    "runners_for",
    "runtime_of",
    "usual_offer",
]
__all__ += ["default_interpreter_of", "has_sessions", "open_as_stated", "session_maker_of"]

_RUNTIMES: Final = (TensorFlowLiteMicro, LiteRt, OnnxRuntime)
_TFLM: Final = TflmRunner()
_ONNXRUNTIME: Final = OnnxRuntimeRunner()
_LITERT: Final = LiteRtRunner()
_ROW_RUNNERS: Final[tuple[RowRunner, ...]] = (_ONNXRUNTIME, _LITERT)
_SESSIONS: Final = SessionMaker()

ORDER_KEEPER: Final = OrderKeeper()
"""For the files whose order does not bind their runtime."""

RUNNERS: Final[tuple[Runner, ...]] = (*_ROW_RUNNERS, _TFLM)
"""All that there are; the first of a format runs its files where nothing else is said."""


def observer_of(name: FormatName) -> OnnxRuntimeRunner:
    """Return what runs the files of a format to see their sizes.

    Raises:
        UsageError: Files of that format state every size.
    """
    if name == _ONNXRUNTIME.format:
        return _ONNXRUNTIME
    problem = "--shapes-from-run is for formats that leave sizes open: this file states every size"
    raise UsageError(problem, code="states-every-size")


def resized(data: bytes, name: FormatName, shapes: Mapping[str, Sequence[int]]) -> bytes:
    """Return a file of a format that states every shape with these shapes of inputs; another format's as it is.

    Raises:
        UsageError: The file cannot be resized so.
    """
    return _LITERT.resize(data, shapes) if name == _LITERT.format and shapes else data


def default_orders_of(target: Target) -> OrderKeeper | None:
    """Return what knows the default order of a target; None if the target executes the order of the file."""
    return ORDER_KEEPER if target.default_order == ORDER_KEEPER.name else None


def session_maker_of(name: FormatName) -> SessionMaker:
    """Return what opens the files of a format in sessions that optimise them.

    Raises:
        UsageError: Files of that format are executed as they are.
    """
    if has_sessions(name):
        return _SESSIONS
    raise UsageError("sessions are ONNX Runtime's: a TFLite file is executed as it is", code="no-sessions")


def default_interpreter_of(module: Module, target: Target) -> DefaultInterpreter | None:
    """Return the interpreter in which people open files for a target; None if that is not known, or not measured."""
    opened = (module.format, target.runtime) == (_LITERT.format, _LITERT.name) and target.default_delegate
    return DefaultInterpreter() if opened else None


def has_sessions(name: FormatName) -> bool:
    """Return whether files of a format are opened in sessions, whose processes are measured."""
    return name == _SESSIONS.format


def firmware_needs(module: Module, kernels: str) -> FirmwareNeeds | None:
    """Return what a firmware with the kernels that a target names needs for ``module``; None if none loads it."""
    return _TFLM.firmware_needs(module, kernels)


def relay_rules_of(module: Module, target: Target) -> RelayRules | None:
    """Return what a target's runtime takes of one block of memory; None where it takes memory as it goes."""
    if not TensorFlowLiteMicro.judges(module, target, AS_TOLD):
        return None
    from memsched.runtimes.tflm.relay import RelayRules  # numpy takes as long as all of this package

    return RelayRules(target.pointer_bits, target.kernels)


def run_compiled(compiled: CompiledModel, seed: int) -> CompiledRun:
    """Run a model as C beside the interpreter that firmware runs its file in; see `runtimes/tflm/compiled`.

    Raises:
        RuntimeUnavailableError: The interpreter is not installed, or there is no compiler.
    """
    from memsched.runtimes.tflm.compiled import run_beside  # as above

    return run_beside(compiled, seed)


def row_runner_of(name: FormatName) -> RowRunner:
    """Return what runs the files of a format, one after another, too."""
    return next(one for one in _ROW_RUNNERS if one.format == name)


def runner_named(name: RunnerName | None, of: FormatName) -> Runner:
    """Return the runner of that name, or the usual one, for files of a format.

    Raises:
        UsageError: It does not run such files.
    """
    found = next(one for one in RUNNERS if (one.format == of if name is None else one.name == name))
    if found.format != of:
        problem = f"{found.name} runs no {format_named(of).traits.title} models"
        raise UsageError(problem, code="other-format")
    return found


def runners_for(module: Module, target: Target) -> tuple[Runner, ...]:
    """Return what can run the files of ``module`` that are for ``target``, the target's own runtime first."""
    usual = row_runner_of(module.format)
    own = TensorFlowLiteMicro.judges(module, target, AS_TOLD)
    return (_TFLM, usual) if own else (usual,)


def check_runner(module: Module, target: Target | None = None, otherwise: str = "--no-verify") -> None:
    """Refuse to write files that nothing which is installed can run: they would not be verified.

    Args:
        target: None: that of the runtime which usually runs files of this format.
        otherwise: The option with which that is wanted.

    Raises:
        RuntimeUnavailableError: It is so; the message says what to install.
    """
    usual = row_runner_of(module.format)
    runners: Sequence[Runner] = (usual,) if target is None else runners_for(module, target)
    if not any(one.package.found() for one in runners):
        usual.package.require(f"{otherwise}, which writes what was not run")


def check_target(path: str, name: FormatName, target: Target) -> None:
    """Refuse a target whose runtime loads no files of this format: no figure or file would hold anywhere.

    Raises:
        UsageError: It is so.
    """
    other = next((one for one in RUNNERS if one.name == target.executed_by and one.format != name), None)
    if other is not None:
        given, loaded = (format_named(one).traits.a_title for one in (name, other.format))
        raise UsageError(
            f"{describe(path)} is {given} model, which the runtime of target '{target.name}' does not load",
            code="other-format",
            action=f"give {loaded} model, or --target {default_target(name)}",
        )


def offers_for(module: Module) -> tuple[Offer, ...]:
    """Return the targets that the runtimes of a file's format offer for it."""
    return tuple(one for kind in _RUNTIMES for one in kind.offers(module))


def usual_offer(module: Module) -> Offer:
    """Return the target of a file for which the user names none; its reason says why, and names the others."""
    offers = offers_for(module)
    chosen = next(one for one in offers if one.usual)
    reason = chosen.reason or next((one.reason for one in offers if one.reason), "")
    others = ", ".join(f"--target {one.target}" for one in offers if one is not chosen and one.takes)
    return replace(chosen, reason=f"{reason}; others: {others}" if reason and others else reason)


def runtime_of(module: Module, target: Target, opening: Opening = AS_TOLD) -> Runtime:
    """Return the runtime that a target stands for, as far as it is known what that does with ``module``.

    Args:
        opening: How the file that is written will be opened; by default as people are told to.

    Raises:
        UsageError: The target's runtime does not open files like that.
    """
    for make in _RUNTIMES:
        if make.judges(module, target, opening):
            return make(target, opening)
    return Runtime(target, opening)
