"""Parses the command line, runs a subcommand and turns every failure into one line."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import sys
import traceback
import warnings
from typing import Any

from tvm_dtr import __version__
from tvm_dtr.cli import (
    INTERRUPTED,
    advise,
    build,
    compare,
    export,
    freeze,
    inspect,
    models,
    plan,
    report_page,
    run,
    simulate,
    trace,
    train,
)
from tvm_dtr.cli.report import print_holders, print_remedies
from tvm_dtr.errors import BudgetError, DTRError, ThrashError, UsageError
from tvm_dtr.interrupts import handled

FAILED = 1
WRONG_USAGE = 2
TERMINATED = 143  # 128 + SIGTERM


class _Terminated(BaseException):
    """SIGTERM came: unwinds the stack, so that temporary files and child processes go."""


def main(argv: list[str] | None = None) -> int:
    """Returns the exit status: 0, 1 when the work failed, 2 for wrong usage; 130, 143 stopped."""
    if sys.stdout is None:  # started with it closed
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    parser = make_parser()
    try:
        arguments = parser.parse_args(argv)
    except SystemExit as stop:  # argparse has printed its message
        return int(stop.code or 0)
    try:
        interrupt = handled(signal.SIGINT, signal.default_int_handler)
        with interrupt, _unwinding_on_sigterm(), warnings.catch_warnings():
            warnings.showwarning = _show_warning  # type: ignore[assignment]
            status = arguments.command(arguments)
            sys.stdout.flush()
            return status
    except BrokenPipeError:  # the reader of our output is gone, and needs no message
        _discard_output()
        return FAILED
    except KeyboardInterrupt:
        print("tvm-dtr: interrupted", file=sys.stderr)
        return INTERRUPTED
    except _Terminated:
        print("tvm-dtr: terminated", file=sys.stderr)
        return TERMINATED
    except Exception as error:
        status = _tell(error, arguments.debug)
        if isinstance(error, OSError):
            _discard_output()
        return status


def _unwinding_on_sigterm() -> contextlib.AbstractContextManager[None]:
    def terminate(*_: Any) -> None:
        raise _Terminated

    return handled(signal.SIGTERM, terminate)


def _show_warning(message: Warning | str, *_: Any) -> None:
    print("tvm-dtr: warning:", " ".join(str(message).split()), file=sys.stderr)


def _discard_output() -> None:
    """Keeps Python from failing once more when it flushes standard output at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(error: Exception, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    if isinstance(error, OSError) and error.filename is not None:
        message = f"{error.filename}: {error.strerror}"
    elif isinstance(error, OSError) and error.strerror:
        message = f"an output could not be written: {error.strerror}"
    elif isinstance(error, (DTRError, OSError)):
        message = str(error)
    elif isinstance(error, MemoryError) or "bad_alloc" in str(error):
        message = "this machine has not enough memory for it; use smaller shapes"
    else:
        # TVM's errors start with its stack trace; what went wrong stands at the end.
        reason = (str(error).strip().splitlines() or [""])[-1]
        message = f"internal error: {type(error).__name__}: {reason}"
        if not debug:
            message += " (--debug shows the traceback)"
    print("tvm-dtr: error:", " ".join(message.split()), file=sys.stderr)
    if isinstance(error, (BudgetError, ThrashError)):
        print_holders(error)
        print_remedies(error)
    return WRONG_USAGE if isinstance(error, UsageError) else FAILED


class _Parser(argparse.ArgumentParser):
    """Says what is wrong on one line, without repeating the usage."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        # `--memory-budget -5%` is a wrong budget, and no missing one.
        self._negative_number_matcher = re.compile(r"-\.?\d")

    def error(self, message: str) -> None:  # type: ignore[override]
        print(f"{self.prog}: error: {message} (see '{self.prog} --help')", file=sys.stderr)
        raise SystemExit(WRONG_USAGE)


def make_parser() -> argparse.ArgumentParser:
    """Every command with its options; docs/command_reference.py reads it too."""
    parser = _Parser(
        prog="tvm-dtr",
        description="Train ONNX models with TVM under a hard memory budget.",
        epilog="Exit status: 0 done, 1 failed, 2 wrong usage.",
    )
    parser.add_argument("--version", action="version", version=f"tvm-dtr {__version__}")
    everywhere = argparse.ArgumentParser(add_help=False)
    everywhere.add_argument("--json", metavar="FILE", help="write the results to FILE as JSON")
    everywhere.add_argument(
        "--debug", action="store_true", help="show the traceback of an error as well"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in (
        build,
        inspect,
        run,
        train,
        export,
        trace,
        report_page,
        advise,
        simulate,
        plan,
        freeze,
        compare,
        models,
    ):
        module.add_command(commands, everywhere)
    return parser
