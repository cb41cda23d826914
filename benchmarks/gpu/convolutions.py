"""Convolutions in floating types: bound by memory (depthwise, small groups, stem), strict float32, tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

from gpu.fills import Normal
from gpu.layers import DIRECT_LAYERS, LAYERS, MORE_DIRECT_LAYERS, Layer, Shape
from gpu.problem import Case, Group, Peer, Problem, Tensors
from gpu.sketch import Sketch
from graphdnn import Filters, NumericalNote

TYPES = {"f16": "float16", "bf16": "bfloat16", "tf32": "float32", "f32": "float32"}
BIAS = Normal(0.1)
CLIP = 6.0
TF32 = Filters(allowed_numerical_notes=frozenset({NumericalNote.DOWN_CONVERT_INPUTS}))
STRICT = Filters(without_numerical_notes=frozenset({NumericalNote.DOWN_CONVERT_INPUTS}))


def _operands(s: Sketch, layer: Shape, names: Sequence[str]) -> list[Any]:
    """Of unit size, except for the filters: with them y is of unit size."""
    terms = prod(layer.w_dims[1:])
    dims = {"x": layer.x_dims, "w": layer.w_dims, "dy": layer.y_dims}
    return [s.data(name, dims[name], Normal(terms**-0.5 if name == "w" else 1.0)) for name in names]


def _geometry(layer: Shape) -> dict[str, Any]:
    rank = len(layer.x_dims) - 2
    stride, padding, dilation = (numbers[-rank:] for numbers in layer.geometry)
    return {"padding": padding, "stride": stride, "dilation": dilation}


def convolve(torch: Any, layer: Shape, x: Any, w: Any, b: Any = None) -> Any:
    return torch.ops.aten.convolution(x, w, b, *layer.geometry, False, [0] * (x.dim() - 2), layer.groups)


def gradients(torch: Any, layer: Shape, dy: Any, x: Any, w: Any, wanted: list[bool]) -> Any:
    """[dx, dw, db], None where not wanted."""
    run = torch.ops.aten.convolution_backward
    return run(dy, x, w, None, *layer.geometry, False, [0] * (x.dim() - 2), layer.groups, wanted)


def _like(torch: Any, dims: Sequence[int], t: Any, *, channels_last: bool = False) -> Any:
    """Extents, type and memory format for a gradient, of which nothing else is read; rows have a height of 1."""
    dims = dims if len(dims) > 3 else (*dims[:2], 1, *dims[2:])
    last = torch.channels_last if len(dims) == 4 else torch.channels_last_3d
    layout = last if channels_last else torch.contiguous_format
    return torch.empty(dims, dtype=t.dtype, device=t.device, memory_format=layout)


def _filters(kind: str) -> Filters | None:
    return {"f32": STRICT, "tf32": TF32}.get(kind)


def fused_problem(
    layer: Shape,
    kind: str,
    clip: float | None = None,
    *,
    residual: bool = False,
    channels_last: bool = True,
    activation: str = "relu",
) -> Problem:
    """y = min(relu(conv(x, w) + b + z), clip); z where there is a residual. Or with another activation."""
    s = Sketch(layer.name, TYPES[kind], channels_last=channels_last)
    x, w = _operands(s, layer, ("x", "w"))
    bias = s.channel("b", layer.k, BIAS, rank=len(layer.x_dims))
    clips = {} if clip is None else {"upper_clip": clip}
    value = s.graph.bias(s.graph.conv_fprop(x, w, **_geometry(layer)), bias)
    if residual:
        value = s.graph.add(value, s.data("z", layer.y_dims, Normal(1.0)))
    y = getattr(s.graph, activation)(value, **clips)

    def activate(torch: Any, values: Any) -> Any:
        if activation == "swish":
            return torch.nn.functional.silu(values, inplace=True)
        return torch.nn.functional.hardtanh_(values, 0.0, clip) if clip is not None else values.relu_()

    def eager(torch: Any, t: Tensors) -> Callable[[], Any]:
        b = t["b"].reshape(-1).to(t["x"].dtype)
        if residual:
            return lambda: activate(torch, convolve(torch, layer, t["x"], t["w"], b).add_(t["z"]))
        return lambda: activate(torch, convolve(torch, layer, t["x"], t["w"], b))

    def fused(torch: Any, t: Tensors) -> Callable[[], Any]:
        b = t["b"].reshape(-1).to(t["x"].dtype)
        pair = (*layer.geometry, layer.groups)
        if residual:
            return lambda: torch.cudnn_convolution_add_relu(t["x"], t["w"], t["z"], 1.0, b, *pair)
        return lambda: torch.cudnn_convolution_relu(t["x"], t["w"], b, *pair)

    def alone(torch: Any, t: Tensors) -> Callable[[], Any]:
        return lambda: convolve(torch, layer, t["x"], t["w"])

    def formula(torch: Any, t: Tensors) -> Tensors:
        before = convolve(torch, layer, t["x"], t["w"]) + t["b"]
        return {"y": activate(torch, before + t["z"] if residual else before)}

    # cuDNN's fused call has no upper clip: where there is one, it does part of the work.
    one_call = Peer("cudnn fused", fused, ("y",)) if clip is None else Peer("cudnn fused, no clip", fused, part=True)
    calls = (one_call,) if activation == "relu" else ()
    return s.problem(
        {"y": y},
        formula=formula,
        peers=(Peer("conv2d, activation", eager, ("y",)), *calls, Peer("conv2d alone", alone, part=True)),
        flops=layer.flops,
        tf32=kind == "tf32",
        filters=_filters(kind),
    )


def dgrad_problem(layer: Shape, kind: str, *, channels_last: bool = True) -> Problem:
    s = Sketch(layer.name, TYPES[kind], channels_last=channels_last)
    dy, w = _operands(s, layer, ("dy", "w"))
    dx = s.graph.conv_dgrad(dy, w, **_geometry(layer)).set_dim(layer.x_dims).set_stride(s.strides(layer.x_dims))

    def formula(torch: Any, t: Tensors) -> Tensors:
        like = _like(torch, layer.x_dims, t["dy"])
        return {"dx": gradients(torch, layer, t["dy"], like, t["w"], [True, False, False])[0]}

    def prepare(torch: Any, t: Tensors) -> Callable[[], Any]:
        like = _like(torch, layer.x_dims, t["dy"], channels_last=channels_last)
        return lambda: gradients(torch, layer, t["dy"], like, t["w"], [True, False, False])[0]

    peers = (Peer("convolution_backward", prepare, ("dx",)),)
    return s.problem(
        {"dx": dx}, formula=formula, peers=peers, flops=layer.flops, tf32=kind == "tf32", filters=_filters(kind)
    )


def wgrad_problem(layer: Shape, kind: str, *, channels_last: bool = True) -> Problem:
    s = Sketch(layer.name, TYPES[kind], channels_last=channels_last)
    x, dy = _operands(s, layer, ("x", "dy"))
    dw = s.graph.conv_wgrad(x, dy, **_geometry(layer)).set_dim(layer.w_dims).set_stride(s.strides(layer.w_dims))

    def formula(torch: Any, t: Tensors) -> Tensors:
        like = _like(torch, layer.w_dims, t["x"])
        return {"dw": gradients(torch, layer, t["dy"], t["x"], like, [False, True, False])[1]}

    def prepare(torch: Any, t: Tensors) -> Callable[[], Any]:
        like = _like(torch, layer.w_dims, t["x"], channels_last=channels_last)
        return lambda: gradients(torch, layer, t["dy"], t["x"], like, [False, True, False])[1]

    peers = (Peer("convolution_backward", prepare, ("dw",)),)
    return s.problem({"dw": dw}, formula=formula, peers=peers, flops=layer.flops, tf32=kind == "tf32")


def strict_problem(layer: Layer) -> Problem:
    """A bare convolution in float32 whose operands are not rounded. The peer has both memory formats to choose from."""
    s = Sketch(layer.name, "float32", channels_last=True)
    x, w = _operands(s, layer, ("x", "w"))
    y = s.graph.conv_fprop(x, w, **_geometry(layer))

    def in_format(name: str, torch: Any, t: Tensors) -> Callable[[], Any]:
        x, w = (t[operand].contiguous(memory_format=getattr(torch, name)) for operand in ("x", "w"))
        return lambda: convolve(torch, layer, x, w)

    return s.problem(
        {"y": y},
        formula=lambda torch, t: {"y": convolve(torch, layer, t["x"], t["w"])},
        peers=tuple(
            Peer(f"conv2d {label}", partial(in_format, name), ("y",))
            for label, name in (("nhwc", "channels_last"), ("nchw", "contiguous_format"))
        ),
        flops=layer.flops,
        filters=STRICT,
    )


def _direct_cases() -> tuple[Case, ...]:
    cases = []
    for name, layer in DIRECT_LAYERS.items():
        quick = name in ("dw3", "dw7", "g4")
        clip = CLIP if layer.groups == layer.c else None
        cases.append(Case(f"{name}_fprop", partial(fused_problem, layer, "f16", clip), quick))
        cases.append(Case(f"{name}_dgrad", partial(dgrad_problem, layer, "f16"), quick=name == "dw3"))
        cases.append(Case(f"{name}_wgrad", partial(wgrad_problem, layer, "f16"), quick=name == "dw3"))
    return tuple(cases)


QUICK = ("c2_3x3", "c3_3x3", "vgg_3x3_256")
DEPTHWISE = Group(
    "depthwise", "depthwise, grouped and first layers, fp16 NHWC; fprop with bias and ReLU(6)", _direct_cases()
)
DIRECT = Group(
    "direct",
    "depthwise and grouped classes whose kernel the model chooses, fp16 NHWC; other kernels are tried beside it",
    tuple(
        Case(f"{name}_{direction}", partial(problem, layer, "f16"), quick=name in ("g4_5x5", "dw9"))
        for name, layer in MORE_DIRECT_LAYERS.items()
        for direction, problem in (("fprop", fused_problem), ("dgrad", dgrad_problem), ("wgrad", wgrad_problem))
    ),
    by_default=False,
    every_kernel=True,
)
FP32 = Group(
    "fp32",
    "convolution in strict fp32",
    tuple(Case(name, partial(strict_problem, layer), quick=name in QUICK) for name, layer in LAYERS.items()),
    tune=4,
)
# Whose channels are many: what tensor cores are for.
DENSE_LAYERS = {name: layer for name, layer in LAYERS.items() if layer.groups == 1 and layer.c > 4}


def _dense(name: str, title: str, problem: Callable[..., Problem], *kinds: str, suffix: str = "") -> Group:
    return Group(
        name,
        title,
        tuple(
            Case(f"{layer.name}{suffix}_{kind}", partial(problem, layer, kind), quick=layer.name in QUICK)
            for kind in kinds
            for layer in DENSE_LAYERS.values()
        ),
        by_default=False,
    )


DENSE = _dense("dense", "convolution + bias + ReLU on tensor cores, NHWC", fused_problem, "f16", "bf16", "tf32")
RESIDUAL = _dense(
    "residual", "convolution + bias + residual + ReLU, NHWC", partial(fused_problem, residual=True), "f16"
)
DGRAD = _dense("dgrad", "data gradient, NHWC", dgrad_problem, "f16", "tf32", suffix="_dgrad")
WGRAD = _dense("wgrad", "filter gradient, NHWC", wgrad_problem, "f16", suffix="_wgrad")
NCHW = _dense("nchw", "convolution + bias + ReLU, NCHW", partial(fused_problem, channels_last=False), "f16")
