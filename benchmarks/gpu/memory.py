"""Memory-bound operations: one pass over a tensor is all that is needed, so a device copy is the floor."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from gpu.fills import Normal, Uniform
from gpu.problem import Case, Group, Peer, Problem, Tensors
from gpu.sketch import Sketch
from graphdnn import ReductionOperator, ResampleMode, channels_last_strides, packed_strides

EXTENTS = (64, 128, 56, 56)
EPSILON, MOMENTUM = 1e-5, 0.1
LRN_WINDOW, LRN_ALPHA, LRN_BETA, LRN_K = 5, 1e-4, 0.75, 1.0

X = Normal(1.0, 0.5)  # a mean away from 0 keeps sums and statistics well conditioned
SCALE, SHIFT, INVERSE_STD = Uniform(0.5, 1.5), Normal(0.5), Uniform(0.5, 1.5)
# Sums over 200,000 values in float32, the order of which is the engine's own.
STATISTICS = 1e-4

Extents = tuple[int, int, int, int]
Operation = Callable[[Sketch, Extents], Problem]


def _same(label: str, formula: Callable[[Any, Tensors], Any]) -> dict[str, Any]:
    """Definition and peer for an operation that PyTorch has: the peer runs on the data, the definition in float64."""

    def prepare(torch: Any, t: Tensors) -> Callable[[], Any]:
        same_type = {name: tensor.to(t["x"].dtype) for name, tensor in t.items()}
        return lambda: formula(torch, same_type)

    return {"formula": lambda torch, t: {"y": formula(torch, t)}, "peers": (Peer(label, prepare, ("y",)),)}


def _vector(values: Any) -> Any:
    """The C values of a ``[1, C, 1, 1]`` tensor."""
    return values.reshape(-1)


def relu(s: Sketch, extents: Extents) -> Problem:
    y = s.graph.relu(s.data("x", extents, X))
    return s.problem({"y": y}, **_same("relu", lambda torch, t: torch.relu(t["x"])))


def bias_relu(s: Sketch, extents: Extents) -> Problem:
    y = s.graph.relu(s.graph.bias(s.data("x", extents, X), s.channel("b", extents[1], SHIFT)))
    about = _same("add, relu_", lambda torch, t: (t["x"] + t["b"]).relu_())
    return s.problem({"y": y}, **about)


def add_bias_relu(s: Sketch, extents: Extents) -> Problem:
    summed = s.graph.add(s.data("x", extents, X), s.data("z", extents, X))
    y = s.graph.relu(s.graph.bias(summed, s.channel("b", extents[1], SHIFT)))
    about = _same("add, add_, relu_", lambda torch, t: (t["x"] + t["z"]).add_(t["b"]).relu_())
    return s.problem({"y": y}, **about)


def bn_infer(s: Sketch, extents: Extents) -> Problem:
    x = s.data("x", extents, X)
    names = (("mean", SHIFT), ("inv_variance", INVERSE_STD), ("scale", SCALE), ("bias", SHIFT))
    mean, inv, scale, bias = (s.channel(name, extents[1], fill) for name, fill in names)

    def prepare(torch: Any, t: Tensors) -> Callable[[], Any]:
        variance = _vector(t["inv_variance"]).double().pow(-2).sub(EPSILON).float()
        mean, scale, bias = (_vector(t[name]) for name in ("mean", "scale", "bias"))
        norm = torch.nn.functional.batch_norm
        return lambda: norm(t["x"], mean, variance, scale, bias, training=False, eps=EPSILON)

    return s.problem(
        {"y": s.graph.batchnorm_inference(x, mean, inv, scale, bias)},
        formula=lambda torch, t: {"y": (t["x"] - t["mean"]) * t["inv_variance"] * t["scale"] + t["bias"]},
        peers=(Peer("batch_norm", prepare, ("y",)),),
    )


def bn_train(s: Sketch, extents: Extents) -> Problem:
    x = s.data("x", extents, X)
    scale, bias = s.channel("scale", extents[1], SCALE), s.channel("bias", extents[1], SHIFT)
    running = s.channel("in_mean", extents[1], SHIFT), s.channel("in_var", extents[1], SCALE)
    found = s.graph.batchnorm(x, scale, bias, *running, s.number(EPSILON), s.number(MOMENTUM))
    names = ("y", "mean", "inv_variance", "out_mean", "out_var")

    def formula(torch: Any, t: Tensors) -> Tensors:
        variance, mean = torch.var_mean(t["x"], (0, 2, 3), correction=0, keepdim=True)
        inv = (variance + EPSILON).rsqrt()
        count = t["x"].numel() // t["x"].shape[1]
        seen = {"mean": mean, "var": variance * count / (count - 1)}
        out = {f"out_{n}": (1 - MOMENTUM) * t[f"in_{n}"] + MOMENTUM * v for n, v in seen.items()}
        y = (t["x"] - mean) * inv * t["scale"] + t["bias"]
        return {"y": y, "mean": mean, "inv_variance": inv, **out}

    def prepare(torch: Any, t: Tensors) -> Callable[[], Any]:
        mean, var = (_vector(t[name]).clone() for name in ("in_mean", "in_var"))
        scale, bias = _vector(t["scale"]), _vector(t["bias"])
        norm = torch.nn.functional.batch_norm
        return lambda: norm(t["x"], mean, var, scale, bias, training=True, momentum=MOMENTUM, eps=EPSILON)

    outputs: dict[str, Any] = {name: (tensor, "float32") for name, tensor in zip(names, found, strict=True)}
    return s.problem(
        outputs | {"y": found[0]},
        formula=formula,
        peers=(Peer("batch_norm", prepare, ("y",)),),
        bounds=dict.fromkeys(names[1:], STATISTICS),
    )


def bn_backward(s: Sketch, extents: Extents) -> Problem:
    dy, x = s.data("dy", extents, Normal(1.0, 0.2)), s.data("x", extents, X)
    names = (("scale", SCALE), ("mean", SHIFT), ("inv_variance", INVERSE_STD))
    scale, mean, inv = (s.channel(name, extents[1], fill) for name, fill in names)
    dx, dscale, dbias = s.graph.batchnorm_backward(dy, x, scale, mean, inv)

    def formula(torch: Any, t: Tensors) -> Tensors:
        axes, count = (0, 2, 3), t["x"].numel() // t["x"].shape[1]
        normal = (t["x"] - t["mean"]) * t["inv_variance"]
        dbias = t["dy"].sum(axes, keepdim=True)
        dscale = (t["dy"] * normal).sum(axes, keepdim=True)
        dx = t["scale"] * t["inv_variance"] * (t["dy"] - dbias / count - normal * dscale / count)
        return {"dx": dx, "dscale": dscale, "dbias": dbias}

    def native(torch: Any, t: Tensors) -> Callable[[], Any]:
        scale, mean, inv = (_vector(t[name]) for name in ("scale", "mean", "inv_variance"))
        run = torch.ops.aten.native_batch_norm_backward
        return lambda: run(t["dy"], t["x"], scale, None, None, mean, inv, True, EPSILON, [True, True, True])

    def cudnn(torch: Any, t: Tensors) -> Callable[[], Any]:
        scale, mean, inv = (_vector(t[name]) for name in ("scale", "mean", "inv_variance"))
        zeros = torch.zeros_like(scale)
        running = mean.clone(), torch.ones_like(scale)
        reserve = torch.ops.aten.cudnn_batch_norm(t["x"], scale, zeros, *running, True, MOMENTUM, EPSILON)[3]
        run = torch.ops.aten.cudnn_batch_norm_backward
        return lambda: run(t["x"], t["dy"], scale, *running, mean, inv, EPSILON, reserve)

    gives = ("dx", "dscale", "dbias")
    return s.problem(
        {"dx": dx, "dscale": (dscale, "float32"), "dbias": (dbias, "float32")},
        formula=formula,
        peers=(Peer("native", native, gives), Peer("cudnn", cudnn, gives)),
        bounds=dict.fromkeys(gives[1:], STATISTICS),
    )


def maxpool(s: Sketch, extents: Extents) -> Problem:
    y, _ = s.graph.resample(s.data("x", extents, X), ResampleMode.MAXPOOL, [2, 2])
    assert y is not None
    return s.problem({"y": y}, **_same("max_pool2d", lambda torch, t: torch.nn.functional.max_pool2d(t["x"], 2)))


def avgpool(s: Sketch, extents: Extents) -> Problem:
    mode = ResampleMode.AVGPOOL_INCLUDE_PADDING
    y, _ = s.graph.resample(s.data("x", extents, X), mode, [3, 3], stride=[1, 1], pre_padding=[1, 1])
    assert y is not None
    about = _same("avg_pool2d", lambda torch, t: torch.nn.functional.avg_pool2d(t["x"], 3, 1, 1))
    return s.problem({"y": y}, **about)


def softmax(s: Sketch, extents: Extents) -> Problem:
    """Over the channels: maximum, difference, exponential, sum, quotient."""
    n, _, h, w = extents
    x = s.data("x", extents, Normal(2.0))
    largest = s.graph.reduction(x, ReductionOperator.MAX).set_dim([n, 1, h, w])
    powers = s.graph.exp(s.graph.sub(x, largest))
    total = s.graph.reduction(powers, ReductionOperator.ADD).set_dim([n, 1, h, w])
    y = s.graph.div(powers, total)
    return s.problem({"y": y}, **_same("softmax", lambda torch, t: torch.softmax(t["x"], 1)))


def lrn(s: Sketch, extents: Extents) -> Problem:
    """Channels as a spatial axis of their own, so that pooling runs over them: x / (k + alpha * mean(x^2))^beta."""
    n, c, h, w = extents
    dims = (n, 1, c, h, w)
    flat = (channels_last_strides if s.channels_last else packed_strides)(extents)
    x = s.data("x", dims, X, stride=(flat[0], flat[0], *flat[1:]))
    window, before = [LRN_WINDOW, 1, 1], [LRN_WINDOW // 2, 0, 0]
    mode = ResampleMode.AVGPOOL_INCLUDE_PADDING
    mean, _ = s.graph.resample(s.graph.mul(x, x), mode, window, stride=[1, 1, 1], pre_padding=before)
    assert mean is not None
    base = s.graph.add(s.graph.mul(mean, s.number(LRN_ALPHA)), s.number(LRN_K))
    y = s.graph.mul(x, s.graph.pow(base, s.number(-LRN_BETA)))

    def by_torch(torch: Any, t: Tensors) -> Any:
        norm = torch.nn.functional.local_response_norm
        return norm(t["x"].squeeze(1), LRN_WINDOW, LRN_ALPHA, LRN_BETA, LRN_K).unsqueeze(1)

    return s.problem({"y": y}, **_same("local_response_norm", by_torch))


def sum_nhw(s: Sketch, extents: Extents) -> Problem:
    x = s.data("x", extents, X)
    y = s.graph.reduction(x, ReductionOperator.ADD).set_dim([1, extents[1], 1, 1])

    def prepare(torch: Any, t: Tensors) -> Callable[[], Any]:
        return lambda: t["x"].sum((0, 2, 3), keepdim=True, dtype=torch.float32)

    return s.problem(
        {"y": (y, "float32")},
        formula=lambda torch, t: {"y": t["x"].sum((0, 2, 3), keepdim=True)},
        peers=(Peer("sum", prepare, ("y",)),),
        bounds={"y": STATISTICS},
    )


OPERATIONS: dict[str, Operation] = {
    "relu": relu,
    "bias_relu": bias_relu,
    "add_bias_relu": add_bias_relu,
    "bn_infer": bn_infer,
    "bn_train": bn_train,
    "bn_backward": bn_backward,
    "maxpool2s2": maxpool,
    "avgpool3s1p1": avgpool,
    "softmax_channel": softmax,
    "lrn5": lrn,
    "sum_nhw": sum_nhw,
}
TYPES = {"f16": "float16", "f32": "float32"}
LAYOUTS = ("nhwc", "nchw")


def memory_problem(operation: str, kind: str, layout: str, extents: Extents = EXTENTS) -> Problem:
    sketch = Sketch(operation, TYPES[kind], channels_last=layout == "nhwc")
    return OPERATIONS[operation](sketch, extents)


MEMORY = Group(
    "memory",
    "memory-bound operations, N64 C128 56x56",
    tuple(
        Case(
            f"{operation}_{kind}_{layout}",
            partial(memory_problem, operation, kind, layout),
            quick=(kind, layout) == ("f16", "nhwc"),
        )
        for kind in TYPES
        for layout in LAYOUTS
        for operation in OPERATIONS
    ),
)
