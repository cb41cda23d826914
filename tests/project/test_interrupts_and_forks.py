"""Ctrl-C and forks at any moment: what is asked for next is there as if nothing had happened."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest
from repository import ROOT

from graphdnn import OperationGraph, build, fuse, rank
from graphdnn.device_selection import device_spec
from graphdnn.heuristics import Ranking
from graphdnn.problem import parse

CONVOLUTION = "conv x=f16[2,{c},9,9]nhwc w=f16[16,{c},3,3]nhwc pad=1 + bias + relu"
SUM = "pointwise x=f32[4,6] + mul"

without_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


class Stop(KeyboardInterrupt):
    """What Ctrl-C raises, wherever the program is."""


def interrupted(call: Callable[[], Any], at: int) -> int:
    """Run a call and stop it at an event of the library; how many there were until then."""
    seen = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal seen
        if "graphdnn" not in frame.f_code.co_filename:
            return None
        seen += 1
        if seen == at:
            raise Stop
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Stop:
        pass
    finally:
        sys.settrace(before)
    return seen


@pytest.mark.parametrize("device", ["cpu", "h200"])
def test_a_ranking_that_was_interrupted_goes_on(device: str) -> None:
    """A ranking is kept for equal graphs, so what an interruption did to it would stay for as long as the process."""

    def graph(channels: int) -> OperationGraph:
        return parse(CONVOLUTION.format(c=channels)).build_operation_graph()

    def names(channels: int) -> list[str]:
        return [config.name for config in rank(graph(channels), device)]

    events = interrupted(lambda: names(40), 0)
    for part in range(1, 13):
        channels = 40 + 8 * part
        interrupted(partial(names, channels), part * events // 13)
        alone = Ranking(fuse(graph(channels)), device_spec(device))
        assert names(channels) == [config.name for config in alone], f"after {part} of 13 parts"


IMPORTS = """
import os, sys
import networkx, numpy, pydantic

def library(at, run):
    seen = 0

    def trace(frame, event, argument):
        nonlocal seen
        if event == "call" and "graphdnn" in frame.f_code.co_filename:
            seen += 1
            if seen == at:
                raise KeyboardInterrupt

    sys.settrace(trace)
    try:
        run()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    return seen

def run():
    from graphdnn import build, v6
    from graphdnn.problem import parse
    build(parse(sys.argv[1]).build_operation_graph(), "cpu")

def apart(at):
    ends = os.pipe()
    child = os.fork()
    if child == 0:
        seen = library(at, run)
        run()
        os.write(ends[1], str(seen).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, f"interrupted at call {at}"
    return int(os.read(ends[0], 100))

calls = apart(0)
for part in range(1, 9):
    apart(part * calls // 9)
print(calls)
"""


@without_fork
def test_an_import_that_was_interrupted_is_done_again() -> None:
    """Modules that had begun are executed once more, and what they register is there already."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORTS, SUM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) > 1000


@without_fork
@pytest.mark.skipif(sys.version_info < (3, 12), reason="functools.cached_property holds a lock while it works")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_a_thread_builds() -> None:
    """The child waits for no lock of a thread that it does not have."""
    graphs = [parse(CONVOLUTION.format(c=c)).build_operation_graph() for c in (3, 5, 7)]
    for graph in graphs:
        build(graph, "cpu")  # imports, whose locks are Python's own
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for graph in graphs:
                kept_rankings().clear()
                build(graph, "cpu")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(12):
            time.sleep(0.003)
            child = os.fork()
            if child == 0:
                for graph in graphs:
                    build(graph, "cpu")
                os._exit(0)
            assert ended(child), "the child waits for ever"
    finally:
        stop.set()
        thread.join()


def test_a_child_forgets_rankings_and_the_locks_in_them() -> None:
    module = sys.modules["graphdnn.pipeline"]
    build(parse(SUM).build_operation_graph(), "cpu")
    with module._guard:
        module._forget()
        assert not kept_rankings()
        build(parse(SUM).build_operation_graph(), "cpu")
    assert kept_rankings()


def kept_rankings() -> Any:
    return sys.modules["graphdnn.pipeline"]._rankings


def ended(child: int) -> bool:
    """Whether a child ends by itself, and well."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        process, status = os.waitpid(child, os.WNOHANG)
        if process:
            return status == 0
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False


# The process says when it has begun: Python's own start is not the command's.
COMMAND = "import sys; print('begun', flush=True); import graphdnn_command; sys.exit(graphdnn_command.main())"
LONG = "conv x=f32[4,256,112,112] w=f32[256,256,3,3] pad=1"


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("seconds", [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("times", [1, 3, 20])
def test_the_command_ends_alike_whenever_it_is_interrupted(seconds: float, times: int) -> None:
    """While the library is loaded, while the command works, and again while the interpreter ends."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", COMMAND, "run", LONG, "--repeat", "50"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(seconds)
        for _ in range(times):
            process.send_signal(signal.SIGINT)
            time.sleep(0.002)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said == "interrupted\n"


AGAIN = """
import os, signal, sys
import graphdnn_command
import graphdnn.cli

class Interrupted:
    # A stream whose reader presses Ctrl-C after each text.
    def write(self, text):
        os.write(2, text.encode())
        os.kill(os.getpid(), signal.SIGINT)
    def flush(self):
        pass

def run(words):
    sys.stderr = Interrupted()
    os.kill(os.getpid(), signal.SIGINT)

graphdnn.cli._dispatch = run
sys.exit(graphdnn_command.main())
"""


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_an_interruption_while_the_first_is_reported_changes_nothing() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", AGAIN], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_the_command_listens_to_no_interruption_that_its_caller_ignores() -> None:
    """As under nohup."""
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN); import graphdnn_command\n"
    code += "sys.argv[1:] = ['--version']; graphdnn_command.main(); print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "True"
