"""Rules of the other engines for a device, each with what breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import pytest
from engine_rejections import H200, Case, declined
from extension_cases import extension
from legal_problems import IMAGE, convolution, operation, pooling, tensor
from recurrent_cases import spec as recurrent_spec

from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import DataType, PaddingMode, ResampleMode
from graphdnn.operations import Cell, Operation, RnnBackwardData, RnnForward
from graphdnn.operations.resample import resampled_extents
from graphdnn.problem import parse

LONG = (2**31 + 1, 1)


def _behind_a_chain(channels: int = 4, kind: str = "f32") -> tuple[Operation, ...]:
    """A convolution of what a pointwise operation computes. ``channels``: of a filter."""
    between = tensor(13, IMAGE, kind, is_virtual=True)
    first = operation("pointwise", x=tensor(11, IMAGE, kind), b=tensor(12, IMAGE, kind), y=between)
    ends = tensor(2, (4, channels, 1, 1), kind), tensor(3, IMAGE, kind)
    return first, operation("conv_fprop", x=between, w=ends[0], y=ends[1])


def without(library: str, engine: str) -> Case:
    """Asked for a convolution or a matrix product where a library of CUDA's is not installed."""

    def ask() -> None:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("cublas", "cufft"):
                patch.setattr(f"graphdnn.cuda.{name}.missing", lambda name=name: "no file" if name == library else "")
            declined(engine, operation("matmul" if "matmul" in engine else "conv_fprop"), H200)()

    return ask


def wide_filter() -> Operation:
    """A convolution whose filter is wider than a tile."""
    image, filter, result = tensor(1, (1, 4, 40, 40)), tensor(2, (4, 4, 33, 1)), tensor(3, (1, 4, 8, 40))
    return operation("conv_fprop", x=image, w=filter, y=result)


def distant(is_wgrad: bool = False) -> Operation:
    """A convolution, or its filter gradient, whose taps lie further apart than 32-bit numbers reach."""
    conv = convolution(dilations=(2 * 10**9, 1), pre_paddings=(10**9, 0), post_paddings=(10**9, 0))
    image = tensor(1, (1, 1, 6, 6))
    if is_wgrad:
        return operation("conv_wgrad", x=image, dy=tensor(3, (1, 1, 6, 6)), dw=tensor(2, (1, 1, 2, 1)), conv=conv)
    return operation("conv_fprop", x=image, w=tensor(2, (1, 1, 2, 1)), y=tensor(3, (1, 1, 6, 6)), conv=conv)


def uneven() -> Operation:
    """The gradient of an interpolation whose step has a denominator of 31 bits."""
    spec = pooling(
        mode=ResampleMode.NEAREST, padding_mode=PaddingMode.EDGE_VAL_PAD, spatial_dims=1, window_dims=(1,),
        strides=(Fraction(10**9 + 7, 2 * 10**9),), pre_paddings=(0,), post_paddings=(0,),
    )  # fmt: skip
    y = resampled_extents((1, 1, 9), spec)
    return operation("resample_bwd", dy=tensor(1, y), dx=tensor(2, (1, 1, 9)), index=..., spec=spec)


def by_value(tag: str, port: str) -> Operation:
    """A recurrent network of one value, whose port is a scalar by value."""
    net = recurrent_spec(layers=1, input_size=1, hidden_size=1, batch_sizes=(1,))
    counts = {
        "w": net.weight_count,
        "dw": net.weight_count,
        "kept": net.kept_count,
        "kept_gradients": net.gradient_count,
    }
    dims = {p: (counts[p],) if p in counts else (1,) * t.rank for p, t in extension(tag).tensors().items()}
    return extension(
        tag, rnn=net, **{p: tensor(i, d, is_by_value=p == port) for i, (p, d) in enumerate(dims.items(), 1)}
    )


def too_large(tag: str) -> dict[str, Operation]:
    """Recurrent networks that tensor cores do not take."""

    def of(kind: str, **settings: object) -> Operation:
        net = recurrent_spec(**{"layers": 1, "cell": Cell.RELU, "hidden_size": 16, **settings})
        x, y = tensor(1, (net.rows, net.input_size), kind), tensor(3, (net.rows, net.width), kind)
        w, kept = (
            tensor(2, (net.weight_count,), kind),
            tensor(4, (net.gradient_count,), str(settings.get("arithmetic", "f32"))),
        )
        if tag == "rnn_fwd":
            return RnnForward(rnn=net, x=x, w=w, y=y)
        return RnnBackwardData(rnn=net, y=y, dy=y.model_copy(update={"uid": 5}), w=w, dx=x, kept_gradients=kept)

    return {
        "types": of("f32"), "arithmetic": of("f16", arithmetic="f64"), "hidden_size": of("f16", hidden_size=17),
        "size": of("f16", hidden_size=4096),
    }  # fmt: skip


def in_bits(tag: str) -> Operation:
    """An extension operation on packed booleans."""
    legal = extension(tag)
    ports = ("x", "y") if tag == "patches" else ("x",)
    return extension(tag, **{p: getattr(legal, p).model_copy(update={"data_type": DataType.BOOLEAN}) for p in ports})


def widened_cases() -> Iterator[tuple[str, Case]]:
    """Rules of the convolutions of fp8 through copies in 16 bits."""
    conv = "conv x={}[1,16,9,9] w=e4m3[16,16,3,3]"
    yield "data_type", declined("cuda_fp8_upcast", parse(conv.format("f32")).build_operation_graph().operations, H200)
    between = tensor(13, IMAGE, data_type="e4m3", is_virtual=True)
    filter, result = tensor(2, (4, 4, 1, 1), data_type="e4m3"), tensor(3, IMAGE, data_type="f16")
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    yield "copies", declined("cuda_fp8_upcast", (first, operation("conv_fprop", x=between, w=filter, y=result)), H200)


def ahead_cases() -> Iterator[tuple[str, Case]]:
    """Rules of the convolutions behind a chain that is computed ahead."""
    yield "prologue", declined("cuda_materialized_prologue", operation("conv_fprop"), H200)
    between = tensor(13, IMAGE, data_type="f64", is_virtual=True)
    filter, result = tensor(2, (4, 4, 1, 1), data_type="f64"), tensor(3, IMAGE, data_type="f64")
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    conv = operation("conv_fprop", x=between, w=filter, y=result, conv=convolution(compute_type="f64"))
    yield "rest", declined("cuda_materialized_prologue", (first, conv), H200)


def turned_cases() -> Iterator[tuple[str, Case]]:
    """Rules of the convolutions whose images are turned first."""
    engine, conv = "cuda_layout_transform", "conv x={}[1,4,8,8]{} w={}[4,1,3,3]"

    def asked(kind: str, layout: str, exit: str = "") -> Case:
        text = conv.format(kind, layout, kind) + exit
        return declined(engine, parse(text).build_operation_graph().operations, H200)

    yield "prologue", declined(engine, _behind_a_chain(), H200)
    yield "exit", asked("f16", "", " -> reduce add [1,4,1,1]")
    yield "layout", asked("f16", "nhwc")
    yield "rest", asked("f64", "")


def depthwise_cases(engine: str) -> Iterator[tuple[str, Case]]:
    """Rules of the depthwise convolutions of any filter."""
    is_wgrad = engine.endswith("wgrad")
    conv, wgrad = "conv x={0}[1,4,8,8] w={0}[4,{1},3,3] {2}", "wgrad x={0}[1,4,8,8] dy={0}[1,4,6,6] dw=[4,{1},3,3] {2}"
    ours, other = (wgrad, conv) if is_wgrad else (conv, wgrad)

    def asked(text: str, device: DeviceSpec = H200) -> Case:
        return declined(engine, parse(text).build_operation_graph().operations, device)

    yield "direction", asked(other.format("f16", 1, ""))
    yield "compute_type", asked(ours.format("f64", 1, ""))
    yield "channels_per_group", asked(ours.format("f16", 2, ""))
    spread = tensor(1, (2, 4, 8, 8), strides=(2048, 512, 64, 2))
    image, filter = tensor(3, (2, 4, 8, 8)), tensor(2, (4, 1, 1, 1))
    if is_wgrad:
        yield "taps", asked("wgrad x=f16[1,4,90] dy=f16[1,4,20] dw=[4,1,71]")
        yield "layout", declined(engine, operation("conv_wgrad", x=spread, dy=image, dw=filter), H200)
    else:
        yield "layout", declined(engine, operation("conv_fprop", x=spread, w=filter, y=image), H200)
    between = tensor(13, IMAGE, is_virtual=True)
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    ends = (
        operation("conv_wgrad", x=between, dy=tensor(2, IMAGE), dw=tensor(3, (4, 1, 1, 1)))
        if is_wgrad
        else operation("conv_fprop", x=between, w=tensor(2, (4, 1, 1, 1)), y=tensor(3, IMAGE))
    )
    yield "prologue", declined(engine, (first, ends), H200)
    yield "coordinates", declined(engine, distant(is_wgrad), H200)


def joined_cases() -> Iterator[tuple[str, Case]]:
    """Rules of the convolutions whose groups are joined."""
    engine = "cuda_group_packing"

    def asked(text: str) -> Case:
        return declined(engine, parse(text).build_operation_graph().operations, H200)

    yield "prologue", declined(engine, _behind_a_chain(2), H200)
    yield "groups", asked("conv x=f16[1,16,8,8]nhwc w=f16[16,16,3,3]")
    yield "channels", asked("conv x=f16[1,1024,8,8]nhwc w=f16[1024,512,3,3]")
    yield "operands", asked("wgrad x=f16[1,16,8,8]nhwc dy=f16[1,16,6,6]nhwc dw=[16,8,3,3] + relu")
    yield "size", asked("conv x=f16[1,16384,64,64]nhwc w=f16[16384,256,31,31]")
    yield "rest", asked("conv x=f64[1,16,8,8]nhwc w=f64[16,8,3,3]")


def apart_cases(engine: str) -> Iterator[tuple[str, Case]]:
    """Rules of the convolutions whose windows lie side by side."""
    kind = "f16" if engine == "cuda_space_to_depth" else "f32"

    def asked(text: str) -> Case:
        return declined(engine, parse(text.replace("T[", f"{kind}[")).build_operation_graph().operations, H200)

    yield "types", asked("conv x=f64[1,8,8,8]nhwc w=f64[16,8,2,2]nhwc stride=2")
    yield "prologue", declined(engine, _behind_a_chain(kind=kind), H200)
    yield "windows", asked("conv x=T[1,16,8,8]nhwc w=T[16,16,3,3]nhwc pad=1 stride=3")
    yield "layout", asked("conv x=T[1,16,8,8] w=T[16,16,2,2]nhwc stride=2")
    yield "rest", asked("conv x=T[1,8,8,8]nhwc w=T[16,8,2,2]nhwc stride=2 compute=f64")


def paired_cases() -> Iterator[tuple[str, Case]]:
    """Rules of the convolutions whose pixels are taken in pairs."""
    engine = "cuda_stride_fold"

    def asked(text: str) -> Case:
        return declined(engine, parse(text).build_operation_graph().operations, H200)

    yield "prologue", declined(engine, _behind_a_chain(), H200)
    yield "direction", asked("dgrad dy=f16[1,16,4,4]nhwc w=f16[16,16,3,3]nhwc dx=[1,16,8,8] pad=1 stride=2")
    yield "stride", asked("conv x=f16[1,16,8,8]nhwc w=f16[16,16,3,3]nhwc pad=1")
    yield "channels", asked("conv x=f16[1,64,8,8]nhwc w=f16[16,64,3,3]nhwc pad=1 stride=2")
    yield "layout", asked("conv x=f16[1,16,8,8] w=f16[16,16,3,3]nhwc pad=1 stride=2")
    yield "size", asked("conv x=f16[1,16,64,64]nhwc w=f16[65536,16,33,63] pad=0,31 stride=2")
    yield "rest", asked("conv x=f64[1,8,8,8]nhwc w=f64[16,8,3,3]nhwc pad=1 stride=2")
