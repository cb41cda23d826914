"""The process that compiles ahead: texts into the kernel cache. ``main()``, started by ``worker_process``.

It knows texts and the compiler, neither graphs nor engines: loading those would take longer than the first kernel does.
For the same reason the package's own start is left out (``isolation.COMPILER``). Kernels are compiled beside each
other; an answer is sent when those of a message are done, and the next messages are read meanwhile.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import BinaryIO

from graphdnn.cuda.kernel_cache import default_cache
from graphdnn.cuda.nvrtc import KernelText, loaded_version
from graphdnn.tuning.workers.message_loop import begin
from graphdnn.tuning.workers.protocol import Message, receive, send

Span = tuple[float, float]


class Compiling:
    """Messages to what they ask for. Each text is compiled once."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink, self._sending = sink, threading.Lock()
        self._spans: dict[tuple[KernelText, str], Future[Span]] = {}
        self._threads = ThreadPoolExecutor(max(1, min(8, (os.cpu_count() or 1) - 2)))
        # What everything waits for does not wait itself: for kernels of the tuning before, which cannot be stopped.
        self._first = ThreadPoolExecutor(2)

    def take(self, message: Message) -> None:
        do, key = message["do"], message.get("key")
        if do == "warm":
            self._threads.submit(loaded_version)  # opens a large library
        elif do == "compile":
            texts = [KernelText(name, text, tuple(options)) for name, text, options in message["texts"]]
            threads = self._first if message["is_first"] else self._threads
            spans = [self._span(text, message["arch"], threads) for text in dict.fromkeys(texts)]
            for span in spans:
                span.add_done_callback(lambda _: self._answer(key, spans))
        else:
            assert do == "close"
            for span in self._spans.values():
                span.cancel()
            self._spans.clear()
            self._send({"closed": key})

    def _span(self, text: KernelText, arch: str, threads: ThreadPoolExecutor) -> Future[Span]:
        if (text, arch) not in self._spans:
            self._spans[text, arch] = threads.submit(_compile, text, arch)
        return self._spans[text, arch]

    def _answer(self, key: object, spans: list[Future[Span]]) -> None:
        """From when to when they were compiled, once all are; what failed fails again where it is measured."""
        if all(span.done() for span in spans):
            found = [span.result() for span in spans if not span.cancelled() and span.exception() is None]
            self._send({"key": key, "spans": found})

    def _send(self, message: Message) -> None:
        with self._sending:
            send(self._sink, message)


def _compile(text: KernelText, arch: str) -> Span:
    began = perf_counter()
    default_cache().load(text, arch)
    return began, perf_counter()


def main() -> None:
    source, sink = begin()
    compiling = Compiling(sink)
    while (received := receive(source)) is not None:
        compiling.take(received[0])
