"""Convolutions as operators of PyTorch: ``torch.ops.graphdnn.convolution``, with a fake kernel and autograd.

They are for calls by hand, and for integers, which PyTorch does not convolve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from graphdnn.bounded_cache import BoundedCache
from graphdnn.builder import Graph
from graphdnn.builder.tensor import Tensor
from graphdnn.errors import BadParam
from graphdnn.torch.arguments import library_type, strides_of
from graphdnn.torch.rules import ARGUMENT

_MOST = 512
_GRAPHS: BoundedCache[Any, Graph] = BoundedCache(_MOST)  # built, by operation, layouts and geometry
_SUMS = {torch.int8: torch.int32, torch.uint8: torch.int32, torch.int16: torch.int32}  # types of results
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}  # by rank

Geometry = tuple[Sequence[int], Sequence[int], Sequence[int]]  # stride, padding, dilation
Describe = Callable[[Graph, list[Tensor]], Tensor]


@torch.library.custom_op("graphdnn::convolution", mutates_args=())
def _convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int],
) -> torch.Tensor:  # fmt: skip
    def describe(graph: Graph, inputs: list[Tensor]) -> Tensor:
        y = graph.conv_fprop(inputs[0], inputs[1], list(padding), list(stride), list(dilation))
        if bias is None:
            return y
        offset = graph.reshape(inputs[2]).set_dim([1, bias.shape[0], *[1] * (x.dim() - 2)])
        return graph.add(y.set_data_type(graph.natural_type(y)), offset)

    tensors = [x, weight] if bias is None else [x, weight, bias]
    return _executed(
        "fprop", tensors, _result(x, weight, stride, padding, dilation), (stride, padding, dilation), describe
    )


@_convolution.register_fake
def _(x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    return _result(x, weight, stride, padding, dilation)


@torch.library.custom_op("graphdnn::convolution_gradients", mutates_args=())
def _gradients(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    geometry = stride, padding, dilation

    def describe_dx(graph: Graph, inputs: list[Tensor]) -> Tensor:
        return graph.conv_dgrad(inputs[0], inputs[1], list(padding), list(stride), list(dilation)).set_dim(
            list(x.shape)
        )

    def describe_dw(graph: Graph, inputs: list[Tensor]) -> Tensor:
        dw = graph.conv_wgrad(inputs[0], inputs[1], list(padding), list(stride), list(dilation))
        return dw.set_dim(list(weight.shape))

    dx = _executed("dgrad", [dy, weight], torch.empty_like(x), geometry, describe_dx)
    dw = _executed("wgrad", [x, dy], torch.empty_like(weight), geometry, describe_dw)
    return dx, dw


@_gradients.register_fake
def _(dy: Any, x: Any, weight: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    return torch.empty_like(x), torch.empty_like(weight)


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    x, weight, bias, stride, padding, dilation = inputs
    ctx.save_for_backward(x, weight)
    ctx.geometry, ctx.has_bias = (stride, padding, dilation), bias is not None


def _backward(ctx: Any, dy: Any) -> Any:
    x, weight = ctx.saved_tensors
    dx, dw = torch.ops.graphdnn.convolution_gradients(dy, x, weight, *ctx.geometry)
    dbias = dy.sum([0, *range(2, dy.dim())]) if ctx.has_bias else None
    return dx, dw, dbias, None, None, None


_convolution.register_autograd(_backward, setup_context=_setup)


def _result(x: Any, weight: Any, stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int]) -> Any:
    """An uninitialized result: channels last if the image is, else row-major."""
    if x.dtype != weight.dtype:
        reason, fix = "a convolution multiplies elements of one type", "convert one of the two"
        found, wanted = str(weight.dtype), str(x.dtype)
        raise BadParam(ARGUMENT.reject("convolution", "weight.dtype", found, expected=wanted, reason=reason, fix=fix))
    spatial = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    extents = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in spatial]
    y = x.new_empty([x.shape[0], weight.shape[0], *extents], dtype=_SUMS.get(x.dtype, x.dtype))
    layout = _FORMATS.get(x.dim())
    if layout is None or not x.is_contiguous(memory_format=layout) or x.is_contiguous():
        return y
    return y.contiguous(memory_format=layout)


def _executed(kind: str, tensors: Sequence[Any], y: Any, geometry: Geometry, describe: Describe) -> Any:
    """Write ``y`` by a graph, which is built at the first call with these layouts."""
    given = [t if is_readable(t) else t.clone(memory_format=torch.contiguous_format) for t in tensors]
    key = (kind, *(_layout(t) for t in (*given, y)), *map(tuple, geometry))
    graph = _GRAPHS.get(key)
    if graph is None:
        made = Graph(kind, device=_device(y))
        inputs = [_input(made, t, uid) for uid, t in enumerate(given, start=1)]
        output = describe(made, inputs).set_data_type(library_type(y.dtype, kind))
        output.set_stride(strides_of(y)).set_uid(len(given) + 1).set_output(True)
        made.build()
        graph = _GRAPHS.remember(key, made)
    graph.execute(dict(enumerate((*given, y), start=1)))
    return y


def is_readable(tensor: Any) -> bool:
    """Whether a kernel can read a tensor where it is: nothing is expanded, and the address is a multiple of 16."""
    return all(n == 1 or s > 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True)) and not (
        tensor.data_ptr() % _ALIGNMENT or tensor.is_neg()
    )


_ALIGNMENT = 16  # bytes, as tensors of a graph promise


def _layout(tensor: Any) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device


def _device(tensor: Any) -> str:
    return "cpu" if tensor.device.type == "cpu" else str(tensor.device)


def _input(graph: Graph, tensor: Any, uid: int) -> Tensor:
    kind = library_type(tensor.dtype, "argument")
    return graph.tensor(list(tensor.shape), strides_of(tensor), kind).set_uid(uid)


def _each(value: int | Sequence[int], axes: int) -> list[int]:
    return [value] * axes if isinstance(value, int) else list(value)


def _conv(axes: int) -> Callable[..., torch.Tensor]:
    def conv(
        x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1,
    ) -> torch.Tensor:  # fmt: skip
        numbers = (_each(value, axes) for value in (stride, padding, dilation))
        return torch.ops.graphdnn.convolution(x, weight, bias, *numbers)

    conv.__name__ = conv.__qualname__ = f"conv{axes}d"
    conv.__doc__ = f"""Convolution over {axes} {"axis" if axes == 1 else "axes"}, with autograd for floating point.

    Args:
        x: ``[N, C, ...]``.
        weight: ``[K, C / groups, ...]``. The number of groups follows from the channels.
        bias: ``[K]``, or None. For integers of 8 and 16 bits it has the type int32.
        stride: A number, or one for each axis.
        padding: The same.
        dilation: The same.

    Returns:
        ``[N, K, ...]``. Integers of 8 and 16 bits give exact sums in int32, which wrap; other types give their own.

    Raises:
        BadParam: The extents do not fit.
        NotSupported: The library lacks the element type, or the device.
    """
    return conv


conv1d, conv2d, conv3d = _conv(1), _conv(2), _conv(3)
