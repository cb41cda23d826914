"""Problems as one line of text, for the command line: operands, settings, and what follows after ``+``.

    conv x=i8[8,64,56,56]nhwc w=i8[64,64,3,3] pad=1 + bias + relu
    conv x=f16[4,2,8,28,28] w=f16[2,16,8,3,3] pad=1 stride=2 spatial=2      (with a group axis)
    dgrad dy=f32[8,64,28,28] w=f32[64,32,3,3] dx=[8,32,56,56] pad=1 stride=2
    wgrad x=f32[8,32,28,28] dy=f32[8,64,28,28] dw=[64,32,3,3] pad=1
    matmul a=f16[8,128,64] b=f16[8,64,256] + bias + gelu
    pool max x=f32[2,8,32,32] window=3 stride=2 pad=1
    reduce add x=f32[8,64,56,56] y=[1,64,1,1]
    norm layer x=f32[32,256]
    pointwise x=f32[8,64,56,56] + mul + tanh
    conv x=f32[8,64,56,56] w=f32[64,64,3,3] pad=1 + bias + clip(0,6) -> reduce add [1,64,1,1]

Grammar: an operation, its words, then steps separated by ``+``, and at the end perhaps
``-> reduce operator [extents]``, which reduces the axes of extent 1. An operand is
``name=type[extents]layout``: the type one of f64 f32 f16 bf16 e4m3 e5m2 i8 u8 i16 i32
i64 bool, the layout ``nhwc`` (channels last) or nothing (row-major). Settings are
``name=number`` or ``name=a,b`` per spatial axis: pad, pre, post, stride, dil, window, spatial.
``compute=type`` is the arithmetic, ``out=type`` the type of the final result;
all of them stand before the first ``+``; ``mode=conv`` flips
the filter. Steps: ``bias`` (per channel of every group, or per column after matmul), ``residual``
(same extents, with the first operand's type and layout), ``scale`` (per channel), ``mul`` (as ``residual``),
``clip(low,high)``, and every elementwise mode of one operand, with its parameters in parentheses:
``relu(0,6)``, ``leaky_relu(0.1)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphdnn.builder import Graph, Tensor
from graphdnn.builder.methods import POINTWISE_METHODS
from graphdnn.dtypes import ELEMENTS, FLOATS, data_type_of
from graphdnn.enums import ConvolutionMode, DataType, NormPhase, ReductionOperator, ResampleMode
from graphdnn.errors import BadParam
from graphdnn.graph import OperationGraph
from graphdnn.operands import random_operands
from graphdnn.rules import Rule
from graphdnn.tensors import channels_last_strides, packed_strides
from graphdnn.text import meant

SYNTAX = Rule(
    id="problem.syntax",
    expected="{expected}",
    reason="the text cannot be read from here: {rest}",
    fix="write it like 'conv x=f32[8,64,56,56] w=f32[64,64,3,3] pad=1 + bias + relu'",
)
UNKNOWN = Rule(
    id="problem.word",
    expected="one of {known}",
    reason="nothing here is called that",
    fix="{meant}choose one of the names",
)
MISSING = Rule(
    id="problem.operand",
    expected="{expected}",
    reason="{operation} cannot do without it",
    fix="add {expected}",
)
UNUSED = Rule(
    id="problem.unused",
    expected="only words that {operation} reads: {known}",
    reason="{operation} does not read it, and nothing is accepted and ignored",
    fix="{meant}leave it out",
)

_TYPES = ("f64", "f32", "f16", "bf16", "e4m3", "e5m2", "i8", "u8", "i16", "i32", "i64", "bool")
_WORD = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>\S+)|(?P<bare>[A-Za-z_]\w*)")
_OPERAND = re.compile(r"(?P<type>[A-Za-z_][\w]*)?\[(?P<dims>[\d,]+)\](?P<layout>nhwc|nchw)?$")
_STEP = re.compile(r"(?P<name>[A-Za-z_]\w*)(?:\((?P<arguments>[^)]*)\))?$")
_EXIT = re.compile(r"reduce\s+(?P<operator>[A-Za-z_]\w*)\s+\[(?P<dims>[\d,]+)\]$")
_PLUS = re.compile(r"\+(?![^()]*\))")  # not the sign of an exponent in parentheses


class _Part(str):
    """A piece of the problem text that knows its column, so that errors can point at it."""

    __slots__ = ("column",)
    column: int

    @classmethod
    def of(cls, text: str, start: int, end: int) -> _Part:
        """``text[start:end]`` without the space around it."""
        piece = text[start:end]
        part = cls(piece.strip())
        part.column = start + len(piece) - len(piece.lstrip()) + 1
        return part

    def group(self, match: re.Match[str], name: str) -> _Part:
        """A named group of a match on this part."""
        part = _Part(match[name])
        part.column = self.column + match.start(name)
        return part


@dataclass
class _Words:
    """The words of one problem, crossed out as they are read."""

    text: str
    operation: str
    bare: list[_Part] = field(default_factory=list)
    named: dict[str, _Part] = field(default_factory=dict)  # the keys are parts too
    channels: tuple[int, ...] = (1,)  # axes of the result that per-channel operands have
    asked: dict[str, None] = field(default_factory=dict)  # every name that the operation looked for
    first: Tensor | None = None  # operand, whose type and layout those of the result's extents have

    def take(self, name: str) -> _Part | None:
        self.asked[name] = None
        return self.named.pop(name, None)

    def per_axis(self, name: str, spatial: int) -> tuple[int, ...] | None:
        """``name=a,b`` or one number for every spatial axis."""
        value = self.take(name)
        if value is None:
            return None
        numbers = _numbers(value, self.text, name)
        return numbers * spatial if len(numbers) == 1 else numbers

    def operand(self, graph: Graph, name: str) -> Tensor:
        value = self.take(name)
        if value is None:
            raise _refuse(
                MISSING, name, "nothing", self.text, expected=f"{name}=type[extents]", operation=self.operation
            )
        found = _operand(graph, name, value, self.text)
        if self.first is None:
            self.first = found
        return found

    def extents(self, name: str) -> tuple[int, ...]:
        value = self.take(name)
        match = None if value is None else _OPERAND.match(value)
        if value is None or match is None:
            raise _refuse(
                MISSING, name, value or "nothing", self.text, expected=f"{name}=[extents]", operation=self.operation
            )
        if match["type"] or match["layout"]:
            raise _refuse(SYNTAX, name, value, self.text, expected="[extents] alone; out=type sets a type", rest=value)
        return _numbers(value.group(match, "dims"), self.text, name)

    def choice(self, allowed: Sequence[str]) -> _Part:
        """The bare word that picks a variant: ``pool max``."""
        if not self.bare or self.bare[0] not in allowed:
            raise _unknown(self.operation, self.bare[0] if self.bare else "nothing", self.text, allowed)
        return self.bare.pop(0)

    def finish(self) -> None:
        for word in (*self.bare, *self.named):
            assert isinstance(word, _Part)
            known, value = list(self.asked), _Part(self.named.get(word, word))
            value.column = word.column
            raise _refuse(
                UNUSED,
                word,
                value,
                self.text,
                operation=self.operation,
                known=", ".join(known),
                meant=meant(word, known),
            )


def _refuse(rule: Rule, attribute: str, value: str, text: str, **words: Any) -> BadParam:
    where = f"problem {text!r}" + (f", column {value.column}" if isinstance(value, _Part) else "")
    return BadParam(rule.reject(where, str(attribute), str(value), **words))


def _unknown(attribute: str, word: str, text: str, known: Sequence[str]) -> BadParam:
    return _refuse(UNKNOWN, attribute, word, text, known=", ".join(known), meant=meant(word, known))


def _numbers(value: _Part, text: str, name: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise _refuse(SYNTAX, name, value, text, expected="whole numbers, separated by commas", rest=value) from None


def _operand(graph: Graph, name: str, value: _Part, text: str) -> Tensor:
    match = _OPERAND.match(value)
    if not match or not match["type"]:
        raise _refuse(SYNTAX, name, value, text, expected="type[extents], e.g. f16[8,64,56,56]nhwc", rest=value)
    dims = _numbers(value.group(match, "dims"), text, name)
    strides = channels_last_strides(dims) if match["layout"] == "nhwc" else packed_strides(dims)
    return graph.tensor(dims, strides, data_type=_type(value.group(match, "type"), text, name), name=name)


def _type(value: str, text: str, name: str) -> DataType:
    try:
        return data_type_of(value)
    except ValueError:
        raise _unknown(name, value, text, _TYPES) from None


# Operations: words -> the tensor that the steps go on from.


def _convolution_settings(words: _Words, rank: int) -> dict[str, Any]:
    given = words.take("spatial")
    spatial = rank - 2 if given is None else _numbers(given, words.text, "spatial")[0]
    words.channels = (1, 2) if rank == spatial + 3 else (1,)
    zeros = (0,) * spatial
    padding = words.per_axis("pad", spatial) or zeros
    mode = words.take("mode") or "cross"
    if mode not in ("cross", "conv"):
        raise _unknown("mode", mode, words.text, ("cross", "conv"))
    return {
        "pre_padding": words.per_axis("pre", spatial) or padding,
        "post_padding": words.per_axis("post", spatial) or padding,
        "stride": words.per_axis("stride", spatial) or (1,) * spatial,
        "dilation": words.per_axis("dil", spatial) or (1,) * spatial,
        "convolution_mode": ConvolutionMode.CONVOLUTION if mode == "conv" else ConvolutionMode.CROSS_CORRELATION,
    }


def _conv(graph: Graph, words: _Words) -> Tensor:
    x, w = words.operand(graph, "x"), words.operand(graph, "w")
    return graph.conv_fprop(x, w, **_convolution_settings(words, len(x.get_dim())))


def _dgrad(graph: Graph, words: _Words) -> Tensor:
    dy, w, dx = words.operand(graph, "dy"), words.operand(graph, "w"), words.extents("dx")
    return graph.conv_dgrad(dy, w, **_convolution_settings(words, len(dx))).set_dim(dx)


def _wgrad(graph: Graph, words: _Words) -> Tensor:
    x, dy, dw = words.operand(graph, "x"), words.operand(graph, "dy"), words.extents("dw")
    return graph.conv_wgrad(x, dy, **_convolution_settings(words, len(dw))).set_dim(dw)


def _matmul(graph: Graph, words: _Words) -> Tensor:
    a, b = words.operand(graph, "a"), words.operand(graph, "b")
    words.channels = (len(a.get_dim()) - 1,)
    return graph.matmul(a, b)


def _pool(graph: Graph, words: _Words) -> Tensor:
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
        raise _refuse(MISSING, "window", "nothing", words.text, expected="window=3", operation="pool")
    stride, padding = words.per_axis("stride", spatial), words.per_axis("pad", spatial)
    y, _ = graph.resample(x, mode, window, stride=stride, pre_padding=padding, post_padding=padding)
    assert y is not None
    return y


def _reduce(graph: Graph, words: _Words) -> Tensor:
    operator = words.choice(tuple(o.name.lower() for o in ReductionOperator))
    return graph.reduction(words.operand(graph, "x"), ReductionOperator[operator.upper()]).set_dim(words.extents("y"))


def _norm(graph: Graph, words: _Words) -> Tensor:
    mode = words.choice(("batch", "instance", "layer", "rms"))
    x = words.operand(graph, "x")
    dims = tuple(x.get_dim())
    if len(dims) < 2:
        raise _refuse(SYNTAX, "x", str(list(dims)), words.text, expected="[N, C, ...]", rest="there is no channel axis")
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


def _pointwise(graph: Graph, words: _Words) -> Tensor:
    return words.operand(graph, "x")


_OPERATIONS: Mapping[str, Callable[[Graph, _Words], Tensor]] = {
    "conv": _conv, "dgrad": _dgrad, "wgrad": _wgrad, "matmul": _matmul, "pool": _pool, "reduce": _reduce,
    "norm": _norm, "pointwise": _pointwise,
}  # fmt: skip
_ALIASES = {"clip": "relu"}  # max(low, min(high, x)): nothing is left of the slope below the lower clip
_CLIPS = ("lower_clip", "upper_clip")
_PARAMETERS = {"relu": (*_CLIPS, "negative_slope"), "clip": _CLIPS}  # where a text orders them its own way
_WHOLE = ("residual", "mul")
_STEPS_WITH_OPERAND = {"bias": "bias", "scale": "scale", "residual": "add", "mul": "mul"}


def parse(text: str) -> Graph:
    """A graph, validated and not yet built. Raises ``BadParam`` with the column of what cannot be read."""
    head, *steps, exit = _split(text)
    operation, words = _words(head, text)
    compute, out = words.take("compute"), words.take("out")
    graph = Graph(
        name=" + ".join((operation, *steps)) + (f" -> {exit}" if exit else ""),
        compute_data_type=None if compute is None else _type(compute, text, "compute"),
    )
    value = _OPERATIONS[operation](graph, words)
    words.finish()
    for step in steps:
        value = _step(graph, value, step, words)
    if exit:
        value = _exit(graph, value, exit, text)
    if value.get_is_virtual():
        value.set_output(True)
    else:
        value = graph.identity(value).set_output(True)
    if out is not None:
        value.set_data_type(_type(out, text, "out"))
    value.set_name("y" if operation not in ("dgrad", "wgrad") else {"dgrad": "dx", "wgrad": "dw"}[operation])
    graph.validate()
    return graph


def _split(text: str) -> list[_Part]:
    """The operation with its words, the steps, and what follows the arrow (empty without one)."""
    end = text.find("->")
    main = len(text) if end < 0 else end
    cuts = [0, *(place for match in _PLUS.finditer(text[:main]) for place in match.span()), main]
    parts = [_Part.of(text, start, stop) for start, stop in zip(cuts[::2], cuts[1::2], strict=True)]
    exit = _Part.of(text, len(text) if end < 0 else end + 2, len(text))
    if end >= 0 and not exit:
        raise _refuse(SYNTAX, "exit", "nothing", text, expected="reduce operator [extents] after ->", rest="nothing")
    return [*parts, exit]


def _words(head: _Part, text: str) -> tuple[str, _Words]:
    parts = [head.group(match, "word") for match in re.finditer(r"(?P<word>\S+)", head)]
    if not parts or parts[0] not in _OPERATIONS:
        raise _unknown("operation", parts[0] if parts else "nothing", text, tuple(_OPERATIONS))
    words = _Words(text, str(parts[0]))
    for part in parts[1:]:
        match = _WORD.fullmatch(part)
        if not match:
            raise _refuse(SYNTAX, "word", part, text, expected="name=value, or a word", rest=part)
        if match["bare"]:
            words.bare.append(part)
        elif match["name"] in words.named:
            raise _refuse(SYNTAX, match["name"], part, text, expected="each name once", rest=part)
        else:
            words.named[part.group(match, "name")] = part.group(match, "value")
    return words.operation, words


def _step(graph: Graph, value: Tensor, step: _Part, words: _Words) -> Tensor:
    text, match = words.text, _STEP.fullmatch(step)
    if not match:
        raise _refuse(SYNTAX, "step", step or "nothing", text, expected="a step, e.g. relu or relu(0,6)", rest=step)
    name = match["name"]
    given = None if match["arguments"] is None else step.group(match, "arguments")
    if name in _STEPS_WITH_OPERAND:
        if given is not None:
            raise _refuse(SYNTAX, "step", step, text, expected=f"{name} without parentheses", rest=given)
        dims = _operand_extents(name, tuple(value.get_dim()), words.channels)
        operand = _operand_of_step(graph, value, words, name, dims)
        return _call(graph, _STEPS_WITH_OPERAND[name], value, operand)
    method = _ALIASES.get(name, name)
    row = POINTWISE_METHODS.get(method)
    if row is None or len(row.arguments) != 1:
        known = [n for n, r in POINTWISE_METHODS.items() if len(r.arguments) == 1]
        raise _unknown("step", step.group(match, "name"), text, (*_STEPS_WITH_OPERAND, *_ALIASES, *known))
    order = _PARAMETERS.get(name, tuple(row.parameters))
    parameters = _parameters(name, order, given, text)
    for needed in order if name in _ALIASES else row.required:
        if needed not in parameters:
            raise _refuse(MISSING, name, step, text, expected=f"{name}({', '.join(order)})", operation=name)
    return _call(graph, method, value, **parameters)


def _exit(graph: Graph, value: Tensor, exit: _Part, text: str) -> Tensor:
    match = _EXIT.fullmatch(exit)
    if not match:
        raise _refuse(SYNTAX, "exit", exit, text, expected="reduce operator [extents]", rest=exit)
    operators = {o.name.lower(): o for o in ReductionOperator}
    operator = exit.group(match, "operator")
    if operator not in operators:
        raise _unknown("operator", operator, text, tuple(operators))
    return graph.reduction(value, operators[operator]).set_dim(_numbers(exit.group(match, "dims"), text, "exit"))


def _call(graph: Graph, method: str, *operands: Tensor, **parameters: float) -> Tensor:
    result: Tensor = getattr(graph, method)(*operands, **parameters)
    return result


def _operand_of_step(graph: Graph, value: Tensor, words: _Words, name: str, dims: tuple[int, ...]) -> Tensor:
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


def _parameters(name: str, order: Sequence[str], given: _Part | None, text: str) -> dict[str, float]:
    if given is None:
        return {}
    parts = [part.strip() for part in given.split(",")] if given.strip() else []
    if len(parts) > len(order):
        raise _refuse(SYNTAX, name, given, text, expected=f"at most {len(order)} parameters", rest=given)
    try:
        return {parameter: _number(part) for parameter, part in zip(order, parts, strict=False)}
    except ValueError:
        raise _refuse(SYNTAX, name, given, text, expected="numbers", rest=given) from None


def _number(text: str) -> float:
    """A whole number where one is written: an axis is counted, not measured."""
    try:
        return int(text)
    except ValueError:
        return float(text)


# Data.


def random_bindings(graph: OperationGraph | Graph, seed: int = 0, *, extreme: bool = False) -> dict[int, Any]:
    """``graphdnn.operands.random_operands`` of a graph, or of one in the making."""
    return random_operands(graph.build_operation_graph() if isinstance(graph, Graph) else graph, seed, extreme=extreme)
