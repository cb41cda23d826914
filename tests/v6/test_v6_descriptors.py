"""Descriptors of the legacy calls: what a setter was given its getter answers, and what was destroyed answers nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphdnn import v6

F, NCHW, NHWC = v6.CUDNN_DATA_FLOAT, v6.CUDNN_TENSOR_NCHW, v6.CUDNN_TENSOR_NHWC
MAX, KEEP, STOP = v6.CUDNN_POOLING_MAX, v6.CUDNN_PROPAGATE_NAN, v6.CUDNN_NOT_PROPAGATE_NAN
TANH, CROSS = v6.CUDNN_ACTIVATION_TANH, v6.CUDNN_CROSS_CORRELATION

# kind of descriptor, setter and its arguments, getter and its arguments, what it answers
ROUND_TRIPS: list[tuple[str, str, tuple[Any, ...], str, tuple[Any, ...], Any]] = [
    ("OpTensor", "SetOpTensorDescriptor", (v6.CUDNN_OP_TENSOR_MAX, F, KEEP), "GetOpTensorDescriptor", (),
     (v6.CUDNN_OP_TENSOR_MAX, F, KEEP)),
    ("ReduceTensor", "SetReduceTensorDescriptor",
     (v6.CUDNN_REDUCE_TENSOR_AMAX, F, STOP, v6.CUDNN_REDUCE_TENSOR_NO_INDICES, v6.CUDNN_32BIT_INDICES),
     "GetReduceTensorDescriptor", (),
     (v6.CUDNN_REDUCE_TENSOR_AMAX, F, STOP, v6.CUDNN_REDUCE_TENSOR_NO_INDICES, v6.CUDNN_32BIT_INDICES)),
    ("Filter", "SetFilter4dDescriptor", (F, NHWC, 8, 3, 5, 7), "GetFilter4dDescriptor", (), (F, NHWC, 8, 3, 5, 7)),
    ("Filter", "SetFilter4dDescriptor_v3", (F, 8, 3, 5, 7), "GetFilterNdDescriptor_v3", (4,), (F, 4, (8, 3, 5, 7))),
    ("Convolution", "SetConvolution2dDescriptor_v4", (1, 2, 3, 4, 1, 1, CROSS), "GetConvolution2dDescriptor_v4", (),
     (1, 2, 3, 4, 1, 1, CROSS)),
    ("Convolution", "SetConvolution2dDescriptor_v5", (1, 2, 3, 4, 1, 1, CROSS, F), "GetConvolution2dDescriptor_v5", (),
     (1, 2, 3, 4, 1, 1, CROSS, F)),
    ("Pooling", "SetPooling2dDescriptor_v3", (MAX, 3, 2, 1, 0, 2, 1), "GetPooling2dDescriptor_v3", (),
     (MAX, 3, 2, 1, 0, 2, 1)),
    ("Pooling", "SetPooling2dDescriptor_v4", (MAX, KEEP, 3, 2, 1, 0, 2, 1), "GetPooling2dDescriptor_v4", (),
     (MAX, KEEP, 3, 2, 1, 0, 2, 1)),
    ("Pooling", "SetPoolingNdDescriptor", (MAX, KEEP, 2, [3, 2], [1, 0], [2, 1]), "GetPoolingNdDescriptor", (2,),
     (MAX, KEEP, 2, (3, 2), (1, 0), (2, 1))),
    ("Pooling", "SetPoolingNdDescriptor_v3", (MAX, 2, [3, 2], [1, 0], [2, 1]), "GetPoolingNdDescriptor_v3", (2,),
     (MAX, 2, (3, 2), (1, 0), (2, 1))),
    ("Pooling", "SetPoolingNdDescriptor_v4", (MAX, STOP, 2, [3, 2], [1, 0], [2, 1]), "GetPoolingNdDescriptor_v4", (8,),
     (MAX, STOP, 2, (3, 2), (1, 0), (2, 1))),
    ("Activation", "SetActivationDescriptor", (TANH, KEEP, 2.5), "GetActivationDescriptor", (), (TANH, KEEP, 2.5)),
    ("LRN", "SetLRNDescriptor", (7, 0.5, 0.25, 3.0), "GetLRNDescriptor", (), (7, 0.5, 0.25, 3.0)),
    ("CTCLoss", "SetCTCLossDescriptor", (F,), "GetCTCLossDescriptor", (), F),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "setter", "given", "getter", "asked", "wanted"), ROUND_TRIPS, ids=lambda v: str(v)[:40]
)
def test_getters_answer_what_was_set(
    kind: str, setter: str, given: tuple[Any, ...], getter: str, asked: tuple[Any, ...], wanted: Any
) -> None:
    desc = getattr(v6, f"cudnnCreate{kind}Descriptor")()
    getattr(v6, f"cudnn{setter}")(desc, *given)
    assert getattr(v6, f"cudnn{getter}")(desc, *asked) == wanted


KINDS = ("Tensor", "OpTensor", "ReduceTensor", "Filter", "Convolution", "Pooling", "Activation", "LRN", "Dropout", "RNN",
         "SpatialTransformer", "CTCLoss")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_destroyed_is_gone(kind: str) -> None:
    desc = getattr(v6, f"cudnnCreate{kind}Descriptor")()
    destroy = getattr(v6, f"cudnnDestroy{kind}Descriptor")
    destroy(desc)
    with pytest.raises(v6.CudnnError) as error:
        destroy(desc)
    assert error.value.status is v6.CUDNN_STATUS_BAD_PARAM
    assert error.value.rejections[0].rule == "v6.destroyed"


def test_a_persistent_plan_is_destroyed_and_no_runtime_is_asked_for() -> None:
    handle, desc = v6.cudnnCreate(), v6.cudnnCreateRNNDescriptor()
    dropout = v6.cudnnCreateDropoutDescriptor()
    v6.cudnnSetDropoutDescriptor(dropout, handle, 0.0, np.zeros(16, np.uint8), 16, 1)
    algorithm = v6.CUDNN_RNN_ALGO_PERSIST_DYNAMIC
    v6.cudnnSetRNNDescriptor_v6(handle, desc, 4, 1, dropout, 0, 0, v6.CUDNN_RNN_TANH, algorithm, F)
    plan = v6.cudnnCreatePersistentRNNPlan(desc, 3, F)
    v6.cudnnSetPersistentRNNPlan(desc, plan)
    v6.cudnnDestroyPersistentRNNPlan(plan)
    with pytest.raises(v6.CudnnError):
        v6.cudnnSetPersistentRNNPlan(desc, plan)
    assert v6.cudnnGetCudartVersion() == 0
