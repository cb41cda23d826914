"""What a program reads and writes between recorded calls: a LeNet's training, memory written over, replays refused."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from v6_tools import activation, convolution, filter_of, pooling, tensor
from v6_values import close, drawn

from graphdnn import v6

N, CLASSES, RATE = 4, 10, 0.05
# (weights, padding, images behind them) of LeNet's layers, on 16x16 pixels; maxima of 2x2 behind the first two
LAYERS = (
    ((6, 1, 5, 5), (2, 2), (N, 6, 16, 16)), ((16, 6, 5, 5), (0, 0), (N, 16, 4, 4)),
    ((24, 16, 2, 2), (0, 0), (N, 24, 1, 1)), ((CLASSES, 24, 1, 1), (0, 0), (N, CLASSES, 1, 1)),
)  # fmt: skip
Arrays = dict[str, np.ndarray]


def batch(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    one_hot = np.eye(CLASSES, dtype=np.float32)[rng.integers(CLASSES, size=N)]
    return rng.standard_normal((N, 1, 16, 16)).astype(np.float32), one_hot.reshape(N, CLASSES, 1, 1)


def network() -> Arrays:
    """Weights, and memory for everything that a step computes."""
    rng = np.random.default_rng(5)
    found = {"x0": np.zeros((N, 1, 16, 16), np.float32), "target": np.zeros((N, CLASSES, 1, 1), np.float32)}
    for i, (dims, _, out) in enumerate(LAYERS):
        found[f"w{i}"] = (rng.standard_normal(dims) * 0.1).astype(np.float32)
        found[f"b{i}"] = np.zeros((1, dims[0], 1, 1), np.float32)
        shape = (*out[:2], out[2] // 2, out[3] // 2) if i < 2 else out
        found |= {f"y{i}": np.zeros(out, np.float32), f"x{i + 1}": np.zeros(shape, np.float32)}
    return found | {f"d{name}": np.zeros_like(array) for name, array in found.items()}


def forward(h: Any, a: Arrays) -> float:
    """The loss, read from the probabilities in x4 as soon as they are called for."""
    relu, pool = activation(v6.CUDNN_ACTIVATION_RELU), pooling(v6.CUDNN_POOLING_MAX, (2, 2), (0, 0), (2, 2))
    for i, (dims, padding, out) in enumerate(LAYERS):
        x, w, b, y = (a[f"{name}{i}"] for name in "xwby")
        into = a[f"x{i + 1}"]
        desc = tensor(out)
        v6.cudnnConvolutionForward(h, 1.0, tensor(x.shape), x, filter_of(dims), w, convolution(padding), 0, None, 0, 0.0,
                                   desc, y)  # fmt: skip
        v6.cudnnAddTensor(h, 1.0, tensor(b.shape), b, 1.0, desc, y)
        if i < 2:
            v6.cudnnPoolingForward(h, pool, 1.0, desc, y, 0.0, tensor(into.shape), into)
        elif i == 2:
            v6.cudnnActivationForward(h, relu, 1.0, desc, y, 0.0, desc, into)
        else:
            v6.cudnnSoftmaxForward(
                h, v6.CUDNN_SOFTMAX_ACCURATE, v6.CUDNN_SOFTMAX_MODE_CHANNEL, 1.0, desc, y, 0.0, desc, into
            )
    return float(-np.log((a["x4"] * a["target"]).sum(axis=1)).mean())


def backward(h: Any, a: Arrays) -> None:
    """Gradients, and a step of descent in place."""
    relu, pool = activation(v6.CUDNN_ACTIVATION_RELU), pooling(v6.CUDNN_POOLING_MAX, (2, 2), (0, 0), (2, 2))
    last = tensor(LAYERS[-1][2])
    v6.cudnnTransformTensor(h, 1 / N, last, a["x4"], 0.0, last, a["dy3"])
    v6.cudnnAddTensor(h, -1 / N, last, a["target"], 1.0, last, a["dy3"])
    for i, (dims, padding, out) in reversed([*enumerate(LAYERS)]):
        x, dx, dw, db = a[f"x{i}"], a[f"dx{i}"], a[f"dw{i}"], a[f"db{i}"]
        y, dy, z, dz = a[f"y{i}"], a[f"dy{i}"], a[f"x{i + 1}"], a[f"dx{i + 1}"]
        desc, small = tensor(out), tensor(z.shape)
        if i < 2:
            v6.cudnnPoolingBackward(h, pool, 1.0, small, z, small, dz, desc, y, 0.0, desc, dy)
        elif i == 2:
            v6.cudnnActivationBackward(h, relu, 1.0, desc, z, desc, dz, desc, y, 0.0, desc, dy)
        v6.cudnnConvolutionBackwardBias(h, 1.0, desc, dy, 0.0, tensor(db.shape), db)
        v6.cudnnConvolutionBackwardFilter(h, 1.0, tensor(x.shape), x, desc, dy, convolution(padding), 0, None, 0, 0.0,
                                          filter_of(dims), dw)  # fmt: skip
        if i:
            v6.cudnnConvolutionBackwardData(h, 1.0, filter_of(dims), a[f"w{i}"], desc, dy, convolution(padding), 0, None, 0,
                                            0.0, tensor(x.shape), dx)  # fmt: skip
        for name in "wb":
            w = a[f"{name}{i}"]
            v6.cudnnAddTensor(h, -RATE, tensor(w.shape), a[f"d{name}{i}"], 1.0, tensor(w.shape), w)


def put(a: Arrays, seed: int) -> None:
    a["x0"][...], a["target"][...] = batch(seed)


@pytest.mark.parametrize("is_descent_outside", [False, True])
def test_training_in_recordings_is_training(handle: Any, is_descent_outside: bool) -> None:
    """Every step reads its loss inside its block, and changes weights there: by a call, or by NumPy."""
    found = []
    for context in (nullcontext, v6.record):
        a, losses = network(), []
        for step in range(3):
            with context():
                put(a, step)
                losses.append(forward(handle, a))
                backward(handle, a)
                if is_descent_outside:
                    a["w0"] -= 0.01 * a["dw0"]
        found.append((losses, a))
    (wanted, plain), (losses, recorded) = found
    assert losses == wanted
    assert len({*losses}) == 3
    for name, array in plain.items():
        np.testing.assert_array_equal(recorded[name], array)


def test_a_training_step_is_replayed(handle: Any) -> None:
    """On other images, from the weights that the step before left; in fewer kernels than there are calls."""
    plain, recorded = network(), network()
    put(recorded, 0)
    with v6.record() as r:
        forward(handle, recorded)
        backward(handle, recorded)
    for step in range(4):
        put(plain, step)
        forward(handle, plain)
        backward(handle, plain)
        if step:
            put(recorded, step)
            r.replay()
        for name in ("x4", "w0", "w3", "b1", "dw2"):
            close(recorded[name], plain[name], 1e-4)
    assert sum(len(fused) for fused in r.fused) < len(r.calls)


def test_inputs_may_be_written_over_inside(handle: Any) -> None:
    """By NumPy, or by a further call: each call reads what is there when it is made."""
    results = []
    for context in (nullcontext(), v6.record()):
        x, y, z, u = (
            np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4),
            *(np.zeros((1, 2, 3, 4), np.float32) for _ in range(3)),
        )
        desc = tensor(x.shape)
        with context:
            v6.cudnnTransformTensor(handle, 2.0, desc, x, 0.0, desc, y)
            x[...] = 100
            v6.cudnnTransformTensor(handle, 3.0, desc, x, 0.0, desc, z)
            v6.cudnnScaleTensor(handle, desc, x, 0.5)
            v6.cudnnAddTensor(handle, 1.0, desc, x, 1.0, desc, u)
            y += 1
            v6.cudnnAddTensor(handle, 1.0, desc, y, 1.0, desc, u)
            total = float(u.sum())
        results.append((x, y, z, u, total))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)


A, B, C = "abc"
SHAPE = (1, 2, 3, 4)


def _between(change: str, m: Arrays) -> None:
    """What stands between two calls: b = 2a, c = b + c."""
    if change == "a result":
        m[B][0, 0, 0, 0] += 1
    elif change == "a sign of zero":
        m[B][0, 0, 0, 0] = -0.0 if not np.signbit(m[B][0, 0, 0, 0]) else 0.0
    elif change == "an input that was read":
        m[A][...] = 5
    elif change == "an input that will be blended with":
        m[C][...] = 5
    elif change == "nothing":
        m[B][...] = m[B].copy()
        m["other"] = m[B] * 2


@pytest.mark.parametrize(
    ("change", "argument"),
    [
        ("a result", "y of cudnnTransformTensor"), ("a sign of zero", "y of cudnnTransformTensor"),
        ("an input that was read", "x of cudnnTransformTensor"), ("an input that will be blended with", None),
        ("nothing", None),
    ],
)  # fmt: skip
def test_a_replay_refuses_what_it_would_leave_out(handle: Any, change: str, argument: str | None) -> None:
    """Results that something else wrote, or inputs that it wrote once they had been read; reading is free."""
    m = {name: drawn(SHAPE) for name in (A, B, C)}
    m[A][0, 0, 0, 0] = 0
    desc = tensor(SHAPE)
    with v6.record() as r:
        v6.cudnnTransformTensor(handle, 2.0, desc, m[A], 0.0, desc, m[B])
        _between(change, m)
        v6.cudnnAddTensor(handle, 1.0, desc, m[B], 1.0, desc, m[C])
    if argument is None:
        wanted = 2 * m[A] + m[C]
        r.replay()
        close(m[C], wanted)
        return
    for refused in (r.replay, r.migration):
        with pytest.raises(v6.CudnnError) as error:
            refused()
        (rejection,) = error.value.rejections
        assert rejection.rule == "v6.record.changed"
        assert rejection.attribute == argument
    assert "v6.record.changed" in r.explain()


def test_what_is_written_behind_the_last_call_counts(handle: Any) -> None:
    """Up to the end of the block: a step of descent by NumPy would be left out."""
    w, d = drawn(SHAPE), drawn(SHAPE)
    with v6.record() as r:
        v6.cudnnScaleTensor(handle, tensor(SHAPE), d, 2.0)
        v6.cudnnAddTensor(handle, 1.0, tensor(SHAPE), w, 1.0, tensor(SHAPE), d)
        w -= d
    with pytest.raises(v6.CudnnError, match=r"v6\.record\.changed"):
        r.replay()
    with v6.record() as r:
        v6.cudnnAddTensor(handle, 1.0, tensor(SHAPE), w, 1.0, tensor(SHAPE), d)
    w -= d
    wanted = d + w
    r.replay()
    close(d, wanted)


def test_parts_of_memory_are_looked_at(handle: Any) -> None:
    """Something else wrote half of what a call left; then a call writes the other half, or all of it."""
    half = (1, 1, 3, 4)
    for desc, is_refused in ((tensor(half), True), (tensor(SHAPE), False)):
        x, y = drawn(SHAPE), drawn(SHAPE)
        with v6.record() as r:
            v6.cudnnScaleTensor(handle, tensor(SHAPE), y, 2.0)
            y[0, 1] = 7
            v6.cudnnTransformTensor(handle, 1.0, desc, x, 0.0, desc, y)
        if is_refused:
            with pytest.raises(v6.CudnnError, match=r"v6\.record\.changed"):
                r.replay()
        else:
            r.replay()
            np.testing.assert_array_equal(y, x)


def test_a_workspace_may_be_memory_of_earlier_results(handle: Any) -> None:
    """As in programs that plan their memory: what a workspace overwrites, nothing reads."""
    x, w, y = drawn((2, 3, 8, 8)), drawn((6, 3, 3, 3)), drawn((2, 6, 6, 6))
    early, desc = drawn((1, 1, 64, 1024)), tensor((1, 1, 64, 1024))
    with v6.record() as r:
        v6.cudnnScaleTensor(handle, desc, early, 2.0)
        v6.cudnnConvolutionForward(handle, 1.0, tensor(x.shape), x, filter_of(w.shape), w, convolution(), 1, early,
                                   early.nbytes, 0.0, tensor(y.shape), y)  # fmt: skip
    wanted = y.copy()
    r.replay()
    close(y, wanted)


def test_a_replay_waits_for_the_end(handle: Any) -> None:
    x = drawn(SHAPE)
    with v6.record() as r:
        v6.cudnnScaleTensor(handle, tensor(SHAPE), x, 2.0)
        with pytest.raises(v6.CudnnError) as error:
            r.replay()
        assert len(r.graphs) == 1
        v6.cudnnScaleTensor(handle, tensor(SHAPE), x, 2.0)
    assert error.value.rejections[0].rule == "v6.record.open"
    (graph,) = r.graphs
    assert len(graph.operations) == 2
    before = x.copy()
    r.replay()
    np.testing.assert_array_equal(x, 4 * before)
