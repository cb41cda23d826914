"""Operations: the builder's methods for everything but elementwise modes and normalization."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from graphdnn.builder.graph_state import Nodes
from graphdnn.builder.tensor import Tensor, element_type, integers, refuse_given
from graphdnn.enums import (
    ConvolutionMode,
    DataType,
    NanPropagation,
    PaddingMode,
    PointwiseMode,
    ReductionOperator,
    ResampleMode,
    ReshapeMode,
    RngDistribution,
    shown,
)
from graphdnn.errors import BadParam
from graphdnn.operations import (
    Concat,
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    ConvolutionSpec,
    GenStats,
    Matmul,
    MatmulSpec,
    Operation,
    PointwiseOperation,
    PointwiseSpec,
    Reduction,
    ReductionSpec,
    ResampleBackward,
    ResampleForward,
    ResampleSpec,
    Reshape,
    Rng,
    RngSpec,
    Slice,
    Transpose,
)
from graphdnn.operations.pointwise_modes import POINTWISE
from graphdnn.rules import Rule

SLICES = Rule(
    id="builder.slices",
    expected="one Python slice for each of the {rank} axes",
    reason="every axis is kept or cut; an index would drop the axis",
    fix="write slice(None) for an axis that is not cut, slice(i, i + 1) for one element",
)
PER_AXIS = Rule(
    id="builder.per_axis",
    expected="a number for each of 1 to 3 spatial axes, or one for all",
    reason="batch, channels and groups are neither padded nor strided",
    fix="padding=[1, 1] pads H and W by 1 on both sides; pre_padding=[0, 0], post_padding=[1, 1] pad behind only",
)
_MOST_SPATIAL = 3
_INEXACT = (ReductionOperator.AVG, ReductionOperator.NORM2)  # no integers, even of integers


class Operations(Nodes):
    """``name`` names the operation, ``compute_data_type`` its arithmetic."""

    def conv_fprop(
        self,
        image: Tensor,
        weight: Tensor,
        padding: Sequence[int] | int | None = None,
        stride: Sequence[int] | int | None = None,
        dilation: Sequence[int] | int | None = None,
        convolution_mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
        compute_data_type: Any = None,
        name: str = "",
        pre_padding: Sequence[int] | int | None = None,
        post_padding: Sequence[int] | int | None = None,
    ) -> Tensor:
        """y of x ``[N, G*C, ...]`` and w ``[G*K, C, ...]``, or of ``[N, G, C, ...]`` and ``[G, K, C, ...]``."""
        settings = (padding, stride, dilation, pre_padding, post_padding, convolution_mode)
        return self._convolution(ConvForward, {"x": image, "w": weight}, "y", settings, compute_data_type, name)

    def conv_dgrad(
        self,
        loss: Tensor,
        filter: Tensor,
        padding: Sequence[int] | int | None = None,
        stride: Sequence[int] | int | None = None,
        dilation: Sequence[int] | int | None = None,
        convolution_mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
        compute_data_type: Any = None,
        name: str = "",
        pre_padding: Sequence[int] | int | None = None,
        post_padding: Sequence[int] | int | None = None,
    ) -> Tensor:
        """dx; call ``set_dim`` on it, several extents are possible. The parameters are the forward's."""
        settings = (padding, stride, dilation, pre_padding, post_padding, convolution_mode)
        return self._convolution(ConvBackwardData, {"dy": loss, "w": filter}, "dx", settings, compute_data_type, name)

    def conv_wgrad(
        self,
        image: Tensor,
        loss: Tensor,
        padding: Sequence[int] | int | None = None,
        stride: Sequence[int] | int | None = None,
        dilation: Sequence[int] | int | None = None,
        convolution_mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
        compute_data_type: Any = None,
        name: str = "",
        pre_padding: Sequence[int] | int | None = None,
        post_padding: Sequence[int] | int | None = None,
    ) -> Tensor:
        """dw; call ``set_dim`` on it, several extents are possible. The parameters are the forward's."""
        settings = (padding, stride, dilation, pre_padding, post_padding, convolution_mode)
        return self._convolution(ConvBackwardFilter, {"x": image, "dy": loss}, "dw", settings, compute_data_type, name)

    def _convolution(
        self,
        cls: type[Operation],
        operands: dict[str, Tensor],
        output: str,
        settings: tuple[Any, ...],
        kind: Any,
        name: str,
    ) -> Tensor:
        compute = self._compute_type(operands.values(), kind)
        conv = self._positions(next(iter(operands.values())), compute, settings)
        (tensor,) = self._add(cls, {**operands, "conv": conv}, (output,), name, compute)
        return tensor

    def _positions(self, first: Tensor, compute: DataType, settings: tuple[Any, ...]) -> ConvolutionSpec:
        """Padding, stride, dilation, paddings before and behind, and the mode, with what is left open."""
        lengths = [len(s) for s in settings[:5] if hasattr(s, "__len__") and not isinstance(s, str) and len(s)]
        spatial = lengths[0] if lengths else max(len(first.dim or ()) - 2, 1)
        if spatial > _MOST_SPATIAL:
            raise BadParam(PER_AXIS.reject(self._here(), "padding, stride or dilation", f"{spatial} numbers"))
        padding, stride, dilation, pre, post = (_for_each_axis(s, spatial) for s in settings[:5])
        ones, zeros = (1,) * spatial, (0,) * spatial
        padding = zeros if padding is None else padding
        return self._settings(
            ConvolutionSpec, compute_type=compute, mode=settings[5], spatial_dims=spatial,
            dilations=ones if dilation is None else dilation, filter_strides=ones if stride is None else stride,
            pre_paddings=padding if pre is None else pre, post_paddings=padding if post is None else post,
        )  # fmt: skip

    def matmul(
        self, A: Tensor, B: Tensor, compute_data_type: Any = None, padding: float = 0.0, name: str = ""
    ) -> Tensor:  # the frontend's names
        """C = A @ B over the last two axes; leading axes are batch."""
        refuse_given(padding, self._here, "padding", "only ragged sizes are padded, which no engine here reads")
        compute = self._compute_type((A, B), compute_data_type)
        spec = self._settings(MatmulSpec, compute_type=compute)
        return self._add(Matmul, {"a": A, "b": B, "spec": spec}, ("c",), name, compute)[0]

    def pointwise(
        self,
        mode: PointwiseMode,
        *,
        x: Tensor | None = None,
        b: Tensor | None = None,
        t: Tensor | None = None,
        dy: Tensor | None = None,
        alpha1: float = 1.0,
        alpha2: float = 1.0,
        compute_data_type: Any = None,
        name: str = "",
        **parameters: Any,
    ) -> Tensor:
        """Any elementwise mode; the methods ``add``, ``relu``, ``gelu_backward`` ... are rows over this one.

        Operands broadcast, right-aligned. ``alpha1`` and ``alpha2`` are factors of the mode's first two operands,
        ``parameters`` fields of ``PointwiseSpec``.
        """
        mode = PointwiseMode.named(mode)
        if not isinstance(mode, PointwiseMode):
            self._settings(PointwiseSpec, mode=mode, math_type=DataType.FLOAT)  # which refuses it
        given = {port: tensor for port, tensor in (("x", x), ("b", b), ("t", t), ("dy", dy)) if tensor is not None}
        for port in POINTWISE[mode].operands:
            self._own(given.get(port))
        arithmetic = [tensor for port, tensor in given.items() if port != "t"]
        compute = self._compute_type(arithmetic, compute_data_type, exact=POINTWISE[mode].integer)
        spec = self._settings(PointwiseSpec, mode=mode, math_type=compute, **parameters)
        output = "dx" if spec.row.kind == "backward" else "y"
        fields = {**given, "spec": spec, "alpha1": alpha1, "alpha2": alpha2}
        return self._add(PointwiseOperation, fields, (output,), name, compute)[0]

    def reduction(
        self,
        input: Tensor,
        mode: ReductionOperator,
        compute_data_type: Any = None,
        name: str = "",
        is_deterministic: bool = False,
    ) -> Tensor:
        """y; call ``set_dim`` with 1 on the axes to reduce. ``is_deterministic``: the same bits in every run."""
        mode = ReductionOperator.named(mode)
        compute = self._compute_type((input,), compute_data_type, exact=mode not in _INEXACT)
        spec = self._settings(ReductionSpec, operator=mode, compute_type=compute, is_deterministic=is_deterministic)
        return self._add(Reduction, {"x": input, "spec": spec}, ("y",), name, compute)[0]

    def genstats(self, input: Tensor, compute_data_type: Any = None, name: str = "") -> list[Tensor]:
        """[sum, sum of squares] per channel."""
        compute = self._compute_type((input,), compute_data_type, exact=False)
        return self._add(GenStats, {"x": input, "math_type": compute}, ("sum", "sqsum"), name, compute)

    def reshape(self, input: Tensor, name: str = "", reshape_mode: ReshapeMode = ReshapeMode.VIEW_ONLY) -> Tensor:
        """The same elements under other extents; call ``set_dim``."""
        return self._add(Reshape, {"x": input, "mode": ReshapeMode.named(reshape_mode)}, ("y",), name)[0]

    # Data movement computes nothing: compute_data_type is there for the frontend's order of arguments.

    def transpose(
        self, input: Tensor, permutation: Sequence[int], compute_data_type: Any = None, name: str = ""
    ) -> Tensor:
        """Axis j of the result is axis permutation[j] of the input."""
        element_type(compute_data_type, self._here())
        axes = integers(permutation, self._here(), "permutation", "every axis once, e.g. [0, 2, 3, 1]")
        return self._add(Transpose, {"x": input, "permutation": axes}, ("y",), name)[0]

    def slice(
        self, input: Tensor, slices: Sequence[builtins.slice], compute_data_type: Any = None, name: str = ""
    ) -> Tensor:
        """input[slices], one Python slice per axis."""
        self._own(input)
        element_type(compute_data_type, self._here())
        extents = input.dim or ()
        is_list = isinstance(slices, Sequence)
        if not is_list or len(slices) != len(extents) or not all(isinstance(cut, builtins.slice) for cut in slices):
            raise BadParam(SLICES.reject(self._here(), "slices", shown(slices), rank=len(extents)))
        try:
            cuts = [cut.indices(extent) for cut, extent in zip(slices, extents, strict=True)]
        except Exception:  # a step of 0, or bounds that are no integers, whatever their own code says of that
            raise BadParam(SLICES.reject(self._here(), "slices", shown(slices), rank=len(extents))) from None
        starts, limits, steps = (tuple(part) for part in zip(*cuts, strict=True))
        fields = {"x": input, "starts": starts, "limits": limits, "slice_strides": steps}
        return self._add(Slice, fields, ("y",), name)[0]

    def concatenate(self, inputs: Sequence[Tensor], axis: int, in_place_index: None = None, name: str = "") -> Tensor:
        """The inputs one after another along an axis."""
        if in_place_index is not None:
            refuse_given([in_place_index], self._here, "in_place_index", "outputs never overlap inputs here")
        (along,) = integers([axis], self._here(), "axis", "e.g. 1 for channels")
        return self._add(Concat, {"inputs_list": tuple(inputs), "axis": along}, ("y",), name)[0]

    # Beyond the frontend's Python methods.

    def resample(
        self,
        input: Tensor,
        mode: ResampleMode,
        window: Sequence[Any] | int,
        stride: Sequence[Any] | int | None = None,
        pre_padding: Sequence[Any] | int | None = None,
        post_padding: Sequence[Any] | int | None = None,
        padding_mode: PaddingMode | None = None,
        generate_index: bool = False,
        nan_propagation: NanPropagation = NanPropagation.PROPAGATE_NAN,
        compute_data_type: Any = None,
        name: str = "",
    ) -> list[Tensor | None]:
        """[y, index or None]: pooling and interpolation; the stride is the window's unless given."""
        mode = ResampleMode.named(mode)
        compute = self._compute_type((input,), compute_data_type, exact=mode is ResampleMode.MAXPOOL)
        spec = self._settings(ResampleSpec, **_resample_fields(
            len(input.dim or ()), mode, window, stride, pre_padding, post_padding, padding_mode, nan_propagation,
            compute,
        ))  # fmt: skip
        outputs = ("y", "index") if generate_index else ("y",)
        found: list[Tensor | None] = list(
            self._add(ResampleForward, {"x": input, "spec": spec}, outputs, name, compute)
        )
        return found if generate_index else [*found, None]

    def resample_backward(
        self,
        loss: Tensor,
        mode: ResampleMode,
        window: Sequence[Any] | int,
        stride: Sequence[Any] | int | None = None,
        pre_padding: Sequence[Any] | int | None = None,
        post_padding: Sequence[Any] | int | None = None,
        padding_mode: PaddingMode | None = None,
        index: Tensor | None = None,
        x: Tensor | None = None,
        nan_propagation: NanPropagation = NanPropagation.PROPAGATE_NAN,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """dx, with the forward's parameters; its extents are x's, or those of ``set_dim``. Maxima need index or x."""
        mode = ResampleMode.named(mode)
        compute = self._compute_type((loss,), compute_data_type, exact=mode is ResampleMode.MAXPOOL)
        spec = self._settings(ResampleSpec, **_resample_fields(
            len(loss.dim or ()), mode, window, stride, pre_padding, post_padding, padding_mode, nan_propagation,
            compute,
        ))  # fmt: skip
        fields = {"dy": loss, "spec": spec} | {p: t for p, t in (("index", index), ("x", x)) if t is not None}
        (dx,) = self._add(ResampleBackward, fields, ("dx",), name, compute)
        dx.dim = None if x is None else x.dim
        return dx

    def rng(
        self, distribution: RngDistribution, seed: Tensor | int, offset: Tensor, name: str = "", **parameters: float
    ) -> Tensor:
        """Random numbers; call ``set_dim``. ``parameters``: probability; minimum, maximum; mean, standard_deviation."""
        spec = self._settings(RngSpec, distribution=distribution, **parameters)
        return self._add(Rng, {"spec": spec, "seed": seed, "offset": offset}, ("y",), name)[0]


def _for_each_axis(values: Any, spatial: int) -> Any:
    """One number stands for all spatial axes; None for an empty list, by which the frontend means: not set."""
    if isinstance(values, int) and not isinstance(values, bool):
        return (values,) * spatial
    return None if hasattr(values, "__len__") and len(values) == 0 else values


def _resample_fields(
    rank: int,
    mode: ResampleMode,
    window: Any,
    stride: Any,
    pre: Any,
    post: Any,
    padding: Any,
    nan: NanPropagation,
    compute: DataType,
) -> dict[str, Any]:
    natural = PaddingMode.NEG_INF_PAD if mode is ResampleMode.MAXPOOL else PaddingMode.ZERO_PAD
    spatial = len(window) if hasattr(window, "__len__") else max(rank - 2, 1)
    window, stride, pre, post = (_for_each_axis(values, spatial) for values in (window, stride, pre, post))
    pre = (0,) * spatial if pre is None else pre
    return {
        "mode": mode, "compute_type": compute, "spatial_dims": spatial, "window_dims": window,
        "strides": window if stride is None else stride, "pre_paddings": pre,
        "post_paddings": pre if post is None else post, "nan_propagation": nan,
        "padding_mode": natural if padding is None else padding,
    }  # fmt: skip
