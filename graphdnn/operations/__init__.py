"""The operations: one frozen spec per node type, and the table of all of them."""

from graphdnn.operations.base import Operation, ports, without_unread
from graphdnn.operations.batchnorm_statistics import BnBackwardWeights, BnFinalize, GenStats
from graphdnn.operations.convolution import (
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    ConvolutionOperation,
    ConvolutionSpec,
)
from graphdnn.operations.ctc import CtcLoss
from graphdnn.operations.data_movement import Concat, Reshape, Slice, Transpose
from graphdnn.operations.extension import Extension
from graphdnn.operations.grid_sample import GridSample, GridSampleBackward
from graphdnn.operations.im2col import Patches
from graphdnn.operations.matmul import Matmul, MatmulSpec
from graphdnn.operations.normalization import NormBackward, NormForward
from graphdnn.operations.pointwise import PointwiseOperation, PointwiseSpec
from graphdnn.operations.reduction import Reduction, ReductionSpec
from graphdnn.operations.resample import ResampleBackward, ResampleForward, ResampleSpec
from graphdnn.operations.rng import Rng, RngSpec
from graphdnn.operations.rnn import RecurrentOperation, RnnBackwardData, RnnBackwardWeights, RnnForward
from graphdnn.operations.rnn_spec import Cell, RnnSpec

# In the order of the documentation; the tag is the name in reports and files.
OPERATIONS: dict[str, type[Operation]] = {
    cls.tag: cls
    for cls in (
        ConvForward, ConvBackwardData, ConvBackwardFilter, Matmul, PointwiseOperation, Reduction,
        ResampleForward, ResampleBackward, GenStats, BnFinalize, BnBackwardWeights, NormForward, NormBackward,
        Concat, Reshape, Transpose, Slice, Rng,
    )
}  # fmt: skip

# What the v8 header does not have: made by other APIs, known to files, fusion and engines.
EXTENSIONS: dict[str, type[Extension]] = {
    cls.tag: cls
    for cls in (GridSample, GridSampleBackward, Patches, RnnForward, RnnBackwardData, RnnBackwardWeights, CtcLoss)
}

SETTINGS = (ConvolutionSpec, PointwiseSpec, MatmulSpec, ReductionSpec, ResampleSpec, RngSpec)

__all__ = [
    "EXTENSIONS",
    "OPERATIONS",
    "SETTINGS",
    "BnBackwardWeights",
    "BnFinalize",
    "Cell",
    "Concat",
    "ConvBackwardData",
    "ConvBackwardFilter",
    "ConvForward",
    "ConvolutionOperation",
    "ConvolutionSpec",
    "CtcLoss",
    "Extension",
    "GenStats",
    "GridSample",
    "GridSampleBackward",
    "Matmul",
    "MatmulSpec",
    "NormBackward",
    "NormForward",
    "Operation",
    "Patches",
    "PointwiseOperation",
    "PointwiseSpec",
    "RecurrentOperation",
    "Reduction",
    "ReductionSpec",
    "ResampleBackward",
    "ResampleForward",
    "ResampleSpec",
    "Reshape",
    "Rng",
    "RngSpec",
    "RnnBackwardData",
    "RnnBackwardWeights",
    "RnnForward",
    "RnnSpec",
    "Slice",
    "Transpose",
    "ports",
    "without_unread",
]
