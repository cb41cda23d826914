"""Serving: how both processes of a tuning answer messages, and end with the one that started them."""

from __future__ import annotations

import os
import sys
import traceback
from typing import BinaryIO, Protocol

from graphdnn.errors import GraphdnnError
from graphdnn.tuning.workers.protocol import SWITCH, Message, receive, send


class Service(Protocol):
    """What a process does."""

    def answer(self, message: Message) -> tuple[Message, bytes]: ...

    def still_works(self) -> bool:
        """After an error."""


def begin() -> tuple[BinaryIO, BinaryIO]:
    """Where messages come from and answers go."""
    _follow_parent()
    sys.setswitchinterval(SWITCH)
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a candidate prints must not get between the messages
    return source, sink


def serve(service: Service) -> None:
    """Answer one message after another, until the tuner closes its end."""
    source, sink = begin()
    while (received := receive(source)) is not None:
        message = received[0]
        try:
            reply, payload = service.answer(message)
        except (Exception, SystemExit) as error:  # whatever a candidate raises is an answer
            reply, payload = _problem(error), b""
            reply["usable"] = service.still_works()
        if not message.get("is_quiet"):
            send(sink, reply, payload)


def _problem(error: BaseException) -> Message:
    """An error as data."""
    is_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    refused = isinstance(error, GraphdnnError)
    where = traceback.extract_tb(error.__traceback__)[-1:]
    at = "".join(f" at {os.path.basename(frame.filename)}:{frame.lineno}" for frame in where)
    return {
        "failed": "memory" if is_memory else "refused" if refused else "raised",
        "error": str(error) if refused else f"{type(error).__name__}: {error}{at}",
    }


def _follow_parent() -> None:
    """End with the process that started this one, also where that is killed (Linux)."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
