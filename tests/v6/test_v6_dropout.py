"""Dropout: masks of the core's generator, values by the formula, states. Documented statuses: test_v6_recurrent_statuses."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from recurrent_tools import dropout
from v6_tools import NUMPY, good_arguments, strided, tensor

from graphdnn import v6
from graphdnn.engines.host.random import generate
from graphdnn.enums import RngDistribution
from graphdnn.v6.functions import functions

BAD, INVALID = v6.CUDNN_STATUS_BAD_PARAM, v6.CUDNN_STATUS_INVALID_VALUE
KINDS = [v6.CUDNN_DATA_FLOAT, v6.CUDNN_DATA_DOUBLE, v6.CUDNN_DATA_HALF]
H = v6.cudnnCreate()


def run(call: Any, desc: Any, x_desc: Any, x: Any, y_desc: Any, y: Any, reserve: np.ndarray) -> None:
    call(H, desc, x_desc, x, y_desc, y, reserve, reserve.nbytes)


def mask_of(shape: tuple[int, ...], seed: int, counter: int, keep: float) -> np.ndarray:
    return generate(shape, RngDistribution.BERNOULLI, seed, counter, {"probability": keep}) != 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.name)
@pytest.mark.parametrize("probability", [0.0, 0.25, 0.9, 1.0])
def test_forward_and_backward(kind: Any, probability: float) -> None:
    rng = np.random.default_rng(3)
    shape, dtype = (3, 5, 2, 7), NUMPY[kind]
    desc, d = dropout(probability, seed=2**63 + 5), tensor(shape, kind=kind)
    x, dy = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
    x[0, 0, 0] = np.nan
    scale = 1 / (1 - probability) if probability < 1 else 0.0
    for step in range(2):  # the counter goes on where the first call stopped
        y, dx = np.full(shape, np.nan, dtype), np.full(shape, np.nan, dtype)
        reserve = np.full(v6.cudnnDropoutGetReserveSpaceSize(d), 0xAA, np.uint8)
        run(v6.cudnnDropoutForward, desc, d, x, d, y, reserve)
        run(v6.cudnnDropoutBackward, desc, d, dy, d, dx, reserve)
        keep = mask_of(shape, 2**63 + 5, step * -(-x.size // 4), 1 - probability)
        for found, given in ((y, x), (dx, dy)):
            wanted = np.where(keep, given.astype(np.float64) * scale, 0)
            np.testing.assert_allclose(found, wanted, rtol=2 * np.finfo(dtype).eps)


def test_the_share_of_zeros_is_the_probability() -> None:
    x, d = np.ones((1, 1, 100, 1000), np.float32), tensor((1, 1, 100, 1000))
    y, reserve = np.empty_like(x), np.empty(v6.cudnnDropoutGetReserveSpaceSize(d), np.uint8)
    run(v6.cudnnDropoutForward, dropout(0.2), d, x, d, y, reserve)
    assert abs(float((y == 0).mean()) - 0.2) < 0.005
    assert abs(float(y.mean()) - 1) < 0.01


def test_only_counts_of_elements_have_to_agree() -> None:
    """Elements correspond in row-major order, whatever shapes, ranks and strides are."""
    x = np.arange(1, 25, dtype=np.float32)
    y = np.zeros((3, 5, 2), np.float32)[:, 1:, :]
    desc, reserve = dropout(0.5, seed=9), np.empty(4, np.uint8)
    run(v6.cudnnDropoutForward, desc, tensor((2, 2, 3, 2)), x, strided(y), y, reserve)
    np.testing.assert_array_equal(y.reshape(-1), np.where(mask_of((24,), 9, 0, 0.5), 2 * x, 0))


def test_memory_of_a_size_that_ctypes_knows() -> None:
    """Just enough is enough."""
    x, d, desc = np.ones((2, 3, 4, 1), np.float32), tensor((2, 3, 4, 1)), dropout(0.5, seed=9)
    y, size = np.empty_like(x), v6.cudnnDropoutGetReserveSpaceSize(d)
    v6.cudnnDropoutForward(H, desc, d, x, d, y, (ctypes.c_ubyte * size)(), size)
    np.testing.assert_array_equal(y, np.where(mask_of(x.shape, 9, 0, 0.5), 2 * x, 0))
    with pytest.raises(v6.CudnnError, match=r"v6\.memory\.small"):
        v6.cudnnDropoutForward(H, desc, d, x, d, y, (ctypes.c_ubyte * (size - 1))(), size)


def test_in_place() -> None:
    x, d = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4, 1), tensor((2, 3, 4, 1))
    desc, reserve = dropout(0.5, seed=9), np.empty(4, np.uint8)
    wanted = np.where(mask_of(x.shape, 9, 0, 0.5), 2 * x, 0)
    run(v6.cudnnDropoutForward, desc, d, x, d, x, reserve)
    np.testing.assert_array_equal(x, wanted)
    run(v6.cudnnDropoutBackward, desc, d, x, d, x.ctypes.data, reserve)
    np.testing.assert_array_equal(x, 2 * wanted)
    gaps = v6.cudnnCreateTensorDescriptor()
    v6.cudnnSetTensor4dDescriptorEx(gaps, 0, 2, 3, 4, 1, 24, 8, 2, 1)
    for call in (v6.cudnnDropoutForward, v6.cudnnDropoutBackward):
        with pytest.raises(v6.CudnnError) as error:
            run(call, desc, d, x, gaps, x.ctypes.data, reserve)
        assert (error.value.status, error.value.rejections[0].rule) == (BAD, "v6.strides")


def test_sizes() -> None:
    assert v6.cudnnDropoutGetStatesSize(H) == 16
    assert v6.cudnnDropoutGetReserveSpaceSize(tensor((1, 1, 1, 10000))) == 1252
    assert v6.cudnnDropoutGetReserveSpaceSize(tensor((1, 1, 1, 1))) == 4


def test_states_are_set_restored_and_read() -> None:
    x, d = np.ones((1, 1, 8, 8), np.float32), tensor((1, 1, 8, 8))
    states, reserve = np.zeros(16, np.uint8), np.empty(8, np.uint8)
    desc = v6.cudnnCreateDropoutDescriptor()
    v6.cudnnSetDropoutDescriptor(desc, H, 0.5, states, 16, 77)
    assert states.view(np.int64).tolist() == [77, 0]
    first, second, third, fourth = (np.empty_like(x) for _ in range(4))
    run(v6.cudnnDropoutForward, desc, d, x, d, first, reserve)
    kept = states.copy()
    run(v6.cudnnDropoutForward, desc, d, x, d, second, reserve)
    assert states.view(np.int64).tolist() == [77, 32]
    assert (first != second).any()
    again = v6.cudnnCreateDropoutDescriptor()
    v6.cudnnRestoreDropoutDescriptor(again, H, 0.5, kept, 16, 5)  # as they were before the second call
    run(v6.cudnnDropoutForward, again, d, x, d, third, reserve)
    np.testing.assert_array_equal(third, second)
    probability, memory, seed = v6.cudnnGetDropoutDescriptor(again, H)
    assert (probability, seed) == (0.5, 5)
    assert np.shares_memory(memory, kept)
    v6.cudnnSetDropoutDescriptor(desc, H, 0.5, states.ctypes.data, 16, 77)  # the seed again: the first mask again
    run(v6.cudnnDropoutForward, desc, d, x, d, fourth, reserve)
    np.testing.assert_array_equal(fourth, first)


def test_without_states_only_the_probability_is_set() -> None:
    desc = dropout(0.5, states=False)
    assert v6.cudnnGetDropoutDescriptor(desc, H)[:2] == (0.5, None)
    seeded = dropout(0.5, seed=4)
    v6.cudnnSetDropoutDescriptor(seeded, H, 0.75, None, 0, 9)
    probability, states, seed = v6.cudnnGetDropoutDescriptor(seeded, H)
    assert (probability, states.view(np.int64).tolist(), seed) == (0.75, [4, 0], 4)


def test_the_call_is_a_graph() -> None:
    x, d = np.ones((1, 1, 8, 8), np.float32), tensor((1, 1, 8, 8))
    run(v6.cudnnDropoutForward, dropout(0.5), d, x, d, np.empty_like(x), np.empty(8, np.uint8))
    assert [op.tag for op in v6.last_graph().operations] == ["rng", "pointwise", "pointwise"]
    assert "mask" in v6.explain()


# Beside what test_v6_recurrent_statuses reads from the file of documented conditions.
CONDITIONS: list[tuple[str, dict[str, Any], Any, str]] = [
    ("SetDropoutDescriptor", {"dropout": -0.1}, BAD, "v6.range"),
    ("SetDropoutDescriptor", {"dropout": float("nan")}, BAD, "v6.range"),
    ("SetDropoutDescriptor", {"states": np.zeros(15, np.uint8)}, BAD, "v6.memory.small"),
    ("SetDropoutDescriptor", {"states": np.zeros(32, np.uint8)[::2]}, BAD, "v6.memory.layout"),
    ("RestoreDropoutDescriptor", {"dropout": 2.0}, INVALID, "v6.range"),
    ("DropoutForward", {"reserveSpace": np.zeros(3, np.uint8)}, BAD, "v6.memory.small"),
]


@pytest.mark.parametrize(
    ("name", "changes", "status", "rule"), CONDITIONS, ids=[f"{n}-{'-'.join(c)}-{r}" for n, c, _, r in CONDITIONS]
)
def test_condition(name: str, changes: dict[str, Any], status: Any, rule: str) -> None:
    row = functions()[f"cudnn{name}"]
    arguments = dict(zip([p.name for p in row.inputs], good_arguments(row), strict=True)) | changes
    written = {n: a.copy() for n, a in arguments.items() if isinstance(a, np.ndarray)}
    with pytest.raises(v6.CudnnError) as error:
        getattr(v6, row.name)(**arguments)
    assert (error.value.status, error.value.rejections[0].rule) == (status, rule)
    assert status.name.removeprefix("CUDNN_STATUS_") in row.statuses
    assert all(np.array_equal(arguments[n], a) for n, a in written.items())
