"""How the script of a migration writes each operation: one row for each, with the lines of the builder's call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from fractions import Fraction
from math import isfinite
from typing import Any, Protocol

from graphdnn.builder.pointwise_methods import POINTWISE_METHODS, Method
from graphdnn.enums import ConvolutionMode, NormMode, NormPhase, PointwiseMode
from graphdnn.operations import (
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    ConvolutionOperation,
    ConvolutionSpec,
    CtcLoss,
    GridSample,
    GridSampleBackward,
    NormBackward,
    NormForward,
    Operation,
    Patches,
    PointwiseOperation,
    PointwiseSpec,
    RecurrentOperation,
    Reduction,
    ResampleBackward,
    ResampleForward,
    Reshape,
    Rng,
    RnnBackwardData,
    RnnBackwardWeights,
    RnnForward,
    RnnSpec,
    Transpose,
)
from graphdnn.operations.pointwise_modes import POINTWISE
from graphdnn.tensors import TensorSpec
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.rules import NO_SCRIPT

_LONGEST = 116  # characters of a line in a function


class Names(Protocol):
    """The variables of a function."""

    def name(self, tensor: TensorSpec) -> str: ...
    def network(self, rnn: RnnSpec) -> Iterator[str]: ...
    def network_name(self, rnn: RnnSpec) -> str: ...


Row = Callable[[Any, Any], Iterator[str]]  # of names and an operation


def row_of(operation: Operation) -> Row | None:
    return _ROWS.get(type(operation))


def shown(value: Any) -> str:
    """A value as Python writes it."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Fraction):
        return str(value.numerator) if value.denominator == 1 else f"({value.numerator}, {value.denominator})"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(shown, value)) + "]"
    if isinstance(value, float) and not isfinite(value):
        return f"float('{value}')"
    return repr(value)


def _call(target: str, method: str, positional: Sequence[str], **named: Any) -> str:
    arguments = [*positional, *(f"{key}={shown(value)}" for key, value in named.items())]
    line = f"{target} = graph.{method}({', '.join(arguments)})"
    if len(line) <= _LONGEST:
        return line
    rows = ", ".join(arguments) if len(", ".join(arguments)) < _LONGEST - 4 else ",\n    ".join(arguments)
    return f"{target} = graph.{method}(\n    {rows},\n)"


def _targets(names: Names, op: Operation, results: Sequence[str]) -> str:
    """The variables of a method that gives several results; ``_`` for a result that the operation does not have."""
    outputs = op.outputs()
    return ", ".join(names.name(outputs[port]) if port in outputs else "_" for port in results)


def _operands(names: Names, op: Operation, arguments: dict[str, str]) -> list[str]:
    """``argument=variable`` for each port that is set; ``arguments``: the method's, where they are not the port's."""
    return [f"{arguments.get(port, port)}={names.name(tensor)}" for port, tensor in op.inputs().items()]


def _positions(conv: ConvolutionSpec) -> dict[str, Any]:
    """Padding, stride, dilation and mode, where they are not the builder's own."""
    symmetric = conv.pre_paddings == conv.post_paddings
    settings: dict[str, Any] = {"padding": conv.pre_paddings} if symmetric else {
        "pre_padding": conv.pre_paddings, "post_padding": conv.post_paddings,
    }  # fmt: skip
    settings |= {"stride": conv.filter_strides} if set(conv.filter_strides) != {1} else {}
    settings |= {"dilation": conv.dilations} if set(conv.dilations) != {1} else {}
    settings |= {} if conv.mode is ConvolutionMode.CROSS_CORRELATION else {"convolution_mode": conv.mode}
    return {**settings, "compute_data_type": conv.compute_type}


def _convolution(names: Names, op: ConvolutionOperation) -> Iterator[str]:
    (target,) = op.outputs().values()
    ports = {"conv_fprop": ("x", "w"), "conv_dgrad": ("dy", "w"), "conv_wgrad": ("x", "dy")}[op.tag]
    operands = [names.name(getattr(op, p)) for p in ports]
    yield _call(names.name(target), op.tag, operands, **_positions(op.conv))


def _method(mode: PointwiseMode) -> tuple[str, Method]:
    return next((name, row) for name, row in POINTWISE_METHODS.items() if row.mode is mode)


def _pointwise(names: Names, op: PointwiseOperation) -> Iterator[str]:
    spec = op.spec
    variables = {port: names.name(getattr(op, port)) for port in POINTWISE[spec.mode].operands}
    factors = {f: getattr(op, f) for f in ("alpha1", "alpha2") if getattr(op, f) != 1.0}
    (target,) = op.outputs().values()
    parameters = {f: getattr(spec, f) for f in spec.row.parameters if getattr(spec, f) != _default(f)}
    method, row = _method(spec.mode)
    if not factors and set(parameters) <= set(row.parameters.values()):
        named = {argument: getattr(spec, f) for argument, f in row.parameters.items() if f in parameters}
        operands = [variables[port] for port in row.arguments.values()]
        yield _call(names.name(target), method, operands, **named, compute_data_type=spec.math_type)
        return
    operands = [shown(spec.mode), *(f"{port}={variable}" for port, variable in variables.items())]
    yield _call(names.name(target), "pointwise", operands, **factors, **parameters, compute_data_type=spec.math_type)


def _default(field: str) -> Any:
    return PointwiseSpec.model_fields[field].default


def _reduction(names: Names, op: Reduction) -> Iterator[str]:
    spec = op.spec
    settings = {"is_deterministic": True} if spec.is_deterministic else {}
    operands = [names.name(op.x), shown(spec.operator)]
    yield _call(names.name(op.y), "reduction", operands, compute_data_type=spec.compute_type, **settings)


def _resample(names: Names, op: ResampleForward | ResampleBackward) -> Iterator[str]:
    spec = op.spec
    settings = {
        "window": spec.window_dims, "stride": spec.strides, "pre_padding": spec.pre_paddings,
        "post_padding": spec.post_paddings, "padding_mode": spec.padding_mode, "nan_propagation": spec.nan_propagation,
        "compute_data_type": spec.compute_type,
    }  # fmt: skip
    if isinstance(op, ResampleForward):
        yield _call(f"{names.name(op.y)}, _", "resample", [names.name(op.x), shown(spec.mode)], **settings)
        return
    operands = [names.name(op.dy), shown(spec.mode)]
    operands += [f"x={names.name(op.x)}"] if op.x is not None else []
    yield _call(names.name(op.dx), "resample_backward", operands, **settings)


def _reshape(names: Names, op: Reshape) -> Iterator[str]:
    yield _call(names.name(op.y), "reshape", [names.name(op.x)], reshape_mode=op.mode)


def _transpose(names: Names, op: Transpose) -> Iterator[str]:
    yield _call(names.name(op.y), "transpose", [names.name(op.x)], permutation=op.permutation)


def _norm(names: Names, op: NormForward | NormBackward) -> Iterator[str]:
    """Of the builder's methods, those of batch normalization: no legacy call is another norm."""
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
    operands = _operands(names, op, ports)
    yield _call(_targets(names, op, results), method, operands, compute_data_type=op.math_type)


def _rng(names: Names, op: Rng) -> Iterator[str]:
    seed = op.seed if isinstance(op.seed, int) else names.name(op.seed)
    parameter_names = ("probability", "minimum", "maximum", "mean", "standard_deviation")
    parameters = {n: getattr(op.spec, n) for n in parameter_names if getattr(op.spec, n) is not None}
    operands = [shown(op.spec.distribution), str(seed), names.name(op.offset)]
    yield _call(names.name(op.y), "rng", operands, **parameters)


def _patches(names: Names, op: Patches) -> Iterator[str]:
    yield _call(names.name(op.y), "im2col", [names.name(op.x)], window=op.taps, **_positions(op.conv))


def _grid_sample(names: Names, op: GridSample) -> Iterator[str]:
    operands = [names.name(op.x), names.name(op.grid)]
    yield _call(names.name(op.y), "grid_sample", operands, compute_data_type=op.arithmetic)


def _grid_sample_backward(names: Names, op: GridSampleBackward) -> Iterator[str]:
    operands = [names.name(op.dy), names.name(op.x), names.name(op.grid)]
    targets = _targets(names, op, ("dx", "dgrid"))
    yield _call(targets, "grid_sample_backward", operands, compute_data_type=op.arithmetic)


def _ctc_loss(names: Names, op: CtcLoss) -> Iterator[str]:
    settings = {} if op.gradients is None else {"generate_gradients": True}
    targets = _targets(names, op, ("costs", "gradients"))
    yield _call(targets, "ctc_loss", _operands(names, op, {}), **settings, compute_data_type=op.arithmetic)


_X, _Y, _W = {"x": "input"}, {"y": "output"}, {"w": "weight"}
_RECURRENT: dict[type[RecurrentOperation], tuple[str, dict[str, str], tuple[str, ...]]] = {
    RnnForward: ("rnn_forward", _X | _W, ("y", "hy", "cy", "kept", "masks")),
    RnnBackwardData: ("rnn_backward_data", _Y | _W | {"dy": "loss"}, ("dx", "dhx", "dcx", "kept_gradients")),
    RnnBackwardWeights: ("rnn_backward_weights", _X | _Y, ("dw",)),
}  # method, its arguments by port, its results


def _recurrent(names: Names, op: RecurrentOperation) -> Iterator[str]:
    method, arguments, results = _RECURRENT[type(op)]
    yield from names.network(op.rnn)
    operands = [names.network_name(op.rnn), *_operands(names, op, arguments)]
    settings = {"training": True} if isinstance(op, RnnForward) and (op.kept or op.masks) else {}
    yield _call(_targets(names, op, results), method, operands, **settings)


_ROWS: dict[type[Operation], Row] = {
    **dict.fromkeys((ConvForward, ConvBackwardData, ConvBackwardFilter), _convolution),
    PointwiseOperation: _pointwise,
    Reduction: _reduction,
    **dict.fromkeys((ResampleForward, ResampleBackward), _resample),
    Reshape: _reshape,
    Rng: _rng,
    Transpose: _transpose,
    **dict.fromkeys((NormForward, NormBackward), _norm),
    Patches: _patches,
    GridSample: _grid_sample,
    GridSampleBackward: _grid_sample_backward,
    **dict.fromkeys(_RECURRENT, _recurrent),
    CtcLoss: _ctc_loss,
}
