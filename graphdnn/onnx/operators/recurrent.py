"""RNN, GRU and LSTM, step by step: the products with the input are one matrix product for all steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.checks import AtMost, Empty
from graphdnn.enums import DataType
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.recurrent_operation import cell_of, recurrent_operation
from graphdnn.onnx.operators.table import Need, operator

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_MOST_STEPS = 512
_Function = Callable[[Emitter, Tensor], Tensor]


def _affine(emit: Emitter, x: Tensor, alpha: float, beta: float) -> Tensor:
    return emit.pointwise("ADD", emit.pointwise("MUL", x, alpha), beta)


def _function(name: str, alpha: float | None, beta: float | None) -> _Function:
    """An activation with its parameters; None takes ONNX's default."""

    def chosen(value: float | None, default: float) -> float:
        return default if value is None else value

    a, b = alpha, beta
    table: dict[str, _Function] = {
        "tanh": lambda emit, x: emit.pointwise("TANH_FWD", x),
        "sigmoid": lambda emit, x: emit.pointwise("SIGMOID_FWD", x),
        "relu": lambda emit, x: emit.pointwise("RELU_FWD", x),
        "leakyrelu": lambda emit, x: emit.pointwise("RELU_FWD", x, relu_lower_clip_slope=chosen(a, 0.01)),
        "elu": lambda emit, x: emit.pointwise("ELU_FWD", x, elu_alpha=chosen(a, 1.0)),
        "softplus": lambda emit, x: emit.pointwise("SOFTPLUS_FWD", x),
        "affine": lambda emit, x: _affine(emit, x, chosen(a, 1.0), chosen(b, 0.0)),
        "hardsigmoid": lambda emit, x: emit.pointwise(
            "RELU_FWD", _affine(emit, x, chosen(a, 0.2), chosen(b, 0.5)), relu_upper_clip=1.0
        ),
    }
    return table[name.lower()]


_KNOWN = ("tanh", "sigmoid", "relu", "leakyrelu", "elu", "softplus", "affine", "hardsigmoid")


def _steps(node: Node) -> int:
    return node.shape(0)[1 if node.attribute("layout", 0) else 0]


def _names(node: Node) -> list[str]:
    directions = node.shape(1)[0]
    return list(node.attribute("activations") or _DEFAULTS[node.op_type] * directions)


def _functions(node: Node, direction: int) -> list[_Function]:
    names = _names(node)
    alphas, betas = (list(node.attribute(f"activation_{key}", ())) for key in ("alpha", "beta"))
    count = len(_DEFAULTS[node.op_type])
    found = []
    for place in range(direction * count, (direction + 1) * count):
        alpha, beta = (values[place] if place < len(values) else None for values in (alphas, betas))
        found.append(_function(names[place], alpha, beta))
    return found


@dataclass(slots=True)
class _Direction:
    """Operands of one direction, in the type of the arithmetic."""

    node: Node
    emit: Emitter
    hidden: int
    products: Tensor  # input times W, with the biases that are added outside of the recurrence: [steps, batch, gates]
    weights: Tensor  # R transposed, [hidden, gates]
    recurrent_bias: Tensor | None  # [1, gates], added inside of the recurrence
    peepholes: Tensor | None
    functions: list[_Function]

    def gate(self, tensor: Tensor, index: int) -> Tensor:
        return self.emit.part(tensor, 1, index * self.hidden, (index + 1) * self.hidden)

    def clipped(self, tensor: Tensor) -> Tensor:
        clip = self.node.attribute("clip", 0.0)
        if not clip:
            return tensor
        return self.emit.pointwise("RELU_FWD", tensor, relu_lower_clip=-clip, relu_upper_clip=clip)

    def activated(self, which: int, tensor: Tensor) -> Tensor:
        return self.functions[which](self.emit, self.clipped(tensor))

    def peeped(self, total: Tensor, cell: Tensor, which: int) -> Tensor:
        if self.peepholes is None:
            return total
        return self.emit.pointwise("ADD", total, self.emit.pointwise("MUL", self.gate(self.peepholes, which), cell))


def _rnn_step(d: _Direction, x: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return d.activated(0, d.emit.pointwise("ADD", x, d.emit.matmul(h, d.weights))), None


def _gru_step(d: _Direction, x: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Gates in the order update, reset, hidden. Source: the ONNX operator GRU."""
    emit, hidden = d.emit, d.hidden
    two = emit.part(d.weights, 1, 0, 2 * hidden)
    gates = emit.pointwise("ADD", emit.part(x, 1, 0, 2 * hidden), emit.matmul(h, two))
    if d.recurrent_bias is not None:
        gates = emit.pointwise("ADD", gates, emit.part(d.recurrent_bias, 1, 0, 2 * hidden))
    update, reset = (d.activated(0, d.gate(gates, i)) for i in (0, 1))
    last = d.gate(d.weights, 2)
    bias = None if d.recurrent_bias is None else d.gate(d.recurrent_bias, 2)
    if d.node.attribute("linear_before_reset", 0):
        inner = emit.matmul(h, last)
        inner = inner if bias is None else emit.pointwise("ADD", inner, bias)
        inner = emit.pointwise("MUL", reset, inner)
    else:
        inner = emit.matmul(emit.pointwise("MUL", reset, h), last)
        inner = inner if bias is None else emit.pointwise("ADD", inner, bias)
    new = d.activated(1, emit.pointwise("ADD", d.gate(x, 2), inner))
    kept = emit.pointwise("MUL", update, emit.pointwise("SUB", h, new))
    return emit.pointwise("ADD", new, kept), None


def _lstm_step(d: _Direction, x: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Gates in the order input, output, forget, cell. Source: the ONNX operator LSTM."""
    emit = d.emit
    assert c is not None
    gates = emit.pointwise("ADD", x, emit.matmul(h, d.weights))
    given = d.activated(0, d.peeped(d.gate(gates, 0), c, 0))
    if d.node.attribute("input_forget", 0):
        forgotten = emit.pointwise("SUB", emit.constant_like(given, 1), given)
    else:
        forgotten = d.activated(0, d.peeped(d.gate(gates, 2), c, 2))
    new = d.activated(1, d.gate(gates, 3))
    cell = emit.pointwise("ADD", emit.pointwise("MUL", forgotten, c), emit.pointwise("MUL", given, new))
    shown = d.activated(0, d.peeped(d.gate(gates, 1), cell, 1))
    return emit.pointwise("MUL", shown, d.functions[2](emit, cell)), cell


_STEPS = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}


@operator(
    "RNN",
    "GRU",
    "LSTM",
    since=7,
    by_value=(4,),
    needs=(
        Need("activations", lambda node: next((n for n in _names(node) if n.lower() not in _KNOWN), ""),
             Empty(f"names among {', '.join(_KNOWN)}"), "these activations have operations"),
        Need("steps", lambda node: None if cell_of(node) is not None else _steps(node), AtMost(_MOST_STEPS),
             "each step is several operations of the graph", "cut the sequence, and carry the states"),
    ),
)  # fmt: skip
def recurrent(node: Node, emit: Emitter, x: Tensor, w: Tensor, r: Tensor, b: Any = None, *rest: Any) -> list[Any]:
    lengths, h0, c0, peepholes = (*rest, None, None, None, None)[:4]
    del lengths  # known by value
    kind, batch_first = type_of(x), node.attribute("layout", 0)
    x = emit.wide(emit.transpose(x, (1, 0, 2)) if batch_first else x)
    steps, batch, _ = x.dim or ()
    known = node.integers(4)
    cell = cell_of(node)
    if cell is not None:
        states = [t if t is None or not batch_first else emit.transpose(t, (1, 0, 2)) for t in (h0, c0)]
        found = recurrent_operation(node, emit, cell, x, *states)
        return _in_layout(node, emit, found, kind)
    outputs, last_h, last_c = [], [], []
    for index in range(node.shape(1)[0]):
        d = _direction(node, emit, x, [emit.wide(emit.part(t, 0, index, index + 1)) if t is not None else None
                                       for t in (w, r, b, peepholes)], index)  # fmt: skip
        h, c = (_state(node, emit, t, index, (batch, d.hidden), type_of(x)) for t in (h0, c0))
        reverse = node.attribute("direction", "forward") == "reverse" or index == 1
        y: list[Tensor | None] = [None] * steps
        for t in range(steps)[::-1] if reverse else range(steps):
            row = emit.reshape(emit.part(d.products, 0, t, t + 1), (batch, _width(d)))
            new_h, new_c = _STEPS[node.op_type](d, row, h, c if node.op_type == "LSTM" else None)
            y[t] = new_h
            if known is not None and min(known) <= t:
                inside = emit.constant(np.array([[t < length] for length in known]))
                y[t] = emit.select(inside, new_h, 0.0)
                new_h = emit.select(inside, new_h, h)
                new_c = None if new_c is None else emit.select(inside, new_c, c)
            h, c = new_h, c if new_c is None else new_c
        rows = [emit.reshape(t, (1, 1, batch, d.hidden)) for t in y if t is not None]
        outputs.append(emit.concat(rows, 0))
        last_h.append(emit.reshape(h, (1, batch, d.hidden)))
        last_c.append(emit.reshape(c, (1, batch, d.hidden)))
    found = [emit.concat(outputs, 1), emit.concat(last_h, 0), emit.concat(last_c, 0)]
    return _in_layout(node, emit, found, kind)


def _in_layout(node: Node, emit: Emitter, found: list[Tensor], kind: DataType) -> list[Tensor]:
    """The results as the node has them: batch first if ``layout`` is 1."""
    if node.attribute("layout", 0):
        found = [emit.transpose(found[0], (2, 0, 1, 3)), *(emit.transpose(t, (1, 0, 2)) for t in found[1:])]
    return [emit.convert(t, kind) for t in found[: 3 if node.op_type == "LSTM" else 2]]


def _width(d: _Direction) -> int:
    return _GATES[d.node.op_type] * d.hidden


def _direction(node: Node, emit: Emitter, x: Tensor, parts: list[Tensor | None], index: int) -> _Direction:
    """The operands of one direction: the biases of both matrices are one where the step adds both."""
    w, r, b, peepholes = parts
    assert w is not None
    assert r is not None
    _, width, inputs = w.dim or ()
    hidden = (r.dim or ())[2]
    steps, batch, _ = x.dim or ()
    rows = emit.matmul(
        emit.reshape(x, (steps * batch, inputs)), emit.transpose(emit.reshape(w, (width, inputs)), (1, 0))
    )
    inner = None
    if b is not None:
        outer = emit.part(b, 1, 0, width)
        inner = emit.part(b, 1, width, 2 * width)
        if node.op_type != "GRU":
            outer, inner = emit.pointwise("ADD", outer, inner), None
        rows = emit.pointwise("ADD", rows, outer)
    weights = emit.transpose(emit.reshape(r, (width, hidden)), (1, 0))
    products = emit.reshape(rows, (steps, batch, width))
    return _Direction(node, emit, hidden, products, weights, inner, peepholes, _functions(node, index))


def _state(node: Node, emit: Emitter, given: Tensor | None, index: int, dims: tuple[int, int], kind: Any) -> Tensor:
    """The first state of a direction; zeros if it is not given."""
    if given is None:
        return emit.constant(np.zeros(dims), kind)
    given = emit.transpose(given, (1, 0, 2)) if node.attribute("layout", 0) else given
    return emit.wide(emit.reshape(emit.part(given, 0, index, index + 1), dims))
