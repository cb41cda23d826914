"""The environment's switches: what is printed when it asks, and nothing otherwise."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from graphdnn import debug_log


@pytest.fixture
def switched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    def switch(**variables: str) -> None:
        for name in (debug_log.VERBOSE, debug_log.DEBUG):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(f"GRAPHDNN_{name}", value)
        debug_log._said.clear()
        debug_log._named.clear()
        debug_log.read_environment()

    yield switch
    monkeypatch.undo()
    switch()


def test_nothing_is_printed_unasked(switched: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    for value in ("", "0", " 0 "):
        switched(VERBOSE=value)
        assert not debug_log.verbose
        assert not any(map(debug_log.asks, debug_log.SWITCHES))
    assert capsys.readouterr().err == ""


def test_switches(switched: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    switched(VERBOSE="1", DEBUG="source, ptxas,,colour")
    assert debug_log.verbose
    assert debug_log.asks("source")
    assert debug_log.asks("ptxas")
    assert not debug_log.asks("rank")
    err = capsys.readouterr().err
    assert "graphdnn,note,GRAPHDNN_DEBUG,colour is none of fusion rank" in err


def test_lines(switched: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    """One line each, whatever is in the fields; the first says what the fields are."""
    switched()
    debug_log.line("build", "conv, bias\n+ relu", "h200", "miss", 1.5)
    debug_log.line("build", "conv", "h200", "hit", 0.5, repeat="graphdnn run 'relu, x=f32[1,2]'")
    debug_log.say("a", "b")
    debug_log.say("a", "b")
    assert capsys.readouterr().err.splitlines() == [
        "graphdnn,template,build,plan,device,hit or miss,ms,repeat",
        "graphdnn,build,conv; bias + relu,h200,miss,1.5",
        "graphdnn,build,conv,h200,hit,0.5,graphdnn run 'relu, x=f32[1,2]'",
        "graphdnn,template,note,about,what",
        "graphdnn,note,a,b",
    ]


@pytest.mark.parametrize("stream", [None, types.SimpleNamespace()])
def test_nobody_reads(switched: Callable[..., None], monkeypatch: pytest.MonkeyPatch, stream: Any) -> None:
    switched()
    if stream is not None:

        def write(_: str) -> None:
            raise ValueError("I/O operation on closed file")

        stream.write = write
    monkeypatch.setattr(sys, "stderr", stream)
    debug_log.say("a", "b")
