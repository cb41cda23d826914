"""The steps of a problem text behind its operation, and the reduction at the end."""

from __future__ import annotations

import re
from collections.abc import Sequence

from graphdnn.builder import Graph, Tensor
from graphdnn.builder.pointwise_methods import POINTWISE_METHODS
from graphdnn.dtypes import ELEMENTS, FLOATS
from graphdnn.enums import ReductionOperator
from graphdnn.problem.tokens import MISSING, SYNTAX, Part, Words, numbers, refuse, unknown
from graphdnn.tensors import channels_last_strides

_STEP = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\((?P<arguments>[^)]*)\))?$")
_EXIT = re.compile(r"reduce\s+(?P<operator>[A-Za-z_]\w*)\s+\[(?P<dims>[\d,]+)\]$")
_ALIASES = {"clip": "relu"}  # max(low, min(high, x)): nothing is left of the slope below the lower clip
_CLIPS = ("lower_clip", "upper_clip")
_PARAMETERS = {"relu": (*_CLIPS, "negative_slope"), "clip": _CLIPS}  # where a text orders them its own way
_WHOLE = ("residual", "mul")
_STEPS_WITH_OPERAND = {"bias": "bias", "scale": "scale", "residual": "add", "mul": "mul"}


_ELSEWHERE = {
    "relu6": "clip(0,6)", "hardtanh": "clip(-1,1)", "silu": "swish", "lrelu": "leaky_relu", "add": "residual",
    "bn": "scale + bias", "batchnorm": "scale + bias", "batch_norm": "scale + bias",
    "sum": "-> reduce add [extents]", "mean": "-> reduce avg [extents]",
}  # fmt: skip  # what steps are called elsewhere


def step_names() -> tuple[str, ...]:
    """Every word that a step begins with."""
    of_one = [name for name, row in POINTWISE_METHODS.items() if len(row.arguments) == 1]
    return (*_STEPS_WITH_OPERAND, *_ALIASES, *of_one)


def with_step(graph: Graph, value: Tensor, step: Part, words: Words) -> Tensor:
    """What a step makes of a value."""
    text, match = words.text, _STEP.fullmatch(step)
    if not match:
        raise refuse(SYNTAX, "step", step or "nothing", text, expected="a step, e.g. relu or relu(0,6)", rest=step)
    name = match["name"]
    given = None if match["arguments"] is None else step.group(match, "arguments")
    if name in _STEPS_WITH_OPERAND:
        if given is not None:
            raise refuse(SYNTAX, "step", step, text, expected=f"{name} without parentheses", rest=given)
        dims = _operand_extents(name, tuple(value.get_dim()), words.channels)
        operand = _operand_of_step(graph, value, words, name, dims)
        return _call(graph, _STEPS_WITH_OPERAND[name], value, operand)
    method = _ALIASES.get(name, name)
    row = POINTWISE_METHODS.get(method)
    if row is None or len(row.arguments) != 1:
        said = f"did you mean {_ELSEWHERE[name.lower()]}? else " if name.lower() in _ELSEWHERE else ""
        raise unknown("step", step.group(match, "name"), text, step_names(), said)
    order = _PARAMETERS.get(name, tuple(row.parameters))
    parameters = _parameters(name, order, given, text)
    for needed in order if name in _ALIASES else row.required:
        if needed not in parameters:
            raise refuse(MISSING, name, step, text, expected=f"{name}({', '.join(order)})", operation=name)
    return _call(graph, method, value, **parameters)


def with_exit(graph: Graph, value: Tensor, exit: Part, text: str) -> Tensor:
    """The sums at the end."""
    match = _EXIT.fullmatch(exit)
    if not match:
        raise refuse(SYNTAX, "exit", exit, text, expected="reduce operator [extents]", rest=exit)
    operators = {o.name.lower(): o for o in ReductionOperator}
    operator = exit.group(match, "operator")
    if operator not in operators:
        raise unknown("operator", operator, text, tuple(operators))
    return graph.reduction(value, operators[operator]).set_dim(numbers(exit.group(match, "dims"), text, "exit"))


def _call(graph: Graph, method: str, *operands: Tensor, **parameters: float) -> Tensor:
    result: Tensor = getattr(graph, method)(*operands, **parameters)
    return result


def _operand_of_step(graph: Graph, value: Tensor, words: Words, name: str, dims: tuple[int, ...]) -> Tensor:
    """One of the result's extents looks like the operation's first operand, as another layer's result does."""
    kind = value.get_data_type()
    if kind is None:
        kind = graph.natural_type(value)
    first, strides = words.first, None
    if name in _WHOLE and first is not None:
        own = first.get_data_type()
        if own in FLOATS and kind in FLOATS and ELEMENTS[own].bytes > 1:
            kind = own
        if len(dims) == len(first.get_dim()) and tuple(first.get_stride()) == channels_last_strides(first.get_dim()):
            strides = channels_last_strides(dims)
    return graph.tensor(dims, strides, data_type=kind, name=name)


def _operand_extents(step: str, dims: tuple[int, ...], channels: tuple[int, ...]) -> tuple[int, ...]:
    if step in _WHOLE:
        return dims
    if len(dims) < 3:
        channels = (len(dims) - 1,)
    return tuple(extent if a in channels else 1 for a, extent in enumerate(dims))


def _parameters(name: str, order: Sequence[str], given: Part | None, text: str) -> dict[str, float]:
    if given is None:
        return {}
    parts = [part.strip() for part in given.split(",")] if given.strip() else []
    if len(parts) > len(order):
        raise refuse(SYNTAX, name, given, text, expected=f"at most {len(order)} parameters", rest=given)
    try:
        return {parameter: _number(part) for parameter, part in zip(order, parts, strict=False)}
    except ValueError:
        raise refuse(SYNTAX, name, given, text, expected="numbers", rest=given) from None


def _number(text: str) -> float:
    """A whole number where one is written: an axis is counted, not measured."""
    try:
        return int(text)
    except ValueError:
        return float(text)
