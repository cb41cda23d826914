"""Streams in every form that callers have them, on each face, and what is none."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from binding_rule_cases import bound, device_plan, driver
from device_apis import H200, rules_of

from graphdnn import device_spec, v6
from graphdnn.backend import cudnnGetStream, cudnnSetStream
from graphdnn.backend.handle import Handle
from graphdnn.cuda import driver_library
from graphdnn.cuda.errors import CudaError
from graphdnn.plan.cuda_graph import CapturedPlan
from graphdnn.plan.streams import stream_address, stream_number
from graphdnn.v6.descriptor_values import Handle as LegacyHandle

ADDRESS = 0x7000_0000_1000


class OfCore:
    """A stream of cuda.core, which has nothing but the protocol."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, ADDRESS


FORMS: dict[str, Any] = {
    "address": ADDRESS,
    "numpy": np.uint64(ADDRESS),
    "ctypes": ctypes.c_void_p(ADDRESS),
    "cupy": SimpleNamespace(ptr=ADDRESS),
    "torch": SimpleNamespace(cuda_stream=ADDRESS),
    "cuda.core": OfCore(),
}
WRONG: dict[str, Any] = {
    "text": "stream", "digits": "7", "object": object(), "negative": -1, "boolean": True, "float": 2.0, "list": [1],
    "other": SimpleNamespace(ptr="here"), "class": SimpleNamespace,
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str) -> None:
    stream = FORMS[form]
    assert stream_number(stream) == stream_address(stream) == ADDRESS
    handle = Handle(device_spec(H200))
    cudnnSetStream(handle, stream)
    assert cudnnGetStream(handle) == ADDRESS
    legacy = LegacyHandle(device_spec(H200))
    v6.cudnnSetStream(legacy, stream)
    assert v6.cudnnGetStream(legacy) == ADDRESS


def test_the_default_stream() -> None:
    assert stream_number(0) == stream_number(ctypes.c_void_p()) == stream_number(SimpleNamespace(ptr=0)) == 0


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_stream(name: str) -> None:
    wrong = WRONG[name]
    assert stream_address(wrong) is None
    plan = device_plan()
    with driver():
        assert rules_of(lambda: plan.execute(bound(plan), None, wrong)) == ["execute.stream_kind"]
        assert rules_of(lambda: plan.queue(wrong)) == ["execute.stream_kind"]
    handle = Handle(device_spec(H200))
    assert rules_of(lambda: cudnnSetStream(handle, wrong)) == ["handle.stream"]
    legacy = LegacyHandle(device_spec(H200))
    assert rules_of(lambda: v6.cudnnSetStream(legacy, wrong)) == ["v6.stream.kind"]
    assert handle.stream == legacy.stream == 0


class _Graph:
    """CuPy's, which takes its own streams only."""

    def __init__(self, error: Exception | None = None) -> None:
        self.streams: list[Any] = []
        self.error = error

    def launch(self, stream: Any) -> None:
        if self.error is not None:
            raise self.error
        self.streams.append(None if stream is None else stream.ptr)


def test_captured_plans_take_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    made = SimpleNamespace(from_external=lambda bare: SimpleNamespace(ptr=bare.__cuda_stream__()[1]))
    cuda = SimpleNamespace(Stream=made)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=cuda))
    graph = _Graph()
    captured = CapturedPlan(graph, (), "conv")
    captured.launch()
    for stream in FORMS.values():
        captured.launch(stream)
    assert graph.streams == [None] + [ADDRESS] * len(FORMS)
    for name in WRONG.keys() - {"other"}:
        assert rules_of(lambda name=name: captured.launch(WRONG[name])) == ["execute.stream_kind"]  # type: ignore[misc]


def test_a_replay_that_fails_names_its_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy's error has the runtime's code; other errors stay what they are."""
    monkeypatch.setattr(driver_library, "bindings", lambda: None)
    monkeypatch.setattr(driver_library, "_said", lambda module, code: ("CUDA_ERROR_ILLEGAL_ADDRESS", "illegal access"))
    error = RuntimeError("cudaErrorIllegalAddress")
    error.status = 700  # type: ignore[attr-defined]
    with pytest.raises(CudaError, match=r"plan conv: cuGraphLaunch = CUDA_ERROR_ILLEGAL_ADDRESS \(700\)") as caught:
        CapturedPlan(_Graph(error), (), "conv").launch()
    assert caught.value.is_sticky
    assert "or of an earlier one" in str(caught.value)
    with pytest.raises(RuntimeError, match="another"):
        CapturedPlan(_Graph(RuntimeError("another")), (), "conv").launch()
