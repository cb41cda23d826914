"""Convolution algorithms by name: what each takes, which engine computes it, what the queries and searches answer."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

import numpy as np
import pytest
from v6_tools import convolution, filter_of, tensor
from v6_values import drawn

from graphdnn import v6
from graphdnn.engines import engines_of
from graphdnn.v6.algorithm_table import DEVICE_ENGINES, HOST_ENGINES
from graphdnn.v6.algorithms import determinism, is_implemented, members, rows
from graphdnn.v6.algorithms import engines_of as engines_for
from graphdnn.v6.calls.convolution_directions import PASSES, values_of
from graphdnn.v6.thread_state import last_prepared

F, B, G = v6.cudnnConvolutionFwdAlgo, v6.cudnnConvolutionBwdDataAlgo, v6.cudnnConvolutionBwdFilterAlgo
X, W, Y = (2, 4, 9, 8), (6, 4, 3, 3), (2, 6, 7, 6)
ORDER = {"Forward": "x w y", "BackwardData": "w y x", "BackwardFilter": "x y w"}
OK, UNSUPPORTED = v6.CUDNN_STATUS_SUCCESS, v6.CUDNN_STATUS_NOT_SUPPORTED


def descriptors(direction: str, conv: Any = None, kind: Any = v6.CUDNN_DATA_FLOAT, **dims: Any) -> list[Any]:
    """In the order of a direction's functions: two that are read, the convolution, the one that is written."""
    found = {"x": X, "w": W, "y": Y} | dims
    made = {n: filter_of(d, kind=kind) if n == "w" else tensor(d, kind=kind) for n, d in found.items()}
    a, b, c = ORDER[direction].split()
    return [made[a], made[b], conv or convolution(), made[c]]


def arrays(direction: str, **dims: Any) -> list[np.ndarray]:
    found = {"x": X, "w": W, "y": Y} | dims
    return [drawn(found[n]) for n in ORDER[direction].split()]


def compute(handle: Any, direction: str, algorithm: Any, data: list[np.ndarray], workspace: Any = None,
            size: int = 0) -> np.ndarray:  # fmt: skip
    a, b, conv, c = descriptors(direction)
    result = np.full_like(data[2], np.nan)
    call = getattr(v6, f"cudnnConvolution{direction}")
    call(handle, 1.0, a, data[0], b, data[1], conv, algorithm, workspace, size, 0.0, c, result)
    return result


def test_the_table_covers_the_headers() -> None:
    assert len(rows()) == 27
    assert [len(members(p.algorithms)) for p in PASSES] == [8, 6, 7]
    unknown = [a.name for p in PASSES for a in members(p.algorithms) if not is_implemented(a)]
    assert unknown == ["CUDNN_CONVOLUTION_FWD_ALGO_DIRECT", "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD"]
    varying = [a.name for p in PASSES for a in members(p.algorithms)
               if is_implemented(a) and determinism(a) is v6.CUDNN_NON_DETERMINISTIC]  # fmt: skip
    assert varying == [
        "CUDNN_CONVOLUTION_BWD_DATA_ALGO_0", "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0", "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3",
    ]  # fmt: skip


_OF_ONE_ROW = {"CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING"}  # the limits' test has it


def test_engines_exist() -> None:
    for place, named in (("cuda", DEVICE_ENGINES.values()), ("cpu", [HOST_ENGINES])):
        known = {engine.name for engine in engines_of(place)}
        assert {name for order in named for names in order for name in names} <= known


@pytest.mark.parametrize(
    ("direction", "algorithm"),
    [(p.name, a) for p in PASSES for a in members(p.algorithms) if is_implemented(a) and a.name not in _OF_ONE_ROW],
)
def test_an_algorithm_is_honoured(handle: Any, direction: str, algorithm: Any) -> None:
    """By its engine, with the result of every other, with and without its workspace."""
    data = arrays(direction)
    asked = (handle, *descriptors(direction), algorithm)
    size = getattr(v6, f"cudnnGetConvolution{direction}WorkspaceSize")(*asked)
    results = [compute(handle, direction, algorithm, data, w, s)
               for w, s in ((None, 0), (np.empty(size, np.uint8), size), (np.empty(1, np.uint8), 1))]  # fmt: skip
    call = last_prepared()
    kind, chosen = call.plan.config.device.kind, {choice.engine.name for choice in call.plan.config.choices}
    serving = {choice.engine.name for config in islice(call.ranking, 64) for choice in config.choices}
    asked_for = {name for names in engines_for(algorithm, kind) for name in names}
    assert chosen & asked_for or not serving & asked_for
    if kind == "cpu":
        is_without = algorithm.name.endswith(("IMPLICIT_GEMM", "ALGO_0"))
        assert chosen == {"numpy" if is_without else "numpy_blocked"}
        assert (call.plan.workspace_size == 0) is (size == 0) is is_without
    for result in results:
        np.testing.assert_array_equal(result, results[0])
    np.testing.assert_allclose(results[0], compute(handle, direction, 0, data), rtol=1e-4, atol=1e-4)


LIMITS: list[tuple[str, str, dict[str, Any], str]] = [
    ("Forward", "FWD_ALGO_WINOGRAD", {"w": (6, 4, 5, 5), "y": (2, 6, 5, 4)}, "v6.algorithm.filters"),
    ("Forward", "FWD_ALGO_WINOGRAD_NONFUSED", {"w": (6, 4, 3, 5), "y": (2, 6, 7, 4)}, "v6.algorithm.filters"),
    ("Forward", "FWD_ALGO_WINOGRAD", {"conv": convolution(stride=(2, 1)), "y": (2, 6, 4, 6)},
     "v6.algorithm.unit_stride"),
    ("Forward", "FWD_ALGO_FFT", {"conv": convolution(dilation=(1, 2)), "y": (2, 6, 7, 4)},
     "v6.algorithm.unit_dilation"),
    ("Forward", "FWD_ALGO_FFT", {"conv": convolution(padding=(3, 0)), "y": (2, 6, 13, 6)},
     "v6.algorithm.covers_padding"),
    ("Forward", "FWD_ALGO_FFT", {"x": (1, 4, 257, 4), "y": (1, 6, 255, 2)}, "v6.algorithm.padded"),
    ("Forward", "FWD_ALGO_FFT_TILING", {"x": (1, 4, 40, 40), "w": (6, 4, 33, 3), "y": (1, 6, 8, 38)},
     "v6.algorithm.longest"),
    ("Forward", "FWD_ALGO_FFT", {"conv": convolution((0,) * 3, (1,) * 3, (1,) * 3), "x": (1, 4, 3, 3, 3),
                                 "w": (6, 4, 3, 3, 3), "y": (1, 6, 1, 1, 1)}, "v6.algorithm.axes"),
    ("Forward", "FWD_ALGO_FFT", {"kind": v6.CUDNN_DATA_INT8, "conv": convolution(compute=v6.CUDNN_DATA_INT32)},
     "v6.algorithm.integers"),
    ("Forward", "FWD_ALGO_DIRECT", {}, "v6.algorithm"),
    ("BackwardData", "BWD_DATA_ALGO_WINOGRAD", {"w": (6, 4, 5, 5), "y": (2, 6, 5, 4)}, "v6.algorithm.filters"),
    ("BackwardFilter", "BWD_FILTER_ALGO_FFT_TILING", {}, "v6.algorithm.line"),
    ("BackwardFilter", "BWD_FILTER_ALGO_WINOGRAD", {}, "v6.algorithm"),
]  # fmt: skip


@pytest.mark.parametrize(("direction", "name", "changes", "rule"), LIMITS)
def test_limits(handle: Any, direction: str, name: str, changes: dict[str, Any], rule: str) -> None:
    arguments = (handle, *descriptors(direction, **changes), f"CUDNN_CONVOLUTION_{name}")
    with pytest.raises(v6.CudnnError) as error:
        getattr(v6, f"cudnnGetConvolution{direction}WorkspaceSize")(*arguments)
    assert error.value.status is UNSUPPORTED
    assert [r.rule for r in error.value.rejections] == [rule]


def test_what_lies_just_inside_the_limits(handle: Any) -> None:
    size = v6.cudnnGetConvolutionForwardWorkspaceSize
    long = descriptors("Forward", x=(1, 4, 1, 300), w=(6, 4, 1, 200), y=(1, 6, 1, 101))
    assert size(handle, *long, F.CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING) >= 0
    wide = descriptors("Forward", x=(1, 4, 256, 4), y=(1, 6, 254, 2))
    assert size(handle, *wide, F.CUDNN_CONVOLUTION_FWD_ALGO_FFT) >= 0
    line = descriptors("BackwardFilter", x=(2, 4, 1, 256), w=(6, 4, 1, 5), y=(2, 6, 1, 252))
    assert v6.cudnnGetConvolutionBackwardFilterWorkspaceSize(handle, *line, 6) >= 0


@pytest.mark.parametrize("direction", ORDER)
def test_getting_an_algorithm(handle: Any, direction: str) -> None:
    get = getattr(v6, f"cudnnGetConvolution{direction}Algorithm")
    size = getattr(v6, f"cudnnGetConvolution{direction}WorkspaceSize")
    given = descriptors(direction)
    for preference, limit in ((0, 1 << 40), (1, 0), (2, 0), (2, 100), (2, 1 << 40)):
        found = get(handle, *given, preference, limit)
        needed = size(handle, *given, found)
        assert needed <= (0 if preference == 0 else limit) or preference == 1
    guessed = getattr(v6, f"cudnnGetConvolution{direction}Algorithm_v7")(handle, *given, 100)[1]
    assert guessed[0].algo is get(handle, *given, 1, 0)


def test_algorithms_that_the_manual_lists_are_proposed_first(handle: Any) -> None:
    INT8 = v6.CUDNN_DATA_INT8
    x, w, y = (tensor(d, v6.CUDNN_TENSOR_NHWC, INT8) for d in ((2, 4, 9, 8), (8, 4, 3, 3), (2, 8, 7, 6)))
    w = filter_of((8, 4, 3, 3), v6.CUDNN_TENSOR_NHWC, INT8)
    conv = convolution(compute=v6.CUDNN_DATA_INT32)
    for context in (v6.profile("6.0"), v6.returning_status()):
        with context:
            found = v6.cudnnGetConvolutionForwardAlgorithm(handle, x, w, conv, y, 1, 0)
            found = found[1] if isinstance(found, tuple) else found
            assert found is F.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
    dilated = descriptors("BackwardData", convolution(dilation=(2, 2)), y=(2, 6, 5, 4))
    assert v6.cudnnGetConvolutionBackwardDataAlgorithm(handle, *dilated, 1, 0) is B.CUDNN_CONVOLUTION_BWD_DATA_ALGO_0
    volume = descriptors("BackwardFilter", convolution((0,) * 3, (1,) * 3, (1,) * 3), x=(1, 4, 3, 4, 4),
                         w=(6, 4, 3, 3, 3), y=(1, 6, 1, 2, 2))  # fmt: skip
    assert v6.cudnnGetConvolutionBackwardFilterAlgorithm(handle, *volume, 1, 0).name.endswith(("ALGO_0", "ALGO_3"))


@pytest.mark.parametrize(
    ("direction", "name"),
    [
        ("Forward", "cudnnFindConvolutionForwardAlgorithmEx"),
        ("BackwardData", "cudnnFindConvolutionBackwardDataAlgorithmEx"),
        ("BackwardFilter", "cudnnFindConvolutionBackwardFilterAlgorithmEx"),
    ],
)
def test_searches(handle: Any, direction: str, name: str) -> None:
    given, data = descriptors(direction), arrays(direction)
    most = getattr(v6, f"cudnnGetConvolution{direction}AlgorithmMaxCount")(handle)
    before = data[2].copy()
    plain = getattr(v6, name.removesuffix("Ex"))(handle, *given, 100)
    workspace = np.empty(max(r.memory for r in plain[1]), np.uint8)
    a, b, conv, c = given
    within = (handle, a, data[0], b, data[1], conv, c, data[2])
    find = getattr(v6, name)
    for count, results in (plain, find(*within, 100, workspace, workspace.size)):
        assert count == len(results) == most
        assert len({r.algo for r in results}) == most
        working = [r for r in results if r.status is OK]
        assert list(results[: len(working)]) == working
        assert [r.time for r in working] == sorted(r.time for r in working)
        assert all(r.time > 0 for r in working)
        for r in results[len(working) :]:
            assert (r.status, r.time) == (UNSUPPORTED, -1)
        for r in results:
            size = getattr(v6, f"cudnnGetConvolution{direction}WorkspaceSize")
            assert r.status is not OK or r.memory == size(handle, *given, r.algo)
            assert r.determinism is determinism(r.algo)
    assert not np.array_equal(data[2], before), "the search writes over the output"
    np.testing.assert_allclose(data[2], compute(handle, direction, 0, data), rtol=1e-4, atol=1e-4)
    count, results = find(*within, 100, None, 0)
    for r in results:
        assert r.status in (UNSUPPORTED, v6.CUDNN_STATUS_ALLOC_FAILED if r.memory else OK)
    assert {r.status for r in results} >= {OK, v6.CUDNN_STATUS_ALLOC_FAILED}
    assert find(*within, 2, workspace, workspace.size)[0] == 2


@pytest.mark.parametrize("direction", ORDER)
def test_guesses(handle: Any, direction: str) -> None:
    given = descriptors(direction)
    guess = getattr(v6, f"cudnnGetConvolution{direction}Algorithm_v7")
    count, results = guess(handle, *given, 100)
    assert count == len(results) == getattr(v6, f"cudnnGetConvolution{direction}AlgorithmMaxCount")(handle)
    assert all(r.time == -1 for r in results)
    assert [r.status for r in results] == sorted((r.status for r in results), key=int)  # what works comes first
    assert guess(handle, *given, 1) == (1, results[:1])


@pytest.mark.parametrize("function", ["Find{}Algorithm", "Get{}Algorithm_v7", "Find{}AlgorithmEx"])
@pytest.mark.parametrize("direction", ORDER)
def test_counts_and_descriptors_of_searches(handle: Any, function: str, direction: str) -> None:
    call = getattr(v6, "cudnn" + function.format(f"Convolution{direction}"))
    for changes, count in (({}, 0), ({}, -1), ({"y": (2, 6, 7, 5)}, 3)):
        a, b, conv, c = descriptors(direction, **changes)
        data = arrays(direction)
        given = (a, data[0], b, data[1], conv, c, data[2]) if "Ex" in function else (a, b, conv, c)
        with pytest.raises(v6.CudnnError) as error:
            call(handle, *given, count, *((None, 0) if "Ex" in function else ()))
        assert error.value.status is v6.CUDNN_STATUS_BAD_PARAM


def test_a_search_reports_what_fails(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("the kernel did not start")

    given = descriptors("Forward", x=(3, 4, 9, 8), y=(3, 6, 7, 6))
    v6.cudnnGetConvolutionForwardWorkspaceSize(handle, *given, 0)
    v6.cudnnFindConvolutionForwardAlgorithm(handle, *given, 1)
    with monkeypatch.context() as patch:
        patch.setattr(type(last_prepared().plan), "execute", fail)
        results = v6.cudnnFindConvolutionForwardAlgorithm(handle, *given, 100)[1]
        assert {r.status for r in results} == {v6.CUDNN_STATUS_EXECUTION_FAILED, UNSUPPORTED}
        x, w, y = (np.zeros(d, np.float32) for d in ((3, 4, 9, 8), W, (3, 6, 7, 6)))
        with pytest.raises(v6.CudnnError) as error:
            v6.cudnnConvolutionForward(handle, 1.0, given[0], x, given[1], w, given[2], 0, None, 0, 0.0, given[3], y)
    assert (error.value.status, error.value.rejections[0].rule) == (v6.CUDNN_STATUS_EXECUTION_FAILED, "v6.failed")


@pytest.mark.parametrize("device", ["cpu", "h200"])
@pytest.mark.parametrize("layout", [0, 1])
def test_without_a_workspace_there_is_an_answer(device: str, layout: int) -> None:
    """What NO_WORKSPACE and a limit of 0 choose asks for none, wherever it runs; on the host its plan needs none."""
    v6.use(device)
    try:
        handle = v6.cudnnCreate()
    finally:
        v6.use(None)
    x, w, conv = (
        v6.cudnnCreateTensorDescriptor(),
        v6.cudnnCreateFilterDescriptor(),
        v6.cudnnCreateConvolutionDescriptor(),
    )
    v6.cudnnSetTensor4dDescriptor(x, layout, v6.CUDNN_DATA_FLOAT, 8, 64, 56, 56)
    v6.cudnnSetFilter4dDescriptor(w, v6.CUDNN_DATA_FLOAT, layout, 64, 64, 3, 3)
    v6.cudnnSetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, v6.CUDNN_CROSS_CORRELATION, v6.CUDNN_DATA_FLOAT)
    for name, prefix, tensors in (
        ("Forward", "FWD", (x, w, conv, x)),
        ("BackwardData", "BWD_DATA", (w, x, conv, x)),
        ("BackwardFilter", "BWD_FILTER", (x, x, conv, w)),
    ):
        choose = getattr(v6, f"cudnnGetConvolution{name}Algorithm")
        size_of = getattr(v6, f"cudnnGetConvolution{name}WorkspaceSize")
        for preference in ("NO_WORKSPACE", "SPECIFY_WORKSPACE_LIMIT"):
            chosen = choose(handle, *tensors, f"CUDNN_CONVOLUTION_{prefix}_{preference}", 0)
            assert size_of(handle, *tensors, chosen) == 0, (name, preference, chosen)
            direction = next(p for p in PASSES if p.name == name)
            plan = direction.prepare(handle, *values_of(*tensors), chosen, 1.0, 0.0, "test").plan
            assert plan.workspace_size == 0 or device != "cpu", (name, preference, chosen)


def test_every_entry_of_a_search_has_a_reason(handle: Any) -> None:
    """One plan is measured once, so that algorithms that are the same have one time, in the headers' order; what does
    not run says why.
    """
    x, w, y = tensor((2, 4, 6, 5)), filter_of((8, 4, 3, 3)), tensor((2, 8, 4, 3))
    conv, given = convolution(), tuple(np.zeros(n, np.float32) for n in (240, 288, 192))
    _, found = v6.cudnnFindConvolutionForwardAlgorithm(handle, x, w, conv, y, 8)
    ran = {e.algo.name: e for e in found if e.status is v6.CUDNN_STATUS_SUCCESS}
    named = {name: re.search(r"the plan of (\w+)", entry.reason) for name, entry in ran.items()}
    firsts = {name: found[1] for name, found in named.items() if found is not None}
    assert firsts
    for name, first in firsts.items():
        same, measured = ran[name], ran[first]
        assert (same.time, same.memory) == (measured.time, measured.memory)
        assert int(measured.algo) < int(same.algo)
        assert first not in firsts, "the first of them was measured"
    assert all(e.reason for e in found if e.status is not v6.CUDNN_STATUS_SUCCESS)
    _, guessed = v6.cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, conv, y, 8)
    assert all(e.reason for e in guessed if e.status is not v6.CUDNN_STATUS_SUCCESS)
    _, small = v6.cudnnFindConvolutionForwardAlgorithmEx(
        handle, x, given[0], w, given[1], conv, y, given[2], 8, None, 0
    )
    refused = [e for e in small if e.status is v6.CUDNN_STATUS_ALLOC_FAILED]
    assert refused
    assert all("the workspace has 0 bytes" in e.reason for e in refused)
