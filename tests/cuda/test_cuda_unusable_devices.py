"""Devices that are here and cannot be used: plans for profiles are built all the same, and say why when they are loaded."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from device_apis import compiled
from expect_rejection import refusal
from fake_driver import FakeDriver

from graphdnn import build, device_spec, prepare
from graphdnn.errors import NotSupported
from graphdnn.plan.cuda_runtime import CudaRuntime
from graphdnn.problem import parse

TEXT = "pointwise x=f32[8,8] + residual"


def _old_device(driver: FakeDriver) -> str:
    driver.attributes["COMPUTE_CAPABILITY_MAJOR"] = 7
    return "cuda.capability"


def _old_driver(driver: FakeDriver) -> str:
    driver.version = 12020
    return "cuda.driver.version"


def _other_device(driver: FakeDriver) -> str:
    driver.attributes["COMPUTE_CAPABILITY_MAJOR"] = 8
    return "execute.device_absent"


@compiled
@pytest.mark.parametrize("spoil", [_old_device, _old_driver, _other_device])
def test_a_profiles_plan_is_built_anywhere(fake_driver: FakeDriver, spoil: Any) -> None:
    rule = spoil(fake_driver)
    prepare("h200")
    graph = parse(TEXT).build_operation_graph()
    plan = build(graph, "h200")
    assert plan.loaded_on is None
    for call in (plan.load, plan.new_workspace, lambda: plan.execute({t.uid: 4096 for t in graph.bound})):
        refusal(rule, call)


@compiled
@pytest.mark.parametrize("spoil", [_old_device, _old_driver])
def test_a_device_that_was_named_is_refused_at_once(fake_driver: FakeDriver, spoil: Any) -> None:
    rule = spoil(fake_driver)
    refusal(rule, lambda: build(parse(TEXT).build_operation_graph(), "cuda"))


@compiled
@pytest.mark.parametrize("how", ["absent", "broken"])
def test_without_cupy(fake_driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Kernels are compiled; what would allocate and launch says what is missing."""
    if how == "absent":
        monkeypatch.setitem(sys.modules, "cupy", None)
    else:
        monkeypatch.delitem(sys.modules, "cupy", raising=False)
        monkeypatch.setattr("builtins.__import__", _breaking(__import__))
    graph = parse(TEXT).build_operation_graph()
    plan = build(graph, "h200")
    text = refusal("cuda.cupy", plan.load)
    assert how != "broken" or "libcudart.so is of another release" in text
    named = device_spec("cuda")
    assert named.ordinal == 0
    refusal("cuda.cupy", lambda: build(graph, "cuda"))
    with pytest.raises(NotSupported):
        CudaRuntime(named).is_here()
    assert not CudaRuntime(device_spec("h200")).is_here()


def _breaking(real: Any) -> Any:
    def imported(name: str, *args: Any, **named: Any) -> Any:
        if name == "cupy":
            raise ImportError("\n   libcudart.so is of another release\n  more of it\n")
        return real(name, *args, **named)

    return imported
