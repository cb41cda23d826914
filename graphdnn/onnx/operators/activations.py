"""Activations."""

from __future__ import annotations

from math import inf

from graphdnn.builder import Tensor
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import operator


@operator("Relu")
def relu(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.pointwise("RELU_FWD", x)


@operator("LeakyRelu")
def leaky_relu(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.pointwise("RELU_FWD", x, relu_lower_clip_slope=node.attribute("alpha", 0.01))


@operator("Sigmoid")
def sigmoid(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.pointwise("SIGMOID_FWD", x)


@operator("Tanh")
def tanh(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.pointwise("TANH_FWD", x)


@operator("Softplus")
def softplus(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.pointwise("SOFTPLUS_FWD", x)


@operator("Elu")
def elu(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.pointwise("ELU_FWD", x, elu_alpha=node.attribute("alpha", 1.0))


@operator("Selu")
def selu(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    alpha = node.attribute("alpha", 1.6732632423543772)
    y = emit.pointwise("ELU_FWD", emit.wide(x), elu_alpha=alpha)
    return emit.pointwise("MUL", y, node.attribute("gamma", 1.0507009873554805), to=x.data_type)


@operator("Celu")
def celu(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    alpha = node.attribute("alpha", 1.0)
    scaled = emit.pointwise("MUL", emit.wide(x), 1.0 / alpha)
    return emit.pointwise("MUL", emit.pointwise("ELU_FWD", scaled), alpha, to=x.data_type)


@operator("Gelu")
def gelu(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    tanh_form = node.attribute("approximate", "none") == "tanh"
    return emit.pointwise("GELU_APPROX_TANH_FWD" if tanh_form else "GELU_FWD", x)


@operator("Swish")
def swish(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.pointwise("SWISH_FWD", x, swish_beta=node.attribute("alpha", 1.0))


@operator("HardSigmoid")
def hard_sigmoid(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    y = _hard_sigmoid(emit, x, node.attribute("alpha", 0.2), node.attribute("beta", 0.5))
    return emit.convert(y, type_of(x))


@operator("HardSwish")
def hard_swish(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    return emit.pointwise("MUL", emit.wide(x), _hard_sigmoid(emit, x, 1 / 6, 0.5), to=x.data_type)


def _hard_sigmoid(emit: Emitter, x: Tensor, alpha: float, beta: float) -> Tensor:
    line = emit.pointwise("ADD", emit.pointwise("MUL", emit.wide(x), alpha), beta)
    return emit.pointwise("RELU_FWD", line, relu_upper_clip=1.0)


@operator("Mish")
def mish(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    wide = emit.wide(x)
    rising = emit.pointwise("TANH_FWD", emit.pointwise("SOFTPLUS_FWD", wide))
    return emit.pointwise("MUL", wide, rising, to=x.data_type)


@operator("Softsign")
def softsign(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    wide = emit.wide(x)
    return emit.pointwise("DIV", wide, emit.pointwise("ADD", emit.pointwise("ABS", wide), 1.0), to=x.data_type)


@operator("ThresholdedRelu")
def thresholded_relu(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    above = emit.pointwise("CMP_GT", x, node.attribute("alpha", 1.0))
    return emit.select(above, x, 0.0)


@operator("Shrink")
def shrink(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    limit, bias = node.attribute("lambd", 0.5), node.attribute("bias", 0.0)
    wide = emit.convert(x, emit.float_of(x))
    below = emit.select(emit.pointwise("CMP_LT", wide, -limit), emit.pointwise("ADD", wide, bias), 0.0)
    above = emit.pointwise("CMP_GT", wide, limit)
    return emit.truncated(emit.select(above, emit.pointwise("SUB", wide, bias), below), node.result_type())


@operator("PRelu", until=6)
def old_prelu(node: Node, emit: Emitter, x: Tensor, slope: Tensor) -> Tensor:
    """One slope, or one for each channel."""
    if node.rank(1) == 1 and node.rank(0) > 2:
        slope = emit.reshape(slope, (*node.shape(1), *(1,) * (node.rank(0) - 2)))
    return emit.select(emit.pointwise("CMP_LT", x, 0), emit.pointwise("MUL", x, slope), x)


@operator("PRelu", since=7)
def prelu(node: Node, emit: Emitter, x: Tensor, slope: Tensor) -> Tensor:
    return emit.select(emit.pointwise("CMP_LT", x, 0), emit.pointwise("MUL", x, slope), x)


@operator("Clip", until=10)
def clip_by_attributes(node: Node, emit: Emitter, x: Tensor) -> Tensor:
    low, high = node.attribute("min", -inf), node.attribute("max", inf)
    return emit.pointwise("RELU_FWD", x, relu_lower_clip=low, relu_upper_clip=high)


@operator("Clip", since=11)
def clip(node: Node, emit: Emitter, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if low is not None:
        x = emit.pointwise("MAX", x, low)
    return x if high is None else emit.pointwise("MIN", x, high)
