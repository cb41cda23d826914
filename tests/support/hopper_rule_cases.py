"""Rules of the engines for the tensor cores of compute capability 9.0, each with what breaks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attention_graphs import Shape, attention, stacked
from engine_rejections import H200, Case, declined
from legal_problems import IMAGE, operation, tensor

from graphdnn import OperationGraph, device_spec
from graphdnn.device.profiles import DeviceSpec
from graphdnn.problem import parse


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
    yield "groups", asked(f"conv x={kind}[1,400,9,9]nhwc w={kind}[25,16,3,3]nhwc")
    if is_integer:  # operands of one and of four bytes have no filter gradients
        yield "group_start", asked(f"wgrad x={kind}[1,4,9,9] dy={kind}[1,4,9,9] dw=[4,2,3,3] pad=1")


def limb_wgrad_cases(engine: str, of: str, other: str) -> Iterator[tuple[str, Case]]:
    """Rules of the split-precision filter gradients of type ``of``."""

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


def limb_cases(engine: str) -> Iterator[tuple[str, Case]]:
    """Rules of split-precision fprop and dgrad: wide integers, and fp32."""
    kind, other, compute = ("f32", "f16", "") if engine.endswith("bf16x3") else ("i16", "i8", " compute=i32 out=i32")

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
    yield "groups", asked(conv(kind, 32) if engine.endswith("bf16x3") else narrow)


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


def hopper_attention_cases() -> Iterator[tuple[str, Case]]:
    """Rules of attention for compute capability 9.0."""

    def asked(graph: OperationGraph, device: DeviceSpec = H200) -> Case:
        return declined("cuda_hopper_attention", graph.operations, device)

    yield "compute_capability", asked(stacked((2,)), device_spec("a100"))
    yield "batch", asked(stacked((2, 1, 3, 2)))
    long = attention(Shape(depth=256, columns=256))
    yield "shared_memory", asked(long, replace(H200, shared_memory=100 * 1024))
    yield "tiles", asked(stacked((2**15, 2**16)))


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
        return declined("cuda_hopper_dgrad_tf32", parse(text).build_operation_graph().operations, device)

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
        declined("cuda_hopper_dgrad_tf32", (first, operation("conv_dgrad", dy=between, w=filter, dx=result)), H200),
    )
    yield "walk", asked("dgrad dy=f32[1,16,9,9]nhwc w=f32[16,16,301,1]nhwc dx=[1,16,309,9]")
    yield "residues", asked("dgrad dy=f32[1,16,3,3]nhwc w=f32[16,16,4,4]nhwc dx=[1,16,12,12] stride=4")
    yield "pixels", asked("dgrad dy=f32[1,16,5,5]nhwc w=f32[16,16,3,3]nhwc dx=[1,16,9,9] pad=1 stride=2")


def held_cases() -> Iterator[tuple[str, Case]]:
    """Rules of the forward convolutions whose filters stay in shared memory."""

    def asked(text: str, device: DeviceSpec = H200) -> Case:
        return declined("cuda_hopper_weight_stationary", parse(text).build_operation_graph().operations, device)

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
    yield "prologue", declined("cuda_hopper_weight_stationary", (first, last), H200)
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
