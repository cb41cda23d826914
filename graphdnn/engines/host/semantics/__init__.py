"""SEMANTICS: what each operation computes, on NumPy arrays. The living definition of the operations.

Operands arrive in their storage types; each function converts them to the
operation's compute type, as the operation says, and returns results in that
precision. Rounding to the output's type is the caller's.
"""

from __future__ import annotations

from graphdnn.engines.host import convolution_taps
from graphdnn.engines.host.kernel import Semantics
from graphdnn.engines.host.semantics import (
    contractions,
    ctc,
    data_movement,
    elementwise,
    grid_sample,
    im2col,
    norms,
    recurrent,
    resampling,
)
from graphdnn.engines.host.semantics.contractions import convolution
from graphdnn.operations import (
    EXTENSIONS,
    OPERATIONS,
    BnBackwardWeights,
    BnFinalize,
    Concat,
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    CtcLoss,
    GenStats,
    GridSample,
    GridSampleBackward,
    Matmul,
    NormBackward,
    NormForward,
    Operation,
    Patches,
    PointwiseOperation,
    Reduction,
    ResampleBackward,
    ResampleForward,
    Reshape,
    Rng,
    RnnBackwardData,
    RnnBackwardWeights,
    RnnForward,
    Slice,
    Transpose,
)

SEMANTICS: dict[type[Operation], Semantics] = {
    ConvForward: convolution(convolution_taps.fprop_by_taps, "x", "w"),
    ConvBackwardData: convolution(convolution_taps.dgrad_by_taps, "dy", "w"),
    ConvBackwardFilter: convolution(convolution_taps.wgrad_by_taps, "x", "dy"),
    Matmul: contractions.matmul,
    PointwiseOperation: elementwise.pointwise,
    Reduction: elementwise.reduction,
    Rng: elementwise.rng,
    ResampleForward: resampling.forward,
    ResampleBackward: resampling.backward,
    GenStats: norms.genstats,
    BnFinalize: norms.bn_finalize,
    BnBackwardWeights: norms.bn_backward_weights,
    NormForward: norms.norm_forward,
    NormBackward: norms.norm_backward,
    Concat: data_movement.concat,
    Reshape: data_movement.reshape,
    Transpose: data_movement.transpose,
    Slice: data_movement.slice_,
    GridSample: grid_sample.forward,
    GridSampleBackward: grid_sample.backward,
    Patches: im2col.patches,
    RnnForward: recurrent.forward,
    RnnBackwardData: recurrent.backward_data,
    RnnBackwardWeights: recurrent.backward_weights,
    CtcLoss: ctc.loss,
}

assert set(SEMANTICS) == {*OPERATIONS.values(), *EXTENSIONS.values()}, "SEMANTICS needs a row for each operation"

__all__ = ["SEMANTICS", "Semantics", "convolution"]
