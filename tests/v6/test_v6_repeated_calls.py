"""A repeated legacy call keeps its plan, and costs little."""

from __future__ import annotations

from time import thread_time
from types import SimpleNamespace
from typing import Any

import pytest
from v6_tools import convolution, filter_of, tensor
from v6_values import drawn

from graphdnn import v6
from graphdnn.v6.thread_state import last_prepared


def test_a_repeated_call_keeps_its_plan(handle: Any) -> None:
    x, d = drawn((1, 2, 3, 4)), tensor((1, 2, 3, 4))
    seen = set()
    for scale in (2.0, 3.0, 2.0):
        v6.cudnnScaleTensor(handle, d, x, scale)
        seen.add(last_prepared())
        d = tensor((1, 2, 3, 4))  # an equal descriptor is the same problem
    assert len(seen) == 2


@pytest.mark.long
def test_a_repeated_call_costs_little(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 10 us on top of ``plan.execute``: the call with a plan that does nothing, in this thread's own time."""
    x, w, y = drawn((1, 1, 3, 3)), drawn((1, 1, 2, 2)), drawn((1, 1, 2, 2))
    arguments = (
        handle,
        1.0,
        tensor(x.shape),
        x,
        filter_of(w.shape),
        w,
        convolution(),
        0,
        None,
        0,
        0.0,
        tensor(y.shape),
        y,
    )
    v6.cudnnConvolutionForward(*arguments)
    monkeypatch.setattr(last_prepared(), "plan", SimpleNamespace(workspace_size=0, execute=lambda *_: None))

    call = v6.cudnnConvolutionForward
    call = getattr(call, "__wrapped__", call)  # the tests' own count is not the call's

    def seconds() -> float:
        start = thread_time()
        for _ in range(1000):
            call(*arguments)
        return (thread_time() - start) / 1000

    assert min(seconds() for _ in range(20)) < 10e-6
