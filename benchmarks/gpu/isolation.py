"""Isolation: cases in a child process with a limit on each, so that a hang or a dead context costs one case.

The child works through the cases it was given and prints a line for each; when it is silent for too
long or ends early, the case it was at has failed and a new child gets the rest.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from gpu.result import Result, result_from_json

RESULT, ABOUT = "@result ", "@about "
CONTEXT_LOST = 3  # exit status of a child that reported its case, but cannot go on
START_SECONDS = 90.0  # imports and the device's context, on top of the first case's limit
END_SECONDS = 2.0  # before the deadline, when nothing new is begun
Message = tuple[str, Any]  # kind and content


def announce(kind: str, content: Any) -> None:
    """In the child."""
    print(kind + json.dumps(content), flush=True)


def isolated(
    group: str,
    names: Sequence[str],
    command: Callable[[Sequence[str]], list[str]],
    limit: float,
    deadline: float = float("inf"),
) -> Iterator[Message]:
    """(RESULT, Result) and (ABOUT, device) messages; cases that were not reached by the deadline are left out."""
    rest = list(names)
    while rest and time.monotonic() < deadline - END_SECONDS:
        with subprocess.Popen(command(rest), stdout=subprocess.PIPE, text=True, bufsize=1) as child:
            try:
                yield from _listen(group, rest, child, limit, deadline)
            finally:
                child.kill()


def _listen(
    group: str, rest: list[str], child: subprocess.Popen[str], limit: float, deadline: float
) -> Iterator[Message]:
    """Messages of one child, taking what is done off ``rest``."""
    assert child.stdout is not None
    lines = _queue(child.stdout)
    patience, progress = limit + START_SECONDS, False
    while rest:
        allowed = min(patience, max(deadline - time.monotonic(), 0.0) + limit)
        try:
            text = lines.get(timeout=allowed)
        except queue.Empty:
            yield RESULT, Result(group, rest.pop(0), reason=f"nothing in {allowed:.0f} s: the process was ended")
            return
        if text is None:
            status = child.wait()
            stopped = time.monotonic() > deadline - END_SECONDS  # of its own accord
            if not stopped and not (progress and status == CONTEXT_LOST):
                yield RESULT, Result(group, rest.pop(0), reason=f"the process ended with status {status}")
            return
        if text.startswith(RESULT):
            result = result_from_json(json.loads(text.removeprefix(RESULT)))
            rest.remove(result.case)
            patience, progress = limit, True
            yield RESULT, result
        elif text.startswith(ABOUT):
            yield ABOUT, json.loads(text.removeprefix(ABOUT))
        else:
            print(text, end="", file=sys.stderr, flush=True)


def _queue(stream: IO[str]) -> queue.Queue[str | None]:
    """The stream's lines as they come, then None."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for text in stream:
            lines.put(text)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    return lines
