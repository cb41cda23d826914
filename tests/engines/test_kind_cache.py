"""KindCache: engines are asked once for a kind of task on a device, and always for what shapes differ in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphdnn import device_spec, fuse
from graphdnn.checks import AtMost
from graphdnn.engines import Engine, Task
from graphdnn.engines.engine import kind_need, need
from graphdnn.engines.kind_cache import KindCache
from graphdnn.engines.numpy_general import ENGINE as GENERAL
from graphdnn.problem import parse
from graphdnn.rules import RULES

H200 = device_spec("h200")


@pytest.fixture(autouse=True)
def _rules_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdnn.rules.RULES", dict(RULES))


def task(n: int, kind: str = "f16", device: object = H200) -> Task:
    (op,) = fuse(parse(f"conv x={kind}[{n},64,8,8] w={kind}[64,64,3,3] pad=1").build_operation_graph())
    return Task(op, device)  # type: ignore[arg-type]


def engine(asked: list[str], most: int) -> Engine:
    """Asks about the device's memory for a kind, and about the batch for a task."""

    def looked(name: str, value: int) -> int:
        asked.append(name)
        return value

    words = {"reason": "for a test", "fix": "for a test"}
    return replace(
        GENERAL,
        needs=(
            kind_need(
                "test.kind",
                "device.shared_memory",
                lambda t: looked("kind", t.device.shared_memory),
                AtMost(H200.shared_memory),
                **words,
            ),
            need("test.batch", "x", lambda t: looked("batch", t.op.anchor.problem.n), AtMost(most), **words),  # type: ignore[union-attr]
        ),
        places=("cuda",),
    )


def test_a_kind_is_asked_once() -> None:
    asked: list[str] = []
    one = engine(asked, 2)
    cache = KindCache((one,))
    assert [bool(cache.serving(task(n))) for n in (1, 2, 3, 1)] == [True, True, False, True]
    assert asked == ["kind", "batch", "batch", "batch", "batch"]
    assert cache.serving(task(1, "f32")) == [one]
    assert asked[5:] == ["kind", "batch"]


def test_devices_of_one_kind_are_told_apart() -> None:
    """Their limits are no part of a kind."""
    one = engine([], 2)
    cache = KindCache((one,))
    more = replace(H200, shared_memory=H200.shared_memory + 1)
    assert task(1).kind == task(1, device=more).kind
    assert cache.serving(task(1)) == [one]
    assert cache.serving(task(1, device=more)) == []


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphdnn.engines.kind_cache._MOST", 2)
    asked: list[str] = []
    cache = KindCache((engine(asked, 9),))
    for kind in ("f16", "f32", "bf16", "f64"):
        assert cache.engines(task(1, kind))
        assert len(cache._known) <= 2
