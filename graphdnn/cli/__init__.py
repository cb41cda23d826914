"""The command line: ``graphdnn COMMAND``, one module for each command."""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from io import TextIOWrapper
from typing import Any

from graphdnn.cli.exit_codes import MEANINGS, Exit, exit_code, print_rejections
from graphdnn.enums import Status
from graphdnn.errors import BadParam, GraphdnnError
from graphdnn.escaped import escaped_lines
from graphdnn.rules import Rule
from graphdnn.spec import Attempted

MEMORY = Rule(
    id="cli.memory",
    expected="memory for all operands, results and intermediate values",
    reason="an allocation failed: {detail}",
    fix="make the problem smaller",
    status=Status.INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
)
NOT_A_WORD = Rule(
    id="cli.word",
    expected="words that name files: no character 0 and no lone surrogate",
    reason="no command line can hold this word, so no file can be named by it",
    fix="leave the character out",
)
# Modules of this package, as one meets them: begin, see, mend, choose, keep, the rest. One is loaded when it is asked
# for; all of them for the help.
COMMANDS = (
    *("demo", "doctor"),
    *("explain", "run", "report", "inspect", "kernel", "trace", "certify"),
    *("repair", "cuts", "replay", "reduce"),
    *("compile_", "tune", "db"),
    *("lock", "check", "diff"),
    *("device", "cache", "import_"),
)
_OPERAND = re.compile(r"\w+=\w*\[[\d,]+\]\w*$")  # x=f16[8,64,56,56]
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the disk that stdout goes to
_CODES = f"exit codes: {'; '.join(f'{int(code)} {meaning}' for code, meaning in MEANINGS.items())}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    _print_anything()
    try:
        return int(_dispatch(argv))
    except GraphdnnError as error:
        print_rejections(error.rejections)
        _suggest(error)
        return exit_code(error)
    except MemoryError as error:
        print_rejections([MEMORY.reject("command line", "memory", "too little", detail=str(error) or "no more")])
        return Exit.NOT_EXECUTED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The interpreter flushes stdout at exit; there is nobody left to read it.
        _nobody_reads()
        return Exit.BROKEN_PIPE
    except OSError as error:
        if error.errno not in FULL:
            raise
        _nobody_reads()
        print(f"error: what was to be printed could not be written: {error.strerror}", file=sys.stderr)
        return Exit.NOT_EXECUTED


def _suggest(error: GraphdnnError) -> None:
    """The likeliest edit, for an operation that was refused."""
    if isinstance(error.subject, Attempted):
        repairs = error.repairs("cpu")  # the device decides how fast it is, not what is legal
        if repairs:
            print(f"would be accepted: {repairs[0].words}; graphdnn repair lists what else", file=sys.stderr)


def _print_anything() -> None:
    """What a terminal has no characters for is written as Python would: a file's names may hold any."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _nobody_reads() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(argv: Sequence[str] | None) -> int:
    try:
        words = sys.argv[1:] if argv is None else list(argv)
        _check_words(words)
        parser = parser_for(words)
        if not words:
            parser.print_help(sys.stderr)
            return Exit.USAGE
        arguments = parser.parse_args(words)
    except SystemExit as ended:  # argparse has printed the help, the version, or what is wrong
        if ended.code and any(_OPERAND.match(word) for word in words):
            print("a problem is one argument: put it in quotation marks", file=sys.stderr)
        return Exit.USAGE if ended.code else Exit.OK
    code = int(arguments.run(arguments))
    if sys.stdout is not None:  # in a process that was started with it closed
        sys.stdout.flush()  # here, where a broken pipe is caught
    return code


def _check_words(words: Sequence[str]) -> None:
    """Raises ``BadParam`` for what an operating system cannot hand over. Callers in Python can."""
    for word in words:
        try:
            is_word = b"\0" not in os.fsencode(word)
        except UnicodeEncodeError:
            is_word = False
        if not is_word:
            raise BadParam(NOT_A_WORD.reject("command line", "word", word))


class _Parser(argparse.ArgumentParser):
    """Messages quote words, and words may hold any character."""

    def _print_message(self, message: str, file: Any = None) -> None:
        super()._print_message(escaped_lines(message), file)


def parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    """For the command that ``words`` begin with; with every command where they begin otherwise."""
    from graphdnn import __version__

    parser = _Parser(
        prog="graphdnn",
        description="Operation graphs in the style of cuDNN v8: see them fused, ranked, run. "
        "For instance: graphdnn explain 'matmul a=f16[64,64] b=f16[64,64] + relu'",
        epilog=_CODES,
    )
    parser.add_argument("--version", action="version", version=f"graphdnn {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    asked = [module for module in COMMANDS if words and words[0] == _name(module)]
    for module in asked or COMMANDS:
        command = import_module(f"graphdnn.cli.commands.{module}")
        summary = (command.__doc__ or "").splitlines()[0].split(": ", 1)[-1]
        own = commands.add_parser(_name(module), help=summary, description=summary, epilog=_CODES)
        command.add_arguments(own)
        own.set_defaults(run=command.run)
    return parser


def _name(module: str) -> str:
    """Of the command: ``import_`` is one that Python has taken."""
    return module.rstrip("_")
