"""POINTWISE_METHODS: the builder's elementwise methods, one row per method of cuDNN's frontend.

A row names the mode, the method's tensor arguments in order with the port each
one feeds, and its parameters. ``pointwise_function`` turns a row into a function with
that signature, so ``help`` and keyword arguments work.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphdnn.builder.operation_methods import pointwise
from graphdnn.enums import PointwiseMode as M
from graphdnn.operations.pointwise_modes import POINTWISE


@dataclass(frozen=True, slots=True)
class Method:
    """One elementwise method: ``arguments`` maps argument names to ports."""

    mode: M
    arguments: Mapping[str, str]
    parameters: Mapping[str, str] = field(default_factory=dict)  # argument -> PointwiseSpec field
    required: tuple[str, ...] = ()  # parameters without default
    type_first: bool = False  # compute_data_type comes before the parameters


_UNARY = {"input": "x"}
_BINARY = {"a": "x", "b": "b"}
_PAIR = {"input0": "x", "input1": "b"}
_COMPARE = {"input": "x", "comparison": "b"}
_BACKWARD = {"loss": "dy", "input": "x"}
_CLIPS = {
    "negative_slope": "relu_lower_clip_slope", "lower_clip": "relu_lower_clip", "upper_clip": "relu_upper_clip",
}  # fmt: skip
_SLOPE = {"negative_slope": "relu_lower_clip_slope"}

POINTWISE_METHODS: dict[str, Method] = {
    **{
        name: Method(M[name.upper()], _BINARY)
        for name in ("add", "sub", "mul", "div", "add_square", "logical_and", "logical_or")
    },
    **{name: Method(M[name.upper()], _PAIR) for name in ("max", "min", "mod", "pow", "atan2", "floor_mod")},
    **{
        name: Method(M[name.upper()], _COMPARE)
        for name in ("cmp_eq", "cmp_neq", "cmp_gt", "cmp_ge", "cmp_lt", "cmp_le")
    },
    **{
        name: Method(M[name.upper()], _UNARY)
        for name in (
            "abs", "ceil", "cos", "erf", "exp", "floor", "identity", "log", "logical_not", "neg", "reciprocal", "rsqrt",
            "sin", "sqrt", "tan",
        )
    },
    **{
        name: Method(M[f"{name.upper()}_FWD"], _UNARY)
        for name in ("elu", "gelu", "gelu_approx_tanh", "sigmoid", "softplus", "tanh")
    },
    **{
        f"{name}_backward": Method(M[f"{name.upper()}_BWD"], _BACKWARD)
        for name in ("elu", "gelu", "gelu_approx_tanh", "sigmoid", "softplus", "tanh")
    },
    "bias": Method(M.ADD, {"input": "x", "bias": "b"}),
    "scale": Method(M.MUL, {"input": "x", "scale": "b"}),
    "relu": Method(M.RELU_FWD, _UNARY, _CLIPS),
    "leaky_relu": Method(M.RELU_FWD, _UNARY, _SLOPE, ("negative_slope",)),
    "swish": Method(M.SWISH_FWD, _UNARY, {"swish_beta": "swish_beta"}),
    "gen_index": Method(M.GEN_INDEX, _UNARY, {"axis": "axis"}, ("axis",)),
    "binary_select": Method(M.BINARY_SELECT, {"input0": "x", "input1": "b", "mask": "t"}),
    "relu_backward": Method(M.RELU_BWD, _BACKWARD, _CLIPS),
    "leaky_relu_backward": Method(M.RELU_BWD, _BACKWARD, _SLOPE, ("negative_slope",)),
    "swish_backward": Method(M.SWISH_BWD, _BACKWARD, {"swish_beta": "swish_beta"}, type_first=True),
}  # fmt: skip


def pointwise_function(name: str, row: Method) -> Callable[..., Any]:
    """The function of a row: the description of the graph, its arguments, parameters, compute_data_type and name."""
    kinds = inspect.Parameter
    parameters = [kinds("graph", kinds.POSITIONAL_OR_KEYWORD)]
    parameters += [kinds(a, kinds.POSITIONAL_OR_KEYWORD) for a in row.arguments]
    own = [
        kinds(p, kinds.POSITIONAL_OR_KEYWORD, default=kinds.empty if p in row.required else None)
        for p in row.parameters
    ]
    arithmetic = [kinds("compute_data_type", kinds.POSITIONAL_OR_KEYWORD, default=None)]
    parameters += [*arithmetic, *own] if row.type_first else [*own, *arithmetic]
    parameters += [kinds("name", kinds.POSITIONAL_OR_KEYWORD, default="", annotation="str")]
    signature = inspect.Signature(parameters)

    def function(*args: Any, **keywords: Any) -> Any:
        bound = signature.bind(*args, **keywords)
        bound.apply_defaults()
        given = bound.arguments
        operands = {port: given[argument] for argument, port in row.arguments.items()}
        settings = {field: given[p] for p, field in row.parameters.items() if given[p] is not None}
        return pointwise(
            given["graph"],
            row.mode,
            compute_data_type=given["compute_data_type"],
            name=given["name"],
            **operands,
            **settings,
        )

    function.__name__ = name
    function.__qualname__ = name
    function.__doc__ = docstring(row)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


_OPERAND = {
    "x": "The operand x of the formula.",
    "b": "The operand b of the formula. It broadcasts.",
    "t": "The predicate t of the formula, a tensor of BOOLEAN.",
    "dy": "The gradient dy of the result of the forward operation.",
}
_PARAMETER = {
    "relu_lower_clip_slope": "The slope below the lower clip. None means 0.",
    "relu_lower_clip": "The lower clip. None means 0.",
    "relu_upper_clip": "The upper clip. None means infinity.",
    "swish_beta": "The factor beta of the formula. None means 1.",
    "axis": "The axis, counted from 0.",
}
_DOCSTRING = """{mode}: ``{formula}`` for each element.

Operands broadcast, aligned at the last axis. The operands of the formula are {operands}. Source of the formula:
the cuDNN documentation, ``cudnnPointwiseMode_t``.

Args:
{arguments}
    compute_data_type: The type of the arithmetic. None takes the graph's type, else FLOAT, or INT32 for integers,
        or DOUBLE for doubles.
    name: A label for reports and error messages.

Returns:
    The result, virtual until ``set_output(True)``.

Raises:
    BadParam: An argument has the wrong type, an operand belongs to another graph, or the extents do not fit.
    NotInitialized: The graph is built and accepts no more operations.
"""


def docstring(row: Method) -> str:
    """What ``help`` prints for the method of a row: the formula of the mode, and each argument."""
    told = {argument: _OPERAND[port] for argument, port in row.arguments.items()}
    for parameter, of_spec in row.parameters.items():
        meaning, _, default = _PARAMETER[of_spec].partition(" None")
        told[parameter] = meaning if parameter in row.required else f"{meaning} None{default}"
    named = ", ".join(f"{port} = ``{argument}``" for argument, port in row.arguments.items())
    arguments = "\n".join(f"    {argument}: {text}" for argument, text in told.items())
    mode = POINTWISE[row.mode]
    return _DOCSTRING.format(mode=row.mode.c_name, formula=mode.formula, operands=named, arguments=arguments)
