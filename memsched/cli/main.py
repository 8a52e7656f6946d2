"""The command line's entry: finds the subcommand, imports it alone, and turns every failure into one line."""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import importlib
import os
import re
import shlex
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from memsched import __version__
from memsched.base.errors import MemschedError, UnknownShapeError, UsageError
from memsched.base.suggestions import did_you_mean
from memsched.cli.completion import add_completion, completion_option
from memsched.cli.examples import closing
from memsched.cli.exit_code import ExitCode
from memsched.cli.state import State
from memsched.report.text import error_line

__all__ = ["main"]

INTERNAL: Final = "internal error"
INTERRUPTED: Final = "interrupted; nothing was written"
"""What `main` says of defects, and of a run that ended before there was a result."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_COMMANDS = {
    "optimize": ("memsched.cli.optimize", "Reorder a model's operators for the least memory; prove and verify it."),
    "analyze": ("memsched.cli.analyze", "What a model needs as it stands: peak, bound, who is to blame."),
    "allocate": ("memsched.cli.allocate", "Addresses alone, for buffers from a CSV file."),
    "pipeline": ("memsched.cli.pipeline", "Cut a model into one model per accelerator of a row."),
    "relay": ("memsched.cli.relay", "Cut a model into files that run in turn in one arena, with a C++ runner."),
    "decoder": ("memsched.cli.decoder", "Keep a language model's keys and values in place; what its texts take."),
    "report": ("memsched.cli.report", "A report as a page with pictures, for a browser."),
    "distribute": ("memsched.cli.distribute", "Share the work on every operator out to the devices of a cluster."),
    "batch": ("memsched.cli.batch", "A whole zoo: many models, and one summary."),
    "diff": ("memsched.cli.diff", "What changed between two reports; for CI."),
    "doctor": ("memsched.cli.doctor", "Where an ONNX Runtime process's memory goes, and which options help."),
    "verify": ("memsched.cli.verify", "Run two models and compare outputs and measured peaks."),
    "targets": ("memsched.cli.targets", "The built-in targets, or one in full."),
    "schema": ("memsched.cli.schema", "JSON Schemas of reports and other files."),
}
"""By name: module and help, so that `memsched --help` imports none of them."""

_RUN: Final = "--shapes-from-run"
_RUNNING: Final = frozenset({"optimize", "analyze"})
"""The commands that have this option."""

_CAPITAL: Final = re.compile("(?<=[a-z])(?=[A-Z])")
_MODELS: Final = frozenset({".onnx", ".tflite"})


_MODEL: Final = "MODEL"
"""Stands for a command if the first word is a model."""


class _InterruptedError(Exception):
    """KeyboardInterrupt in a form for which click prints no empty line."""


class _UnexpectedEndError(Exception):
    """EOFError in a form that click leaves as it is."""


class _NoCommandError(Exception):
    """No command was given; holds the help."""


class _Commands(click.Group):
    """Subcommands that are imported when they are invoked."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            # Releases of click differ in what they do here.
            raise _NoCommandError(ctx.get_help())
        return super().parse_args(ctx, args)

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = importlib.import_module(_COMMANDS[cmd_name][0]).command
        command.epilog = closing(cmd_name)
        add_completion(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            if Path(args[0]).suffix in _MODELS or Path(args[0]).is_file():
                return _MODEL, _overview(), args
            hint = did_you_mean(args[0], _COMMANDS) or f"; commands: {', '.join(_COMMANDS)}"
            raise click.UsageError(f"no such command '{args[0]}'{hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _InterruptedError from None
        except EOFError as error:
            # click would take it for Ctrl-C.
            raise _UnexpectedEndError(f"EOFError: {error}") from error

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


def _overview() -> click.Command:
    command: click.Command = importlib.import_module("memsched.cli.overview").command
    command.epilog = closing(_MODEL)
    return command


_HELP = """Order the operators of ONNX and TFLite models so that inference needs the least activation memory.

`memsched MODEL` says what MODEL takes in each runtime, and how it takes less. MODEL and report files of commands may be
'-' for standard input or output.
"""

cli = _Commands(
    "memsched",
    help=_HELP,
    epilog=closing(None),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
completion_option(cli)
click.version_option(__version__, "--version", "-V", prog_name="memsched", message="%(prog)s %(version)s")(cli)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (by default the process's) and return the exit code; never raises."""
    state = State(words=tuple(sys.argv[1:] if arguments is None else arguments))
    if arguments is None:
        # A command makes few cycles and ends soon; collecting them doubles the time that large graphs take.
        gc.disable()
        # It multiplies no large matrices: threads that numpy starts for that, as it is imported, wait by turning round.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for stream in (sys.stdout, sys.stderr):
        # A tensor's name may hold characters that the terminal's encoding lacks; that is no reason to fail.
        with contextlib.suppress(AttributeError, OSError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = _run(arguments, state)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has left, as `head` does; nothing may complain about it at exit either.
        _silence(sys.stdout)
        return 0
    except OSError as error:
        return _unprinted(error)
    return code


def _run(arguments: Sequence[str] | None, state: State) -> int:
    try:
        code = cli.main(args=arguments, prog_name="memsched", standalone_mode=False, obj=state)
        return code if isinstance(code, int) else 0
    except _NoCommandError as error:
        print(error, file=sys.stderr, flush=True)  # noqa: T201
        return UsageError.exit_code
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.ClickException as error:
        refused = _refused(error)
        return _fail(said(refused, state.words), refused.exit_code)
    except MemschedError as error:
        return _fail(said(error, state.words), error.exit_code)
    except (_InterruptedError, click.Abort, KeyboardInterrupt):
        return _fail(INTERRUPTED, ExitCode.INTERRUPTED)
    except BrokenPipeError:
        raise
    except SystemExit:
        # What click and rich make of a broken pipe; nothing else here ends that way.
        raise BrokenPipeError from None
    except MemoryError:
        return _fail("not enough memory for this model", 1)
    except Exception as error:  # the last line of defence: a user never sees a traceback unasked
        return _unexpected(error, state)


def said(error: MemschedError, arguments: Sequence[str]) -> str:
    """Return the error's message; where sizes are unknown, with the complete command line to type next."""
    if not isinstance(error, UnknownShapeError) or not error.options:
        return str(error)
    complete = copy.copy(error)
    if _RUN in error.options and arguments[0] not in _RUNNING:
        complete.action = "state the most that it can be with --shape"
    else:
        complete.action = f"state the open sizes: {shlex.join(['memsched', *arguments, *error.options])}"
    return str(complete)


def _refused(error: click.ClickException) -> UsageError:
    """Return what click found wrong with a command line; its code is that of its cause, or names click's class."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "memsched"
    cause, text, location = error.__cause__, error.format_message().rstrip("."), ""
    if isinstance(error, click.BadParameter) and not isinstance(error, click.MissingParameter) and error.param:
        location = error.param.get_error_hint(error.ctx).replace("'", "") if error.ctx else ""
        text = error.message.rstrip(".") if location else text
    if isinstance(error, click.NoSuchOption):
        text = f"no such option '{error.option_name}'{did_you_mean(error.option_name, error.possibilities or ())}"
    code = cause.code if isinstance(cause, MemschedError) else _CAPITAL.sub("-", type(error).__name__).lower()
    if text[1:2].islower():
        text = text[0].lower() + text[1:]
    return UsageError(text, code=code, location=location, action=f"see '{command} --help'")


def _unexpected(error: Exception, state: State) -> int:
    if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
        return _unprinted(error)
    if state.debug:
        traceback.print_exception(error)
    kind = type(error).__name__
    return _fail(f"{INTERNAL}: {kind}: {error} (please report it; --debug shows the traceback)", 1)


def _unprinted(error: OSError) -> int:
    """Report that standard output takes nothing more, and let nothing complain about it again at exit."""
    _silence(sys.stdout)
    return _fail(f"standard output cannot be written: {error.strerror or error}", 1)


def _fail(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print(f"memsched: error: {error_line(message)}", file=sys.stderr, flush=True)  # noqa: T201
    return code


def _silence(stream: object) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())  # type: ignore[attr-defined]
        os.close(null)


if __name__ == "__main__":
    sys.exit(main())
