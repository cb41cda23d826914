"""Operations: the methods of ``Graph`` that add convolutions, products, reductions and other operations.

Each function adds one operation to the description of a graph; ``graph.py`` lists them as methods. Each takes ``name``,
a label, and ``compute_data_type``, the type of its arithmetic.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

from graphdnn.builder.description import Description
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
    reason="batch, channels and groups have no padding and no stride",
    fix="padding=[1, 1] pads H and W by 1 on both sides; pre_padding=[0, 0], post_padding=[1, 1] pad behind only",
)
_MOST_SPATIAL = 3
_INEXACT = (ReductionOperator.AVG, ReductionOperator.NORM2)  # no integers, even of integers


def conv_fprop(
    graph: Description,
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
    """Convolution: y ``[N, G*K, P, Q]`` of x ``[N, G*C, H, W]`` and w ``[G*K, C, R, S]``; G is the number of
    groups.

    The explicit form of the groups is accepted as well: x ``[N, G, C, H, W]`` and w ``[G, K, C, R, S]``. There may
    be 1 to 3 spatial axes. The output has ``P = floor((H + padding before + padding behind - dilation * (R - 1) -
    1) / stride) + 1`` rows. Source of the formula: the cuDNN documentation, ``cudnnConvolutionForward``.

    Args:
        image: The tensor x.
        weight: The filter w.
        padding: Zeros on both sides of each spatial axis, in elements. None means 0.
        stride: The step of the filter, in elements. None means 1.
        dilation: The distance between two taps of the filter, in elements. None means 1.
        convolution_mode: ``CROSS_CORRELATION``, or ``CONVOLUTION`` with the filter flipped.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or INT32 for
            integers, or DOUBLE for doubles.
        name: A label for reports and error messages.
        pre_padding: Zeros before the first element, in place of ``padding``.
        post_padding: Zeros behind the last element, in place of ``padding``.

    Returns:
        The tensor y, virtual until ``set_output(True)``.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    settings = (padding, stride, dilation, pre_padding, post_padding, convolution_mode)
    return _convolution(graph, ConvForward, {"x": image, "w": weight}, "y", settings, compute_data_type, name)


def conv_dgrad(
    graph: Description,
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
    """Data gradient of a convolution: dx of dy and w. Call ``set_dim`` on it, because several extents are possible.

    The formula is the derivative of ``conv_fprop``. Source: the cuDNN documentation,
    ``cudnnConvolutionBackwardData``.

    Args:
        loss: The gradient dy, ``[N, G*K, P, Q]``.
        filter: The filter w, ``[G*K, C, R, S]``.
        padding: As in the forward convolution.
        stride: As in the forward convolution.
        dilation: As in the forward convolution.
        convolution_mode: As in the forward convolution.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or INT32 for
            integers, or DOUBLE for doubles.
        name: A label for reports and error messages.
        pre_padding: As in the forward convolution.
        post_padding: As in the forward convolution.

    Returns:
        The tensor dx, ``[N, G*C, H, W]``.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    settings = (padding, stride, dilation, pre_padding, post_padding, convolution_mode)
    return _convolution(graph, ConvBackwardData, {"dy": loss, "w": filter}, "dx", settings, compute_data_type, name)


def conv_wgrad(
    graph: Description,
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
    """Filter gradient of a convolution: dw of x and dy. Call ``set_dim`` on it, because several extents are
    possible.

    The formula is the derivative of ``conv_fprop``. Source: the cuDNN documentation,
    ``cudnnConvolutionBackwardFilter``.

    Args:
        image: The tensor x, ``[N, G*C, H, W]``.
        loss: The gradient dy, ``[N, G*K, P, Q]``.
        padding: As in the forward convolution.
        stride: As in the forward convolution.
        dilation: As in the forward convolution.
        convolution_mode: As in the forward convolution.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or INT32 for
            integers, or DOUBLE for doubles.
        name: A label for reports and error messages.
        pre_padding: As in the forward convolution.
        post_padding: As in the forward convolution.

    Returns:
        The tensor dw, ``[G*K, C, R, S]``.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    settings = (padding, stride, dilation, pre_padding, post_padding, convolution_mode)
    return _convolution(graph, ConvBackwardFilter, {"x": image, "dy": loss}, "dw", settings, compute_data_type, name)


def _convolution(
    graph: Description,
    cls: type[Operation],
    operands: dict[str, Tensor],
    output: str,
    settings: tuple[Any, ...],
    kind: Any,
    name: str,
) -> Tensor:
    compute = graph.compute_type(operands.values(), kind)
    conv = convolution_spec(graph, next(iter(operands.values())), compute, settings)
    (tensor,) = graph.add(cls, {**operands, "conv": conv}, (output,), name, compute)
    return tensor


def convolution_spec(
    graph: Description, first: Tensor, compute: DataType, settings: tuple[Any, ...]
) -> ConvolutionSpec:
    """Padding, stride, dilation, paddings before and behind, and the mode, with what is left open."""
    lengths = [len(s) for s in settings[:5] if hasattr(s, "__len__") and not isinstance(s, str) and len(s)]
    spatial = lengths[0] if lengths else max(len(first.dim or ()) - 2, 1)
    if spatial > _MOST_SPATIAL:
        raise BadParam(PER_AXIS.reject(graph.here(), "padding, stride or dilation", f"{spatial} numbers"))
    padding, stride, dilation, pre, post = (_for_each_axis(s, spatial) for s in settings[:5])
    ones, zeros = (1,) * spatial, (0,) * spatial
    padding = zeros if padding is None else padding
    return graph.settings(
        ConvolutionSpec, compute_type=compute, mode=settings[5], spatial_dims=spatial,
        dilations=ones if dilation is None else dilation, filter_strides=ones if stride is None else stride,
        pre_paddings=padding if pre is None else pre, post_paddings=padding if post is None else post,
    )  # fmt: skip


def matmul(
    graph: Description, A: Tensor, B: Tensor, compute_data_type: Any = None, padding: float = 0.0, name: str = ""
) -> Tensor:  # the frontend's names
    """Matrix product ``C = A @ B`` over the last two axes; the leading axes are batch axes and broadcast.

    Args:
        A: ``[..., M, K]``.
        B: ``[..., K, N]``.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or INT32 for
            integers, or DOUBLE for doubles.
        padding: Only 0. No engine reads padded sizes.
        name: A label for reports and error messages.

    Returns:
        The tensor C, ``[..., M, N]``.

    Raises:
        BadParam: An operand belongs to another graph, or the extents do not fit.
        NotSupported: ``padding`` is not 0.
        NotInitialized: The graph is built and accepts no more operations.
    """
    refuse_given(padding, graph.here, "padding", "only ragged sizes are padded, which no engine here reads")
    compute = graph.compute_type((A, B), compute_data_type)
    spec = graph.settings(MatmulSpec, compute_type=compute)
    return graph.add(Matmul, {"a": A, "b": B, "spec": spec}, ("c",), name, compute)[0]


def pointwise(
    graph: Description,
    /,
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
    """Any elementwise mode. The methods ``add``, ``relu``, ``gelu_backward`` and so on call this method.

    Operands broadcast, aligned at the last axis. Each method of a mode states its formula.

    Args:
        mode: The mode, or its name.
        x: The first operand of the mode.
        b: The second operand, if the mode has two.
        t: The predicate of ``BINARY_SELECT``.
        dy: The gradient, for a backward mode.
        alpha1: A factor of the first operand.
        alpha2: A factor of the second operand.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or INT32 for
            integers, or DOUBLE for doubles.
        name: A label for reports and error messages.
        parameters: Fields of ``PointwiseSpec``, for example ``relu_upper_clip=6.0``.

    Returns:
        The result, virtual until ``set_output(True)``.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    mode = PointwiseMode.named(mode)
    if not isinstance(mode, PointwiseMode):
        graph.settings(PointwiseSpec, mode=mode, math_type=DataType.FLOAT)  # which refuses it
    given = {port: tensor for port, tensor in (("x", x), ("b", b), ("t", t), ("dy", dy)) if tensor is not None}
    for port in POINTWISE[mode].operands:
        graph.require_own(given.get(port))
    arithmetic = [tensor for port, tensor in given.items() if port != "t"]
    compute = graph.compute_type(arithmetic, compute_data_type, exact=POINTWISE[mode].integer)
    spec = graph.settings(PointwiseSpec, mode=mode, math_type=compute, **parameters)
    output = "dx" if spec.row.kind == "backward" else "y"
    fields = {**given, "spec": spec, "alpha1": alpha1, "alpha2": alpha2}
    return graph.add(PointwiseOperation, fields, (output,), name, compute)[0]


def reduction(
    graph: Description,
    input: Tensor,
    mode: ReductionOperator,
    compute_data_type: Any = None,
    name: str = "",
    is_deterministic: bool = False,
) -> Tensor:
    """Reduce a tensor over axes. Call ``set_dim`` on the result with extent 1 on the axes to reduce.

    Args:
        input: The tensor to reduce.
        mode: The operator, or its name: ADD, MUL, MIN, MAX, AMAX, AVG, NORM1, NORM2, MUL_NO_ZEROS.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or INT32 for
            integers, or DOUBLE for doubles.
        name: A label for reports and error messages.
        is_deterministic: True asks for the same bits in every run.

    Returns:
        The tensor y.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    mode = ReductionOperator.named(mode)
    compute = graph.compute_type((input,), compute_data_type, exact=mode not in _INEXACT)
    spec = graph.settings(ReductionSpec, operator=mode, compute_type=compute, is_deterministic=is_deterministic)
    return graph.add(Reduction, {"x": input, "spec": spec}, ("y",), name, compute)[0]


def genstats(graph: Description, input: Tensor, compute_data_type: Any = None, name: str = "") -> list[Tensor]:
    """Sum and sum of squares of each channel, the statistics that ``bn_finalize`` reads.

    Args:
        input: ``[N, C, ...]``.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or DOUBLE for
            doubles.
        name: A label for reports and error messages.

    Returns:
        [sum, sum of squares], each ``[1, C, 1, ...]``.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    compute = graph.compute_type((input,), compute_data_type, exact=False)
    return graph.add(GenStats, {"x": input, "math_type": compute}, ("sum", "sqsum"), name, compute)


def reshape(
    graph: Description, input: Tensor, name: str = "", reshape_mode: ReshapeMode = ReshapeMode.VIEW_ONLY
) -> Tensor:
    """The same elements under other extents. Call ``set_dim`` on the result.

    Args:
        input: The tensor.
        name: A label for reports and error messages.
        reshape_mode: ``VIEW_ONLY`` or ``LOGICAL``.

    Returns:
        The tensor with as many elements as ``input``.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    return graph.add(Reshape, {"x": input, "mode": ReshapeMode.named(reshape_mode)}, ("y",), name)[0]


# Data movement computes nothing: compute_data_type is there for the frontend's order of arguments.


def transpose(
    graph: Description, input: Tensor, permutation: Sequence[int], compute_data_type: Any = None, name: str = ""
) -> Tensor:
    """Permute the axes: axis j of the result is axis ``permutation[j]`` of the input.

    Args:
        input: The tensor.
        permutation: Every axis once, for example ``[0, 2, 3, 1]``.
        compute_data_type: Accepted as in cuDNN's frontend. Nothing is computed.
        name: A label for reports and error messages.

    Returns:
        The permuted tensor.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    element_type(compute_data_type, graph.here())
    axes = integers(permutation, graph.here(), "permutation", "every axis once, e.g. [0, 2, 3, 1]")
    return graph.add(Transpose, {"x": input, "permutation": axes}, ("y",), name)[0]


def slice(
    graph: Description, input: Tensor, slices: Sequence[builtins.slice], compute_data_type: Any = None, name: str = ""
) -> Tensor:
    """Cut a part out of a tensor: ``input[slices]``.

    Args:
        input: The tensor.
        slices: One Python slice for each axis.
        compute_data_type: Accepted as in cuDNN's frontend. Nothing is computed.
        name: A label for reports and error messages.

    Returns:
        The part.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    graph.require_own(input)
    element_type(compute_data_type, graph.here())
    extents = input.dim or ()
    is_list = isinstance(slices, Sequence)
    if not is_list or len(slices) != len(extents) or not all(isinstance(cut, builtins.slice) for cut in slices):
        raise BadParam(SLICES.reject(graph.here(), "slices", shown(slices), rank=len(extents)))
    try:
        cuts = [cut.indices(extent) for cut, extent in zip(slices, extents, strict=True)]
    except Exception:  # a step of 0, or bounds that are no integers, whatever their own code says of that
        raise BadParam(SLICES.reject(graph.here(), "slices", shown(slices), rank=len(extents))) from None
    starts, limits, steps = (tuple(part) for part in zip(*cuts, strict=True))
    fields = {"x": input, "starts": starts, "limits": limits, "slice_strides": steps}
    return graph.add(Slice, fields, ("y",), name)[0]


def concatenate(
    graph: Description, inputs: Sequence[Tensor], axis: int, in_place_index: None = None, name: str = ""
) -> Tensor:
    """Join tensors along an axis.

    Args:
        inputs: The tensors, equal in all other extents.
        axis: The axis, counted from 0.
        in_place_index: Only None. Outputs never overlap inputs.
        name: A label for reports and error messages.

    Returns:
        The joined tensor.

    Raises:
        BadParam: An operand belongs to another graph, or the extents do not fit.
        NotSupported: ``in_place_index`` is given.
        NotInitialized: The graph is built and accepts no more operations.
    """
    if in_place_index is not None:
        refuse_given([in_place_index], graph.here, "in_place_index", "outputs never overlap inputs here")
    (along,) = integers([axis], graph.here(), "axis", "e.g. 1 for channels")
    return graph.add(Concat, {"inputs_list": tuple(inputs), "axis": along}, ("y",), name)[0]


# Beyond the frontend's Python methods.


def resample(
    graph: Description,
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
    """Pooling and interpolation.

    Source of the formulas: the cuDNN documentation, ``CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR``.

    Args:
        input: ``[N, C, ...]`` with 1 to 3 spatial axes.
        mode: The mode, or its name: MAXPOOL, AVGPOOL_INCLUDE_PADDING, AVGPOOL_EXCLUDE_PADDING, NEAREST, BILINEAR.
        window: The extents of the window, in elements.
        stride: The step of the window, in elements. None takes the extents of the window.
        pre_padding: Elements before the first one. None means 0.
        post_padding: Elements behind the last one. None takes ``pre_padding``.
        padding_mode: What the padding contains. None takes minus infinity for MAXPOOL and zeros for the other
            modes.
        generate_index: True returns the position of each maximum, which the gradient reads.
        nan_propagation: What a maximum does with NaN.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or INT32 for
            integers, or DOUBLE for doubles.
        name: A label for reports and error messages.

    Returns:
        [y, index or None].

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    mode = ResampleMode.named(mode)
    compute = graph.compute_type((input,), compute_data_type, exact=mode is ResampleMode.MAXPOOL)
    spec = graph.settings(ResampleSpec, **_resample_fields(
        len(input.dim or ()), mode, window, stride, pre_padding, post_padding, padding_mode, nan_propagation,
        compute,
    ))  # fmt: skip
    outputs = ("y", "index") if generate_index else ("y",)
    found: list[Tensor | None] = list(graph.add(ResampleForward, {"x": input, "spec": spec}, outputs, name, compute))
    return found if generate_index else [*found, None]


def resample_backward(
    graph: Description,
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
    """Gradient of ``resample``: dx, with the parameters of the forward operation. The gradient of a maximum needs
    ``index`` or ``x``.

    Args:
        loss: The gradient dy.
        mode: As in the forward operation.
        window: As in the forward operation.
        stride: As in the forward operation.
        pre_padding: As in the forward operation.
        post_padding: As in the forward operation.
        padding_mode: As in the forward operation.
        index: The positions that ``resample`` returned with ``generate_index=True``.
        x: The input of the forward operation. Its extents are the extents of dx.
        nan_propagation: As in the forward operation.
        compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or INT32 for
            integers, or DOUBLE for doubles.
        name: A label for reports and error messages.

    Returns:
        The tensor dx. Call ``set_dim`` on it if ``x`` is not given.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    mode = ResampleMode.named(mode)
    compute = graph.compute_type((loss,), compute_data_type, exact=mode is ResampleMode.MAXPOOL)
    spec = graph.settings(ResampleSpec, **_resample_fields(
        len(loss.dim or ()), mode, window, stride, pre_padding, post_padding, padding_mode, nan_propagation,
        compute,
    ))  # fmt: skip
    fields = {"dy": loss, "spec": spec} | {p: t for p, t in (("index", index), ("x", x)) if t is not None}
    (dx,) = graph.add(ResampleBackward, fields, ("dx",), name, compute)
    dx.dim = None if x is None else x.dim
    return dx


def rng(
    graph: Description,
    /,
    distribution: RngDistribution,
    seed: Tensor | int,
    offset: Tensor,
    name: str = "",
    **parameters: float,
) -> Tensor:
    """Random numbers of the Philox generator. Call ``set_dim`` on the result.

    The generator is Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).

    Args:
        distribution: BERNOULLI, UNIFORM or NORMAL.
        seed: A number, or a tensor with one integer.
        offset: A tensor with one integer, the position in the sequence.
        name: A label for reports and error messages.
        parameters: ``probability``; or ``minimum`` and ``maximum``; or ``mean`` and ``standard_deviation``.

    Returns:
        The tensor of random numbers.

    Raises:
        BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
        NotInitialized: The graph is built and accepts no more operations.
    """
    spec = graph.settings(RngSpec, distribution=distribution, **parameters)
    return graph.add(Rng, {"spec": spec, "seed": seed, "offset": offset}, ("y",), name)[0]


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
