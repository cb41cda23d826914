"""Local response normalisation across channels: pooling of squares over the channel axis, and pointwise operations.

The channels become the first spatial axis of [N, 1, C, ...], which pooling runs over; the rest lies behind it, as one
axis where memory allows. Windows reach (n-1)//2 channels back and the rest ahead; gradients gather over the mirror.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import prod
from typing import Any

from graphdnn.enums import DataType, PaddingMode, PointwiseMode, ResampleMode, Status
from graphdnn.operations import ResampleForward, ResampleSpec
from graphdnn.tensors import TensorSpec, packed_strides
from graphdnn.v6.call_graph import Draft, math_of
from graphdnn.v6.descriptor_checks import lrn_ranges, rank_in, same_dims, same_type
from graphdnn.v6.descriptor_values import LRN, Descriptor, Handle, Ints, Tensor
from graphdnn.v6.enums import cudnnLRNMode_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.layouts import element_of
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import NEGATIVE_STRIDE, SAME_STRIDES

P = PointwiseMode


def window_mean(draft: Draft, math: DataType, x: TensorSpec, window: Ints, back: Ints) -> TensorSpec:
    """Sums over windows that reach ``back`` elements back, over the window's volume; nothing lies outside x."""
    ahead = tuple(w - 1 - b for w, b in zip(window, back, strict=True))
    ones = (Fraction(1),) * len(window)
    spec = ResampleSpec(
        mode=ResampleMode.AVGPOOL_INCLUDE_PADDING, compute_type=math, spatial_dims=len(window),
        padding_mode=PaddingMode.ZERO_PAD, strides=ones, pre_paddings=tuple(map(Fraction, back)),
        post_paddings=tuple(map(Fraction, ahead)), window_dims=tuple(map(Fraction, window)),
    )  # fmt: skip
    y = draft.virtual(x.dims, math, x)
    draft.add(ResampleForward(spec=spec, x=x, y=y))
    return y


def _check(where: str, tensors: Mapping[str, Tensor]) -> None:
    same_type(where, tensors, status=Status.NOT_SUPPORTED)
    same_dims(where, "every element is normalised in its place", tensors, status=Status.NOT_SUPPORTED)
    for name, value in tensors.items():
        rank_in(where, name, len(value.dims), 3, 5, None if len(value.dims) > 2 else Status.BAD_PARAM)
        if min(value.strides) < 1:
            raise CudnnError(NEGATIVE_STRIDE.reject(where, f"{name}.strides", value.strides))
        if len(value.dims) == 5 and not _is_packed(value):
            expected = f"(..., {', '.join(map(str, packed_strides(value.dims)[2:]))}): D, H and W packed"
            raise CudnnError(SAME_STRIDES.reject(where, f"{name}.strides", value.strides, expected=expected))


def _is_packed(value: Tensor) -> bool:
    """Whether the spatial axes lie in memory like one."""
    wanted = packed_strides(value.dims)[2:]
    axes = zip(value.dims[2:], value.strides[2:], wanted, strict=True)
    return all(extent == 1 or stride == packed for extent, stride, packed in axes)


class _Layout:
    """How the tensors of a call are seen: [N, 1, C, spatial...]."""

    def __init__(self, draft: Draft, tensors: Mapping[str, Tensor]) -> None:
        self.draft = draft
        self.merged = all(_is_packed(value) for value in tensors.values())

    def memory(self, index: int, value: Tensor, name: str, *, is_copy: bool = False) -> TensorSpec:
        n, c, *spatial = value.dims
        strides = value.strides[2:]
        if self.merged:
            spatial, strides = [prod(spatial)], (1,)
        dims = (n, 1, c, *spatial)
        element = element_of(value.data_type)[0]
        return self.draft.view(index, element, dims, (value.strides[0], *value.strides[:2], *strides), name,
                               is_copy=is_copy, described=value)  # fmt: skip

    def settle(self, result: TensorSpec, index: int, value: Tensor, name: str, alpha: float, beta: float) -> None:
        """alpha * result + beta * old into the output."""
        draft, math = self.draft, result.data_type
        if beta == 0.0:
            draft.pointwise(P.IDENTITY, math, result, out=self.memory(index, value, name), alpha1=alpha)
            return
        old = self.memory(index, value, f"old {name}", is_copy=True)
        draft.pointwise(P.ADD, math, result, old, out=self.memory(index, value, name), alpha1=alpha, alpha2=beta)


def _base(draft: Draft, norm: LRN, math: DataType, x: TensorSpec) -> TensorSpec:
    """s = k + alpha/n * (sum of squares over the window)."""
    behind = (norm.n - 1) // 2
    rest = (1,) * (x.rank - 3)
    mean = window_mean(draft, math, draft.pointwise(P.MUL, math, x, x), (norm.n, *rest), (behind, *(0 for _ in rest)))
    return draft.pointwise(P.ADD, math, mean, draft.constant(norm.k, mean, math), alpha1=norm.alpha)


@implements("cudnnLRNCrossChannelForward", "resample_fwd, pointwise: one kernel", "PyTorch")
def forward(handle: Handle, desc: Descriptor, mode: cudnnLRNMode_t, alpha: float, x_desc: Descriptor, x: Any,
            beta: float, y_desc: Descriptor, y: Any) -> None:  # fmt: skip
    """y = alpha * x * (k + alpha_n/n * sum x^2)^-beta_n + beta * y."""
    where, norm, xv, yv = "cudnnLRNCrossChannelForward", desc.value, x_desc.value, y_desc.value
    tensors = {"xDesc": xv, "yDesc": yv}

    def draw(draft: Draft) -> None:
        lrn_ranges(where, norm)
        _check(where, tensors)
        math, layout = math_of(xv.data_type), _Layout(draft, tensors)
        source = layout.memory(0, xv, "x")
        base = _base(draft, norm, math, source)
        factor = draft.pointwise(P.POW, math, base, draft.constant(-norm.beta, base, math))
        layout.settle(draft.pointwise(P.MUL, math, source, factor), 1, yv, "y", alpha, beta)

    prepared(where, handle, (norm, xv, yv, alpha, beta), draw)((x, y))


@implements("cudnnLRNCrossChannelBackward", "resample_fwd, pointwise: one kernel", "PyTorch")
def backward(handle: Handle, desc: Descriptor, mode: cudnnLRNMode_t, alpha: float, y_desc: Descriptor, y: Any,
             dy_desc: Descriptor, dy: Any, x_desc: Descriptor, x: Any, beta: float, dx_desc: Descriptor,
             dx: Any) -> None:  # fmt: skip
    """dx = dy * s^-beta_n - 2 * alpha_n * beta_n / n * x * (sum of dy * y / s over the mirrored window)."""
    where, norm = "cudnnLRNCrossChannelBackward", desc.value
    yv, dyv, xv, dxv = y_desc.value, dy_desc.value, x_desc.value, dx_desc.value
    tensors = {"xDesc": xv, "yDesc": yv, "dyDesc": dyv, "dxDesc": dxv}

    def draw(draft: Draft) -> None:
        lrn_ranges(where, norm)
        _check(where, tensors)
        math, layout = math_of(xv.data_type), _Layout(draft, tensors)
        source, gradient = layout.memory(2, xv, "x"), layout.memory(1, dyv, "dy")
        result = layout.memory(0, yv, "y")
        base = _base(draft, norm, math, source)
        direct = draft.pointwise(
            P.MUL, math, gradient, draft.pointwise(P.POW, math, base, draft.constant(-norm.beta, base, math))
        )
        share = draft.pointwise(P.DIV, math, draft.pointwise(P.MUL, math, gradient, result), base)
        ahead = norm.n - 1 - (norm.n - 1) // 2
        rest = (1,) * (source.rank - 3)
        mean = window_mean(draft, math, share, (norm.n, *rest), (ahead, *(0 for _ in rest)))
        through = draft.pointwise(P.MUL, math, source, mean)
        total = draft.pointwise(P.SUB, math, direct, through, alpha2=2.0 * norm.alpha * norm.beta)
        layout.settle(total, 3, dxv, "dx", alpha, beta)

    prepared(where, handle, (norm, yv, dyv, xv, dxv, alpha, beta), draw)((y, dy, x, dx))
