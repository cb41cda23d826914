"""Divisive normalisation: pooling over the spatial axes and pointwise operations.

D_i = k + alpha/n^S * sum over the window of (x_j - m_i)^2, y = x * D^-beta, with m_i the mean given at the window's
centre. The square is multiplied out, so that windows become pooling; DOUBLE keeps what that cancels. Without means
nothing cancels. What the sums have become is FLOAT, unless tensors are DOUBLE.

Each operation behind a sum reads that sum, or what it has become: so the sums' kernels take all of them.
"""

from __future__ import annotations

from typing import Any

from graphdnn.enums import DataType, PointwiseMode, Status
from graphdnn.tensors import TensorSpec
from graphdnn.v6.call_graph import Draft
from graphdnn.v6.calls.response_normalization import window_mean
from graphdnn.v6.descriptor_checks import lrn_ranges, rank_in, same_dims, same_strides, same_type
from graphdnn.v6.descriptor_values import LRN, Descriptor, Handle, Ints, Tensor
from graphdnn.v6.enums import cudnnDivNormMode_t
from graphdnn.v6.errors import refuse_if
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.pointwise_subgraphs import repeated
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import NEGATIVE_STRIDE

P = PointwiseMode
_SUMS = DataType.DOUBLE


def _check(where: str, tensors: dict[str, Tensor], *, in_place: bool = False) -> None:
    first = next(iter(tensors.values()))
    refuse_if(
        NEGATIVE_STRIDE.reject(where, f"{name}.strides", t.strides, status=Status.BAD_PARAM)
        for name, t in tensors.items()
        if min(t.strides) < 1
    )
    rank_in(where, "xDesc", len(first.dims), 4, 5, Status.BAD_PARAM)
    same_dims(where, "every element is normalised in its place", tensors)
    same_type(where, tensors)
    same_strides(where, tensors, status=Status.BAD_PARAM if in_place else Status.NOT_SUPPORTED)


class _Windows:
    """The window around each element, and what depends on it alone."""

    def __init__(self, draft: Draft, norm: LRN, xv: Tensor, means: bool) -> None:
        self.draft, self.norm, self.value = draft, norm, xv
        self.x = draft.memory(0, xv, "x")
        self.means = draft.memory(1, xv, "means") if means else None
        self.math = _SUMS if self.x.data_type is _SUMS else DataType.FLOAT
        self.sums = _SUMS if means else self.math
        self.window: Ints = (norm.n,) * (self.x.rank - 2)

    def mean(self, values: TensorSpec, *, mirrored: bool = False) -> TensorSpec:
        """Sums over windows, over n^S; ``mirrored``: over the elements whose window holds this one."""
        behind = (self.norm.n - 1) // 2
        back = self.norm.n - 1 - behind if mirrored else behind
        return window_mean(self.draft, self.sums, values, self.window, (back,) * len(self.window))

    def times(self, a: TensorSpec, b: TensorSpec) -> TensorSpec:
        return self.draft.pointwise(P.MUL, self.sums, a, b)

    def base(self, *, deviates: bool) -> tuple[TensorSpec, TensorSpec | None]:
        """D, and with means, where ``deviates``, the sum of (x_j - m_i) over n^S.

        With s the share of the window that lies inside and u = mean(x) / s, the sum of (x_j - m)^2 over n^S is
        mean(x^2) + s * m * (m - 2 * u), and that of x_j - m is s * (u - m).
        """
        draft, m, deviation = self.draft, self.means, None
        if m is not None:
            share = self._inside()
            one = draft.pointwise(P.RECIPROCAL, self.sums, share)
            u = self.times(self.mean(draft.pointwise(P.IDENTITY, self.sums, self.x)), one)
            if deviates:
                apart = draft.pointwise(P.SUB, self.sums, u, m)
                deviation = draft.pointwise(P.MUL, self.sums, apart, share, out_type=self.math)
            shift = draft.pointwise(P.SUB, self.sums, m, u, alpha2=2.0)
            shift = self.times(self.times(shift, m), share)
        spread = self.mean(self.times(self.x, self.x))
        if m is not None:
            spread = draft.pointwise(P.ADD, self.sums, spread, shift)
        one = draft.constant(self.norm.k, spread, self.sums)
        return draft.pointwise(P.ADD, self.sums, spread, one, out_type=self.math, alpha1=self.norm.alpha), deviation

    def _inside(self) -> TensorSpec:
        """The share of each window that lies inside x, for one plane."""
        draft, x = self.draft, self.x
        dims = (1, 1, *x.dims[2:])
        plane = draft.view(0, x.data_type, dims, x.strides, "a plane of x", described=self.value)
        return self.mean(repeated(draft, self.sums, draft.constant(1.0, x, self.sums), plane))

    def power(self, base: TensorSpec, exponent: float) -> TensorSpec:
        return self.draft.pointwise(P.POW, self.math, base, self.draft.constant(exponent, base, self.math))


@implements("cudnnDivisiveNormalizationForward", "resample_fwd, pointwise", "loops")
def forward(handle: Handle, desc: Descriptor, mode: cudnnDivNormMode_t, alpha: float, x_desc: Descriptor, x: Any,
            means: Any, temp: Any, temp2: Any, beta: float, y_desc: Descriptor, y: Any) -> None:  # fmt: skip
    """y = alpha * x * D^-beta_n + beta * y; null means stand for zeros. temp and temp2 are not touched."""
    where, norm, xv, yv = "cudnnDivisiveNormalizationForward", desc.value, x_desc.value, y_desc.value
    has_means = means is not None
    if x is y and xv.strides != yv.strides:
        _check(where, {"xDesc": xv, "yDesc": yv}, in_place=True)

    def draw(draft: Draft) -> None:
        lrn_ranges(where, norm)
        _check(where, {"xDesc": xv, "yDesc": yv})
        windows = _Windows(draft, norm, xv, has_means)
        math, (base, _) = windows.math, windows.base(deviates=False)
        result = draft.pointwise(P.MUL, math, windows.power(base, -norm.beta), windows.x)
        draft.settle(result, 2, yv, "y", alpha, beta, math)

    prepared(where, handle, (norm, xv, yv, alpha, beta, has_means), draw, in_place=(0,))((x, means, y))


@implements("cudnnDivisiveNormalizationBackward", "resample_fwd, pointwise", "loops, differences")
def backward(handle: Handle, desc: Descriptor, mode: cudnnDivNormMode_t, alpha: float, x_desc: Descriptor, x: Any,
             means: Any, dy: Any, temp: Any, temp2: Any, beta: float, d_desc: Descriptor, dx: Any,
             d_means: Any) -> None:  # fmt: skip
    """Gradients of x and of the means, each for itself; null d_means are not computed.

    With g = dy * x * -beta_n * D^(-beta_n - 1) * alpha_n/n^S: dMeans_i = -2 g_i * sum of (x_j - m_i), and
    dx_j = dy_j * D_j^-beta_n + 2 * sum of g_i * (x_j - m_i) over the windows that hold j.
    """
    where, norm, xv, dv = "cudnnDivisiveNormalizationBackward", desc.value, x_desc.value, d_desc.value
    has_means, wants_means = means is not None, d_means is not None

    def draw(draft: Draft) -> None:
        lrn_ranges(where, norm)
        _check(where, {"xDesc": xv, "dXdMeansDesc": dv})
        windows = _Windows(draft, norm, xv, has_means)
        gradient, math, m = draft.memory(2, xv, "dy"), windows.math, windows.means
        base, deviation = windows.base(deviates=wants_means)
        if wants_means and m is None:
            deviation = windows.mean(windows.x)
        power = windows.power(base, -norm.beta)
        direct = draft.pointwise(P.MUL, math, power, gradient)
        g = draft.pointwise(P.DIV, math, direct, base, alpha1=-norm.beta * norm.alpha)
        g = draft.pointwise(P.MUL, math, g, windows.x)  # times n^S, which the means undo
        if deviation is not None:
            by_means = draft.pointwise(P.MUL, math, g, deviation, alpha1=-2.0)
            draft.settle(by_means, 4, dv, "dMeans", alpha, beta, math)
        through = windows.times(windows.mean(g, mirrored=True), windows.x)
        if m is not None:
            weighted = windows.mean(windows.times(g, m), mirrored=True)
            through = draft.pointwise(P.SUB, windows.sums, weighted, through, alpha1=-1.0, alpha2=-1.0)
        result = draft.pointwise(P.ADD, windows.sums, through, direct, alpha1=2.0)
        draft.settle(result, 3, dv, "dx", alpha, beta, math)

    settings = (norm, xv, dv, alpha, beta, has_means, wants_means)
    prepared(where, handle, settings, draw)((x, means, dy, dx, d_means))
