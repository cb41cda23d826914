"""Every enum of the legacy API, with the headers' integers and names.

Members carry their whole C names, so a class is a table as well: ``cudnnTensorFormat["CUDNN_TENSOR_NCHW"]``.
Each class has two names, with and without ``_t``. Names that share an integer are aliases.
"""
# ruff: noqa: N801, N816  the names are NVIDIA's

from __future__ import annotations

from enum import IntEnum


class LegacyEnum(IntEnum):
    """Members hash as their integers, in C: they are parts of the keys that plans are kept under."""

    __hash__ = int.__hash__

    def __repr__(self) -> str:
        return self.name

    def __str__(self) -> str:
        return self.name


class libraryPropertyType(LegacyEnum):
    MAJOR_VERSION = 0
    MINOR_VERSION = 1
    PATCH_LEVEL = 2


class cudnnStatus_t(LegacyEnum):
    CUDNN_STATUS_SUCCESS = 0
    CUDNN_STATUS_NOT_INITIALIZED = 1
    CUDNN_STATUS_ALLOC_FAILED = 2
    CUDNN_STATUS_BAD_PARAM = 3
    CUDNN_STATUS_INTERNAL_ERROR = 4
    CUDNN_STATUS_INVALID_VALUE = 5
    CUDNN_STATUS_ARCH_MISMATCH = 6
    CUDNN_STATUS_MAPPING_ERROR = 7
    CUDNN_STATUS_EXECUTION_FAILED = 8
    CUDNN_STATUS_NOT_SUPPORTED = 9
    CUDNN_STATUS_LICENSE_ERROR = 10
    CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING = 11
    CUDNN_STATUS_RUNTIME_IN_PROGRESS = 12
    CUDNN_STATUS_RUNTIME_FP_OVERFLOW = 13


class cudnnDataType_t(LegacyEnum):
    CUDNN_DATA_FLOAT = 0
    CUDNN_DATA_DOUBLE = 1
    CUDNN_DATA_HALF = 2
    CUDNN_DATA_INT8 = 3
    CUDNN_DATA_INT32 = 4
    CUDNN_DATA_INT8x4 = 5
    CUDNN_DATA_UINT8 = 6
    CUDNN_DATA_UINT8x4 = 7
    CUDNN_DATA_INT8x32 = 8


class cudnnNanPropagation_t(LegacyEnum):
    CUDNN_NOT_PROPAGATE_NAN = 0
    CUDNN_PROPAGATE_NAN = 1


class cudnnDeterminism_t(LegacyEnum):
    CUDNN_NON_DETERMINISTIC = 0
    CUDNN_DETERMINISTIC = 1


class cudnnTensorFormat_t(LegacyEnum):
    CUDNN_TENSOR_NCHW = 0
    CUDNN_TENSOR_NHWC = 1
    CUDNN_TENSOR_NCHW_VECT_C = 2


class cudnnOpTensorOp_t(LegacyEnum):
    CUDNN_OP_TENSOR_ADD = 0
    CUDNN_OP_TENSOR_MUL = 1
    CUDNN_OP_TENSOR_MIN = 2
    CUDNN_OP_TENSOR_MAX = 3
    CUDNN_OP_TENSOR_SQRT = 4
    CUDNN_OP_TENSOR_NOT = 5


class cudnnReduceTensorOp_t(LegacyEnum):
    CUDNN_REDUCE_TENSOR_ADD = 0
    CUDNN_REDUCE_TENSOR_MUL = 1
    CUDNN_REDUCE_TENSOR_MIN = 2
    CUDNN_REDUCE_TENSOR_MAX = 3
    CUDNN_REDUCE_TENSOR_AMAX = 4
    CUDNN_REDUCE_TENSOR_AVG = 5
    CUDNN_REDUCE_TENSOR_NORM1 = 6
    CUDNN_REDUCE_TENSOR_NORM2 = 7
    CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS = 8


class cudnnReduceTensorIndices_t(LegacyEnum):
    CUDNN_REDUCE_TENSOR_NO_INDICES = 0
    CUDNN_REDUCE_TENSOR_FLATTENED_INDICES = 1


class cudnnIndicesType_t(LegacyEnum):
    CUDNN_32BIT_INDICES = 0
    CUDNN_64BIT_INDICES = 1
    CUDNN_16BIT_INDICES = 2
    CUDNN_8BIT_INDICES = 3


class cudnnConvolutionMode_t(LegacyEnum):
    CUDNN_CONVOLUTION = 0
    CUDNN_CROSS_CORRELATION = 1


class cudnnConvolutionFwdPreference_t(LegacyEnum):
    CUDNN_CONVOLUTION_FWD_NO_WORKSPACE = 0
    CUDNN_CONVOLUTION_FWD_PREFER_FASTEST = 1
    CUDNN_CONVOLUTION_FWD_SPECIFY_WORKSPACE_LIMIT = 2


class cudnnConvolutionFwdAlgo_t(LegacyEnum):
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM = 0
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMPUTED_GEMM = 1  # as the manuals print it in 4.45
    CUDNN_CONVOLUTION_FWD_ALGO_GEMM = 2
    CUDNN_CONVOLUTION_FWD_ALGO_DIRECT = 3
    CUDNN_CONVOLUTION_FWD_ALGO_FFT = 4
    CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING = 5
    CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD = 6
    CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED = 7
    CUDNN_CONVOLUTION_FWD_ALGO_COUNT = 8


class cudnnConvolutionBwdFilterPreference_t(LegacyEnum):
    CUDNN_CONVOLUTION_BWD_FILTER_NO_WORKSPACE = 0
    CUDNN_CONVOLUTION_BWD_FILTER_PREFER_FASTEST = 1
    CUDNN_CONVOLUTION_BWD_FILTER_SPECIFY_WORKSPACE_LIMIT = 2


class cudnnConvolutionBwdFilterAlgo_t(LegacyEnum):
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 = 0
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 = 1
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT = 2
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3 = 3
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD = 4
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED = 5
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING = 6
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT = 7


class cudnnConvolutionBwdDataPreference_t(LegacyEnum):
    CUDNN_CONVOLUTION_BWD_DATA_NO_WORKSPACE = 0
    CUDNN_CONVOLUTION_BWD_DATA_PREFER_FASTEST = 1
    CUDNN_CONVOLUTION_BWD_DATA_SPECIFY_WORKSPACE_LIMIT = 2


class cudnnConvolutionBwdDataAlgo_t(LegacyEnum):
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 = 0
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT = 2
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING = 3
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD = 4
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED = 5
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT = 6


class cudnnSoftmaxAlgorithm_t(LegacyEnum):
    CUDNN_SOFTMAX_FAST = 0
    CUDNN_SOFTMAX_ACCURATE = 1
    CUDNN_SOFTMAX_LOG = 2


class cudnnSoftmaxMode_t(LegacyEnum):
    CUDNN_SOFTMAX_MODE_INSTANCE = 0
    CUDNN_SOFTMAX_MODE_CHANNEL = 1


class cudnnPoolingMode_t(LegacyEnum):
    CUDNN_POOLING_MAX = 0
    CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING = 1
    CUDNN_POOLING_AVERAGE = 1
    CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING = 2
    CUDNN_POOLING_MAX_DETERMINISTIC = 3


class cudnnActivationMode_t(LegacyEnum):
    CUDNN_ACTIVATION_SIGMOID = 0
    CUDNN_ACTIVATION_RELU = 1
    CUDNN_ACTIVATION_TANH = 2
    CUDNN_ACTIVATION_CLIPPED_RELU = 3
    CUDNN_ACTIVATION_ELU = 4
    CUDNN_ACTIVATION_IDENTITY = 5


class cudnnLRNMode_t(LegacyEnum):
    CUDNN_LRN_CROSS_CHANNEL_DIM1 = 0


class cudnnDivNormMode_t(LegacyEnum):
    CUDNN_DIVNORM_PRECOMPUTED_MEANS = 0


class cudnnBatchNormMode_t(LegacyEnum):
    CUDNN_BATCHNORM_PER_ACTIVATION = 0
    CUDNN_BATCHNORM_SPATIAL = 1
    CUDNN_BATCHNORM_SPATIAL_PERSISTENT = 2


class cudnnSamplerType_t(LegacyEnum):
    CUDNN_SAMPLER_BILINEAR = 0


class cudnnRNNMode_t(LegacyEnum):
    CUDNN_RNN_RELU = 0
    CUDNN_RNN_TANH = 1
    CUDNN_LSTM = 2
    CUDNN_GRU = 3


class cudnnDirectionMode_t(LegacyEnum):
    CUDNN_UNIDIRECTIONAL = 0
    CUDNN_BIDIRECTIONAL = 1


class cudnnRNNInputMode_t(LegacyEnum):
    CUDNN_LINEAR_INPUT = 0
    CUDNN_SKIP_INPUT = 1


class cudnnRNNAlgo_t(LegacyEnum):
    CUDNN_RNN_ALGO_STANDARD = 0
    CUDNN_RNN_ALGO_PERSIST_STATIC = 1
    CUDNN_RNN_ALGO_PERSIST_DYNAMIC = 2


class cudnnMathType_t(LegacyEnum):
    CUDNN_DEFAULT_MATH = 0
    CUDNN_TENSOR_OP_MATH = 1
    CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION = 2


class cudnnCTCLossAlgo_t(LegacyEnum):
    CUDNN_CTC_LOSS_ALGO_DETERMINISTIC = 0
    CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC = 1


class cudnnErrQueryMode_t(LegacyEnum):
    CUDNN_ERRQUERY_RAWCODE = 0
    CUDNN_ERRQUERY_NONBLOCKING = 1
    CUDNN_ERRQUERY_BLOCKING = 2


ENUMS: tuple[type[IntEnum], ...] = (
    libraryPropertyType,
    cudnnStatus_t,
    cudnnDataType_t,
    cudnnNanPropagation_t,
    cudnnDeterminism_t,
    cudnnTensorFormat_t,
    cudnnOpTensorOp_t,
    cudnnReduceTensorOp_t,
    cudnnReduceTensorIndices_t,
    cudnnIndicesType_t,
    cudnnConvolutionMode_t,
    cudnnConvolutionFwdPreference_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionBwdFilterPreference_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionBwdDataPreference_t,
    cudnnConvolutionBwdDataAlgo_t,
    cudnnSoftmaxAlgorithm_t,
    cudnnSoftmaxMode_t,
    cudnnPoolingMode_t,
    cudnnActivationMode_t,
    cudnnLRNMode_t,
    cudnnDivNormMode_t,
    cudnnBatchNormMode_t,
    cudnnSamplerType_t,
    cudnnRNNMode_t,
    cudnnDirectionMode_t,
    cudnnRNNInputMode_t,
    cudnnRNNAlgo_t,
    cudnnMathType_t,
    cudnnCTCLossAlgo_t,
    cudnnErrQueryMode_t,
)

cudnnStatus = cudnnStatus_t
cudnnDataType = cudnnDataType_t
cudnnNanPropagation = cudnnNanPropagation_t
cudnnDeterminism = cudnnDeterminism_t
cudnnTensorFormat = cudnnTensorFormat_t
cudnnOpTensorOp = cudnnOpTensorOp_t
cudnnReduceTensorOp = cudnnReduceTensorOp_t
cudnnReduceTensorIndices = cudnnReduceTensorIndices_t
cudnnIndicesType = cudnnIndicesType_t
cudnnConvolutionMode = cudnnConvolutionMode_t
cudnnConvolutionFwdPreference = cudnnConvolutionFwdPreference_t
cudnnConvolutionFwdAlgo = cudnnConvolutionFwdAlgo_t
cudnnConvolutionBwdFilterPreference = cudnnConvolutionBwdFilterPreference_t
cudnnConvolutionBwdFilterAlgo = cudnnConvolutionBwdFilterAlgo_t
cudnnConvolutionBwdDataPreference = cudnnConvolutionBwdDataPreference_t
cudnnConvolutionBwdDataAlgo = cudnnConvolutionBwdDataAlgo_t
cudnnSoftmaxAlgorithm = cudnnSoftmaxAlgorithm_t
cudnnSoftmaxMode = cudnnSoftmaxMode_t
cudnnPoolingMode = cudnnPoolingMode_t
cudnnActivationMode = cudnnActivationMode_t
cudnnLRNMode = cudnnLRNMode_t
cudnnDivNormMode = cudnnDivNormMode_t
cudnnBatchNormMode = cudnnBatchNormMode_t
cudnnSamplerType = cudnnSamplerType_t
cudnnRNNMode = cudnnRNNMode_t
cudnnDirectionMode = cudnnDirectionMode_t
cudnnRNNInputMode = cudnnRNNInputMode_t
cudnnRNNAlgo = cudnnRNNAlgo_t
cudnnMathType = cudnnMathType_t
cudnnCTCLossAlgo = cudnnCTCLossAlgo_t
cudnnErrQueryMode = cudnnErrQueryMode_t

CONSTANTS: dict[str, IntEnum] = {name: member for enum in ENUMS for name, member in enum.__members__.items()}
