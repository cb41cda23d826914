"""Recording: calls compute what they compute outside; what becomes one kernel, memory as edges, replays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from v6_tools import activation, convolution, filter_of, pooling, tensor
from v6_values import close, drawn

from graphdnn import v6

X, W, Y, B, P = (2, 3, 8, 8), (6, 3, 3, 3), (2, 6, 6, 6), (1, 6, 1, 1), (2, 6, 3, 3)
E = (1, 6, 6, 6)  # of statistics for each activation
RELU = activation(v6.CUDNN_ACTIVATION_RELU)
INT8, INT32 = v6.CUDNN_DATA_INT8, v6.CUDNN_DATA_INT32
Arrays = dict[str, np.ndarray]


def layer(handle: Any, a: Arrays, alpha: float = 1.0, beta: float = 0.0) -> None:
    """Convolution, bias in place, activation in place."""
    y = tensor(Y)
    v6.cudnnConvolutionForward(handle, alpha, tensor(X), a["x"], filter_of(W), a["w"], convolution(), 0, None, 0, beta,
                               y, a["y"])  # fmt: skip
    v6.cudnnAddTensor(handle, 1.0, tensor(B), a["b"], 1.0, y, a["y"])
    v6.cudnnActivationForward(handle, RELU, 1.0, y, a["y"], 0.0, y, a["y"])


def pooled(handle: Any, a: Arrays) -> None:
    layer(handle, a)
    pool = pooling(v6.CUDNN_POOLING_MAX, (2, 2), (0, 0), (2, 2))
    v6.cudnnPoolingForward(handle, pool, 1.0, tensor(Y), a["y"], 0.0, tensor(P), a["p"])


def trained(handle: Any, a: Arrays) -> None:
    """A layer, its gradients, and a step that writes over the filter that they were computed with."""
    layer(handle, a)
    y = tensor(Y)
    v6.cudnnActivationBackward(handle, RELU, 1.0, y, a["y"], y, a["dy"], y, a["y"], 0.0, y, a["dy"])
    v6.cudnnConvolutionBackwardBias(handle, 1.0, y, a["dy"], 0.0, tensor(B), a["db"])
    v6.cudnnConvolutionBackwardData(handle, 1.0, filter_of(W), a["w"], y, a["dy"], convolution(), 0, None, 0, 0.0,
                                    tensor(X), a["dx"])  # fmt: skip
    v6.cudnnConvolutionBackwardFilter(handle, 1.0, tensor(X), a["x"], y, a["dy"], convolution(), 0, None, 0, 0.5,
                                      filter_of(W), a["dw"])  # fmt: skip
    v6.cudnnAddTensor(handle, -0.1, tensor(W), a["dw"], 1.0, tensor(W), a["w"])


def normalised(handle: Any, a: Arrays) -> None:
    layer(handle, a)
    v6.cudnnSoftmaxForward(handle, v6.CUDNN_SOFTMAX_ACCURATE, v6.CUDNN_SOFTMAX_MODE_CHANNEL, 1.0, tensor(Y), a["y"],
                           0.0, tensor(Y), a["z"])  # fmt: skip
    norm = v6.cudnnCreateLRNDescriptor()
    v6.cudnnLRNCrossChannelForward(handle, norm, v6.CUDNN_LRN_CROSS_CHANNEL_DIM1, 2.0, tensor(Y), a["z"], 0.5,
                                   tensor(Y), a["dy"])  # fmt: skip


def averaged(handle: Any, a: Arrays) -> None:
    layer(handle, a, 0.5, 2.0)
    pool = pooling(v6.CUDNN_POOLING_AVERAGE, (2, 2), (0, 0), (2, 2))
    v6.cudnnPoolingForward(handle, pool, 3.0, tensor(Y), a["y"], -1.0, tensor(P), a["p"])
    v6.cudnnScaleTensor(handle, tensor(P), a["p"], 0.25)


def batch_normalised(handle: Any, a: Arrays) -> None:
    """In training, behind a layer, with running averages and saved statistics; the gradient from them, and without them."""
    layer(handle, a)
    y, b = tensor(Y), tensor(B)
    v6.cudnnBatchNormalizationForwardTraining(handle, v6.CUDNN_BATCHNORM_SPATIAL, 1.0, 0.0, y, a["y"], y, a["z"], b, a["b"],
                                              a["db"], 0.1, a["rm"], a["rv"], 1e-3, a["sm"], a["sv"])  # fmt: skip
    for mean, inverse in ((a["sm"], a["sv"]), (None, None)):
        v6.cudnnBatchNormalizationBackward(handle, v6.CUDNN_BATCHNORM_SPATIAL, 1.0, 0.0, 1.0, 0.5, y, a["y"], y, a["z"], y,
                                           a["dy"], b, a["b"], a["ds"], a["db"], 1e-3, mean, inverse)  # fmt: skip


def normalised_each(handle: Any, a: Arrays) -> None:
    """Each activation by itself: training without what may be saved, and its gradient."""
    each, y = tensor(E), tensor(Y)
    v6.cudnnBatchNormalizationForwardTraining(handle, v6.CUDNN_BATCHNORM_PER_ACTIVATION, 1.0, 0.0, y, a["y"], y, a["z"], each,
                                              a["es"], a["eb"], 1.0, None, None, 1e-3, None, None)  # fmt: skip
    v6.cudnnBatchNormalizationBackward(handle, v6.CUDNN_BATCHNORM_PER_ACTIVATION, 1.0, 0.0, 1.0, 0.0, y, a["y"], y, a["z"], y,
                                       a["dy"], each, a["es"], a["ed"], a["eb"], 1e-3, None, None)  # fmt: skip


PROGRAMS: list[Callable[..., None]] = [
    layer, pooled, trained, normalised, averaged, batch_normalised, normalised_each,
]  # fmt: skip


def data() -> Arrays:
    shapes = {"x": X, "w": W, "y": Y, "b": B, "p": P, "dy": Y, "db": B, "dx": X, "dw": W, "z": Y}
    shapes |= {"rm": B, "rv": B, "sm": B, "sv": B, "ds": B, "es": E, "eb": E, "ed": E}
    return {name: drawn(shape) for name, shape in shapes.items()}


def copied(arrays: Arrays) -> Arrays:
    return {name: array.copy() for name, array in arrays.items()}


def put(arrays: Arrays, contents: Arrays) -> None:
    for name, array in arrays.items():
        array[...] = contents[name]


@pytest.mark.parametrize("program", PROGRAMS)
def test_results_equal_the_calls(handle: Any, program: Callable[..., None]) -> None:
    """To the bit inside the block; as close as other kernels are in a replay, on whatever the memory holds then."""
    one_by_one = data()
    before = copied(one_by_one)
    recorded = copied(one_by_one)
    program(handle, one_by_one)
    with v6.record() as r:
        program(handle, recorded)
        for name, array in recorded.items():
            np.testing.assert_array_equal(array, one_by_one[name])
    assert r.graphs
    for other in (before, data()):
        put(recorded, other)
        r.replay()
        program(handle, other)
        for name, array in recorded.items():
            close(array, other[name], 1e-4)


def test_dropout_draws_the_same_numbers(handle: Any) -> None:
    """Twice behind a layer: the states move on from call to call."""
    found = []
    arrays = data()
    for context in (nullcontext(), v6.record()):
        a = copied(arrays)
        desc, states = v6.cudnnCreateDropoutDescriptor(), np.zeros(v6.cudnnDropoutGetStatesSize(handle), np.uint8)
        reserve = np.zeros(v6.cudnnDropoutGetReserveSpaceSize(tensor(Y)), np.uint8)
        v6.cudnnSetDropoutDescriptor(desc, handle, 0.25, states, states.nbytes, 7)
        with context as r:
            layer(handle, a)
            for name in ("z", "dy"):
                v6.cudnnDropoutForward(handle, desc, tensor(Y), a["y"], tensor(Y), a[name], reserve, reserve.nbytes)
        found.append([a["z"], a["dy"], states, reserve])
    put(a, arrays)
    states.view(np.int64)[1] = 0
    r.replay()
    found.append([a["z"], a["dy"], states, reserve])
    assert "rng" in r.migration()
    assert not np.array_equal(found[0][0], found[0][1])
    for one, *others in zip(*found, strict=True):
        for other in others:
            close(one, other, 1e-4)


def test_a_layer_is_one_kernel(handle: Any) -> None:
    arrays = data()
    with v6.record() as r:
        layer(handle, arrays)
    (fused,) = r.fused
    assert len(fused) == 1
    assert r.calls == ["cudnnConvolutionForward", "cudnnAddTensor", "cudnnActivationForward"]
    assert len(r.graphs[0].bound) == 4
    assert "conv_fprop" in r.explain()


def test_independent_calls_become_graphs_of_their_own(handle: Any) -> None:
    first, second = drawn(Y), drawn(Y)
    wanted = first * 4, second * 9
    with v6.record() as r:
        v6.cudnnScaleTensor(handle, tensor(Y), first, 2.0)
        v6.cudnnScaleTensor(handle, tensor(Y), second, 3.0)
    assert len(r.graphs) == 2
    r.replay()
    close(first, wanted[0])
    close(second, wanted[1])


def test_memory_under_other_extents_is_a_reshape(handle: Any) -> None:
    x, y = drawn((1, 2, 3, 4)), np.ones((1, 2, 3, 4), np.float32)
    wanted = [(2 * x + 1, 6 * x), (14 * x + 1, 36 * x)]  # of the calls, and of calls behind them
    with v6.record() as r:
        v6.cudnnScaleTensor(handle, tensor(x.shape), x, 2.0)
        v6.cudnnAddTensor(handle, 1.0, tensor((1, 6, 2, 2)), x, 1.0, tensor((1, 6, 2, 2)), y)
        v6.cudnnScaleTensor(handle, tensor((1, 1, 6, 4)), x, 3.0)
    (graph,) = r.graphs
    assert [op.tag for op in graph.operations].count("reshape") == 2
    close(y, wanted[0][0])
    close(x, wanted[0][1])
    r.replay()
    close(y, wanted[1][0])
    close(x, wanted[1][1])


def test_a_part_of_written_memory_begins_another_graph(handle: Any) -> None:
    x = drawn((1, 2, 3, 4))
    wanted = 4 * x
    wanted[0, 0] = 0
    with v6.record() as r:
        v6.cudnnScaleTensor(handle, tensor(x.shape), x, 2.0)
        v6.cudnnScaleTensor(handle, tensor((1, 1, 3, 4)), x, 0.0)
    assert len(r.graphs) == 2
    r.replay()
    close(x, wanted)


def test_inputs_that_are_written_over_keep_their_meaning(handle: Any) -> None:
    """Two independent chains exchange contents: both read what was there before."""
    a, b = drawn(Y), drawn(Y)
    wanted = b.copy(), a.copy()
    t = np.zeros_like(a)
    with v6.record() as r:
        v6.cudnnTransformTensor(handle, 1.0, tensor(Y), a, 0.0, tensor(Y), t)
        v6.cudnnTransformTensor(handle, 1.0, tensor(Y), b, 0.0, tensor(Y), a)
        v6.cudnnTransformTensor(handle, 1.0, tensor(Y), t, 0.0, tensor(Y), b)
    for first, second in (wanted, wanted[::-1]):
        np.testing.assert_array_equal(a, first)
        np.testing.assert_array_equal(b, second)
        r.replay()


def test_extension_operations_join(handle: Any) -> None:
    arrays, columns = data(), np.zeros((27, 72), np.float32)
    wanted = np.lib.stride_tricks.sliding_window_view(2 * arrays["x"], (3, 3), (2, 3)).transpose(1, 4, 5, 0, 2, 3)
    with v6.record() as r:
        v6.cudnnScaleTensor(handle, tensor(X), arrays["x"], 2.0)
        v6.cudnnIm2Col(handle, tensor(X), arrays["x"], filter_of(W), convolution(), columns)
    (graph,) = r.graphs
    assert [op.tag for op in graph.operations] == ["pointwise", "patches"]
    np.testing.assert_array_equal(columns, wanted.reshape(27, 72))
    r.replay()
    np.testing.assert_array_equal(columns, 2 * wanted.reshape(27, 72))


def test_searches_are_not_recorded(handle: Any) -> None:
    x, w, y = (data()[name] for name in "xwy")
    xd, wd, conv, yd = tensor(X), filter_of(W), convolution(), tensor(Y)
    with v6.record() as r:
        v6.cudnnScaleTensor(handle, xd, x, 2.0)
        _, found = v6.cudnnFindConvolutionForwardAlgorithm(handle, xd, wd, conv, yd, 9)
        assert found[0].time > 0
        v6.cudnnFindConvolutionForwardAlgorithmEx(handle, xd, x, wd, w, conv, yd, y, 1, None, 0)
    assert r.calls == ["cudnnScaleTensor"]
    r.replay()


def test_calls_refuse_in_a_recording_what_they_refuse(handle: Any) -> None:
    """Memory that a call does not take is refused where the call is written, not where the recording runs."""
    x, y = drawn((1, 2, 3, 4)), drawn((1, 2, 3, 4))
    y.flags.writeable = False
    desc = tensor(x.shape)
    with v6.record() as r:
        for target, rule in ((x, "binding.overlap"), (y, "binding.read_only")):
            with pytest.raises(v6.CudnnError) as error:
                v6.cudnnTransformTensor(handle, 1.0, desc, x, 0.0, desc, target)
            assert error.value.rejections[0].rule == rule
    assert not r.graphs
    assert not r.calls


def test_states_of_dropout_are_set_in_order(handle: Any) -> None:
    """A replay writes seeds between the calls that read them."""
    x = drawn(Y)
    desc, states = v6.cudnnCreateDropoutDescriptor(), np.zeros(16, np.uint8)
    reserve = np.zeros(v6.cudnnDropoutGetReserveSpaceSize(tensor(Y)), np.uint8)
    results = [np.zeros_like(x) for _ in range(2)]
    with v6.record() as r:
        for seed, y in enumerate(results):
            v6.cudnnSetDropoutDescriptor(desc, handle, 0.5, states, 16, seed)
            v6.cudnnDropoutForward(handle, desc, tensor(Y), x, tensor(Y), y, reserve, reserve.nbytes)
    wanted = [array.copy() for array in (*results, states)]
    assert not np.array_equal(*results)
    for array in (*results, states):
        array[...] = 0
    r.replay()
    for one, other in zip((*results, states), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_strided_contents_that_are_written_over(handle: Any) -> None:
    """What a call blends with is copied as it lies."""
    x, y = drawn((2, 3, 4, 5)), drawn((2, 4, 5, 3)).transpose(0, 3, 1, 2)
    wanted = 2 * x - 0.5 * (2 * x - 0.5 * y)
    nhwc = tensor(x.shape, v6.CUDNN_TENSOR_NHWC)
    with v6.record() as r:
        v6.cudnnTransformTensor(handle, 2.0, tensor(x.shape), x, -0.5, nhwc, y)
    r.replay()
    close(y, wanted)


def test_an_error_leaves_what_ran(handle: Any) -> None:
    x = drawn(Y)
    before = x.copy()
    recordings = []

    def broken() -> None:
        with v6.record() as r:
            recordings.append(r)
            v6.cudnnScaleTensor(handle, tensor(Y), x, 2.0)
            v6.cudnnAddTensor(handle, 1.0, tensor(X), x, 1.0, tensor(Y), x)

    with pytest.raises(v6.CudnnError):
        broken()
    np.testing.assert_array_equal(x, 2 * before)
    (r,) = recordings
    assert r.calls == ["cudnnScaleTensor"]
    r.replay()
    np.testing.assert_array_equal(x, 4 * before)
    v6.cudnnScaleTensor(handle, tensor(Y), x, 2.0)
    np.testing.assert_array_equal(x, 8 * before)
    assert len(r.calls) == 1


def test_recordings_do_not_nest() -> None:
    with v6.record(), pytest.raises(v6.CudnnError) as error, v6.record():
        pass
    assert error.value.rejections[0].rule == "v6.record.nested"


FOLDS = [(1, 2, 3, 4), (1, 4, 3, 2), (2, 3, 2, 2), (1, 1, 6, 4)]
HALF = (1, 1, 3, 4)


def _views(memory: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, Any]:
    """All of a buffer under some extents, or one half of it, and its descriptor."""
    part = rng.integers(6)
    if part < 2:
        view = memory[12 * part : 12 * part + 12].reshape(HALF)
    else:
        view = memory.reshape(FOLDS[rng.integers(len(FOLDS))])
    return view, tensor(view.shape)


def random_program(handle: Any, buffers: list[np.ndarray], seed: int) -> None:
    rng = np.random.default_rng(seed)
    maximum = v6.cudnnCreateOpTensorDescriptor()
    v6.cudnnSetOpTensorDescriptor(maximum, v6.CUDNN_OP_TENSOR_MAX, v6.CUDNN_DATA_FLOAT, v6.CUDNN_PROPAGATE_NAN)
    for _ in range(12):
        y, y_desc = _views(buffers[rng.integers(4)], rng)
        others = [b.reshape(-1)[: y.size].reshape(y.shape) for b in buffers if not np.may_share_memory(b, y)]
        a, b = (others[i] for i in rng.integers(3, size=2))
        alpha, beta = float(rng.choice([1.0, 0.5, -2.0])), float(rng.choice([0.0, 1.0, 0.25]))
        kind = rng.integers(5)
        if kind == 0:
            v6.cudnnScaleTensor(handle, y_desc, y, alpha)
        elif kind == 1:
            v6.cudnnAddTensor(handle, alpha, y_desc, a, beta, y_desc, y)
        elif kind == 2:
            v6.cudnnTransformTensor(handle, alpha, y_desc, a, beta, y_desc, y)
        elif kind == 3:
            v6.cudnnOpTensor(handle, maximum, alpha, y_desc, a, 0.5, y_desc, b, beta, y_desc, y)
        else:
            v6.cudnnActivationForward(handle, RELU, 1.0, y_desc, y, 0.0, y_desc, y)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs(handle: Any, seed: int) -> None:
    """Whatever shares memory with what, in part or under other extents: a replay ends as the calls one by one."""
    rng = np.random.default_rng(seed + 1000)
    one_by_one = [rng.standard_normal(24).astype(np.float32) for _ in range(4)]
    recorded = [b.copy() for b in one_by_one]
    with v6.record() as r:
        random_program(handle, recorded, seed)
    for _ in range(2):
        for found, before in zip(recorded, one_by_one, strict=True):
            found[...] = before
        random_program(handle, one_by_one, seed)
        r.replay()
        for found, wanted in zip(recorded, one_by_one, strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
        for wanted in one_by_one:
            wanted /= np.abs(wanted).max() + 1
