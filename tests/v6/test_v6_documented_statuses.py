"""Every documented condition of the calls beside recurrent networks, from a file: function, status, condition.

What differs from legal arguments is in v6_provoked.py. What goes wrong in the machine is played, by making what the call
stands on fail. Every function succeeds with legal arguments.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from repository import DATA
from v6_provoked_statuses import PROVOKED
from v6_tools import good_arguments

from graphdnn import v6
from graphdnn.enums import Status
from graphdnn.errors import error_for
from graphdnn.v6.call_wrapper import as_call
from graphdnn.v6.calls import convolution_directions, convolution_queries, handle
from graphdnn.v6.functions import PLAIN, Function, functions
from graphdnn.v6.prepared_call import PreparedCall
from graphdnn.v6.rules import UNSET
from graphdnn.v6.thread_state import last_prepared

_LISTED = json.loads((DATA / "v6_statuses.json").read_text(encoding="utf-8"))
_NAMES = {row[0] for row in _LISTED}
CONDITIONS: list[tuple[str, str, str]] = [
    *(tuple(row) for row in _LISTED),
    *((f"cudnnGetConvolution{what}", "BAD_PARAM", "convDesc NULL") for what in ("MathType", "GroupCount")),  # undescribed
    *((row.name, *found[1:]) for row in functions().values() if row.alias_of and row.name not in _NAMES
      for found in _LISTED if found[0] == row.alias_of),
]  # fmt: skip


RETURNED = {"output pointer NULL", "returnedAlgoCount or perfResults NULL"}  # results are returned: nothing can be null
# 5.1 and 6.0 give these the same number of arguments, or one less: they are dilations, of no chosen type.
DILATIONS = {
    ("cudnnSetConvolutionNdDescriptor", "5.1 only: an upscaleA entry other than 1"): {"dilationA": [2, 1]},
    ("cudnnSetConvolution2dDescriptor_v4", "5.1 only: upscalex or upscaley other than 1"): {"dilation_h": 2},
    ("cudnnSetConvolution2dDescriptor_v4", "computeType invalid"): {},
}
FAILURES = ("ALLOC_FAILED", "EXECUTION_FAILED", "INTERNAL_ERROR", "ARCH_MISMATCH", "LICENSE_ERROR")
PLAYED = {  # what goes wrong in a machine that a host without a device does not have
    "texture binding failed via forward", "texture binding failed", "texture binding of the filter failed",
    "texture binding of w or dy failed", "device cannot reach the error word", "CUDA runtime could not be initialised",
    "no usable device or driver",
}  # fmt: skip


@pytest.mark.parametrize(("name", "status", "condition"), CONDITIONS, ids=[" ".join(c) for c in CONDITIONS])
def test_condition(name: str, status: str, condition: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = functions()[name]
    if condition in RETURNED:
        assert row.results
        return
    if (name, condition) in DILATIONS:
        assert "computeType" not in DILATIONS[name, condition]
        named = dict(zip([p.name for p in row.inputs], good_arguments(row), strict=True))
        getattr(v6, name)(**(named | DILATIONS[name, condition]))
        return
    if status in FAILURES or condition in PLAYED:
        fails(row, status, monkeypatch)
        return
    found = PROVOKED[status, condition](row)
    assert found
    for changes, rule in found:
        names = [p.name for p in row.inputs]
        profiled = "PROFILE" in changes
        changes = {n: v for n, v in changes.items() if n != "PROFILE"}
        assert changes.keys() <= set(names), changes
        arguments = dict(zip(names, good_arguments(row), strict=True)) | changes
        arguments = {n: v for n, v in arguments.items() if v is not ...}
        written = {n: a.copy() for n, a in arguments.items() if isinstance(a, np.ndarray)}
        with v6.profile("6.0") if profiled else nullcontext(), pytest.raises(v6.CudnnError) as error:
            getattr(v6, name)(**arguments)
        first = error.value.rejections[0]
        assert (error.value.status.name, first.rule) == (f"CUDNN_STATUS_{status}", rule), changes
        assert all((first.attribute, first.expected, first.reason, first.fix))
        assert all(np.array_equal(arguments[n], a) for n, a in written.items()), "something was written"
        with v6.returning_status(), v6.profile("6.0") if profiled else nullcontext():
            result = getattr(v6, name)(**arguments)
        assert (result[0] if isinstance(result, tuple) else result) is error.value.status


def fails(row: Function, status: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the call stands on fails: its plan, the search's clock, the device, or the memory of an object."""

    def fail(*_: Any, **__: Any) -> None:
        if status == "ALLOC_FAILED":
            raise MemoryError
        if status == "EXECUTION_FAILED":
            raise RuntimeError("the kernel did not start")
        if status == "INTERNAL_ERROR":
            raise OSError("no such clock, stream or resource")
        raise error_for([UNSET.reject("device", "device", None, status=Status[status])])

    call = getattr(v6, row.name)
    if row.name == "cudnnCreate":
        monkeypatch.setattr(handle, "device_spec", fail)
    elif "Find" in row.name:
        if status == "INTERNAL_ERROR":
            monkeypatch.setattr(convolution_directions, "perf_counter", fail)
        else:
            monkeypatch.setattr(convolution_queries, "samples", fail)
    elif any(p.kind in ("data", "inout", "out") for p in row.inputs):
        if status == "EXECUTION_FAILED":
            call(*good_arguments(row))
            monkeypatch.setattr(type(last_prepared().plan), "execute", fail)
        else:
            monkeypatch.setattr(PreparedCall, "__call__", fail)
    else:
        call = as_call(row, fail)
    with pytest.raises(v6.CudnnError) as error:
        call(*good_arguments(row))
    assert error.value.status is v6.cudnnStatus[f"CUDNN_STATUS_{status}"]


@pytest.mark.parametrize("name", functions())
def test_success(name: str) -> None:
    row = functions()[name]
    if name in PLAIN:
        getattr(v6, name)(*([0] if row.inputs else []))
        return
    arguments = good_arguments(row)
    with v6.returning_status():
        result = getattr(v6, name)(*arguments)
    assert (result[0] if row.results else result) is v6.CUDNN_STATUS_SUCCESS


def test_every_condition_is_in_the_file() -> None:
    """Each status of the function table has a line, and each provoker a use."""
    listed = {(name, status) for name, status, _ in CONDITIONS}
    for name, row in functions().items():
        if row.family not in ("dropout", "rnn") and "CTC" not in name:
            assert {(name, status) for status in row.statuses} <= listed, name
    assert set(PROVOKED) <= {(status, condition) for _, status, condition in CONDITIONS}
