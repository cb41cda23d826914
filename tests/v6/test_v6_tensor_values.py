"""Values of the legacy calls on tensors: against PyTorch on the CPU, anchors worked out by hand, loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from v6_tools import NUMPY, strided, tensor
from v6_values import BLENDS, before, blended, close, drawn

from graphdnn import v6


@pytest.mark.parametrize(("alpha", "beta"), BLENDS)
def test_transform(handle: Any, alpha: float, beta: float) -> None:
    x = drawn((2, 3, 4, 5))
    y = before((2, 4, 5, 3), beta).transpose(0, 3, 1, 2)
    wanted = blended(x, alpha, beta, y)
    v6.cudnnTransformTensor(handle, alpha, tensor(x.shape), x, beta, strided(y), y)
    close(y, wanted)


def test_transform_to_vectors_and_back(handle: Any) -> None:
    x = drawn((2, 8, 3, 5), v6.CUDNN_DATA_INT8)
    plain = tensor(x.shape, kind=v6.CUDNN_DATA_INT8)
    vectors = tensor(x.shape, v6.CUDNN_TENSOR_NCHW_VECT_C, v6.CUDNN_DATA_INT8x4)
    packed, back = np.empty(240, np.int8), np.empty_like(x)
    v6.cudnnTransformTensor(handle, 1.0, plain, x, 0.0, vectors, packed)
    np.testing.assert_array_equal(packed.reshape(2, 2, 3, 5, 4), x.reshape(2, 2, 4, 3, 5).transpose(0, 1, 3, 4, 2))
    v6.cudnnTransformTensor(handle, 1.0, vectors, packed, 0.0, plain, back)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize("dims", [(2, 3, 4, 5), (1, 3, 1, 1), (2, 1, 4, 1), (1, 1, 1, 1)])
@pytest.mark.parametrize(("alpha", "beta"), BLENDS)
def test_add(handle: Any, dims: Any, alpha: float, beta: float) -> None:
    a, c = drawn(dims), before((2, 3, 4, 5), beta)
    wanted = blended(np.broadcast_to(a, c.shape), alpha, beta, c)
    v6.cudnnAddTensor(handle, alpha, tensor(dims), a, beta, tensor(c.shape), c)
    close(c, wanted)


def test_gaps_stay_as_they_are(handle: Any) -> None:
    memory = np.full((2, 3, 4, 8), 7, np.float32)
    c = memory[..., :5]
    v6.cudnnSetTensor(handle, strided(c), c, 3.0)
    v6.cudnnAddTensor(handle, 1.0, tensor((1, 1, 1, 1)), np.float32([[[[2]]]]), 1.0, strided(c), c)
    assert (c == 5).all()
    assert (memory[..., 5:] == 7).all()


OPERATIONS = {
    v6.CUDNN_OP_TENSOR_ADD: np.add,
    v6.CUDNN_OP_TENSOR_MUL: np.multiply,
    v6.CUDNN_OP_TENSOR_MIN: np.fmin,
    v6.CUDNN_OP_TENSOR_MAX: np.fmax,
    v6.CUDNN_OP_TENSOR_SQRT: lambda a, _: np.sqrt(a),
    v6.CUDNN_OP_TENSOR_NOT: lambda a, _: 1 - a,
}


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("kind", [v6.CUDNN_DATA_FLOAT, v6.CUDNN_DATA_DOUBLE])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_op_tensor(handle: Any, op: Any, kind: Any, beta: float) -> None:
    desc = v6.cudnnCreateOpTensorDescriptor()
    v6.cudnnSetOpTensorDescriptor(desc, op, kind, v6.CUDNN_NOT_PROPAGATE_NAN)
    a, b, c = np.abs(drawn((2, 3, 4, 5), kind)), drawn((1, 3, 1, 1), kind), before((2, 3, 4, 5), beta, kind)
    if op in (v6.CUDNN_OP_TENSOR_MIN, v6.CUDNN_OP_TENSOR_MAX):
        a[0, 0], b[0, 1] = np.nan, np.nan
    wanted = blended(OPERATIONS[op](2.0 * a, -0.5 * np.broadcast_to(b, a.shape)), 1.0, beta, c)
    v6.cudnnOpTensor(handle, desc, 2.0, tensor(a.shape, kind=kind), a, -0.5, tensor(b.shape, kind=kind), b, beta,
                     tensor(c.shape, kind=kind), c)  # fmt: skip
    close(c, wanted)


def test_minimum_hands_nan_on_if_asked(handle: Any) -> None:
    desc = v6.cudnnCreateOpTensorDescriptor()
    v6.cudnnSetOpTensorDescriptor(desc, v6.CUDNN_OP_TENSOR_MIN, v6.CUDNN_DATA_FLOAT, v6.CUDNN_PROPAGATE_NAN)
    a, b, d = np.float32([[[[np.nan, 1]]]]), np.float32([[[[1, np.nan]]]]), tensor((1, 1, 1, 2))
    v6.cudnnOpTensor(handle, desc, 1.0, d, a, 1.0, d, b, 0.0, d, a)
    assert np.isnan(a).all()


@pytest.mark.parametrize("kind", NUMPY)
def test_set_and_scale(handle: Any, kind: Any) -> None:
    y = before((2, 3, 1, 5), 0.0, kind)
    v6.cudnnSetTensor(handle, tensor(y.shape, kind=kind), y, 3)
    assert (y == 3).all()
    v6.cudnnScaleTensor(handle, tensor(y.shape, kind=kind), y, -2)
    assert (y == -6).all()


REDUCTIONS = {
    v6.CUDNN_REDUCE_TENSOR_ADD: np.sum,
    v6.CUDNN_REDUCE_TENSOR_MUL: np.prod,
    v6.CUDNN_REDUCE_TENSOR_MIN: np.nanmin,
    v6.CUDNN_REDUCE_TENSOR_MAX: np.nanmax,
    v6.CUDNN_REDUCE_TENSOR_AMAX: lambda a, **kw: np.nanmax(np.abs(a), **kw),
    v6.CUDNN_REDUCE_TENSOR_AVG: np.mean,
    v6.CUDNN_REDUCE_TENSOR_NORM1: lambda a, **kw: np.abs(a).sum(**kw),
    v6.CUDNN_REDUCE_TENSOR_NORM2: lambda a, **kw: np.sqrt((a * a).sum(**kw)),
    v6.CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS: lambda a, **kw: np.where(a == 0, 1, a).prod(**kw),
}


@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.parametrize(("alpha", "beta"), BLENDS)
def test_reduce(handle: Any, op: Any, alpha: float, beta: float) -> None:
    desc = v6.cudnnCreateReduceTensorDescriptor()
    v6.cudnnSetReduceTensorDescriptor(desc, op, v6.CUDNN_DATA_FLOAT, v6.CUDNN_NOT_PROPAGATE_NAN, 0, 0)
    a, c = drawn((2, 3, 4, 5)), before((2, 1, 4, 1), beta)
    a[0, 1, 2, 3] = 0
    if op in (v6.CUDNN_REDUCE_TENSOR_MIN, v6.CUDNN_REDUCE_TENSOR_MAX, v6.CUDNN_REDUCE_TENSOR_AMAX):
        a[1, 1, 1] = np.nan
    wanted = blended(REDUCTIONS[op](a.astype(np.float64), axis=(1, 3), keepdims=True), alpha, beta, c)
    a_desc, c_desc = tensor(a.shape), tensor(c.shape)
    assert v6.cudnnGetReductionWorkspaceSize(handle, desc, a_desc, c_desc) == 0
    assert v6.cudnnGetReductionIndicesSize(handle, desc, a_desc, c_desc) == 0
    v6.cudnnReduceTensor(handle, desc, None, 0, None, 0, alpha, a_desc, a, beta, c_desc, c)
    close(c, wanted)


def test_transform_does_not_work_in_place(handle: Any) -> None:
    x, d = drawn((1, 2, 3, 4)), tensor((1, 2, 3, 4))
    with pytest.raises(v6.CudnnError) as error:
        v6.cudnnTransformTensor(handle, 1.0, d, x, 0.0, d, x)
    assert error.value.status is v6.CUDNN_STATUS_BAD_PARAM


@pytest.mark.parametrize("kind", [np.uint32, np.int32, np.uint8])
def test_positions_are_unsigned_or_not(handle: Any, kind: Any) -> None:
    """Integers of one width are the same memory."""
    x, desc = drawn((2, 3, 4, 5)), v6.cudnnCreateReduceTensorDescriptor()
    v6.cudnnSetReduceTensorDescriptor(
        desc, v6.CUDNN_REDUCE_TENSOR_MAX, v6.CUDNN_DATA_FLOAT, 0, 1, v6.CUDNN_32BIT_INDICES
    )
    c, indices = np.empty((2, 1, 4, 1), np.float32), np.zeros(32 // np.dtype(kind).itemsize, kind)
    v6.cudnnReduceTensor(handle, desc, indices, 32, None, 0, 1.0, tensor(x.shape), x, 0.0, tensor(c.shape), c)
    np.testing.assert_array_equal(indices.view(np.int32), x.transpose(0, 2, 1, 3).reshape(8, 15).argmax(1))


def test_unsigned_memory_of_integers(handle: Any) -> None:
    """Also where it is described by strides; floats of the same width are something else."""
    x = np.arange(24, dtype=np.uint32).reshape(1, 2, 4, 3).transpose(0, 3, 1, 2)
    desc, y = strided(x.view(np.int32), v6.CUDNN_DATA_INT32), np.zeros((1, 3, 2, 4), np.int32)
    v6.cudnnTransformTensor(handle, 1.0, desc, x, 0.0, tensor(y.shape, kind=v6.CUDNN_DATA_INT32), y)
    np.testing.assert_array_equal(y, x)
    with pytest.raises(v6.CudnnError) as error:
        v6.cudnnTransformTensor(
            handle, 1.0, desc, x.view(np.float32), 0.0, tensor(y.shape, kind=v6.CUDNN_DATA_INT32), y
        )
    assert error.value.rejections[0].rule == "v6.memory.data_type"
