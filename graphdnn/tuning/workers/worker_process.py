"""Isolated: the tuner's side of its worker process. Nothing that happens there can stop or spoil what happens here.

The process is started without waiting for it, reused while it behaves, and killed when an answer takes too long.
"""

from __future__ import annotations

import atexit
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from graphdnn.tuning.workers.protocol import Message, receive, send

_ROOT = str(Path(__file__).resolve().parents[3])
# What the processes run. Modules are those of this process; whatever lies in the current folder is none of them.
# While they are loaded no garbage is collected: there is none.
_MAIN = "from graphdnn.tuning.workers.measurement_worker import main; main(sys.argv[1:])"
BENCH = f"import gc, sys; gc.disable(); sys.path[:1] = []; {_MAIN}"
# The driver takes a fifth of a second to start, and needs nobody meanwhile.
BENCH_OF_GPU = f"""
import contextlib, ctypes, threading
def start():
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuInit(0)
threading.Thread(target=start, daemon=True).start()
{BENCH}"""
# Without the package's __init__, which loads all that a user may ask for.
COMPILER = f"""
import sys, types
sys.path[:1] = []
package = sys.modules["graphdnn"] = types.ModuleType("graphdnn")
package.__path__ = [{os.path.join(_ROOT, "graphdnn")!r}]
from graphdnn.tuning.workers.compile_worker import main
main()"""
_SMALL = 32 * 1024  # bytes that a pipe takes without waiting for its reader
_CLOSING = 5.0  # seconds that it may take
_TOLD = 300  # characters of the last line on stderr


class LostError(Exception):
    """The worker is gone; ``verdict`` is "timed out" or "crashed"."""

    def __init__(self, verdict: str, reason: str) -> None:
        super().__init__(reason)
        self.verdict, self.reason = verdict, reason


class FailedError(Exception):
    """The worker answered that something failed there: "raised", "memory" or "refused"."""

    def __init__(self, kind: str, reason: str, *, usable: bool) -> None:
        super().__init__(reason)
        self.kind, self.reason, self.usable = kind, reason, usable


class WorkerProcess:
    """One worker process."""

    def __init__(self, program: str = BENCH, initializer: str | None = None) -> None:
        self.program, self.initializer = program, initializer
        self._said: Any = tempfile.TemporaryFile()  # noqa: SIM115  its stderr; closed with the process
        # A console interrupt is for the tuner, which then ends the worker.
        session: dict[str, Any] = {} if os.name == "nt" else {"start_new_session": True}
        path = os.pathsep.join(dict.fromkeys((_ROOT, *filter(os.path.isabs, sys.path))))
        try:
            self._process = subprocess.Popen(
                [sys.executable or "python3", "-c", program, *([initializer] if initializer else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env={**os.environ, "PYTHONPATH": path},
                **session,
            )
        except OSError as error:  # no Python of that name, no memory, too many processes
            self._said.close()
            raise LostError("crashed", f"no process starts: {error}") from None
        self._answers: queue.SimpleQueue[tuple[Message, bytes] | None] = queue.SimpleQueue()
        self.is_new = True  # and has loaded nothing yet
        self._writing = threading.Lock()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._sink: BinaryIO = self._process.stdin  # type: ignore[assignment]
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, source: BinaryIO) -> None:
        with suppress(OSError, ValueError):
            while True:
                received = receive(source)
                if received is None:
                    break
                self._answers.put(received)
        with suppress(OSError):
            source.close()
        self._answers.put(None)

    def ask(self, message: Message, seconds: float) -> tuple[Message, bytes]:
        """The answer. Raises ``LostError`` when there is none in time, and ``FailedError`` for one of failure."""
        self.tell(message)
        return self.answer(seconds, str(message["do"]))

    def tell(self, message: Message) -> None:
        """Send without waiting; ``answer`` has to be called once for it."""
        if len(message.get("graph", ())) or len(str(message)) > _SMALL:
            threading.Thread(target=self._send, args=(message,), daemon=True).start()
        else:
            self._send(message)

    def say(self, message: Message) -> None:
        """Send what is not answered: what fails fails again where something is asked for."""
        self._send({**message, "is_quiet": True})

    def warm(self, message: Message) -> None:
        """Tell a new one what to load before there is anything to do with it."""
        if self.is_new:
            self.say(message)

    def _send(self, message: Message) -> None:
        with self._writing, suppress(OSError, ValueError):  # it is gone, and answers nothing
            send(self._sink, message)

    def answer(self, seconds: float, doing: str) -> tuple[Message, bytes]:
        reply, payload = self._next(seconds, doing)
        if "failed" in reply:
            usable = bool(reply.get("usable", True))
            if not usable:
                self.kill()
            raise FailedError(str(reply["failed"]), str(reply["error"]), usable=usable)
        return reply, payload

    def _next(self, seconds: float, doing: str) -> tuple[Message, bytes]:
        try:
            received = self._answers.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            self.kill()
            raise LostError("timed out", f"no answer within {seconds:.3g} s ({doing})") from None
        if received is None:
            reason = self._how_it_ended(doing)
            self.kill()
            raise LostError("crashed", reason)
        return received

    def _how_it_ended(self, doing: str) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        code = self._process.returncode
        if code is None:
            how = "closed its pipe"
        elif code < 0:
            with suppress(ValueError):
                code = signal.Signals(-code).name
            how = f"ended by {code}" + (", as a system short of memory does it" if code == "SIGKILL" else "")
        else:
            how = f"ended with code {code}"
        last = self._last_words()
        return f"the process {how} ({doing})" + (f": {last}" if last else "")

    def _last_words(self) -> str:
        with suppress(OSError, ValueError):
            self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 4096))
            lines = [line.strip() for line in self._said.read().decode(errors="replace").splitlines()]
            return next((line for line in reversed(lines) if line), "")[:_TOLD]
        return ""

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End it at once, and what it started."""
        if os.name != "nt":
            with suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        for file in (self._sink, self._said):
            with suppress(OSError, ValueError):
                file.close()


_idle: dict[str, WorkerProcess] = {}  # warm from the last tuning, by what they run


def worker(program: str, initializer: str | None = None) -> WorkerProcess:
    """A process: the one that is warm, or a new one, which is starting when this returns. Raises ``LostError``."""
    kept = _idle.pop(program, None)
    if kept is not None:
        if kept.is_alive and kept.initializer == initializer:
            return kept
        kept.kill()
    return WorkerProcess(program, initializer)


def program_for(*, is_gpu: bool) -> str:
    """Of the process that measures."""
    return BENCH_OF_GPU if is_gpu else BENCH


def give_back(used: WorkerProcess, key: int = 0) -> None:
    """Keep a process that behaved for the next tuning; ``key`` tells this closing from others."""
    if used.is_alive and used.program not in _idle:
        try:
            used.tell({"do": "close", "key": key})
            while used.answer(_CLOSING, "closing")[0].get("closed") != key:
                pass  # an answer to what was asked before
        except (LostError, FailedError):
            used.kill()
            return
        used.is_new = False
        _idle[used.program] = used
    else:
        used.kill()


@atexit.register
def _end() -> None:
    while _idle:
        _idle.popitem()[1].kill()
