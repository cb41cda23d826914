"""Errors of the gradients of recurrent networks, from data.

A gradient goes backward through a step by factors that the forward pass kept, and through the state's matrix: both
are linear in it. So what it is off is multiplied by the magnitudes of the same factors, and each product adds its
roundings, at most ``gamma_k`` times the sum of its magnitudes (Higham (2002), lemma 3.1); sums over gates and rows
add as any other. Where gradients are handed on in 16 bits, that rounding is one of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.normalizations import Arithmetic, Term
from graphdnn.analysis.certificate.pointwise_rounding import FUNCTION
from graphdnn.analysis.certificate.recurrent import BLOCK, Growth, Sums, has_maps, masked, plain
from graphdnn.analysis.certificate.state_error import Deviation, StateError, boxed, exact, go_on, start_at
from graphdnn.dtypes import Array
from graphdnn.engines.host import rnn as host
from graphdnn.operations import Cell, RnnBackwardData, RnnBackwardWeights
from graphdnn.operations.rnn_spec import RnnSpec

_FACTORS = 10  # roundings of a factor, and of its product with a gradient
_ONE = Term(*(np.ones(()) * v for v in (1.0, 0.0, 1.0, 1.0)))

Pair = tuple[Array, Array]  # values and their errors


def of_data(
    op: RnnBackwardData, boxes: Mapping[str, ErrorInterval], arithmetic: Arithmetic
) -> dict[str, ErrorInterval]:
    rnn = op.rnn
    w, kept = (_plain(boxes, port, count) for port, count in (("w", rnn.weight_count), ("kept", rnn.kept_count)))
    states = {port: _plain(boxes, port, *rnn.states) for port in ("hx", "cx", "dhy", "dcy")}
    masks = boxes["masks"].low != 0 if "masks" in boxes else None
    gradients = np.empty(rnn.gradient_count), np.empty(rnn.gradient_count)
    dhx, dcx = ((np.empty(rnn.states), np.empty(rnn.states)) for _ in range(2))
    leaving = boxed(*_plain(boxes, "dy", rnn.rows, rnn.width))
    for layer in reversed(range(rnn.layers)):
        outputs = _outputs(rnn, _plain(boxes, "y", rnn.rows, rnn.width), kept, layer)
        entering = exact(np.zeros((rnn.rows, rnn.fan_in(layer))))
        for direction in range(rnn.directions):
            p, runs = layer * rnn.directions + direction, direction == 0
            columns = slice(direction * rnn.hidden_size, (direction + 1) * rnn.hidden_size)
            memory = tuple(host.kept_of(rnn, part, p) for part in kept)
            here = outputs[0][:, columns], outputs[1][:, columns]
            h = _before(rnn, here, states["hx"], p, runs=runs)
            is_lstm = rnn.cell is Cell.LSTM
            c = _before(rnn, (memory[0][:, 4], memory[1][:, 4]), states["cx"], p, runs=runs) if is_lstm else h
            found = tuple(host.gradients_of(rnn, part, p) for part in gradients)
            weights = tuple(host.weights_of(rnn, part, p) for part in w)
            state = _turned((weights[0].state, weights[1].state), rnn.gates, arithmetic)
            dh, dc = (boxed(*(part[p] for part in states[port])) for port in ("dhy", "dcy"))
            start: Deviation | None = None
            growth = Growth(state.stretch)
            for count, (rows, batch) in enumerate(host.steps_of(rnn, forward=not runs)):
                if count % BLOCK == 0 and has_maps(rnn):
                    start, (dh, *cells) = start_at(dh, dc) if is_lstm else start_at(dh)
                    dc = cells[0] if is_lstm else dc
                since = None if start is None else start.at(slice(0, batch))
                total = dh.first(batch) + _columns(leaving.at(rows), columns)
                total = total.plus(arithmetic.u * total.reach)
                facts = [tuple(v[rows] for v in pair) for pair in (here, h, c)]
                values = [(memory[0][rows, k], memory[1][rows, k]) for k in range(memory[0].shape[1])]
                gates, past, cell = _step(rnn, total, dc.first(batch), facts, values, arithmetic)
                for place, gate in enumerate(gates):
                    wide = slice(place * rnn.hidden_size, (place + 1) * rnn.hidden_size)
                    found[0][rows, wide], found[1][rows, wide] = gate.value, gate.off.each
                of_state = gates[:2] + gates[3:] if rnn.cell is Cell.GRU else gates
                dh = dh.with_first(_through(of_state, state, past, arithmetic).seen_from(since))
                dc = dc.with_first(cell.seen_from(since))
                if start is not None:
                    start, (dh, *cells) = go_on(start, dh, dc) if is_lstm else go_on(start, dh)
                    dc = cells[0] if is_lstm else dc
                growth.step(dh)
            growth.say(arithmetic.remarks, rnn, layer, direction)
            for result, last in ((dhx, dh), (dcx, dc)):
                result[0][p], result[1][p] = last.value, last.off.each
            parts = [boxed(*v) for v in zip(*(_gates(rnn, part) for part in found), strict=True)]
            if weights[0].input is None or weights[1].input is None:
                for part in (_handed(part, arithmetic) for part in parts):
                    entering = (entering + part).plus(arithmetic.u * rnn.gates * 2 * (entering.reach + part.reach))
            else:
                matrix = _turned((weights[0].input, weights[1].input), rnn.gates, arithmetic)
                entering = _through(parts, matrix, entering, arithmetic)
        leaving = masked(rnn, entering, masks, layer, arithmetic) if layer else entering
    dx = leaving.value, leaving.off.each
    results = {"dx": dx, "dhx": dhx, "dcx": dcx, "kept_gradients": gradients}
    return {port: ErrorInterval.of(pair[0]).with_error(pair[1]) for port, pair in results.items()}


def _plain(boxes: Mapping[str, ErrorInterval], port: str, *extents: int) -> Pair:
    return plain(boxes.get(port), extents)


def _outputs(rnn: RnnSpec, y: Pair, kept: Pair, layer: int) -> Pair:
    if layer == rnn.layers - 1:
        return y
    value, error = (host.outputs_of(rnn, part, layer) for part in kept)
    return value, error


def _before(rnn: RnnSpec, values: Pair, first: Pair, p: int, *, runs: bool) -> Pair:
    value, error = (host.before(rnn, v, f[p], forward=runs) for v, f in zip(values, first, strict=True))
    return value, error


def _gates(rnn: RnnSpec, gradients: Array) -> list[Array]:
    """Of what the input entered by."""
    return np.split(gradients[:, : rnn.gates * rnn.hidden_size], rnn.gates, axis=1)


def _of_state(rnn: RnnSpec, gradients: Array) -> Array:
    """Of what the state entered by, for all gates: the new gate of a GRU has another one there."""
    n = rnn.hidden_size
    return gradients if rnn.cell is not Cell.GRU else np.concatenate((gradients[:, : 2 * n], gradients[:, 3 * n :]), 1)


def _turned(matrix: Pair, gates: int, arithmetic: Arithmetic) -> Sums:
    """Products with the transposed matrix of each gate."""
    value, error = (np.concatenate([part.T for part in np.split(m, gates)]) for m in matrix)
    zeros = np.zeros(len(value))
    return Sums.of((value, error), (zeros, zeros), gates, arithmetic)


def _columns(x: StateError, columns: slice) -> StateError:
    return boxed(x.value[:, columns], x.off.each[:, columns])


def _handed(x: StateError, arithmetic: Arithmetic) -> StateError:
    return x.plus(arithmetic.as_handed(x.reach))


def _through(gates: list[StateError], matrix: Sums, past: StateError, arithmetic: Arithmetic) -> StateError:
    """The sum over gates, and what got past the matrix; the terms of all gates are one sum."""
    found, more = past, len(gates) * matrix.matrices[0].values.shape[1]
    gates = [_handed(gate, arithmetic) for gate in gates]
    for index, gate in enumerate(gates):
        found = found + matrix.gate(index, gate)
    size = past.reach + sum(g.reach @ m.magnitudes.T for g, m in zip(gates, matrix.matrices, strict=True))
    return found.plus(np.where(size > arithmetic.top / 2, np.inf, arithmetic.of_products(more + 2) * size))


def _by(x: StateError, factor: Term, arithmetic: Arithmetic) -> StateError:
    """A gradient times a factor that may be off, in whatever order it is multiplied."""
    size, peak = x.reach * factor.size, (1 + x.reach) * factor.peak
    own = np.abs(x.value) * factor.error + _FACTORS * (arithmetic.u * 1.01 * size + arithmetic.floor * peak)
    return x.times(factor.value, factor.error).plus(np.where(peak > arithmetic.top / 2, np.inf, own))


def _step(
    rnn: RnnSpec,
    dh: StateError,
    dc: StateError,
    facts: list[tuple[Array, ...]],
    kept: list[Pair],
    arithmetic: Arithmetic,
) -> tuple[list[StateError], StateError, StateError]:
    """Gradients of what enters the gates; what h and c of the step before get past the matrices."""
    output, h, c = (_term(*fact) for fact in facts)
    nothing = exact(np.zeros_like(dh.value))
    if rnn.cell is Cell.RELU:
        unclear = (np.abs(output.value) <= output.error) & (output.error > 0)
        is_on = (output.value > 0).astype(np.float64)
        return [_by(dh, Term(is_on, unclear * 1.0, np.ones_like(is_on), np.ones_like(is_on)), arithmetic)], nothing, dc
    if rnn.cell is Cell.TANH:
        return [_by(dh, _ONE - output * output, arithmetic)], nothing, dc
    if rnn.cell is Cell.LSTM:
        i, f, new, o, cell = (_term(*pair) for pair in kept)
        squashed = _squashed(cell, arithmetic)
        into = _by(dh, o * (_ONE - squashed * squashed), arithmetic)
        dc = dc + into
        dc = dc.plus(arithmetic.u * dc.reach)
        factors = (new * i * (_ONE - i), c * f * (_ONE - f), i * (_ONE - new * new))
        gates = [_by(dc, factor, arithmetic) for factor in factors]
        return [*gates, _by(dh, squashed * o * (_ONE - o), arithmetic)], nothing, _by(dc, f, arithmetic)
    r, z, new, q = (_term(*pair) for pair in kept)
    fresh = _by(dh, (_ONE - z) * (_ONE - new * new), arithmetic)
    gates = [
        _by(fresh, q * r * (_ONE - r), arithmetic),
        _by(dh, (h - new) * z * (_ONE - z), arithmetic),
        fresh,
        _by(fresh, r, arithmetic),
    ]
    return gates, _by(dh, z, arithmetic), dc


def _term(value: Array, error: Array) -> Term:
    return Term.of(ErrorInterval(value, value, error))


def _squashed(cell: Term, arithmetic: Arithmetic) -> Term:
    value = np.tanh(cell.value)
    nearest = np.minimum(np.maximum(np.abs(cell.value) - cell.error, 0.0), 300.0)
    error = np.minimum(cell.error / np.cosh(nearest) ** 2, 2.0) + FUNCTION * arithmetic.u + arithmetic.floor
    return _term(value, error)


def of_weights(
    op: RnnBackwardWeights, boxes: Mapping[str, ErrorInterval], arithmetic: Arithmetic
) -> dict[str, ErrorInterval]:
    """Each is a sum over all rows."""
    rnn, n = op.rnn, op.rnn.hidden_size
    kept, gradients = (
        _plain(boxes, port, count) for port, count in (("kept", rnn.kept_count), ("kept_gradients", rnn.gradient_count))
    )
    masks = boxes["masks"].low != 0 if "masks" in boxes else None
    first = _plain(boxes, "hx", *rnn.states)
    dw = np.empty(rnn.weight_count), np.empty(rnn.weight_count)
    values = boxed(*_plain(boxes, "x", rnn.rows, rnn.input_size))
    for layer in range(rnn.layers):
        if layer:
            below = _outputs(rnn, (np.empty(0), np.empty(0)), kept, layer - 1)
            values = masked(rnn, boxed(*below), masks, layer, arithmetic)
        outputs = _outputs(rnn, _plain(boxes, "y", rnn.rows, rnn.width), kept, layer)
        for direction in range(rnn.directions):
            p, columns = layer * rnn.directions + direction, slice(direction * n, (direction + 1) * n)
            found = tuple(host.gradients_of(rnn, part, p) for part in gradients)
            h = _before(rnn, (outputs[0][:, columns], outputs[1][:, columns]), first, p, runs=direction == 0)
            of_input = found[0][:, : rnn.gates * n], found[1][:, : rnn.gates * n]
            of_state = _of_state(rnn, found[0]), _of_state(rnn, found[1])
            into = tuple(host.weights_of(rnn, part, p) for part in dw)
            if into[0].input is not None and into[1].input is not None:
                _store((into[0].input, into[1].input), of_input, (values.value, values.off.each), arithmetic)
            _store((into[0].state, into[1].state), of_state, h, arithmetic)
            ones = np.ones((rnn.rows, 1)), np.zeros((rnn.rows, 1))
            alone = Arithmetic(*(getattr(arithmetic, name) for name in ("u", "floor", "top", "is_statistical")))
            for name, source in (("input_bias", of_input), ("state_bias", of_state)):
                _store(tuple(getattr(part, name)[:, None] for part in into), source, ones, alone)
    return {"dw": ErrorInterval.of(dw[0]).with_error(dw[1])}


def _store(into: tuple[Array, ...], gradients: Pair, values: Pair, arithmetic: Arithmetic) -> None:
    """A product over rows: gradients turned, times values."""
    (g, g_error), (v, v_error) = gradients, values
    g_error, v_error = (e + (arithmetic.as_handed(np.abs(x) + e)) for x, e in ((g, g_error), (v, v_error)))
    size = (np.abs(g) + g_error).T @ (np.abs(v) + v_error)
    own = arithmetic.of_products(len(g) + 2) * size + len(g) * arithmetic.floor
    error = g_error.T @ (np.abs(v) + v_error) + np.abs(g).T @ v_error + own
    into[0][...], into[1][...] = g.T @ v, np.where(size > arithmetic.top / 2, np.inf, error)
