"""Plain RNN, GRU and LSTM with constant weights as one recurrent operation, whose gates have cuDNN's order."""

from __future__ import annotations

import numpy as np

from graphdnn.builder import Tensor
from graphdnn.dtypes import ELEMENTS, Array
from graphdnn.onnx.emitter import Emitter, type_of
from graphdnn.onnx.node import Node
from graphdnn.operations import Cell, RnnSpec

# ONNX's gate at each of cuDNN's ids. LSTM: input, output, forget, cell in ONNX; GRU: update, reset, hidden.
_GATES = {Cell.RELU: (0,), Cell.TANH: (0,), Cell.LSTM: (0, 2, 3, 1), Cell.GRU: (1, 0, 2)}
_USUAL = {"GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}


def cell_of(node: Node) -> Cell | None:
    """The cell of a node that is one operation; None for weights that are data, and for other settings."""
    if any(node.constant(i) is None for i in (1, 2)) or (node.has(3) and node.constant(3) is None):
        return None
    if node.has(4) or node.has(7) or node.attribute("clip", 0.0) or node.attribute("input_forget", 0):
        return None
    if node.attribute("direction", "forward") not in ("forward", "bidirectional"):
        return None
    directions = node.shape(1)[0]
    names = [name.lower() for name in node.attribute("activations") or ()]
    if node.op_type == "RNN":
        kinds = set(names or ["tanh"])
        return {"tanh": Cell.TANH, "relu": Cell.RELU}.get(kinds.pop()) if len(kinds) == 1 else None
    if names not in ([], _USUAL[node.op_type] * directions):
        return None
    if node.op_type == "LSTM":
        return Cell.LSTM
    return Cell.GRU if node.attribute("linear_before_reset", 0) else None


def recurrent_operation(
    node: Node, emit: Emitter, cell: Cell, x: Tensor, h0: Tensor | None, c0: Tensor | None
) -> list[Tensor]:
    """[y, last state, last cell state] of a node; ``x`` is [steps, batch, inputs] in the type of the arithmetic."""
    steps, batch, inputs = x.dim or ()
    directions, _, hidden = node.shape(2)
    rnn = RnnSpec(
        cell=cell, input_size=inputs, hidden_size=hidden, directions=directions,
        batch_sizes=(batch,) * steps, arithmetic=type_of(x),
    )  # fmt: skip
    weights = emit.constant(_packed(node, rnn), type_of(x))
    hx, cx = (None if t is None else emit.wide(t) for t in (h0, c0 if cell is Cell.LSTM else None))
    y, hy, cy, _, _ = emit.graph.rnn_forward(
        rnn, emit.reshape(x, (steps * batch, inputs)), weights, hx, cx, name=node.name
    )  # fmt: skip
    found = [t.set_data_type(type_of(x)) for t in (y, hy, cy) if t is not None]
    rows = emit.reshape(found[0], (steps, batch, directions, hidden))
    return [emit.transpose(rows, (0, 2, 1, 3)), *found[1:]]


def _packed(node: Node, rnn: RnnSpec) -> Array:
    """All weights of both directions, each matrix and each bias at its place."""
    packed = np.zeros(rnn.weight_count, ELEMENTS[rnn.arithmetic].numpy)
    order = _GATES[rnn.cell]
    bias = node.constant(3)
    for direction in range(rnn.directions):
        for half, operand in ((0, 1), (1, 2)):
            array = node.constant(operand)
            assert array is not None
            rows = array[direction].reshape(rnn.gates, rnn.hidden_size, -1)
            values = None if bias is None else bias[direction].reshape(2, rnn.gates, rnn.hidden_size)[half]
            for gate, source in enumerate(order):
                id = half * rnn.gates + gate
                _store(packed, rnn.matrix(direction, id).offset, rows[source])
                if values is not None:
                    _store(packed, rnn.bias(direction, id).offset, values[source])
    return packed


def _store(packed: Array, offset: int, values: Array) -> None:
    packed[offset : offset + values.size] = values.reshape(-1)
