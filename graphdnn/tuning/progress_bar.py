"""A bar on stderr for work that takes a while: on a terminal only, one line that is gone when the work is done."""

from __future__ import annotations

import sys
from shutil import get_terminal_size
from time import monotonic
from types import TracebackType

_BAR, _PAUSE = 24, 0.1  # characters; seconds between two drawings


class Progress:
    """``with Progress() as bar: bar.show(0.3, "what is going on")``."""

    def __init__(self) -> None:
        stream = sys.stderr
        self._stream = stream if stream is not None and stream.isatty() else None
        self._drawn = -_PAUSE
        self._width = 0

    def show(self, share: float, text: str) -> None:
        """``share`` of the work is done, from 0 to 1."""
        if self._stream is None or monotonic() - self._drawn < _PAUSE:
            return
        self._drawn = monotonic()
        full = round(_BAR * min(max(share, 0.0), 1.0))
        line = f"[{'#' * full}{'.' * (_BAR - full)}] {text}"[: get_terminal_size().columns - 1]
        self._write("\r" + line.ljust(self._width))
        self._width = len(line)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._stream is not None and self._width:
            self._write("\r" + " " * self._width + "\r")

    def _write(self, text: str) -> None:
        assert self._stream is not None
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None
