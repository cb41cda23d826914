"""Divisive normalisation: pooling over the spatial axes and pointwise operations, in DOUBLE.

D_i = k + alpha/n^S * sum over the window of (x_j - m_i)^2, y = x * D^-beta, with m_i the mean given at the window's
centre. The square is multiplied out, so that windows become pooling; DOUBLE keeps what that cancels.
"""

from __future__ import annotations

from typing import Any

from graphdnn.enums import DataType, PointwiseMode, Status
from graphdnn.tensors import TensorSpec
from graphdnn.v6.arithmetic import repeated
from graphdnn.v6.calls.response_normalization import window_mean
from graphdnn.v6.checks import lrn_ranges, rank_in, same_dims, same_strides, same_type
from graphdnn.v6.draft import Draft
from graphdnn.v6.enums import cudnnDivNormMode_t
from graphdnn.v6.errors import refuse_if
from graphdnn.v6.execution import prepared
from graphdnn.v6.objects import LRN, Descriptor, Handle, Ints, Tensor
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import NEGATIVE_STRIDE

P = PointwiseMode
_MATH = DataType.DOUBLE


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

    def __init__(self, draft: Draft, norm: LRN, x: TensorSpec, means: TensorSpec | None) -> None:
        self.draft, self.norm, self.means = draft, norm, means
        self.x = draft.pointwise(P.IDENTITY, _MATH, x)
        self.window: Ints = (norm.n,) * (x.rank - 2)

    def mean(self, values: TensorSpec, *, mirrored: bool = False) -> TensorSpec:
        """Sums over windows, over n^S; ``mirrored``: over the elements whose window holds this one."""
        behind = (self.norm.n - 1) // 2
        back = self.norm.n - 1 - behind if mirrored else behind
        return window_mean(self.draft, _MATH, values, self.window, (back,) * len(self.window))

    def deviation(self) -> TensorSpec:
        """sum of (x_j - m_i), over n^S."""
        mean = self.mean(self.x)
        if self.means is None:
            return mean
        return self.draft.pointwise(P.SUB, _MATH, mean, self._times(self._inside(), self.means))

    def base(self) -> TensorSpec:
        """D."""
        draft, norm = self.draft, self.norm
        spread = self.mean(self._times(self.x, self.x))
        if self.means is not None:
            m = self.means
            twice = draft.pointwise(P.SUB, _MATH, self._times(self._inside(), m), self.mean(self.x), alpha2=2.0)
            spread = draft.pointwise(P.ADD, _MATH, spread, self._times(twice, m))
        return draft.pointwise(P.ADD, _MATH, spread, draft.constant(norm.k, spread, _MATH), alpha1=norm.alpha)

    def _inside(self) -> TensorSpec:
        """The share of each window that lies inside x."""
        return self.mean(repeated(self.draft, _MATH, self.draft.constant(1.0, self.x, _MATH), self.x))

    def _times(self, a: TensorSpec, b: TensorSpec) -> TensorSpec:
        return self.draft.pointwise(P.MUL, _MATH, a, b)

    def power(self, base: TensorSpec, exponent: float) -> TensorSpec:
        return self.draft.pointwise(P.POW, _MATH, base, self.draft.constant(exponent, base, _MATH))


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
        source = draft.memory(0, xv, "x")
        windows = _Windows(draft, norm, source, draft.memory(1, xv, "means") if has_means else None)
        result = draft.pointwise(P.MUL, _MATH, windows.x, windows.power(windows.base(), -norm.beta))
        draft.settle(result, 2, yv, "y", alpha, beta, _MATH)

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
        source, gradient = draft.memory(0, xv, "x"), draft.memory(2, xv, "dy")
        m = draft.memory(1, xv, "means") if has_means else None
        windows = _Windows(draft, norm, source, m)
        base = windows.base()
        g = draft.pointwise(P.MUL, _MATH, gradient, windows.x, alpha1=-norm.beta * norm.alpha)
        g = draft.pointwise(P.MUL, _MATH, g, windows.power(base, -norm.beta - 1.0))  # times n^S, which the means undo
        through = draft.pointwise(P.MUL, _MATH, windows.x, windows.mean(g, mirrored=True))
        if m is not None:
            weighted = windows.mean(draft.pointwise(P.MUL, _MATH, g, m), mirrored=True)
            through = draft.pointwise(P.SUB, _MATH, through, weighted)
        direct = draft.pointwise(P.MUL, _MATH, gradient, windows.power(base, -norm.beta))
        result = draft.pointwise(P.ADD, _MATH, direct, through, alpha2=2.0)
        draft.settle(result, 3, dv, "dx", alpha, beta, _MATH)
        if wants_means:
            by_means = draft.pointwise(P.MUL, _MATH, g, windows.deviation(), alpha1=-2.0)
            draft.settle(by_means, 4, dv, "dMeans", alpha, beta, _MATH)

    settings = (norm, xv, dv, alpha, beta, has_means, wants_means)
    prepared(where, handle, settings, draw)((x, means, dy, dx, d_means))
