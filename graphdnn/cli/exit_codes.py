"""How a command ends: the exit codes, and errors as text on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import IntEnum

from graphdnn.enums import Status
from graphdnn.errors import GraphdnnError, MalformedFile, NotSupported, Rejection
from graphdnn.text_format import facts, shortened

_MISSING = Status.NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING
LONGEST_LINE = 300  # a text that is no problem may be a whole file


class Exit(IntEnum):
    """What the shell gets."""

    OK = 0
    CHECK_FAILED = 1
    USAGE = 2
    NOT_EXECUTED = 3
    NOT_SUPPORTED = 4
    INTERRUPTED = 130  # as programs say that end by SIGINT
    BROKEN_PIPE = 141  # the reader of the output went away, as programs say that end by SIGPIPE


# Of every command; the help prints it, docs/tutorial.md has it as a table.
MEANINGS = {
    Exit.OK: "ok",
    Exit.CHECK_FAILED: "a check failed",
    Exit.USAGE: "wrong arguments or file",
    Exit.NOT_EXECUTED: "nothing executed: the device, its driver or its compiler is missing, or the execution failed",
    Exit.NOT_SUPPORTED: "not supported: no engine serves it on any machine",
}


def exit_code(error: GraphdnnError) -> Exit:
    """The code for an error: by its class, then by its status."""
    if isinstance(error, MalformedFile):
        return Exit.USAGE
    if isinstance(error, NotSupported):
        return Exit.NOT_EXECUTED if int(error.status) == _MISSING else Exit.NOT_SUPPORTED
    return Exit.USAGE if int(error.status) // 1000 == Status.BAD_PARAM // 1000 else Exit.NOT_EXECUTED


def print_rejections(rejections: Sequence[Rejection]) -> None:
    """Each one in a few short lines, on stderr."""
    for r in rejections:
        print(shortened(f"error: {r.where}: {r.attribute} = {r.shown_value}", LONGEST_LINE), file=sys.stderr)
        rows = [("expected", r.expected), ("why", r.reason), ("fix", r.fix), ("rule", f"{r.rule}, {r.status.c_name}")]
        print(facts(rows), file=sys.stderr)
