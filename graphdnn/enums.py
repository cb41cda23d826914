"""Every cuDNN 9 backend enum, once, with NVIDIA's integers.

Member names are the C names without their common prefix; ``c_name`` gives the
C name back. Names that share an integer are aliases, as in the header. The
attribute names, far more numerous, are in ``attribute_names``.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class CEnum(IntEnum):
    """An enum that knows its C type and the C name of each member."""

    _c_type_: str
    _prefix_: str
    _suffix_: str

    def __init_subclass__(cls, *, c_type: str, prefix: str, suffix: str = "") -> None:
        super().__init_subclass__()
        cls._c_type_ = c_type
        cls._prefix_ = prefix
        cls._suffix_ = suffix

    @property
    def c_name(self) -> str:
        """``CUDNN_DATA_HALF`` for ``DataType.HALF``."""
        return c_name_of(type(self), self.name)

    @classmethod
    def named(cls, value: Any) -> Any:
        """The member of this name, upper case or lower; anything else as it is, for others to refuse."""
        return cls.__members__.get(value.upper(), value) if isinstance(value, str) else value

    @classmethod
    def from_c_name(cls, name: str) -> CEnum:
        """The member with this C name (aliases included); ``KeyError`` when there is none."""
        return c_members(cls)[name]

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __str__(self) -> str:
        return self.name


def shown(value: object) -> str:
    """A value as messages print it: ``(HALF, FLOAT)`` for a tuple of members, where ``repr`` has their classes too."""
    if type(value) is tuple:
        return f"({', '.join(map(shown, value))}{',' if len(value) == 1 else ''})"
    try:
        return str(value) if isinstance(value, CEnum) else repr(value)
    except Exception:  # an object's own code, or an integer of more digits than Python prints
        return f"<{type(value).__name__}>"


class Status(CEnum, c_type="cudnnStatus_t", prefix="CUDNN_STATUS_"):
    """Result codes. The category is ``code // 1000 * 1000``; clients compare categories."""

    SUCCESS = 0
    NOT_INITIALIZED = 1001
    SUBLIBRARY_VERSION_MISMATCH = 1002
    SERIALIZATION_VERSION_MISMATCH = 1003
    DEPRECATED = 1004
    LICENSE_ERROR = 1005
    RUNTIME_IN_PROGRESS = 1006
    RUNTIME_FP_OVERFLOW = 1007
    SUBLIBRARY_LOADING_FAILED = 1008
    BAD_PARAM = 2000
    BAD_PARAM_NULL_POINTER = 2002
    BAD_PARAM_MISALIGNED_POINTER = 2003
    BAD_PARAM_NOT_FINALIZED = 2004
    BAD_PARAM_OUT_OF_BOUND = 2005
    BAD_PARAM_SIZE_INSUFFICIENT = 2006
    BAD_PARAM_STREAM_MISMATCH = 2007
    BAD_PARAM_SHAPE_MISMATCH = 2008
    BAD_PARAM_DUPLICATED_ENTRIES = 2009
    BAD_PARAM_ATTRIBUTE_TYPE = 2010
    BAD_PARAM_CUDA_GRAPH_MISMATCH = 2011
    BAD_PARAM_DESCRIPTOR_TYPE = 2012
    NOT_SUPPORTED = 3000
    NOT_SUPPORTED_GRAPH_PATTERN = 3001
    NOT_SUPPORTED_SHAPE = 3002
    NOT_SUPPORTED_DATA_TYPE = 3003
    NOT_SUPPORTED_LAYOUT = 3004
    NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER = 3005
    NOT_SUPPORTED_INCOMPATIBLE_CUDART = 3006
    NOT_SUPPORTED_ARCH_MISMATCH = 3007
    NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING = 3008
    NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE = 3009
    NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT = 3010
    NOT_SUPPORTED_PADDING = 3011
    NOT_SUPPORTED_BAD_LAUNCH_PARAM = 3012
    NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API = 3013
    NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE = 3014
    INTERNAL_ERROR = 4000
    INTERNAL_ERROR_COMPILATION_FAILED = 4001
    INTERNAL_ERROR_UNEXPECTED_VALUE = 4002
    INTERNAL_ERROR_HOST_ALLOCATION_FAILED = 4003
    INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED = 4004
    INTERNAL_ERROR_BAD_LAUNCH_PARAM = 4005
    INTERNAL_ERROR_TEXTURE_CREATION_FAILED = 4006
    EXECUTION_FAILED = 5000
    EXECUTION_FAILED_CUDA_DRIVER = 5001
    EXECUTION_FAILED_CUBLAS = 5002
    EXECUTION_FAILED_CUDART = 5003
    EXECUTION_FAILED_CURAND = 5004
    ALLOC_FAILED = 4003
    INVALID_VALUE = 2001
    ARCH_MISMATCH = 3007
    MAPPING_ERROR = 4006
    RUNTIME_PREREQUISITE_MISSING = 3008
    VERSION_MISMATCH = 1002


class DataType(CEnum, c_type="cudnnDataType_t", prefix="CUDNN_DATA_"):
    """Element types. ``INT16`` is graphdnn's own: cuDNN has no number for it, ours lies outside NVIDIA's range."""

    FLOAT = 0
    DOUBLE = 1
    HALF = 2
    INT8 = 3
    INT32 = 4
    INT8x4 = 5
    UINT8 = 6
    UINT8x4 = 7
    INT8x32 = 8
    BFLOAT16 = 9
    INT64 = 10
    BOOLEAN = 11
    FP8_E4M3 = 12
    FP8_E5M2 = 13
    FAST_FLOAT_FOR_FP8 = 14
    FP8_E8M0 = 15
    FP4_E2M1 = 16
    INT4 = 17
    UINT4 = 18
    UINT32 = 19
    COMPLEX_FP32 = 20
    COMPLEX_FP64 = 21
    BYTE_BOOLEAN = 22
    FP8_E5M3 = 23
    INT16 = 10016


class DescriptorType(CEnum, c_type="cudnnBackendDescriptorType_t", prefix="CUDNN_BACKEND_", suffix="_DESCRIPTOR"):
    """What a backend descriptor describes."""

    POINTWISE = 0
    CONVOLUTION = 1
    ENGINE = 2
    ENGINECFG = 3
    ENGINEHEUR = 4
    EXECUTION_PLAN = 5
    INTERMEDIATE_INFO = 6
    KNOB_CHOICE = 7
    KNOB_INFO = 8
    LAYOUT_INFO = 9
    OPERATION_CONVOLUTION_FORWARD = 10
    OPERATION_CONVOLUTION_BACKWARD_FILTER = 11
    OPERATION_CONVOLUTION_BACKWARD_DATA = 12
    OPERATION_POINTWISE = 13
    OPERATION_GEN_STATS = 14
    OPERATIONGRAPH = 15
    VARIANT_PACK = 16
    TENSOR = 17
    MATMUL = 18
    OPERATION_MATMUL = 19
    OPERATION_BN_FINALIZE_STATISTICS = 20
    REDUCTION = 21
    OPERATION_REDUCTION = 22
    OPERATION_BN_BWD_WEIGHTS = 23
    RESAMPLE = 24
    OPERATION_RESAMPLE_FWD = 25
    OPERATION_RESAMPLE_BWD = 26
    OPERATION_CONCAT = 27
    OPERATION_SIGNAL = 28
    OPERATION_NORM_FORWARD = 29
    OPERATION_NORM_BACKWARD = 30
    OPERATION_RESHAPE = 31
    RNG = 32
    OPERATION_RNG = 33
    KERNEL_CACHE = 34
    OPERATION_PAGED_CACHE_LOAD = 35
    OPERATION_BLOCK_SCALE_QUANTIZE = 36
    OPERATION_BLOCK_SCALE_DEQUANTIZE = 37
    DEVICEPROP = 38
    OPERATION_EXPAND_BAND_MATRIX = 39
    OPERATION_CONTRACT_BAND_MATRIX = 40
    OPERATION_SDPA_FWD = 41
    OPERATION_MOE_GROUPED_MATMUL = 42
    OPERATION_SDPA_BWD = 43
    OPERATION_DIAGONAL_BAND_MASK = 44
    OPERATION_SOFTMAX = 45
    OPERATION_TRANSPOSE = 46
    OPERATION_SLICE = 47
    OPERATION_MOE_GROUPED_MATMUL_BWD = 48
    OPERATION_ROPE_FWD = 49
    OPERATION_ROPE_BWD = 50


class AttributeType(CEnum, c_type="cudnnBackendAttributeType_t", prefix="CUDNN_TYPE_"):
    """How the elements of an attribute are stored."""

    HANDLE = 0
    DATA_TYPE = 1
    BOOLEAN = 2
    INT64 = 3
    FLOAT = 4
    DOUBLE = 5
    VOID_PTR = 6
    CONVOLUTION_MODE = 7
    HEUR_MODE = 8
    KNOB_TYPE = 9
    NAN_PROPOGATION = 10
    NUMERICAL_NOTE = 11
    LAYOUT_TYPE = 12
    ATTRIB_NAME = 13
    POINTWISE_MODE = 14
    BACKEND_DESCRIPTOR = 15
    GENSTATS_MODE = 16
    BN_FINALIZE_STATS_MODE = 17
    REDUCTION_OPERATOR_TYPE = 18
    BEHAVIOR_NOTE = 19
    TENSOR_REORDERING_MODE = 20
    RESAMPLE_MODE = 21
    PADDING_MODE = 22
    INT32 = 23
    CHAR = 24
    SIGNAL_MODE = 25
    FRACTION = 26
    NORM_MODE = 27
    NORM_FWD_PHASE = 28
    RNG_DISTRIBUTION = 29
    MOE_GROUPED_MATMUL_MODE = 30
    RESHAPE_MODE = 31
    OPERATIONGRAPH_MODE = 32
    CUDA_GRAPH_RETENTION = 33


class PointwiseMode(CEnum, c_type="cudnnPointwiseMode_t", prefix="CUDNN_POINTWISE_"):
    """Elementwise functions; their meaning is in ``graphdnn.operations.pointwise_modes``."""

    ADD = 0
    ADD_SQUARE = 5
    DIV = 6
    MAX = 3
    MIN = 2
    MOD = 7
    MUL = 1
    POW = 8
    SUB = 9
    ABS = 10
    CEIL = 11
    COS = 12
    EXP = 13
    FLOOR = 14
    LOG = 15
    NEG = 16
    RSQRT = 17
    SIN = 18
    SQRT = 4
    TAN = 19
    ERF = 20
    IDENTITY = 21
    RECIPROCAL = 22
    ATAN2 = 23
    FLOOR_MOD = 24
    RELU_FWD = 100
    TANH_FWD = 101
    SIGMOID_FWD = 102
    ELU_FWD = 103
    GELU_FWD = 104
    SOFTPLUS_FWD = 105
    SWISH_FWD = 106
    GELU_APPROX_TANH_FWD = 107
    RELU_BWD = 200
    TANH_BWD = 201
    SIGMOID_BWD = 202
    ELU_BWD = 203
    GELU_BWD = 204
    SOFTPLUS_BWD = 205
    SWISH_BWD = 206
    GELU_APPROX_TANH_BWD = 207
    CMP_EQ = 300
    CMP_NEQ = 301
    CMP_GT = 302
    CMP_GE = 303
    CMP_LT = 304
    CMP_LE = 305
    LOGICAL_AND = 400
    LOGICAL_OR = 401
    LOGICAL_NOT = 402
    GEN_INDEX = 501
    BINARY_SELECT = 601


class ConvolutionMode(CEnum, c_type="cudnnConvolutionMode_t", prefix="CUDNN_"):
    """CONVOLUTION flips the filter on every spatial axis."""

    CONVOLUTION = 0
    CROSS_CORRELATION = 1


class ReductionOperator(CEnum, c_type="cudnnReduceTensorOp_t", prefix="CUDNN_REDUCE_TENSOR_"):
    """Reduction operators."""

    ADD = 0
    MUL = 1
    MIN = 2
    MAX = 3
    AMAX = 4
    AVG = 5
    NORM1 = 6
    NORM2 = 7
    MUL_NO_ZEROS = 8


class NanPropagation(CEnum, c_type="cudnnNanPropagation_t", prefix="CUDNN_"):
    """Whether comparisons hand NaN on."""

    NOT_PROPAGATE_NAN = 0
    PROPAGATE_NAN = 1


class ResampleMode(CEnum, c_type="cudnnResampleMode_t", prefix="CUDNN_RESAMPLE_"):
    """Pooling and interpolation modes."""

    NEAREST = 0
    BILINEAR = 1
    AVGPOOL = 2
    AVGPOOL_INCLUDE_PADDING = 2
    AVGPOOL_EXCLUDE_PADDING = 4
    MAXPOOL = 3


class PaddingMode(CEnum, c_type="cudnnPaddingMode_t", prefix="CUDNN_"):
    """What resampling reads outside the input."""

    ZERO_PAD = 0
    NEG_INF_PAD = 1
    EDGE_VAL_PAD = 2


class NormMode(CEnum, c_type="cudnnBackendNormMode_t", prefix="CUDNN_"):
    """Which axes a normalization averages over."""

    LAYER_NORM = 0
    INSTANCE_NORM = 1
    BATCH_NORM = 2
    GROUP_NORM = 3
    RMS_NORM = 4
    ADA_LAYER_NORM = 5


class NormPhase(CEnum, c_type="cudnnBackendNormFwdPhase_t", prefix="CUDNN_NORM_FWD_"):
    """Statistics are computed (TRAINING) or given (INFERENCE)."""

    INFERENCE = 0
    TRAINING = 1


class GenStatsMode(CEnum, c_type="cudnnGenStatsMode_t", prefix="CUDNN_GENSTATS_"):
    """Statistics that GenStats computes."""

    SUM_SQSUM = 0


class BnFinalizeStatsMode(CEnum, c_type="cudnnBnFinalizeStatsMode_t", prefix="CUDNN_BN_FINALIZE_STATISTICS_"):
    """Phase of batch-norm finalization."""

    TRAINING = 0
    INFERENCE = 1


class RngDistribution(CEnum, c_type="cudnnRngDistribution_t", prefix="CUDNN_RNG_DISTRIBUTION_"):
    """Random distributions."""

    BERNOULLI = 0
    UNIFORM = 1
    NORMAL = 2


class ReshapeMode(CEnum, c_type="cudnnBackendReshapeMode_t", prefix="CUDNN_RESHAPE_"):
    """View of the same memory, or row-major re-splitting."""

    VIEW_ONLY = 0
    LOGICAL = 1


class SignalMode(CEnum, c_type="cudnnSignalMode_t", prefix="CUDNN_SIGNAL_"):
    """Signal operation modes (out of scope, kept for names)."""

    SET = 0
    WAIT = 1


class MoeGroupedMatmulMode(CEnum, c_type="cudnnMoeGroupedMatmulMode_t", prefix="CUDNN_MOE_GROUPED_MATMUL_MODE_"):
    """Grouped matmul modes (out of scope, kept for names)."""

    NONE = 0
    GATHER = 1
    SCATTER = 2


class TensorReordering(CEnum, c_type="cudnnBackendTensorReordering_t", prefix="CUDNN_TENSOR_REORDERING_"):
    """Physical reorderings of a tensor."""

    NONE = 0
    INT8x32 = 1
    F16x16 = 2
    F8_128x4 = 3


class HeurMode(CEnum, c_type="cudnnBackendHeurMode_t", prefix="CUDNN_HEUR_MODE_"):
    """How engine configurations are ranked."""

    INSTANT = 0
    B = 1
    FALLBACK = 2
    A = 3
    COUNT = 4


class KnobType(CEnum, c_type="cudnnBackendKnobType_t", prefix="CUDNN_KNOB_TYPE_"):
    """Tuning parameters of an engine."""

    SPLIT_K = 0
    SWIZZLE = 1
    TILE_SIZE = 2
    USE_TEX = 3
    EDGE = 4
    KBLOCK = 5
    LDGA = 6
    LDGB = 7
    CHUNK_K = 8
    SPLIT_H = 9
    WINO_TILE = 10
    MULTIPLY = 11
    SPLIT_K_BUF = 12
    TILEK = 13
    STAGES = 14
    REDUCTION_MODE = 15
    CTA_SPLIT_K_MODE = 16
    SPLIT_K_SLC = 17
    IDX_MODE = 18
    SLICED = 19
    SPLIT_RS = 20
    SINGLEBUFFER = 21
    LDGC = 22
    SPECFILT = 23
    KERNEL_CFG = 24
    WORKSPACE = 25
    TILE_CGA = 26
    TILE_CGA_M = 27
    TILE_CGA_N = 28
    BLOCK_SIZE = 29
    OCCUPANCY = 30
    ARRAY_SIZE_PER_THREAD = 31
    NUM_C_PER_BLOCK = 32
    SPLIT_COLS = 33
    TILE_ROWS = 34
    TILE_COLS = 35
    LOAD_SIZE = 36
    CTA_COUNT = 37
    STREAM_K = 38
    SPLIT_P_SLC = 39
    TILE_M = 40
    TILE_N = 41
    WARP_SPEC_CFG = 42
    SWAP_AB = 43
    INPUT_TMA_ENABLE = 44
    OUTPUT_TMA_ENABLE = 45
    COUNTS = 46


class NumericalNote(CEnum, c_type="cudnnBackendNumericalNote_t", prefix="CUDNN_NUMERICAL_NOTE_"):
    """Numerical properties of an engine."""

    TENSOR_CORE = 0
    DOWN_CONVERT_INPUTS = 1
    REDUCED_PRECISION_REDUCTION = 2
    FFT = 3
    NONDETERMINISTIC = 4
    WINOGRAD = 5
    WINOGRAD_TILE_4x4 = 6
    WINOGRAD_TILE_6x6 = 7
    WINOGRAD_TILE_13x13 = 8
    STRICT_NAN_PROP = 9
    TYPE_COUNT = 10


class BehaviorNote(CEnum, c_type="cudnnBackendBehaviorNote_t", prefix="CUDNN_BEHAVIOR_NOTE_"):
    """Behavioural properties of an engine."""

    RUNTIME_COMPILATION = 0
    REQUIRES_FILTER_INT8x32_REORDER = 1
    REQUIRES_BIAS_INT8x32_REORDER = 2
    SUPPORTS_CUDA_GRAPH_NATIVE_API = 3
    CUBLASLT_DEPENDENCY = 4
    TYPE_COUNT = 5


class LayoutType(CEnum, c_type="cudnnBackendLayoutType_t", prefix="CUDNN_LAYOUT_TYPE_"):
    """Layout an engine prefers for a tensor."""

    PREFERRED_NCHW = 0
    PREFERRED_NHWC = 1
    PREFERRED_PAD4CK = 2
    PREFERRED_PAD8CK = 3
    COUNT = 4


class OperationGraphMode(CEnum, c_type="cudnnBackendOperationGraphMode_t", prefix="CUDNN_OPERATIONGRAPH_MODE_"):
    """Pattern hint of an operation graph."""

    AUTO = -1
    CONV_FORWARD = 0
    CONV_BWD_DATA = 1
    CONV_BWD_FILTER = 2
    NORM_FWD_INFER = 17
    NORM_FWD_TRAIN = 18
    NORM_BWD = 19
    GENERIC_CONV_FUSION = 20
    RESAMPLE_FWD = 22
    RESAMPLE_BWD = 23
    BLAS_MATMUL = 25
    GENERIC_MATMUL_FUSION = 26
    GENERIC_POINTWISE_FUSION = 27
    SDPA_FWD = 28
    SDPA_BWD = 29
    UNIFIED_SDPA_FWD = 30
    UNIFIED_SDPA_BWD = 31


class CudaGraphRetention(CEnum, c_type="cudnnCudaGraphRetention_t", prefix="CUDNN_CUDA_GRAPH_RETENTION_"):
    """What keeps a plan alive for a recorded CUDA graph."""

    PER_GRAPH = 0
    NONE = 1


class Severity(CEnum, c_type="cudnnSeverity_t", prefix="CUDNN_SEV_"):
    """Log severities."""

    FATAL = 0
    ERROR = 1
    WARNING = 2
    INFO = 3


# C names that the prefix rule does not give: one irregular name of the header, and the members that cuDNN does
# not have, under names of our own so that nobody takes them for NVIDIA's.
_OWN_C_NAMES = {
    (HeurMode, "COUNT"): "CUDNN_HEUR_MODES_COUNT",
    (DataType, "INT16"): "GRAPHDNN_DATA_INT16",
}


def c_name_of(enum: type[CEnum], name: str) -> str:
    """C name of the member or alias ``name`` of ``enum``."""
    return _OWN_C_NAMES.get((enum, name), f"{enum._prefix_}{name}{enum._suffix_}")


def c_members(enum: type[CEnum]) -> dict[str, CEnum]:
    """Every C name of ``enum``, aliases included, with its member."""
    return {c_name_of(enum, name): member for name, member in enum.__members__.items()}
