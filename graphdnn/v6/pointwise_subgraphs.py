"""Pieces of graphs that several calls share: NaN treated as the descriptors ask, and activations."""

from __future__ import annotations

from graphdnn.enums import DataType, PointwiseMode
from graphdnn.tensors import TensorSpec
from graphdnn.v6.call_graph import Draft
from graphdnn.v6.descriptor_values import Activation
from graphdnn.v6.enums import cudnnActivationMode_t, cudnnNanPropagation_t

P = PointwiseMode
Mode = cudnnActivationMode_t
_BOOL = DataType.BYTE_BOOLEAN


def compare(draft: Draft, mode: PointwiseMode, math: DataType, x: TensorSpec, other: TensorSpec) -> TensorSpec:
    return draft.pointwise(mode, math, x, other, out_type=_BOOL)


def ignores_nan(nan: cudnnNanPropagation_t) -> bool:
    return nan is cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN


def instead_of_nan(draft: Draft, math: DataType, x: TensorSpec, other: TensorSpec) -> TensorSpec:
    """``x`` where it is a number, ``other`` where it is NaN."""
    return draft.pointwise(P.BINARY_SELECT, math, x, other, compare(draft, P.CMP_EQ, math, x, x))


def repeated(draft: Draft, math: DataType, value: TensorSpec, like: TensorSpec, alpha: float = 1.0,
             out: TensorSpec | None = None) -> TensorSpec:  # fmt: skip
    """``alpha * value`` with the extents of ``like``. Only the extents of ``like`` are read."""
    zero = draft.pointwise(P.GEN_INDEX, math, like, axis=0)
    return draft.pointwise(P.ADD, math, value, zero, out=out, alpha1=alpha, alpha2=0.0)


def _begun(draft: Draft, math: DataType, x: TensorSpec) -> TensorSpec:
    """The same elements, computed: what reads them joins the kernel that does, so that branches meet in one."""
    return draft.pointwise(P.IDENTITY, math, x)


def activate(draft: Draft, act: Activation, math: DataType, x: TensorSpec, out: TensorSpec | None) -> TensorSpec:
    """The forward function of a descriptor."""
    mode = act.mode
    if mode in (Mode.CUDNN_ACTIVATION_SIGMOID, Mode.CUDNN_ACTIVATION_TANH, Mode.CUDNN_ACTIVATION_IDENTITY):
        same = {
            Mode.CUDNN_ACTIVATION_SIGMOID: P.SIGMOID_FWD,
            Mode.CUDNN_ACTIVATION_TANH: P.TANH_FWD,
            Mode.CUDNN_ACTIVATION_IDENTITY: P.IDENTITY,
        }
        return draft.pointwise(same[mode], math, x, out=out)
    if ignores_nan(act.nan):
        x = instead_of_nan(draft, math, x, draft.constant(0.0, x, math))
    if mode is Mode.CUDNN_ACTIVATION_ELU:
        return draft.pointwise(P.ELU_FWD, math, x, out=out, elu_alpha=act.coef)
    if mode is Mode.CUDNN_ACTIVATION_CLIPPED_RELU:
        return draft.pointwise(P.RELU_FWD, math, x, out=out, relu_upper_clip=act.coef)
    return draft.pointwise(P.RELU_FWD, math, x, out=out)


def differentiate(
    draft: Draft, act: Activation, math: DataType, y: TensorSpec, dy: TensorSpec, x: TensorSpec, out: TensorSpec
) -> None:
    """dx from dy. Sigmoid, tanh and ELU are differentiated in terms of y, as the manual does, the others of x."""
    if act.mode is Mode.CUDNN_ACTIVATION_SIGMOID:
        rest = draft.pointwise(P.SUB, math, draft.constant(1.0, y, math), y)
        draft.pointwise(P.MUL, math, dy, draft.pointwise(P.MUL, math, y, rest), out=out)
    elif act.mode is Mode.CUDNN_ACTIVATION_TANH:
        square = draft.pointwise(P.MUL, math, y, y)
        draft.pointwise(P.MUL, math, dy, draft.pointwise(P.SUB, math, draft.constant(1.0, y, math), square), out=out)
    elif act.mode is Mode.CUDNN_ACTIVATION_ELU:
        y = _begun(draft, math, y)
        below = draft.pointwise(P.MUL, math, dy, draft.pointwise(P.ADD, math, y, draft.constant(act.coef, y, math)))
        positive = compare(draft, P.CMP_GE, math, y, draft.constant(0.0, y, math))
        draft.pointwise(P.BINARY_SELECT, math, dy, below, positive, out=out)
    else:
        zero = draft.constant(0.0, x, math)
        x = _begun(draft, math, x) if act.mode is Mode.CUDNN_ACTIVATION_CLIPPED_RELU else x
        passes = compare(draft, P.CMP_GT, math, x, zero)
        if act.mode is Mode.CUDNN_ACTIVATION_CLIPPED_RELU:
            inside = compare(draft, P.CMP_LE, math, x, draft.constant(act.coef, x, math))
            passes = draft.pointwise(P.LOGICAL_AND, _BOOL, passes, inside)
        draft.pointwise(P.BINARY_SELECT, math, dy, zero, passes, out=out)
