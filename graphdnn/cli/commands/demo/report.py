"""What a part of the demo prints: a heading, lines, checks, and the verdict."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from graphdnn.text_format import indented


class Report:
    """Prints as it goes; ``passed`` is True while every check held."""

    def __init__(self, title: str) -> None:
        self.passed = True
        print(f"{title}\n{'-' * len(title)}")

    def say(self, text: object = "") -> None:
        print(indented(str(text)))
        sys.stdout.flush()

    def check(self, claim: str, holds: bool, detail: str = "") -> None:
        self.passed &= bool(holds)
        self.say(f"{'[ok]  ' if holds else '[FAIL]'} {claim}" + (f": {detail}" if detail else ""))

    def close(self) -> bool:
        print("ok\n" if self.passed else "FAILED\n")
        return self.passed


def timed(work: Callable[[], Any]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
