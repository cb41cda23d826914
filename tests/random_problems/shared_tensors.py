"""Operations of which one tensor has two roles: it is multiplied and read behind the product, or it is two operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphdnn import ConvolutionMode, TensorSpec
from graphdnn.enums import NormMode, NormPhase, PaddingMode, PointwiseMode, ReductionOperator, ResampleMode
from graphdnn.operations import (
    BnBackwardWeights,
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    ConvolutionSpec,
    Matmul,
    MatmulSpec,
    NormBackward,
    NormForward,
    PointwiseOperation,
    PointwiseSpec,
    Reduction,
    ReductionSpec,
    ResampleBackward,
    ResampleForward,
    ResampleSpec,
)
from random_problems.graph_sketch import Problem, Sketch
from random_problems.pointwise_chains import binary, exit_of, unary

M = PointwiseMode
_FLOATS = ("f16", "f16", "f16", "bf16", "f32", "f64", "e4m3")
_INTEGERS = ("i8", "i8", "i16", "u8", "i32")
_OPERAND = (M.ADD, M.SUB, M.MAX, M.MIN)


def _types(s: Sketch) -> tuple[Any, Any, Any]:
    """Of operands, of sums, and of the arithmetic behind them."""
    if s.chance(0.25):
        return s.one_of(_INTEGERS), "i32", "i32"
    s.quarters = True
    kind = s.one_of(_FLOATS)
    return (kind, "f64", "f64") if kind == "f64" else (kind, "f32", "f32")


def _out(s: Sketch, kind: Any) -> Any:
    return s.one_of(("i32", "i8")) if kind in _INTEGERS else "f64" if kind == "f64" else s.one_of((kind, "f32"))


def _conv(compute: Any, taps: tuple[int, ...], stride: int = 1, pads: tuple[int, ...] | None = None) -> ConvolutionSpec:
    pre = tuple((f - 1) // 2 for f in taps) if pads is None else pads
    post = tuple(f // 2 for f in taps) if pads is None else pads
    return ConvolutionSpec(
        compute_type=compute, spatial_dims=len(taps), dilations=(1,) * len(taps), filter_strides=(stride,) * len(taps),
        pre_paddings=pre, post_paddings=post, mode=ConvolutionMode.CROSS_CORRELATION,
    )  # fmt: skip


def _behind(s: Sketch, value: TensorSpec, again: tuple[TensorSpec, ...], math: Any, out: Any) -> None:
    """What ends the operation reads ``again``: as they are, through a branch of their own, behind a comparison, twice."""
    for other in again:
        whole = other.extents == value.extents
        kind = s.rng.random()
        made = s.virtual(value.extents, math)
        if whole and kind < 0.2:
            branch = s.virtual(value.extents, math)
            unary(s, s.one_of((M.RELU_FWD, M.NEG)), other, branch, math)
            binary(s, s.one_of(_OPERAND), value, branch, made, math)
        elif kind < 0.35:
            flag = s.virtual(value.extents, "bool")
            binary(s, M.CMP_GT, value, other, flag, math)
            spec = PointwiseSpec(mode=M.BINARY_SELECT, math_type=math)
            s.add(PointwiseOperation(spec=spec, x=value, b=other, t=flag, y=made))
        elif kind < 0.5:
            first = s.virtual(value.extents, math)
            binary(s, s.one_of(_OPERAND), value, other, first, math)
            binary(s, s.one_of(_OPERAND), other, first, made, math)
        else:
            binary(s, s.one_of(_OPERAND), *s.one_of(((value, other), (other, value))), made, math)
        value = made
    y = s.tensor(value.extents, out)
    unary(s, s.one_of((M.RELU_FWD, M.IDENTITY, M.NEG)), value, y, math)
    if s.chance(0.12):
        exit_of(s, y)


def _is_exact(s: Sketch) -> bool:
    """Sums of floats at the exit are of another order in each engine."""
    return not s.quarters or all(op.tag not in ("reduction", "genstats") for op in s.operations)


def _layouts(s: Sketch) -> None:
    """Plain ones of whole rows half of the time, which tensor cores ask for."""
    s.aligned = s.chance(0.6)
    if s.chance(0.4):
        s.row = 16 if s.chance(0.5) else 8


def _ahead(s: Sketch, x: TensorSpec, math: Any, probability: float = 0.25) -> TensorSpec:
    if not s.chance(probability):
        return x
    made = s.virtual(x.extents, x.data_type)
    unary(s, s.one_of((M.RELU_FWD, M.ABS)), x, made, math)
    return made


def images(s: Sketch) -> Problem:
    """A convolution, forward or of data, behind which its image is read once more."""
    kind, compute, math = _types(s)
    _layouts(s)
    axes = s.one_of((1, 2, 2, 2, 3))
    taps = tuple(s.one_of((1, 1, 3, 3, 5)) for _ in range(axes)) if s.chance(0.5) else (s.one_of((1, 3)),) * axes
    c = s.channels(9, 140)
    groups = 1 if s.chance(0.6) else s.one_of([g for g in range(1, c + 1) if c % g == 0])
    most = 7 if s.large else 4
    size = tuple(s.number(2, (20 if axes < 3 else 6) if s.large else most) for _ in taps)
    n, forward, which = s.number(1, 5 if s.large else 3), s.chance(0.5), s.rng.random()
    held, made, filter, pads = (n, c, *size), (n, c, *size), (c, c // groups, *taps), None
    if which < 0.12:  # of one channel
        held, filter = (n, 1, *size), (c, 1, *taps) if forward else (1, c, *taps)
    elif which < 0.2:  # of one pixel
        forward, held, made, filter, pads = False, (n, c, *(1,) * axes), (n, c, *taps), (c, c, *taps), (0,) * axes
    x, w = s.input(held, kind), s.input(filter, kind)
    y = s.virtual(made, math if s.chance(0.8) or kind in _INTEGERS else x.data_type)
    entering = _ahead(s, x, math)
    if forward:
        s.add(ConvForward(x=entering, w=w, y=y, conv=_conv(compute, taps)))
    else:
        s.add(ConvBackwardData(dy=entering, w=w, dx=y, conv=_conv(compute, taps, pads=pads)))
    again: list[TensorSpec] = [x] if s.chance(0.8) else [x, x]
    if s.chance(0.4):
        bias = s.input(s.broadcast(made), "i32" if kind in _INTEGERS else kind)
        again += [bias] if s.chance(0.6) else [bias, bias]
    _behind(s, y, tuple(again), math, _out(s, kind))
    return s.problem(_is_exact(s), covers=("image",))


def filters(s: Sketch) -> Problem:
    """A convolution behind which its filter is read once more, by images and pixels as by filters and taps."""
    kind, compute, math = _types(s)
    _layouts(s)
    axes = s.one_of((1, 2, 2, 3))
    c = s.channels(7, 40)
    groups = 1 if s.chance(0.5) else c
    taps = tuple(s.one_of((1, 1, 3)) for _ in range(axes))
    size = tuple(f if f > 1 else s.number(1, 4) for f in taps)
    narrow = groups == 1 and s.chance(0.3)  # images and filters of one channel
    x, w = s.input((c, 1 if narrow else c, *size), kind), s.input((c, 1 if narrow else c // groups, *taps), kind)
    y = s.virtual((c, c, *size), math)
    if narrow or s.chance(0.5):
        s.add(ConvForward(x=x, w=w, y=y, conv=_conv(compute, taps)))
    else:
        s.add(ConvBackwardData(dy=x, w=w, dx=y, conv=_conv(compute, taps)))
    _behind(s, y, s.one_of(((w,), (w, x), (w, w))), math, _out(s, kind))
    return s.problem(_is_exact(s), covers=("filter",))


def gradients(s: Sketch) -> Problem:
    """A filter gradient of two images that are one tensor, or behind which one of them is read once more."""
    kind, compute, math = _types(s)
    _layouts(s)
    axes = s.one_of((1, 2, 2, 3))
    if s.chance(0.5):  # of an image and itself
        taps = tuple(s.one_of((1, 3)) for _ in range(axes))
        c = s.channels(9, 140)
        x = s.input((s.number(1, 4), c, *(s.number(2, 9 if s.large else 4) for _ in taps)), kind)
        dw = s.virtual((c, c, *taps), math)
        s.add(ConvBackwardFilter(x=_ahead(s, x, math), dy=x, dw=dw, conv=_conv(compute, taps)))
        bias = s.input(s.broadcast(dw.extents), "i32" if kind in _INTEGERS else kind)
        _behind(s, dw, s.one_of(((bias,), (bias, bias))), math, _out(s, kind))
        return s.problem(_is_exact(s), covers=("image and itself",))
    c, taps = s.channels(9, 80), tuple(s.number(1, 4) for _ in range(axes))
    n, k = (1, s.channels(9, 80)) if s.chance(0.4) else (c, c)
    x, dy = s.input((n, c, *taps), kind), s.input((n, k, *(1 for _ in taps)), kind)
    dw = s.virtual((k, c, *taps), math)
    s.add(ConvBackwardFilter(x=x, dy=dy, dw=dw, conv=_conv(compute, taps, pads=(0,) * axes)))
    _behind(s, dw, s.one_of(((x,), (dy,), (dy, x))) if k == c else (x,), math, _out(s, kind))
    return s.problem(_is_exact(s), covers=("image behind",))


def itself(s: Sketch) -> Problem:
    """A convolution of a tensor with itself, forward or of data; it may be read once more behind it."""
    kind, compute, math = _types(s)
    _layouts(s)
    axes = s.one_of((1, 2, 2, 3))
    c = s.channels(7, 40)
    size = tuple(s.one_of((1, 3)) for _ in range(axes))
    x = s.input((c, c, *size), kind)
    y = s.virtual(x.extents, math)
    entering = _ahead(s, x, math, 0.15)
    if s.chance(0.5):
        s.add(ConvForward(x=entering, w=x, y=y, conv=_conv(compute, size)))
    else:
        s.add(ConvBackwardData(dy=entering, w=x, dx=y, conv=_conv(compute, size)))
    bias = s.input((1, c, *(1,) * axes), "i32" if kind in _INTEGERS else kind)
    _behind(s, y, s.one_of(((x,), (bias,), (bias, bias, x))), math, _out(s, kind))
    return s.problem(_is_exact(s), covers=("itself",))


def matrices(s: Sketch) -> Problem:
    """A product behind which an operand is read once more, or of a matrix and itself."""
    kind, compute, math = _types(s)
    s.aligned = s.chance(0.6)
    batch = tuple(s.number(1, 3) for _ in range(s.one_of((0, 1, 1, 2))))
    n, other = (s.one_of((8, 16, 64)) if s.chance(0.5) else s.channels(9, 130) for _ in range(2))
    which = s.one_of(("square", "itself", "rows", "columns"))
    rows, columns = other if which == "rows" else n, other if which == "columns" else n
    a = s.input((*batch, rows, n), kind)
    b = a if which == "itself" else s.input((*(e if s.chance(0.7) else 1 for e in batch), n, columns), kind)
    first = _ahead(s, a, math)
    second = first if which == "itself" and s.chance(0.3) else _ahead(s, b, math, 0.1)
    c = s.virtual((*batch, rows, columns), math)
    s.add(Matmul(a=first, b=second, c=c, spec=MatmulSpec(compute_type=compute)))
    bias = s.input(s.broadcast(c.extents), "i32" if kind in _INTEGERS else kind)
    again: dict[str, tuple[TensorSpec, ...]] = {"rows": (a,), "columns": (b,)}
    _behind(s, c, again.get(which) or s.one_of(((a,), (b,), (a, b), (bias, bias), (bias, a))), math, _out(s, kind))
    return s.problem(_is_exact(s), covers=(which,))


def _averages(s: Sketch, compute: Any, mode: ResampleMode) -> ResampleSpec:
    axes = s.one_of((1, 2, 2, 3))
    return ResampleSpec(
        mode=mode, padding_mode=PaddingMode.NEG_INF_PAD if mode is ResampleMode.MAXPOOL else PaddingMode.ZERO_PAD,
        compute_type=compute, spatial_dims=axes, window_dims=(3,) * axes, strides=(1,) * axes,
        pre_paddings=(1,) * axes, post_paddings=(1,) * axes,
    )  # fmt: skip


def pooling(s: Sketch) -> Problem:
    """A pool, or its gradient, behind which what is pooled is read once more; and gradients of equal tensors."""
    kind = s.one_of(("f32", "f16", "bf16"))
    s.quarters = True
    s.aligned = s.chance(0.5)
    mode = s.one_of((ResampleMode.MAXPOOL, ResampleMode.AVGPOOL_INCLUDE_PADDING))
    spec = _averages(s, "f32", mode)
    most = 9 if s.large else 5
    x = s.input((s.number(1, 3), s.channels(7, 70), *(s.number(3, most) for _ in range(spec.spatial_dims))), kind)
    if s.chance(0.5):
        y = s.virtual(x.extents, "f32")
        s.add(ResampleForward(spec=spec, x=_ahead(s, x, "f32"), y=y))
        _behind(s, y, s.one_of(((x,), (x, x))), "f32", kind)
        return s.problem(covers=("pool",))
    same = s.one_of((x, None))
    dy = x if same is not None else s.input(x.extents, kind)
    y = x if mode is ResampleMode.MAXPOOL else None
    dx = s.tensor(x.extents, kind)
    ports: dict[str, Any] = {"dy": dy, "dx": dx}
    if mode is ResampleMode.MAXPOOL:
        ports |= {"x": x, "y": y}
    s.add(ResampleBackward(spec=spec, **ports))
    return s.problem(covers=("pool gradient",))


def norms(s: Sketch) -> Problem:
    """A norm behind which x is read once more, whose scale is its bias, or whose statistics are one tensor; gradients."""
    kind = s.one_of(("f32", "f16", "bf16"))
    s.aligned = s.chance(0.5)
    mode = s.one_of((NormMode.BATCH_NORM, NormMode.INSTANCE_NORM, NormMode.LAYER_NORM, NormMode.RMS_NORM))
    most = 9 if s.large else 5
    x_dims: tuple[int, ...] = (s.number(2, 5), s.channels(9, 90), s.number(3, most), s.number(3, most))
    channels: tuple[int, ...] = (1, x_dims[1], 1, 1)
    if mode in (NormMode.LAYER_NORM, NormMode.RMS_NORM):
        x_dims = (s.number(1, 5), s.number(1, 7), s.one_of((32, 64, 257, 8 * s.number(1, 60))))
        channels = (1, 1, x_dims[2])
    x = s.input(x_dims, kind)
    scale = s.positive(channels, "f32")
    epsilon = s.scalar(len(x_dims), 1e-3, "f32")
    if s.chance(0.5):
        y = s.virtual(x_dims, "f32")
        ports: dict[str, Any] = (
            {} if mode is NormMode.RMS_NORM else {"bias": scale if s.chance(0.5) else s.input(channels, "f32")}
        )
        if mode is NormMode.BATCH_NORM and s.chance(0.4):
            both = s.positive(channels, "f32")
            ports |= {"mean": both, "inv_variance": both}
            phase = NormPhase.INFERENCE
        else:
            phase = NormPhase.TRAINING
            ports["epsilon"] = epsilon
            if mode is NormMode.BATCH_NORM and s.chance(0.5):
                both = s.positive(channels, "f32")
                ports |= {
                    "momentum": s.scalar(len(x_dims), 0.25, "f32"), "input_running_mean": both,
                    "input_running_var": both, "output_running_mean": s.tensor(channels, "f32"),
                    "output_running_var": s.tensor(channels, "f32"),
                }  # fmt: skip
        entering = _ahead(s, x, "f32", 0.2)
        s.add(NormForward(mode=mode, phase=phase, math_type="f32", x=entering, scale=scale, y=y, **ports))
        _behind(s, y, s.one_of(((x,), (scale,), (x, scale), (x, x))), "f32", kind)
        return s.problem(covers=(mode.name,))
    ports = {"dx": s.tensor(x_dims, kind), "dscale": s.tensor(channels, "f32"), "epsilon": epsilon}
    if mode is not NormMode.RMS_NORM:
        ports["dbias"] = s.tensor(channels, "f32")
    dy = _ahead(s, x, "f32", 1.0)  # of x itself dx is a rest of nothing
    s.add(NormBackward(mode=mode, math_type="f32", x=x, dy=dy, scale=scale, **ports))
    return s.problem(covers=(mode.name, "gradient"))


def sums(s: Sketch) -> Problem:
    """A softmax behind which x is read once more, its gradient of one tensor, and the weights of a norm of x and x."""
    kind = s.one_of(("f32", "f16", "bf16"))
    dims = (s.number(1, 5), s.number(1, 6), s.one_of((7, 32, 64, 130)))
    row, which = (*dims[:-1], 1), s.rng.random()
    total = ReductionSpec(operator=ReductionOperator.ADD, compute_type="f32")
    if which < 0.4:
        x = s.input(dims, kind)
        most, sum_, shifted, powers, y = (s.virtual(d, "f32") for d in (row, row, dims, dims, dims))
        s.add(Reduction(x=x, y=most, spec=ReductionSpec(operator=ReductionOperator.MAX, compute_type="f32")))
        binary(s, M.SUB, x, most, shifted, "f32")
        unary(s, M.EXP, shifted, powers, "f32")
        s.add(Reduction(x=powers, y=sum_, spec=total))
        binary(s, M.DIV, powers, sum_, y, "f32")
        _behind(s, y, s.one_of(((x,), (x, x))), "f32", kind)
        return s.problem(covers=("softmax",))
    if which < 0.7:
        y, dx = s.positive(dims, kind), s.tensor(dims, kind)
        sum_, product, rest = s.virtual(row, "f32"), s.virtual(dims, "f32"), s.virtual(dims, "f32")
        binary(s, M.MUL, y, y, product, "f32")
        s.add(Reduction(x=product, y=sum_, spec=total))
        binary(s, M.SUB, y, sum_, rest, "f32")
        binary(s, M.MUL, y, rest, dx, "f32")
        return s.problem(covers=("softmax gradient",))
    image = (s.number(1, 4), s.channels(9, 60), s.number(1, 5), s.number(1, 6))
    channels = (1, image[1], 1, 1)
    x, both = s.input(image, kind), s.positive(channels, "f32")
    outputs = ("dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias")
    s.add(
        BnBackwardWeights(
            math_type="f32",
            x=x,
            dy=_ahead(s, x, "f32", 0.5),
            mean=both,
            inv_std=both,
            scale=both,
            **{name: s.tensor(channels, "f32") for name in outputs},
        )
    )
    return s.problem(covers=("weights",))


KINDS: tuple[Callable[[Sketch], Problem], ...] = (
    images, matrices, filters, gradients, itself, norms, images, matrices, pooling, sums, images,
)  # fmt: skip
