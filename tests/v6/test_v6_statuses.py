"""Documented statuses of the implemented calls beyond null and wrong arguments: one row for each condition of the manual."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from repository import TESTS
from v6_tools import activation, convolution, filter_of, good_arguments, pooling, strided, tensor

import graphdnn.v6.thread_state
from graphdnn import v6
from graphdnn.rules import RULES
from graphdnn.v6.functions import functions

BAD, UNSUPPORTED = v6.CUDNN_STATUS_BAD_PARAM, v6.CUDNN_STATUS_NOT_SUPPORTED
HALF, DOUBLE, INT8X4 = v6.CUDNN_DATA_HALF, v6.CUDNN_DATA_DOUBLE, v6.CUDNN_DATA_INT8x4
VECT, NCHW = v6.CUDNN_TENSOR_NCHW_VECT_C, v6.CUDNN_TENSOR_NCHW


def op_tensor(compute: Any = 0) -> Any:
    desc = v6.cudnnCreateOpTensorDescriptor()
    v6.cudnnSetOpTensorDescriptor(desc, 0, compute, 0)
    return desc


def reduce_tensor(compute: Any = 0, indices: int = 0, op: Any = v6.CUDNN_REDUCE_TENSOR_MAX, index: int = 0) -> Any:
    desc = v6.cudnnCreateReduceTensorDescriptor()
    v6.cudnnSetReduceTensorDescriptor(desc, op, compute, 0, indices, index)
    return desc


WIDE = tensor((1, 2, 1, 1))  # where every other tensor is 1x1x1x1
SIX = tensor((1, 1, 1, 1, 1, 1))
GAPS_2D = v6.cudnnCreateTensorDescriptor()
v6.cudnnSetTensor4dDescriptorEx(GAPS_2D, 0, 1, 1, 1, 1, 9, 9, 9, 9)
NEGATIVE = v6.cudnnCreateTensorDescriptor()
v6.cudnnSetTensorNdDescriptor(NEGATIVE, 0, 4, (1, 1, 1, 1), (1, 1, 1, -1))
FIVE_GAPS = strided(np.ones((1, 1, 2, 2, 2, 2), np.float32)[..., 0])
OTHER = tensor((1, 1, 1, 1), kind=HALF)
INT = tensor((1, 1, 1, 1), kind=v6.CUDNN_DATA_INT32)
VOLUMES = v6.cudnnCreateSpatialTransformerDescriptor()
v6.cudnnSetSpatialTransformerNdDescriptor(VOLUMES, 0, 0, 5, [1] * 5)
RELU = activation(v6.CUDNN_ACTIVATION_RELU)
IDENTITY = activation(v6.CUDNN_ACTIVATION_IDENTITY)
TANH = activation(v6.CUDNN_ACTIVATION_TANH)

# (function, arguments that differ from legal ones, status, rule)
CONDITIONS: list[tuple[str, dict[str, Any], Any, str]] = [
    ("SetTensor4dDescriptor", {"n": -1}, BAD, "v6.extent"),
    ("SetTensor4dDescriptor", {"w": 0}, BAD, "v6.extent"),
    ("SetTensor4dDescriptor", {"dataType": INT8X4}, BAD, "v6.tensor.vector"),
    ("SetTensor4dDescriptor", {"format": VECT}, BAD, "v6.tensor.vector"),
    ("SetTensor4dDescriptor", {"format": VECT, "dataType": INT8X4, "c": 6}, BAD, "v6.tensor.vector"),
    ("SetTensor4dDescriptor", {"n": 1 << 16, "c": 1 << 16}, UNSUPPORTED, "v6.tensor.size"),
    ("SetTensor4dDescriptorEx", {"h": -1}, BAD, "v6.extent"),
    ("SetTensor4dDescriptorEx", {"hStride": -1}, BAD, "v6.extent"),
    ("SetTensor4dDescriptorEx", {"n": 3, "nStride": 1 << 30}, UNSUPPORTED, "v6.tensor.size"),
    ("SetTensorNdDescriptor", {"dimA": [1, 0, 1, 1]}, BAD, "v6.extent"),
    ("SetTensorNdDescriptor", {"dimA": [1, 1, 1]}, BAD, "v6.count"),
    ("SetTensorNdDescriptor", {"nbDims": 9, "dimA": [1] * 9, "strideA": [1] * 9}, UNSUPPORTED, "v6.rank"),
    ("SetTensorNdDescriptor", {"nbDims": 2}, UNSUPPORTED, "v6.rank"),
    ("SetTensorNdDescriptorEx", {"nbDims": 9, "dimA": [1] * 9}, UNSUPPORTED, "v6.rank"),
    ("SetTensorNdDescriptorEx", {"dimA": [1 << 16, 1 << 16, 1, 1]}, UNSUPPORTED, "v6.tensor.size"),
    ("GetTensor4dDescriptor", {"tensorDesc": SIX}, BAD, "v6.dims"),
    ("SetFilter4dDescriptor", {"k": -1}, BAD, "v6.extent"),
    ("SetFilter4dDescriptor", {"dataType": INT8X4}, BAD, "v6.tensor.vector"),
    ("SetFilter4dDescriptor_v3", {"c": -1}, BAD, "v6.extent"),
    ("SetFilterNdDescriptor", {"filterDimA": [1, -1, 1, 1]}, BAD, "v6.extent"),
    ("SetFilterNdDescriptor", {"nbDims": 9, "filterDimA": [1] * 9}, UNSUPPORTED, "v6.rank"),
    ("SetFilterNdDescriptor_v3", {"nbDims": 9, "filterDimA": [1] * 9}, UNSUPPORTED, "v6.rank"),
    ("GetFilterNdDescriptor", {"nbDimsRequested": -1}, BAD, "v6.extent"),
    ("GetFilterNdDescriptor_v3", {"nbDimsRequested": -1}, BAD, "v6.extent"),
    ("SetConvolution2dDescriptor", {"pad_h": -1}, BAD, "v6.extent"),
    ("SetConvolution2dDescriptor", {"v": 0}, BAD, "v6.extent"),
    ("SetConvolution2dDescriptor", {"dilation_w": 0}, BAD, "v6.extent"),
    ("SetConvolution2dDescriptor_v4", {"u": 0}, BAD, "v6.extent"),
    ("SetConvolutionNdDescriptor", {"arrayLength": -1}, BAD, "v6.extent"),
    ("SetConvolutionNdDescriptor", {"arrayLength": 9}, UNSUPPORTED, "v6.rank"),
    ("SetConvolutionNdDescriptor", {"padA": [0, -1]}, BAD, "v6.extent"),
    ("SetConvolutionGroupCount", {"groupCount": 0}, BAD, "v6.extent"),
    ("GetConvolutionNdDescriptor", {"arrayLengthRequested": -1}, BAD, "v6.extent"),
    ("GetConvolutionNdDescriptor", {"arrayLengthRequested": 9}, UNSUPPORTED, "v6.rank"),
    ("GetConvolution2dForwardOutputDim", {"filterDesc": filter_of((1, 2, 1, 1))}, BAD, "v6.dims"),
    ("GetConvolutionNdForwardOutputDim", {"filterDesc": filter_of((1, 1, 1, 1, 1))}, BAD, "v6.dims"),
    ("GetConvolutionNdForwardOutputDim", {"convDesc": convolution((0,) * 3, (1,) * 3, (1,) * 3)}, BAD, "v6.dims"),
    ("GetConvolutionNdForwardOutputDim", {"filterDesc": filter_of((1, 1, 2, 1))}, BAD, "v6.dims"),
    ("GetConvolutionNdForwardOutputDim", {"nbDims": -1}, BAD, "v6.rank"),
    ("GetConvolutionNdForwardOutputDim", {"nbDims": 5}, BAD, "v6.rank"),
    ("SetPooling2dDescriptor", {"windowHeight": -1}, BAD, "v6.extent"),
    ("SetPooling2dDescriptor", {"verticalStride": 0}, BAD, "v6.extent"),
    ("SetPooling2dDescriptor_v3", {"windowWidth": 0}, BAD, "v6.extent"),
    ("SetPoolingNdDescriptor", {"paddingA": [0, 0, -1, 0]}, BAD, "v6.extent"),
    ("SetPoolingNdDescriptor", {"nbDims": 7}, UNSUPPORTED, "v6.rank"),
    ("GetPoolingNdDescriptor", {"nbDimsRequested": 9}, UNSUPPORTED, "v6.rank"),
    ("GetPoolingNdDescriptor_v3", {"nbDimsRequested": 9}, UNSUPPORTED, "v6.rank"),
    ("GetPooling2dForwardOutputDim", {"inputTensorDesc": SIX}, BAD, "v6.dims"),
    ("GetPoolingNdForwardOutputDim", {"nbDims": 5}, BAD, "v6.rank"),
    ("SetLRNDescriptor", {"lrnN": 17}, BAD, "v6.range"),
    ("SetSpatialTransformerNdDescriptor", {"nbDims": 9, "dimA": [1] * 9}, BAD, "v6.rank"),
    ("DeriveBNTensorDescriptor", {"xDesc": SIX}, BAD, "v6.rank"),
    ("SetStream", {"streamId": 1 << 30}, v6.CUDNN_STATUS_MAPPING_ERROR, "v6.stream"),
    ("SetStream", {"streamId": "first"}, BAD, "v6.stream.kind"),
    ("TransformTensor", {"yDesc": WIDE}, BAD, "v6.dims"),
    ("TransformTensor", {"yDesc": OTHER}, BAD, "v6.data_type"),
    ("AddTensor", {"aDesc": WIDE}, BAD, "v6.dims"),
    ("AddTensor", {"aDesc": OTHER}, BAD, "v6.data_type"),
    ("AddTensor", {"aDesc": SIX, "cDesc": SIX}, UNSUPPORTED, "v6.rank"),
    ("OpTensor", {"aDesc": WIDE}, BAD, "v6.dims"),
    ("OpTensor", {"bDesc": WIDE}, BAD, "v6.dims"),
    ("OpTensor", {"bDesc": OTHER}, BAD, "v6.data_type"),
    ("OpTensor", {"cDesc": tensor((1, 1, 1, 1), kind=DOUBLE)}, BAD, "v6.data_type"),
    ("OpTensor", {"opTensorDesc": op_tensor(DOUBLE)}, UNSUPPORTED, "v6.compute_type"),
    ("OpTensor", {"aDesc": SIX, "bDesc": SIX, "cDesc": SIX}, UNSUPPORTED, "v6.rank"),
    ("ReduceTensor", {"cDesc": WIDE}, BAD, "v6.dims"),
    ("ReduceTensor", {"aDesc": tensor((1, 1, 1, 1))}, BAD, "v6.dims"),
    ("ReduceTensor", {"cDesc": tensor((1, 1, 1, 1), kind=DOUBLE)}, BAD, "v6.data_type"),
    ("ReduceTensor", {"reduceTensorDesc": reduce_tensor(DOUBLE)}, UNSUPPORTED, "v6.compute_type"),
    ("ReduceTensor", {"reduceTensorDesc": reduce_tensor(0, 1)}, v6.CUDNN_STATUS_INVALID_VALUE, "v6.buffer"),
    ("ReduceTensor", {"reduceTensorDesc": reduce_tensor(0, 1), "indices": None}, BAD, "v6.null"),
    ("ReduceTensor", {"reduceTensorDesc": reduce_tensor(0, 1, op=0), "indices": np.ones(4, np.uint8),
                      "indicesSizeInBytes": 4}, BAD, "v6.reduce.indices"),
    ("ReduceTensor", {"reduceTensorDesc": reduce_tensor(0, 1, index=1), "indices": np.ones(4, np.uint8),
                      "indicesSizeInBytes": 4}, UNSUPPORTED, "v6.reduce.indices"),
    ("Im2Col", {"xDesc": INT}, UNSUPPORTED, "v6.floating"),
    ("Im2Col", {"convDesc": convolution(groups=2)}, UNSUPPORTED, "v6.groups"),
    ("Im2Col", {"xDesc": OTHER}, BAD, "v6.data_type"),
    ("LRNCrossChannelForward", {"yDesc": WIDE}, UNSUPPORTED, "v6.dims"),
    ("LRNCrossChannelForward", {"yDesc": OTHER}, UNSUPPORTED, "v6.data_type"),
    ("LRNCrossChannelForward", {"yDesc": NEGATIVE}, UNSUPPORTED, "v6.strides.negative"),
    ("LRNCrossChannelForward", {"xDesc": FIVE_GAPS, "yDesc": FIVE_GAPS}, BAD, "v6.strides"),
    ("LRNCrossChannelForward", {"xDesc": SIX, "yDesc": SIX}, UNSUPPORTED, "v6.rank"),
    ("LRNCrossChannelBackward", {"dxDesc": WIDE}, UNSUPPORTED, "v6.dims"),
    ("LRNCrossChannelBackward", {"dyDesc": OTHER}, UNSUPPORTED, "v6.data_type"),
    ("LRNCrossChannelBackward", {"yDesc": NEGATIVE}, UNSUPPORTED, "v6.strides.negative"),
    ("LRNCrossChannelBackward", dict.fromkeys(("xDesc", "yDesc", "dxDesc", "dyDesc"), FIVE_GAPS), BAD, "v6.strides"),
    ("DivisiveNormalizationForward", {"yDesc": WIDE}, BAD, "v6.dims"),
    ("DivisiveNormalizationForward", {"yDesc": OTHER}, BAD, "v6.data_type"),
    ("DivisiveNormalizationForward", {"yDesc": GAPS_2D}, UNSUPPORTED, "v6.strides"),
    ("DivisiveNormalizationForward", {"xDesc": NEGATIVE}, BAD, "v6.strides.negative"),
    ("DivisiveNormalizationForward", {"xDesc": SIX, "yDesc": SIX}, BAD, "v6.rank"),
    ("DivisiveNormalizationForward", {"temp": None}, BAD, "v6.null"),
    ("DivisiveNormalizationBackward", {"dXdMeansDesc": WIDE}, BAD, "v6.dims"),
    ("DivisiveNormalizationBackward", {"dXdMeansDesc": GAPS_2D}, UNSUPPORTED, "v6.strides"),
    ("DivisiveNormalizationBackward", {"dXdMeansDesc": NEGATIVE}, BAD, "v6.strides.negative"),
    ("DivisiveNormalizationBackward", {"xDesc": SIX, "dXdMeansDesc": SIX}, BAD, "v6.rank"),
    ("SpatialTfGridGeneratorForward", {"stDesc": VOLUMES}, UNSUPPORTED, "v6.rank"),
    ("SpatialTfGridGeneratorBackward", {"stDesc": VOLUMES}, UNSUPPORTED, "v6.rank"),
    ("SpatialTfSamplerForward", {"stDesc": VOLUMES}, UNSUPPORTED, "v6.rank"),
    ("SpatialTfSamplerForward", {"xDesc": SIX}, UNSUPPORTED, "v6.rank"),
    ("SpatialTfSamplerForward", {"yDesc": WIDE}, BAD, "v6.dims"),
    ("SpatialTfSamplerForward", {"xDesc": WIDE}, BAD, "v6.dims"),
    ("SpatialTfSamplerForward", {"xDesc": OTHER}, BAD, "v6.data_type"),
    ("SpatialTfSamplerBackward", {"stDesc": VOLUMES}, UNSUPPORTED, "v6.rank"),
    ("SpatialTfSamplerBackward", {"dyDesc": WIDE}, BAD, "v6.dims"),
    ("SpatialTfSamplerBackward", {"dxDesc": WIDE}, BAD, "v6.dims"),
    ("SpatialTfSamplerBackward", {"dyDesc": OTHER}, BAD, "v6.data_type"),
    ("ConvolutionForward", {"xDesc": NEGATIVE}, UNSUPPORTED, "v6.strides.negative"),
    ("ConvolutionBackwardData", {"dyDesc": NEGATIVE}, UNSUPPORTED, "v6.strides.negative"),
    ("ConvolutionBackwardFilter", {"xDesc": NEGATIVE}, UNSUPPORTED, "v6.strides.negative"),
    ("ConvolutionForward", {"yDesc": WIDE}, BAD, "v6.dims"),
    ("ConvolutionForward", {"xDesc": WIDE}, BAD, "v6.dims"),
    ("ConvolutionForward", {"xDesc": SIX}, BAD, "v6.dims"),
    ("ConvolutionForward", {"xDesc": OTHER}, BAD, "v6.data_type"),
    ("ConvolutionForward", {"wDesc": filter_of((1, 1, 2, 1))}, BAD, "v6.dims"),
    ("ConvolutionForward", {"convDesc": convolution(groups=2)}, BAD, "v6.dims"),
    ("ConvolutionForward", {"algo": v6.CUDNN_CONVOLUTION_FWD_ALGO_DIRECT}, UNSUPPORTED, "v6.algorithm"),
    (
        "ConvolutionForward",
        {"xDesc": tensor((1, 1, 1)), "wDesc": filter_of((1, 1, 1)), "convDesc": convolution((0,), (1,), (1,)),
         "yDesc": tensor((1, 1, 1))},
        UNSUPPORTED, "v6.rank",
    ),
    ("GetConvolutionForwardWorkspaceSize", {"xDesc": WIDE}, BAD, "v6.dims"),
    ("GetConvolutionForwardWorkspaceSize", {"algo": 3}, UNSUPPORTED, "v6.algorithm"),
    ("ConvolutionBiasActivationForward", {"zDesc": WIDE}, BAD, "v6.dims"),
    ("ConvolutionBiasActivationForward", {"zDesc": OTHER}, BAD, "v6.data_type"),
    ("ConvolutionBiasActivationForward", {"biasDesc": WIDE}, BAD, "v6.dims"),
    ("ConvolutionBiasActivationForward", {"activationDesc": TANH}, UNSUPPORTED, "v6.mode"),
    (
        "ConvolutionBiasActivationForward",
        {"activationDesc": activation(v6.CUDNN_ACTIVATION_RELU, nan=v6.CUDNN_PROPAGATE_NAN)}, UNSUPPORTED, "v6.mode",
    ),
    ("ConvolutionBackwardData", {"dyDesc": WIDE}, BAD, "v6.dims"),
    ("ConvolutionBackwardData", {"wDesc": filter_of((1, 2, 1, 1))}, BAD, "v6.dims"),
    ("ConvolutionBackwardData", {"dyDesc": OTHER}, BAD, "v6.data_type"),
    ("ConvolutionBackwardData", {"algo": 6}, UNSUPPORTED, "v6.algorithm"),
    ("ConvolutionBackwardFilter", {"xDesc": WIDE}, BAD, "v6.dims"),
    ("ConvolutionBackwardFilter", {"dyDesc": OTHER}, BAD, "v6.data_type"),
    ("ConvolutionBackwardFilter", {"algo": 4}, UNSUPPORTED, "v6.algorithm"),
    ("ConvolutionBackwardBias", {"dbDesc": tensor((1, 1, 1, 2))}, BAD, "v6.dims"),
    ("ConvolutionBackwardBias", {"dyDesc": WIDE}, BAD, "v6.dims"),
    ("ConvolutionBackwardBias", {"dbDesc": OTHER}, BAD, "v6.data_type"),
    ("GetConvolutionForwardAlgorithm", {"yDesc": WIDE}, BAD, "v6.dims"),
    ("GetConvolutionForwardAlgorithm", {"xDesc": OTHER}, BAD, "v6.data_type"),
    ("GetConvolutionBackwardDataAlgorithm", {"dyDesc": WIDE}, BAD, "v6.dims"),
    ("GetConvolutionBackwardDataAlgorithm", {"dxDesc": OTHER}, BAD, "v6.data_type"),
    ("GetConvolutionBackwardDataWorkspaceSize", {"dyDesc": OTHER}, BAD, "v6.data_type"),
    ("GetConvolutionBackwardDataWorkspaceSize", {"algo": 6}, UNSUPPORTED, "v6.algorithm"),
    ("GetConvolutionBackwardFilterAlgorithm", {"xDesc": WIDE}, BAD, "v6.dims"),
    ("GetConvolutionBackwardFilterAlgorithm", {"dwDesc": filter_of((1, 1, 1, 1), kind=HALF)}, BAD, "v6.data_type"),
    ("GetConvolutionBackwardFilterWorkspaceSize", {"dyDesc": OTHER}, BAD, "v6.data_type"),
    ("GetConvolutionBackwardFilterWorkspaceSize", {"algo": 4}, UNSUPPORTED, "v6.algorithm"),
    ("SoftmaxForward", {"yDesc": WIDE}, BAD, "v6.dims"),
    ("SoftmaxForward", {"yDesc": OTHER}, BAD, "v6.data_type"),
    ("SoftmaxBackward", {"dxDesc": WIDE}, BAD, "v6.dims"),
    ("SoftmaxBackward", {"dyDesc": GAPS_2D}, BAD, "v6.strides"),
    ("SoftmaxBackward", {"dxDesc": OTHER}, BAD, "v6.data_type"),
    ("PoolingForward", {"yDesc": WIDE}, BAD, "v6.dims"),
    ("PoolingForward", {"yDesc": OTHER}, BAD, "v6.data_type"),
    ("PoolingForward", {"poolingDesc": pooling(0, (2, 2), (0, 0), (1, 1))}, BAD, "v6.dims"),
    ("PoolingForward", {"xDesc": SIX, "yDesc": SIX}, UNSUPPORTED, "v6.rank"),
    ("PoolingBackward", {"dyDesc": WIDE}, BAD, "v6.dims"),
    ("PoolingBackward", {"dyDesc": GAPS_2D}, BAD, "v6.strides"),
    ("PoolingBackward", {"dxDesc": WIDE}, BAD, "v6.dims"),
    ("PoolingBackward", {"dxDesc": GAPS_2D}, BAD, "v6.strides"),
    ("PoolingBackward", {"xDesc": OTHER, "dxDesc": OTHER}, BAD, "v6.data_type"),
    ("ActivationForward", {"activationDesc": IDENTITY}, BAD, "v6.mode"),
    ("ActivationForward", {"yDesc": WIDE}, BAD, "v6.dims"),
    ("ActivationForward", {"yDesc": OTHER}, BAD, "v6.data_type"),
    ("ActivationForward_v3", {"mode": 5}, BAD, "v6.mode"),
    ("ActivationForward_v3", {"yDesc": WIDE}, BAD, "v6.dims"),
    ("ActivationBackward", {"dxDesc": WIDE}, UNSUPPORTED, "v6.dims"),
    ("ActivationBackward", {"dxDesc": OTHER}, UNSUPPORTED, "v6.data_type"),
    ("ActivationBackward", {"dyDesc": GAPS_2D}, UNSUPPORTED, "v6.strides"),
    ("ActivationBackward", {"dxDesc": GAPS_2D}, UNSUPPORTED, "v6.strides"),
    ("ActivationBackward_v3", {"mode": 5}, BAD, "v6.mode"),
    ("BatchNormalizationForwardInference", {"epsilon": 1e-6}, BAD, "v6.range"),
    ("BatchNormalizationForwardInference", {"yDesc": WIDE}, BAD, "v6.dims"),
    ("BatchNormalizationForwardInference", {"yDesc": OTHER}, BAD, "v6.data_type"),
    ("BatchNormalizationForwardInference", {"bnScaleBiasMeanVarDesc": WIDE}, BAD, "v6.dims"),
    ("BatchNormalizationForwardInference", {"bnScaleBiasMeanVarDesc": OTHER}, BAD, "v6.data_type"),
    ("BatchNormalizationForwardInference", {"xDesc": SIX}, BAD, "v6.rank"),
    ("BatchNormalizationForwardTraining", {"epsilon": 1e-6}, BAD, "v6.range"),
    ("BatchNormalizationForwardTraining", {"yDesc": WIDE}, BAD, "v6.dims"),
    ("BatchNormalizationForwardTraining", {"yDesc": OTHER}, BAD, "v6.data_type"),
    ("BatchNormalizationForwardTraining", {"bnScaleBiasMeanVarDesc": WIDE}, BAD, "v6.dims"),
    ("BatchNormalizationForwardTraining", {"bnScaleBiasMeanVarDesc": OTHER}, BAD, "v6.data_type"),
    ("BatchNormalizationForwardTraining", {"xDesc": SIX}, BAD, "v6.rank"),
    ("BatchNormalizationBackward", {"epsilon": 1e-6}, BAD, "v6.range"),
    ("BatchNormalizationBackward", {"dyDesc": WIDE}, BAD, "v6.dims"),
    ("BatchNormalizationBackward", {"dyDesc": OTHER}, BAD, "v6.data_type"),
    ("BatchNormalizationBackward", {"dBnScaleBiasDesc": WIDE}, BAD, "v6.dims"),
    ("BatchNormalizationBackward", {"dBnScaleBiasDesc": OTHER}, BAD, "v6.data_type"),
    ("BatchNormalizationBackward", {"xDesc": SIX}, BAD, "v6.rank"),
    ("BatchNormalizationForwardTraining", {"resultRunningMean": None}, BAD, "v6.pair"),
    ("BatchNormalizationForwardTraining", {"resultSaveInvVariance": None}, BAD, "v6.pair"),
    ("BatchNormalizationBackward", {"savedMean": None}, BAD, "v6.pair"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "changes", "status", "rule"), CONDITIONS, ids=[f"{n}-{'-'.join(c)}-{r}" for n, c, _, r in CONDITIONS]
)
def test_condition(name: str, changes: dict[str, Any], status: Any, rule: str) -> None:
    row = functions()[f"cudnn{name}"]
    documented = {f"CUDNN_STATUS_{s}" for s in row.statuses}
    arguments = dict(zip([p.name for p in row.inputs], good_arguments(row), strict=True)) | changes
    written = {n: a.copy() for n, a in arguments.items() if isinstance(a, np.ndarray)}
    with pytest.raises(v6.CudnnError) as error:
        getattr(v6, row.name)(**arguments)
    assert (error.value.status, error.value.rejections[0].rule) == (status, rule)
    assert not documented or status.name in documented or name == "GetTensor4dDescriptor", "not in the manual's list"
    assert all(np.array_equal(arguments[n], a) for n, a in written.items())
    with v6.returning_status():
        result = getattr(v6, row.name)(**arguments)
    assert (result[0] if isinstance(result, tuple) else result) is status


def test_in_place_needs_equal_strides() -> None:
    x, h = np.ones((1, 1, 1, 1), np.float32), v6.cudnnCreate()
    plain = tensor((1, 1, 1, 1))
    with pytest.raises(v6.CudnnError) as forward:
        v6.cudnnActivationForward(h, RELU, 1.0, plain, x, 0.0, GAPS_2D, x)
    with pytest.raises(v6.CudnnError) as backward:
        v6.cudnnActivationBackward(h, RELU, 1.0, plain, x.copy(), plain, x, plain, x.copy(), 0.0, GAPS_2D, x)
    for error in (forward, backward):
        assert (error.value.status, error.value.rejections[0].rule) == (BAD, "v6.strides")


def test_b_may_not_be_c_alone() -> None:
    a, c, d = np.ones(1, np.float32), np.ones(1, np.float32), tensor((1, 1, 1, 1))
    with pytest.raises(v6.CudnnError) as error:
        v6.cudnnOpTensor(v6.cudnnCreate(), op_tensor(), 1.0, d, a, 1.0, d, c, 0.0, d, c)
    assert (error.value.status, error.value.rejections[0].rule) == (BAD, "v6.alias")


def test_failures_of_the_library_have_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    from graphdnn.v6.prepared_call import PreparedCall

    def fail(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(PreparedCall, "__call__", fail)
    with pytest.raises(v6.CudnnError) as error:
        v6.cudnnScaleTensor(v6.cudnnCreate(), tensor((1, 1, 1, 1)), np.ones(1, np.float32), 2.0)
    assert (error.value.status, error.value.rejections[0].rule) == (v6.CUDNN_STATUS_ALLOC_FAILED, "v6.unexpected")


def test_every_rule_is_raised_by_a_test() -> None:
    """By name in these files, or by the generated cases of null, kind, destroyed, unset, enum and number."""
    assert graphdnn.v6.thread_state.NO_CALL.id == "v6.report.none"
    generated = {"v6.null", "v6.kind", "v6.unset", "v6.enum", "v6.number"}
    text = "".join(path.read_text(encoding="utf-8") for path in TESTS.rglob("*v6_*.py"))
    missing = [id for id in RULES if id.startswith("v6.") and id not in generated and f'"{id}"' not in text]
    assert not missing
