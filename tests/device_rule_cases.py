"""DEVICE_RULE_CASES: what plans for a device refuse, with a driver that is pretended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from emulator.runtime import EmulatedRuntime
from extension_cases import extension, recurrent
from legal import IMAGE, convolution, operation, pooling, tensor
from recurrent_cases import spec as recurrent_spec

from graphdnn import build, device_spec, fuse
from graphdnn.build import rank
from graphdnn.device import DeviceSpec
from graphdnn.engine_index import engine_at
from graphdnn.engines import ENGINE_BY_NAME, ENGINES, Engine, Task
from graphdnn.enums import DataType, PaddingMode, ResampleMode
from graphdnn.errors import error_for
from graphdnn.graph import OperationGraph
from graphdnn.operations import Cell, Operation, RnnBackwardData, RnnForward
from graphdnn.operations.resample import resampled_extents
from graphdnn.plan import DevicePlan
from graphdnn.plan.device_arrays import shadow_of, workspace_address
from graphdnn.problem import parse

Case = Callable[[], Any]
ADDRESS, ALLOCATED = 1 << 40, 1 << 20


class OneDevice(EmulatedRuntime):
    """Bindings are looked at as CUDA's runtime looks at them; nothing is launched."""

    def shadows(self, expected: Sequence[Any], arrays: Sequence[Any], stream: int) -> Any:
        pairs = [shadow_of(want, given, 0, stream) for want, given in zip(expected, arrays, strict=True)]
        return [s for s, _ in pairs if s is not None], [r for _, r in pairs if r is not None]

    def workspace_address(self, workspace: Any, size: int) -> Any:
        return workspace_address(workspace, size, 0)


class Elsewhere(OneDevice):
    def is_here(self) -> bool:
        return False


@contextmanager
def driver(device: int | None = 0, allocated: int = ALLOCATED) -> Iterator[None]:
    """A driver that knows one allocation, on ``device``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphdnn.cuda.driver.pointer_device", lambda address: device)
        patch.setattr("graphdnn.cuda.memory.allocation", lambda address: (ADDRESS, allocated))
        yield


def device_plan(*operations: Operation, runtime: type[OneDevice] = OneDevice) -> DevicePlan:
    graph = OperationGraph.of(operations or (operation("pointwise"),))
    return DevicePlan(rank(graph, "h200").best, runtime())


def bound(plan: DevicePlan, **changed: Any) -> dict[int, Any]:
    """Addresses in the one allocation, each tensor's 64 KiB from the next."""
    arrays: dict[int, Any] = {t.uid: ADDRESS + (i << 16) for i, t in enumerate(plan.config.fused.graph.bound)}
    return arrays | {int(uid[1:]): value for uid, value in changed.items()}


def device_case(device: int | None = 0, allocated: int = ALLOCATED, **changed: Any) -> Case:
    """x + b -> y executed with some bindings changed."""

    def run() -> None:
        plan = device_plan()
        with driver(device, allocated):
            plan.execute(bound(plan, **changed))

    return run


def elsewhere() -> None:
    """Executed where another device is current than the one that the plan was loaded on."""
    plan = device_plan()
    plan.load()
    with driver(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(OneDevice, "ordinal", lambda self: 1)
        plan.execute(bound(plan))


def absent() -> None:
    plan = device_plan(runtime=Elsewhere)
    plan.execute(bound(plan))


def nested_capture() -> None:
    stream = SimpleNamespace(ptr=7)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cupy", SimpleNamespace(cuda=SimpleNamespace(get_current_stream=lambda: stream)))
        patch.setattr("graphdnn.cuda.driver.is_capturing", lambda stream: stream == 7)
        plan = device_plan()
        plan.capture(bound(plan))


def on_the_host(**call: Any) -> None:
    arrays: dict[int, Any] = {1: np.zeros(IMAGE, np.float32), 2: np.zeros((1, 4, 1, 1), np.float32)}
    arrays[3] = np.zeros(IMAGE, np.float32)
    build(OperationGraph.of([operation("pointwise")]), "cpu").execute(arrays, **call)


def declined(engine: str, op: Operation | Sequence[Operation], device: DeviceSpec) -> Case:
    def ask() -> None:
        (fused,) = fuse(OperationGraph.of([op] if isinstance(op, Operation) else op))
        raise error_for(ENGINE_BY_NAME[engine].why_not(Task(fused, device)))

    return ask


def by_index(index: int, *operations: Operation) -> Case:
    graph = OperationGraph.of(operations)
    return lambda: engine_at(index, fuse(graph), device_spec("cpu"), "ENGINE", "global_index")


def two_kernels() -> tuple[Operation, Operation]:
    total = tensor(11, (1, 4, 1, 1), is_virtual=True)
    return (
        operation("reduction", x=tensor(10, IMAGE), y=total),
        operation("pointwise", x=tensor(10, IMAGE), b=total, y=tensor(12, IMAGE)),
    )


H200 = device_spec("h200")
LONG = (2**31 + 1, 1)


def another_kind(engine: Engine) -> Case:
    """An operation that the engine is not written for."""
    return declined(engine.name, operation("reduction" if engine.name == "cuda_rng" else "rng"), H200)


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


def hopper_cases(engine: str) -> Iterator[tuple[str, Case]]:
    """Rules of the convolutions for compute capability 9.0: of 16-bit floats and bytes, of fp32, and of fp8."""
    is_integer = engine == "cuda_hopper_gemm"
    kind = "f32" if engine.endswith("tf32") else "f16" if is_integer else "e4m3"
    other, integer = ("f32", "i8") if is_integer else ("f64", kind)

    def asked(text: str, device: DeviceSpec = H200) -> Case:
        return declined(engine, parse(text).build_operation_graph().operations, device)

    def operands(kind: str) -> str:
        return f"x={kind}[1,16,9,9]nhwc w={kind}[16,16,3,3]nhwc"

    yield "compute_capability", asked(f"conv {operands(kind)}", device_spec("a100"))
    yield "types", asked(f"conv {operands(other)}")
    yield "compute_type", asked(f"conv {operands(integer)} " + ("compute=i64 out=i64" if is_integer else "compute=f64"))
    across = "compute=i32 out=i32" if is_integer else ""
    yield "across_k", asked(f"wgrad x={integer}[1,16,9,9] dy={integer}[1,16,9,9] dw=[16,16,3,3] pad=1 {across}")
    between = tensor(13, IMAGE, data_type=kind, is_virtual=True)
    filter, result = tensor(2, (4, 4, 1, 1), data_type=kind), tensor(3, IMAGE, data_type=kind)
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    yield "prologue", declined(engine, (first, operation("conv_fprop", x=between, w=filter, y=result)), H200)
    yield "walk", asked(f"conv {operands(kind)} pad=1 stride=9")
    gradient = f"dgrad dy={kind}[1,16,3,3]nhwc w={kind}[16,16,4,4]nhwc dx=[1,16,12,12]"
    yield "residues", asked(f"{gradient} stride=4")
    yield "groups", asked(f"conv x={kind}[1,32,9,9]nhwc w={kind}[16,16,3,3]nhwc")
    if is_integer:  # operands of one and of four bytes have no filter gradients
        yield "group_start", asked(f"wgrad x={kind}[1,4,9,9] dy={kind}[1,4,9,9] dw=[4,2,3,3] pad=1")


def planes_wgrad_cases(engine: str, of: str, other: str) -> Iterator[tuple[str, Case]]:
    """Rules of the filter gradients in planes of 16 bits, of type ``of``."""

    def asked(kind: str = of, channels: int = 16, c: int = 16, settings: str = "", device: DeviceSpec = H200) -> Case:
        text = f"wgrad x={kind}[1,{channels},9,9] dy={kind}[1,16,9,9] dw=[16,{c},3,3] pad=1 {settings}"
        return declined(engine, parse(text).build_operation_graph().operations, device)

    yield "compute_capability", asked(device=device_spec("a100"))
    forward = f"conv x={of}[1,16,9,9] w={of}[16,16,3,3]"
    yield "direction", declined(engine, parse(forward).build_operation_graph().operations, H200)
    yield "types", asked(other)
    between = tensor(13, IMAGE, data_type=of, is_virtual=True)
    gradient, result = tensor(2, IMAGE, data_type=of), tensor(3, (4, 4, 1, 1), data_type=of)
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    yield "prologue", declined(engine, (first, operation("conv_wgrad", x=between, dy=gradient, dw=result)), H200)
    long = f"wgrad x={of}[1,16,90,9] dy={of}[1,16,10,1] dw=[16,16,3,3] stride=9"
    yield "walk", declined(engine, parse(long).build_operation_graph().operations, H200)
    yield "groups", asked(channels=32, c=2)


def widened_cases() -> Iterator[tuple[str, Case]]:
    """Rules of the convolutions of fp8 through copies in 16 bits."""
    conv = "conv x={}[1,16,9,9] w=e4m3[16,16,3,3]"
    yield "data_type", declined("cuda_widened", parse(conv.format("f32")).build_operation_graph().operations, H200)
    between = tensor(13, IMAGE, data_type="e4m3", is_virtual=True)
    filter, result = tensor(2, (4, 4, 1, 1), data_type="e4m3"), tensor(3, IMAGE, data_type="f16")
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    yield "copies", declined("cuda_widened", (first, operation("conv_fprop", x=between, w=filter, y=result)), H200)


def ahead_cases() -> Iterator[tuple[str, Case]]:
    """Rules of the convolutions behind a chain that is computed ahead."""
    yield "prologue", declined("cuda_ahead", operation("conv_fprop"), H200)
    between = tensor(13, IMAGE, data_type="f64", is_virtual=True)
    filter, result = tensor(2, (4, 4, 1, 1), data_type="f64"), tensor(3, IMAGE, data_type="f64")
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    conv = operation("conv_fprop", x=between, w=filter, y=result, conv=convolution(compute_type="f64"))
    yield "rest", declined("cuda_ahead", (first, conv), H200)


def turned_cases() -> Iterator[tuple[str, Case]]:
    """Rules of the convolutions whose images are turned first."""
    engine, conv = "cuda_turned", "conv x={}[1,4,8,8]{} w={}[4,1,3,3]"

    def asked(kind: str, layout: str, exit: str = "") -> Case:
        text = conv.format(kind, layout, kind) + exit
        return declined(engine, parse(text).build_operation_graph().operations, H200)

    between = tensor(13, IMAGE, is_virtual=True)
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    second = operation("conv_fprop", x=between, w=tensor(2, (4, 4, 1, 1)), y=tensor(3, IMAGE))
    yield "prologue", declined(engine, (first, second), H200)
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
    engine = "cuda_joined"

    def asked(text: str) -> Case:
        return declined(engine, parse(text).build_operation_graph().operations, H200)

    between = tensor(13, IMAGE, is_virtual=True)
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    second = operation("conv_fprop", x=between, w=tensor(2, (4, 2, 1, 1)), y=tensor(3, IMAGE))
    yield "prologue", declined(engine, (first, second), H200)
    yield "groups", asked("conv x=f16[1,16,8,8]nhwc w=f16[16,16,3,3]")
    yield "channels", asked("conv x=f16[1,1024,8,8]nhwc w=f16[1024,512,3,3]")
    yield "operands", asked("wgrad x=f16[1,16,8,8]nhwc dy=f16[1,16,6,6]nhwc dw=[16,8,3,3] + relu")
    yield "size", asked("conv x=f16[1,16384,64,64]nhwc w=f16[16384,256,31,31]")
    yield "rest", asked("conv x=f64[1,16,8,8]nhwc w=f64[16,8,3,3]")


def planes_cases(engine: str) -> Iterator[tuple[str, Case]]:
    """Rules of the products of planes: of wide integers, and of fp32."""
    kind, other, compute = ("f32", "f16", "") if engine.endswith("float") else ("i16", "i8", " compute=i32 out=i32")

    def asked(text: str, device: DeviceSpec = H200) -> Case:
        return declined(engine, parse(text + compute).build_operation_graph().operations, device)

    def conv(kind: str, channels: int = 16) -> str:
        return f"conv x={kind}[1,{channels},9,9]nhwc w={kind}[16,16,3,3]nhwc"

    yield "compute_capability", asked(conv(kind), device_spec("a100"))
    yield "types", asked(conv(other))
    yield "direction", asked(f"wgrad x={kind}[1,16,9,9] dy={kind}[1,16,9,9] dw=[16,16,3,3] pad=1")
    between = tensor(13, IMAGE, data_type=kind, is_virtual=True)
    filter, result = tensor(2, (4, 4, 1, 1), data_type=kind), tensor(3, IMAGE, data_type=kind)
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    yield "prologue", declined(engine, (first, operation("conv_fprop", x=between, w=filter, y=result)), H200)
    yield "walk", asked(f"{conv(kind)} pad=1 stride=9")
    yield "residues", asked(f"dgrad dy={kind}[1,16,3,3]nhwc w={kind}[16,16,4,4]nhwc dx=[1,16,12,12] stride=4")
    # Groups of 16 channels: less than a block of floats. Of 3 integers: not whole pieces.
    narrow = f"conv x={kind}[1,6,9,9]nhwc w={kind}[4,3,3,3]nhwc"
    yield "groups", asked(conv(kind, 32) if engine.endswith("float") else narrow)


def hopper_matmul_cases(engine: str) -> Iterator[tuple[str, Case]]:
    """Rules of the matrix products for compute capability 9.0: of 16-bit floats and bytes, of fp32, and of fp8."""
    is_integer = engine == "cuda_hopper_matmul"
    kind = "f32" if engine.endswith("tf32") else "f16" if is_integer else "e4m3"
    other = "f32" if is_integer else "f16"

    def asked(text: str, device: DeviceSpec = H200) -> Case:
        return declined(engine, parse(text).build_operation_graph().operations, device)

    yield "compute_capability", asked(f"matmul a={kind}[1,8,8] b={kind}[1,8,8]", device_spec("a100"))
    yield "types", asked(f"matmul a={other}[1,8,8] b={other}[1,8,8]")
    wide = f"a={kind}[1,8,8] b={kind}[1,8,8] compute=f64"
    wide = "a=i8[1,8,8] b=i8[1,8,8] compute=i64 out=i64" if is_integer else wide
    yield "compute_type", asked(f"matmul {wide}")
    a, b = (tensor(i, (2, 2, 8, 8), data_type=kind) for i in (1, 2))
    apart = tensor(3, (2, 2, 8, 8), data_type=kind, strides=(256, 64, 8, 1))
    yield "batch", declined(engine, operation("matmul", a=a, b=b, c=apart), H200)


def halo_cases(engine: str) -> Iterator[tuple[str, Case]]:
    """Rules of the convolutions whose taps share a copied patch."""
    of, other = ("f32", "f16") if engine.endswith("tf32") else ("f16", "f32")

    def asked(text: str, device: DeviceSpec = H200) -> Case:
        return declined(engine, parse(text).build_operation_graph().operations, device)

    def conv(kind: str = of, filter: int = 3, channels: int = 16, layout: str = "nhwc") -> str:
        return f"conv x={kind}[1,{channels},64,64]{layout} w={kind}[16,16,{filter},{filter}]nhwc"

    yield "compute_capability", asked(conv(), device_spec("a100"))
    yield "types", asked(conv(other))
    yield "compute_type", asked(f"{conv()} compute=f64 out=f64" if of == "f32" else f"{conv('i8')} compute=i64 out=i64")
    yield "direction", asked(f"wgrad x={of}[1,16,9,9] dy={of}[1,16,9,9] dw=[16,16,3,3] pad=1")
    yield "spatial", asked(f"conv x={of}[1,16,9]nhwc w={of}[16,16,3]nhwc spatial=1")
    yield "stride", asked(f"{conv()} stride=2")
    yield "groups", asked(conv(channels=32))
    between = tensor(13, IMAGE, data_type=of, is_virtual=True)
    filter, result = tensor(2, (4, 4, 1, 1), data_type=of), tensor(3, IMAGE, data_type=of)
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    chain = (first, operation("conv_fprop", x=between, w=filter, y=result))
    yield "prologue", declined(engine, chain, H200)
    yield "layout", asked(conv(layout=""))
    yield "taps", asked(f"{conv(filter=1)} pad=1")
    yield "filter", asked(f"{conv(filter=31)} dil=2")


def across_cases() -> Iterator[tuple[str, Case]]:
    """Rules of the data gradients whose filters come through registers."""

    def asked(text: str, device: DeviceSpec = H200) -> Case:
        return declined("cuda_hopper_across", parse(text).build_operation_graph().operations, device)

    def dgrad(kind: str = "f32", c: int = 16, more: str = "pad=1") -> str:
        return f"dgrad dy={kind}[1,16,9,9]nhwc w={kind}[16,{c},3,3]nhwc dx=[1,16,9,9] {more}"

    yield "compute_capability", asked(dgrad(), device_spec("a100"))
    yield "types", asked(dgrad("f16"))
    yield "compute_type", asked(dgrad(more="pad=1 compute=f64 out=f64"))
    yield "direction", asked("conv x=f32[1,16,9,9]nhwc w=f32[16,16,3,3]nhwc pad=1")
    yield "groups", asked(dgrad(c=8))
    between = tensor(13, IMAGE, is_virtual=True)
    filter, result = tensor(2, (4, 4, 1, 1)), tensor(3, IMAGE)
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    yield (
        "prologue",
        declined("cuda_hopper_across", (first, operation("conv_dgrad", dy=between, w=filter, dx=result)), H200),
    )
    yield "walk", asked("dgrad dy=f32[1,16,9,9]nhwc w=f32[16,16,301,1]nhwc dx=[1,16,309,9]")
    yield "residues", asked("dgrad dy=f32[1,16,3,3]nhwc w=f32[16,16,4,4]nhwc dx=[1,16,12,12] stride=4")
    yield "pixels", asked("dgrad dy=f32[1,16,5,5]nhwc w=f32[16,16,3,3]nhwc dx=[1,16,9,9] pad=1 stride=2")


def held_cases() -> Iterator[tuple[str, Case]]:
    """Rules of the forward convolutions whose filters stay in shared memory."""

    def asked(text: str, device: DeviceSpec = H200) -> Case:
        return declined("cuda_hopper_held", parse(text).build_operation_graph().operations, device)

    def conv(kind: str = "f16", filter: int = 3, channels: int = 16, more: str = "pad=1", layout: str = "nhwc") -> str:
        x, w = f"x={kind}[1,16,9,9]{layout}", f"w={kind}[16,{channels},{filter},{filter}]{layout}"
        return f"conv {x} {w} {more}"

    yield "compute_capability", asked(conv(), device_spec("a100"))
    yield "types", asked(conv("f32"))
    yield "compute_type", asked(conv(more="pad=1 compute=f64 out=f64"))
    yield "direction", asked("dgrad dy=f16[1,16,9,9]nhwc w=f16[16,16,3,3]nhwc dx=[1,16,9,9] pad=1")
    yield "groups", asked(conv(channels=8))
    between = tensor(13, IMAGE, data_type="f16", is_virtual=True)
    first = operation("pointwise", x=tensor(11, IMAGE), b=tensor(12, IMAGE), y=between)
    filter, result = tensor(2, (4, 4, 1, 1), data_type="f16"), tensor(3, IMAGE)
    last = operation("conv_fprop", x=between, w=filter, y=result)
    yield "prologue", declined("cuda_hopper_held", (first, last), H200)
    yield "walk", asked(conv(more="pad=1 stride=9"))
    yield "layout", asked(conv(layout=""))
    yield "filter", asked("conv x=f16[1,512,9,9]nhwc w=f16[64,512,3,3]nhwc pad=1")


def halo_wgrad_cases() -> Iterator[tuple[str, Case]]:
    """The same of filter gradients."""

    def asked(text: str, device: DeviceSpec = H200) -> Case:
        return declined("cuda_hopper_halo_wgrad", parse(text).build_operation_graph().operations, device)

    def wgrad(kind: str = "f16", filter: int = 3, width: int = 8, more: str = "") -> str:
        x = f"x={kind}[1,16,8,{width}] dy={kind}[1,16,8,{width}] dw=[16,16,{filter},{filter}]"
        return f"wgrad {x} pad={filter // 2}{more}"

    yield "compute_capability", asked(wgrad(), device_spec("a100"))
    yield "direction", asked("conv x=f16[1,16,8,8]nhwc w=f16[16,16,3,3]nhwc pad=1")
    yield "types", asked(wgrad("f32"))
    yield "spatial", asked("wgrad x=f16[1,16,8] dy=f16[1,16,8] dw=[16,16,3] pad=1 spatial=1")
    yield "stride", asked("wgrad x=f16[1,16,16,16] dy=f16[1,16,8,8] dw=[16,16,3,3] pad=1 stride=2")
    yield "groups", asked("wgrad x=f16[1,16,8,8] dy=f16[1,16,8,8] dw=[16,8,3,3] pad=1")
    between = tensor(13, (1, 16, 8, 8), data_type="f16", is_virtual=True)
    plain = tensor(14, (1, 16, 8, 8), data_type="f16")
    first = operation(
        "pointwise", x=tensor(11, (1, 16, 8, 8)), b=tensor(12, (1, 16, 8, 8)), y=between
    )  # fmt: skip
    last = operation("conv_wgrad", x=between, dy=plain, dw=tensor(3, (16, 16, 1, 1), data_type="f16"))
    yield "prologue", declined("cuda_hopper_halo_wgrad", (first, last), H200)
    yield "taps", asked(wgrad(filter=1))
    yield "patches", asked(wgrad(width=9))


def halo_dgrad_cases(engine: str) -> Iterator[tuple[str, Case]]:
    """The same of strided data gradients."""
    of, other = ("f32", "f16") if engine.endswith("tf32") else ("f16", "f32")

    def asked(text: str, device: DeviceSpec = H200) -> Case:
        return declined(engine, parse(text).build_operation_graph().operations, device)

    def dgrad(
        kind: str = of, filter: int = 3, channels: int = 16, pad: int = 1, stride: int = 2, more: str = ""
    ) -> str:
        size = (16 + 2 * pad - filter) // stride + 1
        w = f"w={kind}[{channels},16,{filter},{filter}]nhwc"
        return f"dgrad dy={kind}[1,{channels},{size},{size}]nhwc {w} dx=[1,16,16,16] pad={pad} stride={stride}{more}"

    yield "compute_capability", asked(dgrad(), device_spec("a100"))
    yield "types", asked(dgrad(other))
    yield "compute_type", asked(dgrad(more=" compute=f64 out=f64"))
    yield "direction", asked(f"conv x={of}[1,16,8,8]nhwc w={of}[16,16,3,3]nhwc pad=1")
    yield "spatial", asked(f"dgrad dy={of}[1,16,8]nhwc w={of}[16,16,3]nhwc dx=[1,16,16] pad=1 stride=2 spatial=1")
    yield "groups", asked(f"dgrad dy={of}[1,16,8,8]nhwc w={of}[16,8,3,3]nhwc dx=[1,16,16,16] pad=1 stride=2")
    yield "stride", asked(dgrad(stride=1))
    between = tensor(13, (1, 4, 4, 4), data_type=of, is_virtual=True)
    before = (tensor(i, (1, 4, 4, 4)) for i in (11, 12))
    first = operation("pointwise", y=between, **dict(zip("xb", before, strict=True)))
    last = operation("conv_dgrad", dy=between, w=tensor(2, (4, 4, 1, 1), data_type=of), dx=tensor(3, (1, 4, 4, 4)))
    yield "prologue", declined(engine, (first, last), H200)
    yield "layout", asked(dgrad().replace("nhwc", ""))
    yield "filter", asked(dgrad(channels=512))
    yield "walk", asked(dgrad(filter=1, pad=300))


DEVICE_RULE_CASES: dict[str, Case] = {
    "binding.device_kind": device_case(_1=np.zeros(IMAGE, np.float32)),
    "binding.other_device": device_case(device=1),
    "execute.other_device": elsewhere,
    "binding.address": device_case(device=None),
    "binding.size": device_case(allocated=8),
    "execute.device_absent": absent,
    "execute.host_stream": lambda: on_the_host(stream=7),
    "capture.nested": nested_capture,
    "capture.host": lambda: build(OperationGraph.of([operation("pointwise")]), "cpu").capture({}),
    "engine.place": declined("cuda_pointwise", operation("pointwise"), device_spec("cpu")),
    "engine.index": by_index(4711, operation("pointwise")),
    "engine.composed": by_index(0, operation("pointwise")),
    "engine.several_kernels": by_index(1, *two_kernels()),
    "cuda.compute_capability": declined(
        "cuda_pointwise", operation("pointwise"), replace(H200, compute_capability=(7, 5))
    ),
    "cuda.extent": declined(
        "cuda_pointwise",
        operation("pointwise", **{port: tensor(i, LONG) for i, port in enumerate(("x", "b", "y"), 1)}),
        H200,
    ),
    "cuda.grid": declined(
        "cuda_reduction",
        operation("reduction", x=tensor(1, (2**31 - 1, 2, 70_000)), y=tensor(2, (2**31 - 1, 1, 70_000))),
        H200,
    ),
    "cuda.shared_memory": declined(
        "cuda_mma_gemm",
        operation("conv_fprop", **{p: tensor(i, (8, 8, 1, 1), data_type="f16") for i, p in enumerate("xwy", 1)}),
        replace(H200, shared_memory=48 * 1024),
    ),
    **{
        f"{name}.{rule}": case
        for name in ("cuda_hopper_halo", "cuda_hopper_halo_tf32")
        for rule, case in halo_cases(name)
    },
    **{f"cuda_hopper_across.{rule}": case for rule, case in across_cases()},
    **{f"cuda_hopper_held.{rule}": case for rule, case in held_cases()},
    **{f"cuda_hopper_halo_wgrad.{rule}": case for rule, case in halo_wgrad_cases()},
    **{
        f"{name}.{rule}": case
        for name in ("cuda_hopper_halo_dgrad", "cuda_hopper_halo_dgrad_tf32")
        for rule, case in halo_dgrad_cases(name)
    },
    **{f"{engine.name}.operation": another_kind(engine) for engine in ENGINES if "cuda" in engine.places},
    **{
        f"{engine}.kind": declined(engine, extension(other), H200)
        for engine, other in (
            ("cuda_grid_sample", "patches"),
            ("cuda_grid_sample_backward", "patches"),
            ("cuda_patches", "grid_sample"),
            ("cuda_rnn", "patches"),
            ("cuda_ctc_loss", "patches"),
            ("cuda_rnn_resident", "patches"),
            ("cuda_rnn_resident_backward_data", "rnn_fwd"),
            ("cuda_rnn_backward_data", "rnn_fwd"),
            ("cuda_rnn_backward_weights", "rnn_fwd"),
            ("cuda_rnn_backward_weights_16bit", "rnn_fwd"),
        )
    },
    "cuda_grid_sample.layout": declined("cuda_grid_sample", in_bits("grid_sample"), H200),
    "cuda_grid_sample_backward.layout": declined("cuda_grid_sample_backward", in_bits("grid_sample_bwd"), H200),
    "cuda_patches.layout": declined("cuda_patches", in_bits("patches"), H200),
    "cuda_ctc_loss.layout": declined(
        "cuda_ctc_loss",
        extension(
            "ctc_loss",
            probs=tensor(1, (1, 1, 1), is_by_value=True),
            labels=tensor(2, (1, 5), "i32"),
            label_lengths=tensor(3, (1,), "i32"),
            input_lengths=tensor(4, (1,), "i32"),
            costs=tensor(5, (1,)),
            gradients=None,
        ),
        H200,
    ),
    "cuda_rnn.layout": declined("cuda_rnn", by_value("rnn_fwd", "x"), H200),
    "cuda_rnn_resident.layout": declined("cuda_rnn_resident", by_value("rnn_fwd", "x"), H200),
    "cuda_rnn_backward_weights_16bit.layout": declined(
        "cuda_rnn_backward_weights_16bit", by_value("rnn_bwd_weights", "x"), H200
    ),
    **{
        f"cuda_rnn_backward_weights_16bit.{rule}": declined(
            "cuda_rnn_backward_weights_16bit", recurrent("rnn_bwd_weights", kind, arithmetic=arithmetic), H200
        )
        for rule, kind, arithmetic in (("types", "f32", "f32"), ("arithmetic", "f16", "f64"))
    },
    "cuda_rnn_resident_backward_data.layout": declined(
        "cuda_rnn_resident_backward_data", by_value("rnn_bwd_data", "dy"), H200
    ),
    **{
        f"{engine}.{rule}": declined(engine, op, H200)
        for engine, tag in (("cuda_rnn_resident", "rnn_fwd"), ("cuda_rnn_resident_backward_data", "rnn_bwd_data"))
        for rule, op in too_large(tag).items()
    },
    "cuda_rnn_backward_data.layout": declined("cuda_rnn_backward_data", by_value("rnn_bwd_data", "dy"), H200),
    "cuda_rnn_backward_weights.layout": declined("cuda_rnn_backward_weights", by_value("rnn_bwd_weights", "x"), H200),
    "cuda_norm_forward.direction": declined("cuda_norm_forward", operation("norm_bwd"), H200),
    "cuda_norm_backward.direction": declined("cuda_norm_backward", operation("norm_fwd"), H200),
    "cuda_implicit_gemm.coordinates": declined("cuda_implicit_gemm", distant(), H200),
    **{f"cuda_widened.{rule}": case for rule, case in widened_cases()},
    **{f"cuda_ahead.{rule}": case for rule, case in ahead_cases()},
    **{f"cuda_turned.{rule}": case for rule, case in turned_cases()},
    **{f"cuda_joined.{rule}": case for rule, case in joined_cases()},
    **{
        f"{engine}.{rule}": case
        for engine in ("cuda_depthwise", "cuda_depthwise_wgrad")
        for rule, case in depthwise_cases(engine)
    },
    **{
        f"{name}.{rule}": case
        for name, kinds in {
            "cuda_hopper_float_wgrad": ("f32", "f16"),
            "cuda_hopper_float_wgrad_tf32": ("f32", "f16"),
            "cuda_hopper_integer_wgrad": ("i16", "f32"),
        }.items()
        for rule, case in planes_wgrad_cases(name, *kinds)
    },
    **{
        f"{name}.{rule}": case
        for name in ("cuda_hopper_gemm", *(f"cuda_hopper_gemm_{kind}" for kind in ("tf32", "fp8", "fp8_fast")))
        for rule, case in hopper_cases(name)
    },
    **{
        f"{name}.{rule}": case
        for name in ("cuda_hopper_integers", "cuda_hopper_float")
        for rule, case in planes_cases(name)
    },
    **{
        f"{name}.{rule}": case
        for name in ("cuda_hopper_matmul", *(f"cuda_hopper_matmul_{kind}" for kind in ("tf32", "fp8", "fp8_fast")))
        for rule, case in hopper_matmul_cases(name)
    },
    "cuda_resample_backward.coordinates": declined("cuda_resample_backward", uneven(), H200),
    "cuda_view.layout": declined("cuda_view", operation("transpose"), H200),
    "cuda_fft_tiling.filter": declined("cuda_fft_tiling", wide_filter(), H200),
    "cuda_matmul_cublas.library": without("cublas", "cuda_matmul_cublas"),
    "cuda_explicit_gemm.library": without("cublas", "cuda_explicit_gemm"),
    "cuda_fft.cublas": without("cublas", "cuda_fft"),
    "cuda_fft.cufft": without("cufft", "cuda_fft"),
    "cuda_fft_tiling.cublas": without("cublas", "cuda_fft_tiling"),
    "cuda_fft_tiling.cufft": without("cufft", "cuda_fft_tiling"),
}
