"""Migration: operation graphs as a script for the graph builder, which runs as it is printed."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from fractions import Fraction
from typing import Any

from graphdnn.builder.inference import OPEN_EXTENTS
from graphdnn.builder.methods import POINTWISE_METHODS, Method
from graphdnn.enums import ConvolutionMode, DataType, NormMode, NormPhase, PointwiseMode
from graphdnn.graph import OperationGraph
from graphdnn.operations import (
    ConvolutionOperation,
    NormBackward,
    NormForward,
    Operation,
    PointwiseOperation,
    PointwiseSpec,
    Reduction,
    ResampleBackward,
    ResampleForward,
    Reshape,
    Rng,
    Transpose,
)
from graphdnn.pointwise import POINTWISE
from graphdnn.tensors import TensorSpec, packed_strides
from graphdnn.text import indented
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.rules import NO_SCRIPT

_TITLE = '"""Recorded legacy calls as graphs. Bind arrays by the tensors\' names or uids: graph.execute({...})."""'
_LONGEST = 116  # characters of a line in a function
_ENUMS = ("ConvolutionMode", "DataType", "NanPropagation", "PaddingMode", "PointwiseMode", "ReductionOperator",
          "ResampleMode", "ReshapeMode", "RngDistribution")  # fmt: skip


def script(graphs: Sequence[OperationGraph]) -> str:
    """One function for each graph, which returns the graph, not built."""
    functions = []
    for i, graph in enumerate(graphs, start=1):
        body = (indented(line, "    ") for line in _Writer(graph).lines())
        functions.append("\n".join((f"def graph_{i}(device=None):", *body)))
    text = "\n\n\n".join(functions)
    used = ", ".join(name for name in _ENUMS if f"{name}." in text)
    return f"{_TITLE}\n\nimport graphdnn\nfrom graphdnn.enums import {used}\n\n\n{text}\n"


class _Writer:
    """The lines of one function."""

    def __init__(self, graph: OperationGraph) -> None:
        self.graph = graph
        self.names: dict[int, str] = {}
        self._scaled = 0
        for tensor in graph.bound:  # what a caller binds keeps its name
            self.name(tensor)

    def lines(self) -> Iterator[str]:
        yield f"graph = graphdnn.Graph({self.graph.name!r}, device=device)"
        for tensor in self.graph.tensors.values():
            if tensor.uid not in self.graph.producer:
                yield self._operand(tensor)
        for operation in self.graph.operations:
            writer = _WRITERS.get(type(operation)) or (
                _convolution if isinstance(operation, ConvolutionOperation) else None
            )
            if writer is None:
                raise CudnnError(NO_SCRIPT.reject("migration", "operation", operation.tag))
            yield from writer(self, operation)
            for tensor in operation.outputs().values():
                yield from self._result(operation, tensor)
        yield "return graph"

    def name(self, tensor: TensorSpec) -> str:
        """The variable of a tensor: its name where that is one of its own, else by its uid."""
        if tensor.uid not in self.names:
            word = re.sub(r"\W+", "_", tensor.name).strip("_")
            taken = {*self.names.values(), "graph", "device", "graphdnn"}
            good = word.isidentifier() and not keyword.iskeyword(word) and word not in taken
            self.names[tensor.uid] = word if good else f"{word or 't'}_{tensor.uid}"
        return self.names[tensor.uid]

    def _operand(self, tensor: TensorSpec) -> str:
        name = self.name(tensor)
        if tensor.is_constant:
            return f"{name} = graph.tensor_scalar({tensor.constant_value!r}, {_shown(tensor.data_type)})"
        layout = "" if tensor.strides == packed_strides(tensor.dims) else f"stride={list(tensor.strides)}, "
        line = (
            f"{name} = graph.tensor({list(tensor.dims)}, {layout}data_type={_shown(tensor.data_type)}, "
            f"name={name!r}, uid={tensor.uid})"
        )
        return line + self._vector(tensor)

    def _result(self, operation: Operation, tensor: TensorSpec) -> Iterator[str]:
        """What the builder does not infer of a result."""
        settings = f".set_dim({list(tensor.dims)})" if operation.tag in OPEN_EXTENTS else ""
        if tensor.data_type is not operation.compute_type or not tensor.is_virtual:
            settings += f".set_data_type({_shown(tensor.data_type)})"
        if not tensor.is_virtual:
            name = self.name(tensor)
            settings += f".set_stride({list(tensor.strides)}){self._vector(tensor)}"
            yield f"{name}{settings}"
            settings = f".set_output(True).set_name({name!r}).set_uid({tensor.uid})"
        elif tensor.vector_count > 1 or operation.tag == "reshape":  # strides that others do not imply
            settings += f".set_stride({list(tensor.strides)}){self._vector(tensor)}"
        if settings:
            yield f"{self.name(tensor)}{settings}"

    def _vector(self, tensor: TensorSpec) -> str:
        alignment = f".set_alignment({tensor.byte_alignment})" if tensor.byte_alignment != 16 else ""
        if tensor.vector_count == 1:
            return alignment
        return f"{alignment}.set_vector_count_and_dimension({tensor.vector_count}, {tensor.vectorized_dimension})"

    def scaled(self, tensor: TensorSpec, factor: float, math: DataType) -> tuple[list[str], str]:
        """(lines, variable) of a tensor times a number."""
        if factor == 1.0:
            return [], self.name(tensor)
        self._scaled += 1
        name = f"scaled_{self._scaled}"
        kind = _shown(math)
        number = f"graph.tensor_scalar({factor!r}, {kind})"
        return [f"{name} = graph.mul({self.name(tensor)}, {number}, compute_data_type={kind})"], name


def _shown(value: Any) -> str:
    """A value as Python writes it."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Fraction):
        return str(value.numerator) if value.denominator == 1 else f"({value.numerator}, {value.denominator})"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return repr(value)


def _call(target: str, method: str, positional: Sequence[str], **named: Any) -> str:
    arguments = [*positional, *(f"{key}={_shown(value)}" for key, value in named.items())]
    line = f"{target} = graph.{method}({', '.join(arguments)})"
    if len(line) <= _LONGEST:
        return line
    rows = ", ".join(arguments) if len(", ".join(arguments)) < _LONGEST - 4 else ",\n    ".join(arguments)
    return f"{target} = graph.{method}(\n    {rows},\n)"


def _convolution(writer: _Writer, op: Operation) -> Iterator[str]:
    assert isinstance(op, ConvolutionOperation)
    conv = op.conv
    (target,) = op.outputs().values()
    ports = {"conv_fprop": ("x", "w"), "conv_dgrad": ("dy", "w"), "conv_wgrad": ("x", "dy")}[op.tag]
    symmetric = conv.pre_paddings == conv.post_paddings
    settings: dict[str, Any] = {"padding": conv.pre_paddings} if symmetric else {
        "pre_padding": conv.pre_paddings, "post_padding": conv.post_paddings,
    }  # fmt: skip
    settings |= {"stride": conv.filter_strides} if set(conv.filter_strides) != {1} else {}
    settings |= {"dilation": conv.dilations} if set(conv.dilations) != {1} else {}
    settings |= {} if conv.mode is ConvolutionMode.CROSS_CORRELATION else {"convolution_mode": conv.mode}
    operands = [writer.name(getattr(op, p)) for p in ports]
    yield _call(writer.name(target), op.tag, operands, **settings, compute_data_type=conv.compute_type)


def _method(mode: PointwiseMode) -> tuple[str, Method]:
    return next((name, row) for name, row in POINTWISE_METHODS.items() if row.mode is mode)


def _pointwise(writer: _Writer, op: Operation) -> Iterator[str]:
    assert isinstance(op, PointwiseOperation)
    spec = op.spec
    variables = {}
    factors = dict(zip(POINTWISE[spec.mode].operands, (op.alpha1, op.alpha2), strict=False))
    for port in POINTWISE[spec.mode].operands:
        lines, variables[port] = writer.scaled(getattr(op, port), factors.get(port, 1.0), spec.math_type)
        yield from lines
    (target,) = op.outputs().values()
    parameters = {f: getattr(spec, f) for f in spec.row.parameters if getattr(spec, f) != _default(f)}
    method, row = _method(spec.mode)
    if set(parameters) <= set(row.parameters.values()):
        named = {argument: getattr(spec, f) for argument, f in row.parameters.items() if f in parameters}
        operands = [variables[port] for port in row.arguments.values()]
        yield _call(writer.name(target), method, operands, **named, compute_data_type=spec.math_type)
        return
    operands = [_shown(spec.mode), *(f"{port}={variable}" for port, variable in variables.items())]
    yield _call(writer.name(target), "pointwise", operands, **parameters, compute_data_type=spec.math_type)


def _default(field: str) -> Any:
    return PointwiseSpec.model_fields[field].default


def _reduction(writer: _Writer, op: Operation) -> Iterator[str]:
    assert isinstance(op, Reduction)
    kind = _shown(op.spec.operator)
    yield _call(writer.name(op.y), "reduction", [writer.name(op.x), kind], compute_data_type=op.spec.compute_type)


def _resample(writer: _Writer, op: Operation) -> Iterator[str]:
    assert isinstance(op, (ResampleForward, ResampleBackward))
    spec = op.spec
    settings = {
        "window": spec.window_dims, "stride": spec.strides, "pre_padding": spec.pre_paddings,
        "post_padding": spec.post_paddings, "padding_mode": spec.padding_mode, "nan_propagation": spec.nan_propagation,
        "compute_data_type": spec.compute_type,
    }  # fmt: skip
    if isinstance(op, ResampleForward):
        yield _call(f"{writer.name(op.y)}, _", "resample", [writer.name(op.x), _shown(spec.mode)], **settings)
        return
    operands = [writer.name(op.dy), _shown(spec.mode)]
    operands += [f"x={writer.name(op.x)}"] if op.x is not None else []
    yield _call(writer.name(op.dx), "resample_backward", operands, **settings)


def _reshape(writer: _Writer, op: Operation) -> Iterator[str]:
    assert isinstance(op, Reshape)
    yield _call(writer.name(op.y), "reshape", [writer.name(op.x)], reshape_mode=op.mode)


def _transpose(writer: _Writer, op: Operation) -> Iterator[str]:
    assert isinstance(op, Transpose)
    yield _call(writer.name(op.y), "transpose", [writer.name(op.x)], permutation=op.permutation)


def _norm(writer: _Writer, op: Operation) -> Iterator[str]:
    """Of the builder's methods, those of batch normalization: no legacy call is another norm."""
    assert isinstance(op, (NormForward, NormBackward))
    if op.mode is not NormMode.BATCH_NORM:
        raise CudnnError(NO_SCRIPT.reject("migration", "operation", f"{op.tag} {op.mode.name}"))
    results: tuple[str, ...]
    if isinstance(op, NormBackward):
        method, results = "batchnorm_backward", ("dx", "dscale", "dbias")
        ports = {"dy": "grad", "x": "input"}
    elif op.phase is NormPhase.INFERENCE:
        method, results, ports = "batchnorm_inference", ("y",), {"x": "input"}
    else:
        method, results = "batchnorm", ("y", "mean", "inv_variance", "output_running_mean", "output_running_var")
        ports = {"x": "input", "input_running_mean": "in_running_mean", "input_running_var": "in_running_var"}
    outputs, inputs = op.outputs(), op.inputs()
    targets = ", ".join(writer.name(outputs[port]) if port in outputs else "_" for port in results)
    operands = [f"{ports.get(port, port)}={writer.name(tensor)}" for port, tensor in inputs.items()]
    yield _call(targets, method, operands, compute_data_type=op.math_type)


def _rng(writer: _Writer, op: Operation) -> Iterator[str]:
    assert isinstance(op, Rng)
    seed = op.seed if isinstance(op.seed, int) else writer.name(op.seed)
    names = ("probability", "minimum", "maximum", "mean", "standard_deviation")
    parameters = {n: getattr(op.spec, n) for n in names if getattr(op.spec, n) is not None}
    operands = [_shown(op.spec.distribution), str(seed), writer.name(op.offset)]
    yield _call(writer.name(op.y), "rng", operands, **parameters)


_WRITERS: dict[type[Operation], Callable[[_Writer, Operation], Iterator[str]]] = {
    PointwiseOperation: _pointwise,
    Reduction: _reduction,
    ResampleForward: _resample,
    ResampleBackward: _resample,
    Reshape: _reshape,
    Rng: _rng,
    Transpose: _transpose,
    NormForward: _norm,
    NormBackward: _norm,
}
