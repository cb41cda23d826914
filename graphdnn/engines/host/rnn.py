"""Recurrent networks on NumPy: one product for all steps of an input, one small product for each step of a state.

``values`` are [rows, ...] over all steps, ``h`` and ``c`` [sequences, hidden]. A step works on the first sequences
alone: rows of ``h`` beyond them have not begun yet when time runs backward, and are finished when it runs forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from graphdnn.dtypes import Array
from graphdnn.engines.host.random import generate
from graphdnn.enums import RngDistribution
from graphdnn.operations.rnn_spec import GATE_GRADIENTS, RESERVE_VALUES, Cell, RnnSpec

Rounding = Callable[[Array], Array]  # to the type that states are stored in, and back


def sigmoid(x: Array) -> Array:
    one = x.dtype.type(1)
    return np.asarray(one / (one + np.exp(-x)))


@dataclass(frozen=True, slots=True)
class Weights:
    """One pseudo-layer: matrices of the input [gates * hidden, fan in] (None: skipped) and of the state, and biases."""

    input: Array | None
    state: Array
    input_bias: Array
    state_bias: Array


def weights_of(rnn: RnnSpec, w: Array, pseudo_layer: int) -> Weights:
    """Views of the packed weights; also of their gradient."""
    gates, hidden = rnn.gates, rnn.hidden_size
    first, recurrent = rnn.matrix(pseudo_layer, 0), rnn.matrix(pseudo_layer, gates)
    bias = rnn.bias(pseudo_layer, 0).offset
    size = gates * hidden
    matrix = w[first.offset : recurrent.offset].reshape(size, first.columns) if first.rows else None
    state = w[recurrent.offset : recurrent.offset + size * hidden].reshape(size, hidden)
    return Weights(matrix, state, w[bias : bias + size], w[bias + size : bias + 2 * size])


def kept_of(rnn: RnnSpec, kept: Array | None, pseudo_layer: int) -> Array:
    """What a pseudo-layer keeps: [rows, values, hidden]."""
    values, block = RESERVE_VALUES[rnn.cell], rnn.rows * RESERVE_VALUES[rnn.cell] * rnn.hidden_size
    if kept is None or not values:
        return np.empty((rnn.rows, 0, rnn.hidden_size))
    return kept[pseudo_layer * block : (pseudo_layer + 1) * block].reshape(rnn.rows, values, rnn.hidden_size)


def outputs_of(rnn: RnnSpec, kept: Array, layer: int) -> Array:
    """The kept outputs of a layer below the top: [rows, width]."""
    start = rnn.rows * rnn.pseudo_layers * RESERVE_VALUES[rnn.cell] * rnn.hidden_size + layer * rnn.rows * rnn.width
    return kept[start : start + rnn.rows * rnn.width].reshape(rnn.rows, rnn.width)


def gradients_of(rnn: RnnSpec, gradients: Array, pseudo_layer: int) -> Array:
    """Gradients of what enters the gates: [rows, values * hidden]. GRU has a fourth, of the new gate's state."""
    width = GATE_GRADIENTS[rnn.cell] * rnn.hidden_size
    block = rnn.rows * width
    return gradients[pseudo_layer * block : (pseudo_layer + 1) * block].reshape(rnn.rows, width)


def draw_masks(rnn: RnnSpec, seed: int, offset: int) -> Array:
    """True where a value between layers is kept."""
    drawn = generate(rnn.mask_extents, RngDistribution.BERNOULLI, seed, offset, {"probability": 1.0 - rnn.dropout})
    return np.asarray(drawn != 0)


def masked(rnn: RnnSpec, values: Array, masks: Array | None, layer: int) -> Array:
    """What enters a layer above the first: the outputs below, thinned out where there are masks."""
    if masks is None:
        return values
    scale = 1.0 / (1.0 - rnn.dropout) if rnn.dropout < 1.0 else 0.0
    return np.asarray(np.where(masks[layer - 1], values * values.dtype.type(scale), values.dtype.type(0)))


def steps_of(rnn: RnnSpec, *, forward: bool) -> Iterator[tuple[slice, int]]:
    """The rows of each step and its number of sequences."""
    order = range(len(rnn.batch_sizes))
    for t in order if forward else reversed(order):
        yield slice(rnn.starts[t], rnn.starts[t + 1]), rnn.batch_sizes[t]


def before(rnn: RnnSpec, values: Array, first: Array, *, forward: bool) -> Array:
    """The state that each step began with, from the states that the steps ended with."""
    state, found = first.copy(), np.empty_like(values)
    for rows, batch in steps_of(rnn, forward=forward):
        found[rows] = state[:batch]
        state[:batch] = values[rows]
    return found


def _initial(rnn: RnnSpec, states: Array | None, pseudo_layer: int, dtype: np.dtype[np.generic]) -> Array:
    if states is None:
        return np.zeros(rnn.states[1:], dtype)
    return np.array(states[pseudo_layer], dtype)


def _input_products(rnn: RnnSpec, values: Array, weights: Weights, scratch: Array | None) -> Array:
    """What the input adds to every gate, for all steps."""
    if weights.input is None:
        return np.tile(values, (1, rnn.gates)) + weights.input_bias
    out = None if scratch is None else scratch.view(values.dtype)[: rnn.rows * rnn.gates * rnn.hidden_size]
    products = np.matmul(
        values, weights.input.T, out=None if out is None else out.reshape(rnn.rows, rnn.gates * rnn.hidden_size)
    )
    products += weights.input_bias
    return products


def _step(rnn: RnnSpec, entering: Array, of_state: Array, h: Array, c: Array, kept: Array) -> tuple[Array, Array]:
    """One step from what the input and what the state add to the gates: output and cell. Fills ``kept``."""
    n = rnn.hidden_size
    if rnn.cell is Cell.RELU:
        total = entering + of_state
        return np.where(total < 0, total.dtype.type(0), total), c  # NaN stays
    if rnn.cell is Cell.TANH:
        return np.tanh(entering + of_state), c
    one = entering.dtype.type(1)
    if rnn.cell is Cell.LSTM:
        total = entering + of_state
        i, f, o = (sigmoid(total[:, k * n : (k + 1) * n]) for k in (0, 1, 3))
        new = np.tanh(total[:, 2 * n : 3 * n])
        cell = f * c + i * new
        values: tuple[Array, ...] = (i, f, new, o, cell)
        h = o * np.tanh(cell)
    else:
        r = sigmoid(entering[:, :n] + of_state[:, :n])
        z = sigmoid(entering[:, n : 2 * n] + of_state[:, n : 2 * n])
        q = of_state[:, 2 * n :]
        new = np.tanh(entering[:, 2 * n :] + r * q)
        values, cell = (r, z, new, q), c
        h = (one - z) * new + z * h
    for place, value in enumerate(values[: kept.shape[1]]):
        kept[:, place] = value
    return h, cell


def forward(
    rnn: RnnSpec, x: Array, w: Array, hx: Array | None, cx: Array | None, kept: Array | None, masks: Array | None,
    rounded: Rounding, scratch: Array | None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """y, hy, cy, everything in the type of the arithmetic. Fills ``kept``, when it is given."""
    hy, cy = (np.empty(rnn.states, x.dtype) for _ in range(2))
    values = x
    for layer in range(rnn.layers):
        if layer:
            values = masked(rnn, values, masks, layer)
        below = kept is not None and layer < rnn.layers - 1
        outputs = (
            outputs_of(rnn, kept, layer) if below and kept is not None else np.empty((rnn.rows, rnn.width), x.dtype)
        )
        for direction in range(rnn.directions):
            p = layer * rnn.directions + direction
            weights, memory = weights_of(rnn, w, p), kept_of(rnn, kept, p)
            entering = _input_products(rnn, values, weights, scratch)
            h, c = (_initial(rnn, first, p, x.dtype) for first in (hx, cx))
            for rows, batch in steps_of(rnn, forward=direction == 0):
                of_state = h[:batch] @ weights.state.T + weights.state_bias
                output, cell = _step(rnn, entering[rows], of_state, h[:batch], c[:batch], memory[rows])
                h[:batch] = rounded(output)
                c[:batch] = cell
                outputs[rows, direction * rnn.hidden_size : (direction + 1) * rnn.hidden_size] = h[:batch]
            hy[p], cy[p] = h, c
        values = outputs
    return values, hy, cy


def _step_backward(
    rnn: RnnSpec, dh: Array, dc: Array, output: Array, h: Array, c: Array, kept: Array, gradients: Array
) -> tuple[Array, Array]:
    """Fills the gradients of what enters the gates; what h and c of the step before get past the matrices."""
    n = rnn.hidden_size
    one = dh.dtype.type(1)
    if rnn.cell is Cell.RELU:
        gradients[:] = np.where(output > 0, dh, one - one)
        return np.zeros_like(dh), dc
    if rnn.cell is Cell.TANH:
        gradients[:] = dh * (one - output * output)
        return np.zeros_like(dh), dc
    if rnn.cell is Cell.LSTM:
        i, f, new, o, cell = (kept[:, k] for k in range(5))
        squashed = np.tanh(cell)
        dc = dc + dh * o * (one - squashed * squashed)
        gradients[:, :n] = dc * new * i * (one - i)
        gradients[:, n : 2 * n] = dc * c * f * (one - f)
        gradients[:, 2 * n : 3 * n] = dc * i * (one - new * new)
        gradients[:, 3 * n :] = dh * squashed * o * (one - o)
        return np.zeros_like(dh), dc * f
    r, z, new, q = (kept[:, k] for k in range(4))
    dnew = dh * (one - z) * (one - new * new)
    gradients[:, :n] = dnew * q * r * (one - r)
    gradients[:, n : 2 * n] = dh * (h - new) * z * (one - z)
    gradients[:, 2 * n : 3 * n] = dnew
    gradients[:, 3 * n :] = dnew * r
    return dh * z, dc


def _of_input(rnn: RnnSpec, gradients: Array) -> Array:
    """The part that came through the input's matrices."""
    return gradients[:, : rnn.gates * rnn.hidden_size]


def _of_state(rnn: RnnSpec, gradients: Array) -> Array:
    """The part that came through the state's matrices: the new gate of a GRU has another one there."""
    n = rnn.hidden_size
    if rnn.cell is not Cell.GRU:
        return gradients
    return np.concatenate((gradients[:, : 2 * n], gradients[:, 3 * n :]), axis=1)


def backward_data(
    rnn: RnnSpec, y: Array, dy: Array, w: Array, hx: Array | None, cx: Array | None, dhy: Array | None,
    dcy: Array | None, kept: Array | None, masks: Array | None, gradients: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """dx, dhx, dcx. Fills ``gradients``."""
    dhx, dcx = (np.empty(rnn.states, dy.dtype) for _ in range(2))
    n, leaving = rnn.hidden_size, dy
    for layer in reversed(range(rnn.layers)):
        outputs = y if layer == rnn.layers - 1 or kept is None else outputs_of(rnn, kept, layer)
        entering = np.zeros((rnn.rows, rnn.fan_in(layer)), dy.dtype)
        for direction in range(rnn.directions):
            p, columns = layer * rnn.directions + direction, slice(direction * n, (direction + 1) * n)
            weights, memory, found = weights_of(rnn, w, p), kept_of(rnn, kept, p), gradients_of(rnn, gradients, p)
            runs = direction == 0
            h = before(rnn, outputs[:, columns], _initial(rnn, hx, p, dy.dtype), forward=runs)
            cells = memory[:, 4] if rnn.cell is Cell.LSTM else h
            c = before(rnn, cells, _initial(rnn, cx, p, dy.dtype), forward=runs) if rnn.cell is Cell.LSTM else h
            dh, dc = (_initial(rnn, last, p, dy.dtype) for last in (dhy, dcy))
            for rows, batch in steps_of(rnn, forward=not runs):
                total = leaving[rows, columns] + dh[:batch]
                past, dc[:batch] = _step_backward(
                    rnn, total, dc[:batch], outputs[rows, columns], h[rows], c[rows], memory[rows], found[rows]
                )
                dh[:batch] = _of_state(rnn, found[rows]) @ weights.state + past
            dhx[p], dcx[p] = dh, dc
            through = _of_input(rnn, found)
            if weights.input is None:
                entering += through.reshape(rnn.rows, rnn.gates, n).sum(axis=1)
            else:
                entering += through @ weights.input
        leaving = masked(rnn, entering, masks, layer) if layer else entering
    return leaving, dhx, dcx


def backward_weights(
    rnn: RnnSpec, x: Array, y: Array, hx: Array | None, kept: Array | None, masks: Array | None, gradients: Array
) -> Array:
    """dw."""
    dw = np.empty(rnn.weight_count, x.dtype)
    n, values = rnn.hidden_size, x
    for layer in range(rnn.layers):
        if layer:
            assert kept is not None
            values = masked(rnn, outputs_of(rnn, kept, layer - 1), masks, layer)
        outputs = y if layer == rnn.layers - 1 or kept is None else outputs_of(rnn, kept, layer)
        for direction in range(rnn.directions):
            p, columns = layer * rnn.directions + direction, slice(direction * n, (direction + 1) * n)
            found, into = gradients_of(rnn, gradients, p), weights_of(rnn, dw, p)
            h = before(rnn, outputs[:, columns], _initial(rnn, hx, p, x.dtype), forward=direction == 0)
            of_input, of_state = _of_input(rnn, found), _of_state(rnn, found)
            if into.input is not None:
                into.input[:] = of_input.T @ values
            into.state[:] = of_state.T @ h
            into.input_bias[:] = of_input.sum(axis=0)
            into.state_bias[:] = of_state.sum(axis=0)
    return dw
