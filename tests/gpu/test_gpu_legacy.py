"""The legacy calls on the GPU: small programs agree with the host; streams, searches, memory that is not the device's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from v6_programs import PROGRAMS, W, X, Y
from v6_tools import convolution, filter_of, tensor

from graphdnn import v6

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


@pytest.fixture
def handle() -> Any:
    v6.use("cuda")
    made = v6.cudnnCreate()
    v6.use(None)
    return made


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("own_stream", [False, True])
def test_programs_agree_with_the_host(handle: Any, name: str, own_stream: bool) -> None:
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True) if own_stream else None
    v6.cudnnSetStream(handle, stream)
    wanted = PROGRAMS[name](v6.cudnnCreate(), np.array)
    with stream or cupy.cuda.Stream.null:
        found = PROGRAMS[name](handle, cupy.asarray)
    cupy.cuda.Device().synchronize()
    for one, other in zip(found, wanted, strict=True):
        if other.dtype.kind == "f":
            np.testing.assert_allclose(one.get(), other, rtol=1e-4, atol=1e-4)
        else:
            np.testing.assert_array_equal(one.get(), other)


@pytest.mark.parametrize("name", PROGRAMS)
def test_recordings(handle: Any, name: str) -> None:
    import cupy

    made: list[Any] = []

    def kept(array: np.ndarray) -> Any:
        made.append((cupy.asarray(array), array.copy()))
        return made[-1][0]

    def check() -> None:
        cupy.cuda.Device().synchronize()
        for one, other in zip(found, wanted, strict=True):
            if other.dtype.kind == "f":
                np.testing.assert_allclose(one.get(), other, rtol=1e-4, atol=1e-4)
            else:
                np.testing.assert_array_equal(one.get(), other)

    wanted = PROGRAMS[name](v6.cudnnCreate(), np.array)
    with v6.record() as r:
        found = PROGRAMS[name](handle, kept)
    assert r.graphs
    check()
    for array, before in made:
        array.set(before)
    r.replay()
    check()


def test_memory_that_something_else_writes(handle: Any) -> None:
    import cupy

    y = cupy.full(Y, cupy.nan, cupy.float32)
    for is_changed in (False, True):
        with v6.record() as r:
            v6.cudnnScaleTensor(handle, tensor(Y), y, 3.0)
            if is_changed:
                y[-1, -1, -1, -1] = 1
            v6.cudnnScaleTensor(handle, tensor(Y), y, 3.0)
        if is_changed:
            with pytest.raises(v6.CudnnError, match=r"v6\.record\.changed"):
                r.replay()
        else:
            r.replay()


def test_addresses(handle: Any) -> None:
    import cupy

    y = cupy.ones(Y, cupy.float32)
    cupy.cuda.Device().synchronize()
    v6.cudnnScaleTensor(handle, tensor(Y), y.data.ptr, 3.0)
    cupy.cuda.Device().synchronize()
    assert (y == 3).all()
    with pytest.raises(v6.CudnnError) as error:
        v6.cudnnScaleTensor(handle, tensor(Y), np.ones(Y, np.float32), 3.0)
    assert error.value.rejections[0].rule == "binding.device_kind"


def test_searches(handle: Any) -> None:
    given = (handle, tensor(X), filter_of(W), convolution(), tensor(Y))
    count, results = v6.cudnnFindConvolutionForwardAlgorithm(*given, 100)
    working = [r for r in results if r.status is v6.CUDNN_STATUS_SUCCESS]
    assert count == 8
    assert working
    assert [r.time for r in working] == sorted(r.time for r in working)


def test_calls_follow_each_other_in_their_stream(handle: Any) -> None:
    import cupy

    stream, other = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    large = (1, 1, 4096, 4096)
    with stream:
        y = cupy.ones(large, cupy.float32)
    for i in range(40):  # each waits for the one before, though its stream is another
        v6.cudnnSetStream(handle, (stream, other)[i % 2])
        (stream, other)[i % 2].wait_event((other, stream)[i % 2].record())
        v6.cudnnScaleTensor(handle, tensor(large), y if i % 3 else y.data.ptr, 2.0 if i % 4 < 2 else 0.5)
    assert v6.cudnnGetStream(handle) == other.ptr
    other.synchronize()
    assert (y == 1).all()


def test_handles_of_others(handle: Any) -> None:
    import cupy

    y = cupy.ones(Y, cupy.float32)
    destroyed = v6.cudnnCreate()
    v6.cudnnDestroy(destroyed)
    for given in (y.data.ptr, None, object(), destroyed):
        with pytest.raises(v6.CudnnError) as error:
            v6.cudnnScaleTensor(given, tensor(Y), y, 3.0)
        assert error.value.status is v6.CUDNN_STATUS_BAD_PARAM
    with pytest.raises(v6.CudnnError) as error:
        v6.cudnnScaleTensor(v6.cudnnCreate(), tensor(Y), y, 3.0)  # of the host
    assert error.value.rejections[0].rule == "v6.memory.kind"
    assert (y == 1).all()


def test_two_threads_with_handles_of_their_own() -> None:
    import cupy

    on_host = v6.cudnnCreate()
    wanted = {name: program(on_host, np.array) for name, program in PROGRAMS.items()}
    v6.use("cuda")
    handles = [v6.cudnnCreate() for _ in range(2)]
    v6.use(None)

    def work(handle: Any) -> int:
        count, stream = 0, cupy.cuda.Stream(non_blocking=True)
        v6.cudnnSetStream(handle, stream)
        with stream:
            for name in [*PROGRAMS] * 5:
                found = PROGRAMS[name](handle, cupy.asarray)
                stream.synchronize()
                for one, other in zip(found, wanted[name], strict=True):
                    np.testing.assert_allclose(one.get(), other, rtol=1e-4, atol=1e-4)
                    count += 1
        return count

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, handles)) == [5 * sum(map(len, wanted.values()))] * 2
