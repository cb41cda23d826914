"""The operation at the head of a problem text: from its words to the tensor that the steps go on from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from graphdnn.builder import Graph, Tensor
from graphdnn.enums import ConvolutionMode, DataType, NormPhase, ReductionOperator, ResampleMode
from graphdnn.problem.tokens import MISSING, SYNTAX, Words, numbers, refuse, unknown


def _convolution_settings(words: Words, rank: int) -> dict[str, Any]:
    given = words.take("spatial")
    spatial = rank - 2 if given is None else numbers(given, words.text, "spatial")[0]
    words.channels = (1, 2) if rank == spatial + 3 else (1,)
    zeros = (0,) * spatial
    padding = words.per_axis("pad", spatial) or zeros
    mode = words.take("mode") or "cross"
    if mode not in ("cross", "conv"):
        raise unknown("mode", mode, words.text, ("cross", "conv"))
    return {
        "pre_padding": words.per_axis("pre", spatial) or padding,
        "post_padding": words.per_axis("post", spatial) or padding,
        "stride": words.per_axis("stride", spatial) or (1,) * spatial,
        "dilation": words.per_axis("dil", spatial) or (1,) * spatial,
        "convolution_mode": ConvolutionMode.CONVOLUTION if mode == "conv" else ConvolutionMode.CROSS_CORRELATION,
    }


def _conv(graph: Graph, words: Words) -> Tensor:
    x, w = words.operand(graph, "x"), words.operand(graph, "w")
    return graph.conv_fprop(x, w, **_convolution_settings(words, len(x.get_dim())))


def _dgrad(graph: Graph, words: Words) -> Tensor:
    dy, w, dx = words.operand(graph, "dy"), words.operand(graph, "w"), words.extents("dx")
    return graph.conv_dgrad(dy, w, **_convolution_settings(words, len(dx))).set_dim(dx)


def _wgrad(graph: Graph, words: Words) -> Tensor:
    x, dy, dw = words.operand(graph, "x"), words.operand(graph, "dy"), words.extents("dw")
    return graph.conv_wgrad(x, dy, **_convolution_settings(words, len(dw))).set_dim(dw)


def _matmul(graph: Graph, words: Words) -> Tensor:
    a, b = words.operand(graph, "a"), words.operand(graph, "b")
    words.channels = (len(a.get_dim()) - 1,)
    return graph.matmul(a, b)


def _pool(graph: Graph, words: Words) -> Tensor:
    modes: dict[str, ResampleMode] = {
        "max": ResampleMode.MAXPOOL,
        "avg": ResampleMode.AVGPOOL_EXCLUDE_PADDING,
        "avg_include": ResampleMode.AVGPOOL_INCLUDE_PADDING,
    }
    mode = modes[words.choice(tuple(modes))]
    x = words.operand(graph, "x")
    spatial = len(x.get_dim()) - 2
    window = words.per_axis("window", spatial)
    if window is None:
        raise refuse(MISSING, "window", "nothing", words.text, expected="window=3", operation="pool")
    stride, padding = words.per_axis("stride", spatial), words.per_axis("pad", spatial)
    y, _ = graph.resample(x, mode, window, stride=stride, pre_padding=padding, post_padding=padding)
    assert y is not None
    return y


def _reduce(graph: Graph, words: Words) -> Tensor:
    operator = words.choice(tuple(o.name.lower() for o in ReductionOperator))
    return graph.reduction(words.operand(graph, "x"), ReductionOperator[operator.upper()]).set_dim(words.extents("y"))


def _norm(graph: Graph, words: Words) -> Tensor:
    mode = words.choice(("batch", "instance", "layer", "rms"))
    x = words.operand(graph, "x")
    dims = tuple(x.get_dim())
    if len(dims) < 2:
        raise refuse(SYNTAX, "x", str(list(dims)), words.text, expected="[N, C, ...]", rest="there is no channel axis")
    channels = (1, dims[1], *(1,) * (len(dims) - 2))
    extents = channels if mode in ("batch", "instance") else (*(1,) * (len(dims) - 1), dims[-1])
    kind = _parameter_type(x)
    scale, bias = (graph.tensor(extents, data_type=kind, name=name) for name in ("scale", "bias"))
    epsilon = graph.tensor((1,) * len(dims), data_type=kind, is_pass_by_value=True, name="epsilon")
    if mode == "batch":
        y, mean, inverse, *_ = graph.batchnorm(x, scale, bias, epsilon=epsilon)
    elif mode == "rms":
        y, inverse = graph.rmsnorm(NormPhase.TRAINING, x, scale, bias, epsilon)
        mean = None
    else:
        method = graph.layernorm if mode == "layer" else graph.instancenorm
        y, mean, inverse = method(NormPhase.TRAINING, x, scale, bias, epsilon)
    for statistic in (mean, inverse):
        if statistic is not None:
            statistic.set_output(True).set_data_type(kind)
    assert y is not None
    return y


def _parameter_type(x: Tensor) -> DataType:
    return DataType.DOUBLE if x.get_data_type() is DataType.DOUBLE else DataType.FLOAT


def _pointwise(graph: Graph, words: Words) -> Tensor:
    return words.operand(graph, "x")


OPERATIONS: Mapping[str, Callable[[Graph, Words], Tensor]] = {
    "conv": _conv, "dgrad": _dgrad, "wgrad": _wgrad, "matmul": _matmul, "pool": _pool, "reduce": _reduce,
    "norm": _norm, "pointwise": _pointwise,
}  # fmt: skip
