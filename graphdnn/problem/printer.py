"""The problem text of a graph, where it has one: the inverse of ``graphdnn.problem.parse``, proven by parsing it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from graphdnn.builder.pointwise_methods import POINTWISE_METHODS
from graphdnn.dtypes import ELEMENTS, SHORT_NAMES
from graphdnn.enums import ConvolutionMode, NormMode, PointwiseMode, ResampleMode
from graphdnn.errors import GraphdnnError
from graphdnn.files import fields_of
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import (
    ConvolutionOperation,
    Matmul,
    NormForward,
    Operation,
    PointwiseOperation,
    Reduction,
    ResampleForward,
)
from graphdnn.problem import parse
from graphdnn.tensors import TensorSpec, channels_last_strides, packed_strides

_NAMES = {data_type: name for name, data_type in SHORT_NAMES.items()}
_CONVOLUTIONS = {"conv_fprop": ("conv", "y"), "conv_dgrad": ("dgrad", "dx"), "conv_wgrad": ("wgrad", "dw")}
_POOLS = {
    ResampleMode.MAXPOOL: "max", ResampleMode.AVGPOOL_EXCLUDE_PADDING: "avg",
    ResampleMode.AVGPOOL_INCLUDE_PADDING: "avg_include",
}  # fmt: skip
_NORMS = {
    NormMode.BATCH_NORM: "batch", NormMode.INSTANCE_NORM: "instance", NormMode.LAYER_NORM: "layer",
    NormMode.RMS_NORM: "rms",
}  # fmt: skip


class _NoText(Exception):
    """The graph says something that a text cannot."""


def print_problem(graph: OperationGraph) -> str | None:
    """A text that makes an equal graph, names and uids aside; None where there is none."""
    try:
        head, *steps = _parts(graph)
    except _NoText:
        return None
    wanted = canonical(graph)
    kinds = sorted({op.compute_type for op in graph.operations if op.compute_type in _NAMES})
    types = [_NAMES[t.data_type] for t in graph.outputs if t.data_type in _NAMES]
    for compute, out in product(("", *(_NAMES[kind] for kind in kinds)), ("", *dict.fromkeys(types))):
        options = (f" compute={compute}" if compute else "") + (f" out={out}" if out else "")
        exit = f" -> {steps[-1][3:]}" if steps and steps[-1].startswith("-> ") else ""
        text = " + ".join((head + options, *(step for step in steps if not step.startswith("-> ")))) + exit
        try:
            if canonical(parse(text).build_operation_graph()) == wanted:
                return text
        except GraphdnnError:
            continue
    return None


def canonical(graph: OperationGraph) -> list[Any]:
    """What the graph computes, tensors numbered as they come: equal for graphs that differ in names and uids only."""
    numbers: dict[int, int] = {}
    found = []
    for op in graph.operations:
        ports = op.tensors()
        fields = {p.split("[")[0] for p in ports}
        settings = {k: v for k, v in fields_of(op).items() if k not in fields and k not in ("name", "origin")}
        tensors = {
            port: (
                numbers.setdefault(tensor.uid, len(numbers)),
                {k: v for k, v in fields_of(tensor).items() if k not in ("uid", "name")},
            )
            for port, tensor in ports.items()
        }
        found.append((op.tag, settings, tensors))
    return found


def _parts(graph: OperationGraph) -> Iterator[str]:
    """The head, the steps, and perhaps an exit."""
    first, *rest = graph.operations
    if isinstance(first, PointwiseOperation):
        rest = [first, *rest]
        value = _through(first)
        yield f"pointwise x={_operand(value)}"
    else:
        yield _head(first)
        written = first.outputs()
        value = written["y"] if "y" in written else next(iter(written.values()))
    for op in rest:
        if isinstance(op, Reduction) and op is rest[-1] and op.x.uid == value.uid:
            yield f"-> reduce {op.spec.operator.name.lower()} {_extents(op.y.dims)}"
            return
        if not isinstance(op, PointwiseOperation) or value.uid not in [t.uid for t in op.inputs().values()]:
            raise _NoText
        yield _step(op, value, first)
        value = next(iter(op.outputs().values()))


def _through(op: PointwiseOperation) -> TensorSpec:
    if op.x is None:
        raise _NoText
    return op.x


def _head(op: Operation) -> str:
    if isinstance(op, ConvolutionOperation):
        return _convolution(op)
    if isinstance(op, Matmul):
        return f"matmul a={_operand(op.a)} b={_operand(op.b)}"
    if isinstance(op, Reduction):
        return f"reduce {op.spec.operator.name.lower()} x={_operand(op.x)} y={_extents(op.y.dims)}"
    if isinstance(op, ResampleForward) and op.spec.mode in _POOLS:
        spec = op.spec
        words = [("window", spec.window_dims)]
        words += [("stride", spec.strides)] if spec.strides != spec.window_dims else []
        words += [("pad", spec.pre_paddings)] if any(spec.pre_paddings) else []
        return f"pool {_POOLS[spec.mode]} x={_operand(op.x)}" + "".join(f" {n}={_list(v)}" for n, v in words)
    if isinstance(op, NormForward) and op.mode in _NORMS:
        return f"norm {_NORMS[op.mode]} x={_operand(op.x)}"
    raise _NoText


def _convolution(op: ConvolutionOperation) -> str:
    name, output = _CONVOLUTIONS[op.tag]
    ports = [port for port in ("x", "dy", "w") if port in op.inputs()]
    words = [name, *(f"{port}={_operand(op.inputs()[port])}" for port in ports)]
    if op.tag != "conv_fprop":
        words.append(f"{output}={_extents(op.outputs()[output].dims)}")
    conv = op.conv
    if conv.pre_paddings == conv.post_paddings:
        words += [f"pad={_list(conv.pre_paddings)}"] if any(conv.pre_paddings) else []
    else:
        words += [f"pre={_list(conv.pre_paddings)}", f"post={_list(conv.post_paddings)}"]
    words += [f"stride={_list(conv.filter_strides)}"] if set(conv.filter_strides) != {1} else []
    words += [f"dil={_list(conv.dilations)}"] if set(conv.dilations) != {1} else []
    words += [f"spatial={conv.spatial_dims}"] if conv.spatial_dims != len(op.roles[0].dims) - 2 else []
    words += ["mode=conv"] if conv.mode is ConvolutionMode.CONVOLUTION else []
    return " ".join(words)


def _step(op: PointwiseOperation, value: TensorSpec, first: Operation) -> str:
    mode = op.spec.mode
    if mode in (PointwiseMode.ADD, PointwiseMode.MUL):
        other = op.b
        if other is None or op.x is None or op.x.uid != value.uid or other.uid == value.uid:
            raise _NoText
        whole = other.extents == value.extents
        return {
            (PointwiseMode.ADD, True): "residual", (PointwiseMode.ADD, False): "bias",
            (PointwiseMode.MUL, True): "mul", (PointwiseMode.MUL, False): "scale",
        }[mode, whole]  # fmt: skip
    for name, row in POINTWISE_METHODS.items():
        if row.mode is mode and len(row.arguments) == 1 and name not in ("leaky_relu", "bias", "scale"):
            return name + _parameters(op, name, row.parameters.values())
    raise _NoText


def _parameters(op: PointwiseOperation, name: str, fields: Any) -> str:
    values = [getattr(op.spec, field) for field in fields]
    usual = [type(op.spec).model_fields[field].default for field in fields]
    if values == usual:
        return ""
    if name == "relu":  # a text gives the clips first
        slope, low, high = values
        values = [low, high] if slope == usual[0] else [low, high, slope]
    return f"({','.join(map(_number, values))})"


def _number(value: float) -> str:
    return str(int(value)) if value == int(min(max(value, -1e9), 1e9)) else repr(value)


def _operand(tensor: TensorSpec) -> str:
    if tensor.data_type not in _NAMES or tensor.data_type not in ELEMENTS:
        raise _NoText
    if tensor.strides == packed_strides(tensor.dims):
        layout = ""
    elif tensor.strides == channels_last_strides(tensor.dims):
        layout = "nhwc"
    else:
        raise _NoText
    return f"{_NAMES[tensor.data_type]}{_extents(tensor.dims)}{layout}"


def _extents(values: Any) -> str:
    return f"[{','.join(map(str, values))}]"


def _list(values: Any) -> str:
    shown = [str(int(v)) for v in values]
    return shown[0] if len(set(shown)) == 1 else ",".join(shown)
