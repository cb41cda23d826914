"""The ``graphdnn`` command, before anything of the library is loaded: Ctrl-C ends it with one line and status 130.

Loading takes longer than a short command. An interruption then had Python's traceback for an answer, and one while the
interpreter ended was death by a signal.
"""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130  # as programs say that end by SIGINT
_LINE = b"interrupted\n"


def main() -> int:
    """Run the command line; returns the exit code."""
    is_heard = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN  # as under nohup
    if is_heard:
        signal.signal(signal.SIGINT, _leave)
    from graphdnn.cli import main as run

    try:
        if is_heard:
            signal.signal(signal.SIGINT, _interrupt_once)  # commands clean up behind themselves
        code = run()
        if is_heard:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the interpreter ends
        return code
    except KeyboardInterrupt:
        os.write(2, _LINE)
        return INTERRUPTED


def _interrupt_once(number: int, frame: FrameType | None) -> None:
    """A second interruption would end the clean-up of the first, or print its line twice."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _leave(number: int, frame: FrameType | None) -> None:
    """Nothing has begun that had to be ended."""
    os.write(2, _LINE)
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    sys.exit(main())
