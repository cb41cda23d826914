"""Handles on a device: the legacy calls on device memory, with the kernels on the emulator and NumPy's memory for it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulator import MISSING
from emulator.runtime import EmulatedRuntime
from recurrent_tools import dropout, rnn, steps, weights
from v6_device_mirror import OnDevice, emulated
from v6_programs import PROGRAMS, W, X, Y
from v6_tools import convolution, filter_of, strided, tensor
from v6_values import close, drawn

from graphdnn import BadParam, v6
from graphdnn.v6 import device_memory, thread_state

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def on(array: np.ndarray) -> Any:
    return array.view(OnDevice)


@pytest.fixture
def runtime() -> Iterator[EmulatedRuntime]:
    with emulated() as made:
        yield made
    v6.use(None)


@pytest.fixture
def handle(runtime: EmulatedRuntime) -> Any:
    v6.use("h200")
    return v6.cudnnCreate()


def test_a_device_that_is_none_is_refused_when_it_is_named() -> None:
    for name in ("gpu", "h300", ""):
        with pytest.raises(BadParam, match=r"device\.unknown"):
            v6.use(name)


@pytest.fixture(scope="module")
def host() -> Any:
    v6.use("cpu")
    made = v6.cudnnCreate()
    v6.use(None)
    return made


def _address(array: np.ndarray) -> int:
    return array.ctypes.data


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _flat(array: np.ndarray) -> Any:
    return on(array.reshape(-1))


@pytest.mark.parametrize("form", [on, _flat, _address, _pointer])
def test_forms_of_memory(handle: Any, host: Any, form: Any) -> None:
    made: list[np.ndarray] = []

    def kept(array: np.ndarray) -> Any:
        made.append(array)  # an address keeps nothing alive
        return form(array)

    (wanted,) = PROGRAMS["layer"](host, np.array)
    PROGRAMS["layer"](handle, kept)
    close(made[3], wanted, 1e-4)
    assert thread_state.last_prepared().plan.config.device.kind == "cuda"


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_agree_with_the_host(handle: Any, host: Any, name: str) -> None:
    wanted, found = PROGRAMS[name](host, np.array), PROGRAMS[name](handle, lambda a: on(np.array(a)))
    for one, other in zip(found, wanted, strict=True):
        if other.dtype.kind == "f":
            close(np.array(one), other, 1e-4)
        else:
            np.testing.assert_array_equal(np.array(one), other)


def test_strides_and_streams(handle: Any, runtime: EmulatedRuntime) -> None:
    wide = np.full((2, 3, 4, 8), 7, np.float32)
    y = wide[..., :5]
    desc = v6.cudnnCreateTensorDescriptor()
    v6.cudnnSetTensor4dDescriptorEx(desc, v6.CUDNN_DATA_FLOAT, 2, 3, 4, 5, 96, 32, 8, 1)
    v6.cudnnSetStream(handle, 4711)
    assert v6.cudnnGetStream(handle) == 4711
    for form in (on(y), y.ctypes.data):
        v6.cudnnScaleTensor(handle, desc, form, 2.0)
    assert (y == 28).all()
    assert (wide[..., 5:] == 7).all()
    assert set(runtime.streams) == {4711}


def test_kept_memory_is_bounded(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr(device_memory, "_MOST_KEPT", 1)
    monkeypatch.setattr(device_memory.driver_api, "synchronize", waited.append)
    monkeypatch.setattr(device_memory, "_thread", device_memory._Thread())
    v6.cudnnSetStream(handle, 5)
    for extent in (1, 2, 3):
        x, y = np.ones((1, 1, 1, extent), np.float32), np.ones((1, 1, 1, extent), np.float32)
        shape = tensor(y.shape)
        v6.cudnnSoftmaxForward(handle, 1, 1, 1.0, shape, on(x), 1.0, shape, on(y))
        assert (y == 2).all()
    assert waited == [5, 5]
    assert len(device_memory._thread.kept) == 1


def test_elements_are_updated_where_they_are(handle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old contents, and an input that is the output, are copied only where other threads read them."""

    def copied(*_: Any) -> None:
        raise AssertionError("copied")

    monkeypatch.setattr(device_memory, "copied", copied)
    shape, c = tensor((2, 8, 3, 4)), drawn((2, 8, 3, 4))
    wanted = 2 * (0.5 * c + 1)
    v6.cudnnAddTensor(handle, 1.0, tensor((1, 8, 1, 1)), on(np.ones((1, 8, 1, 1), np.float32)), 0.5, shape, on(c))
    v6.cudnnScaleTensor(handle, shape, on(c), 2.0)
    close(c, wanted, 1e-6)
    relu = v6.cudnnCreateActivationDescriptor()
    v6.cudnnSetActivationDescriptor(relu, 1, 0, 0.0)
    v6.cudnnActivationForward(handle, relu, 1.0, shape, on(c), 0.0, shape, on(c))
    close(c, np.maximum(wanted, 0), 1e-6)
    statistics, ones = tensor((1, 8, 1, 1)), [np.ones((1, 8, 1, 1), np.float32) for _ in range(4)]
    scale, bias, mean, variance = map(on, ones)
    y = np.empty_like(c)
    v6.cudnnBatchNormalizationForwardTraining(
        handle, 1, 1.0, 0.0, shape, on(c), shape, on(y), statistics, scale, bias, 0.25, mean, variance, 1e-5, None, None
    )
    close(ones[2], 0.75 + 0.25 * c.mean((0, 2, 3), keepdims=True), 1e-5)
    close(ones[3], 0.75 + 0.25 * c.var((0, 2, 3), keepdims=True, ddof=1), 1e-5)
    wide = np.zeros(c.size + 1, np.float32)
    with pytest.raises(v6.CudnnError, match="copied"):  # the next element's old contents are those of another thread
        v6.cudnnActivationForward(handle, relu, 1.0, shape, on(wide[1:]), 0.0, shape, on(wide[:-1]))


def test_what_does_not_work_in_place(handle: Any) -> None:
    """A transformation is refused, though its kernel could: the manual says so of every device."""
    x, desc = on(drawn((1, 2, 3, 4))), tensor((1, 2, 3, 4))
    with pytest.raises(v6.CudnnError) as error:
        v6.cudnnTransformTensor(handle, 1.0, desc, x, 0.0, desc, x)
    assert error.value.status is v6.CUDNN_STATUS_BAD_PARAM


def test_algorithms_and_searches(handle: Any) -> None:
    given = (handle, tensor(X), filter_of(W), convolution(), tensor(Y))
    count, results = v6.cudnnFindConvolutionForwardAlgorithm(*given, 100)
    working = [r for r in results if r.status is v6.CUDNN_STATUS_SUCCESS]
    assert count == len(results) == 8
    assert working
    assert [r.time for r in working] == sorted(r.time for r in working)
    chosen = v6.cudnnGetConvolutionForwardAlgorithm(*given, 1, 0)
    x, w, y = drawn(X), drawn(W), np.zeros(Y, np.float32)
    size = v6.cudnnGetConvolutionForwardWorkspaceSize(*given, chosen)
    workspace = np.zeros(max(size, 1), np.uint8)
    v6.cudnnConvolutionForward(handle, 1.0, tensor(X), on(x), filter_of(W), on(w), convolution(), chosen, on(workspace),
                               size, 0.0, tensor(Y), on(y))  # fmt: skip
    assert y.any()
    name = v6.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD
    v6.cudnnGetConvolutionForwardWorkspaceSize(*given, name)
    v6.cudnnConvolutionForward(handle, 1.0, tensor(X), on(x), filter_of(W), on(w), convolution(), name, None, 0, 0.0,
                               tensor(Y), on(y))  # fmt: skip
    assert thread_state.last_prepared().plan.config.choices[0].engine.name == "cuda_winograd"


def test_memory_that_does_not_fit(handle: Any, host: Any) -> None:
    desc, small = tensor((1, 1, 2, 3)), np.ones(5, np.float32)
    wide = np.ones((1, 1, 2, 6), np.float32)[..., ::2]
    for given, rule in (
        (on(small), "v6.memory.small"), ((ctypes.c_float * 5)(), "v6.memory.small"),
        (on(np.ones(6)), "v6.memory.data_type"), (on(wide), "v6.memory.layout"),
        (on(np.ones((1, 1, 3, 2), np.float32)), "v6.memory.order"),
    ):  # fmt: skip
        with pytest.raises(v6.CudnnError) as error:
            v6.cudnnScaleTensor(handle, desc, given, 2.0)
        assert (error.value.status, error.value.rejections[0].rule) == (v6.CUDNN_STATUS_BAD_PARAM, rule)
    elsewhere = SimpleNamespace(__cuda_array_interface__=np.ones(6, np.float32).__array_interface__)
    with pytest.raises(v6.CudnnError) as error:
        v6.cudnnScaleTensor(host, desc, elsewhere, 2.0)
    assert error.value.rejections[0].rule == "v6.memory.kind"


def test_memory_of_another_place(handle: Any, host: Any) -> None:
    desc, states = v6.cudnnCreateDropoutDescriptor(), np.zeros(16, np.uint8)
    elsewhere = SimpleNamespace(__cuda_array_interface__=states.__array_interface__)
    wide = SimpleNamespace(__cuda_array_interface__=np.zeros((4, 8), np.uint8)[:, ::2].__array_interface__)
    for where, given, rule in (
        (handle, states, "v6.memory.place"), (host, elsewhere, "v6.memory.kind"), (handle, wide, "v6.memory.layout"),
        (handle, on(states[:8]), "v6.memory.small"),
    ):  # fmt: skip
        with pytest.raises(v6.CudnnError) as error:
            v6.cudnnSetDropoutDescriptor(desc, where, 0.5, given, 16, 1)
        assert error.value.rejections[0].rule == rule


def test_parts_of_weights_on_the_device(handle: Any) -> None:
    desc, x, into = (
        rnn(v6.CUDNN_LSTM, 3, drops=dropout(states=False)),
        steps([2], 4)[0],
        v6.cudnnCreateFilterDescriptor(),
    )
    count = v6.cudnnGetRNNParamsSize(handle, desc, x, v6.CUDNN_DATA_FLOAT) // 4
    w = np.zeros(count, np.float32)
    where = v6.cudnnGetRNNLinLayerMatrixParams(handle, desc, 0, x, weights(count), on(w), 1, into)
    assert where == w.ctypes.data + 4 * 12
    assert v6.cudnnGetFilterNdDescriptor(into, 3)[-1] == (1, 3, 4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_recordings(handle: Any, host: Any, name: str) -> None:
    made: list[np.ndarray] = []
    before: list[np.ndarray] = []

    def kept(array: np.ndarray) -> Any:
        made.append(np.array(array))
        before.append(made[-1].copy())
        return on(made[-1])

    def check() -> None:
        for one, other in zip(found, wanted, strict=True):
            if other.dtype.kind == "f":
                close(np.array(one), other, 1e-4)
            else:
                np.testing.assert_array_equal(np.array(one), other)

    wanted = PROGRAMS[name](host, np.array)
    with v6.record() as r:
        found = PROGRAMS[name](handle, kept)
    check()
    for array, copy in zip(made, before, strict=True):
        array[...] = copy
    r.replay()
    check()
    assert r.graphs
    assert all(f.graph in r.graphs for f in r.fused)


def test_recordings_of_two_places(handle: Any, host: Any) -> None:
    a, b = np.ones(Y, np.float32), np.ones(Y, np.float32)
    with v6.record() as r:
        v6.cudnnScaleTensor(host, tensor(Y), a, 2.0)
        v6.cudnnScaleTensor(handle, tensor(Y), on(b), 3.0)
        assert (a == 2).all()
        assert (b == 3).all()
    assert len(r.graphs) == 2
    r.replay()
    assert (a == 4).all()
    assert (b == 9).all()


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64, np.int8])
def test_memory_of_a_device_that_something_else_writes(handle: Any, kind: Any) -> None:
    """Found by kernels, whatever the bits are, in images with gaps as well; only once the replay asks."""
    element = {np.float32: v6.CUDNN_DATA_FLOAT, np.float16: v6.CUDNN_DATA_HALF, np.float64: v6.CUDNN_DATA_DOUBLE,
               np.int8: v6.CUDNN_DATA_INT8}[kind]  # fmt: skip
    room = np.zeros((2, 3, 4, 8), kind)
    x = room[..., ::2]
    desc = strided(x, element)
    for index, changes in (((1, 2, 3, 6), True), ((1, 2, 3, 7), False)):  # an element; between elements
        for behind in (False, True):
            if kind is not np.int8:
                room[0, 0, 0, 0] = np.nan
            with v6.record() as r:
                v6.cudnnScaleTensor(handle, desc, on(x), 1.0)
                room[index] += 1
                if behind:
                    v6.cudnnScaleTensor(handle, desc, on(x), 1.0)
            if changes:
                with pytest.raises(v6.CudnnError, match=r"v6\.record\.changed"):
                    r.replay()
            else:
                r.replay()


def test_without_a_device() -> None:
    from graphdnn.cuda.driver_api import available

    if not available():
        pytest.skip("there is a device")
    v6.use("cuda")
    try:
        with pytest.raises(v6.CudnnError) as error:
            v6.cudnnCreate()
    finally:
        v6.use(None)
    assert error.value.status is v6.CUDNN_STATUS_NOT_INITIALIZED
    v6.cudnnCreate()


def test_memory_that_begins_anywhere(handle: Any) -> None:
    """Kernels read 16 bytes at once where addresses allow it, and elements where one does not."""
    room = np.zeros(4 * 40, np.uint8)
    start = -room.ctypes.data % 16
    for offset, alignment in ((0, 16), (4, 4), (0, 16)):
        y = room[start + offset :][: 4 * 24].view(np.float32).reshape(1, 1, 4, 6)
        y[...] = 3
        for form in (on(y), y.ctypes.data, on(y)):
            v6.cudnnScaleTensor(handle, tensor(y.shape), form, 2.0)
            (bound,) = {t.byte_alignment for t in thread_state.last_prepared().plan.config.fused.graph.bound}
            assert bound == alignment
        assert (y == 24).all()
        with v6.record() as r:
            v6.cudnnScaleTensor(handle, tensor(y.shape), on(y), 0.5)
        assert (y == 12).all()
        r.replay()
        assert (y == 6).all()
