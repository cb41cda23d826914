"""Errors of recurrent networks, from data: a running error analysis of every step (Higham (2002), section 3.3).

A gate sees a sum of products with the input and one with the state, each off by ``gamma_n`` times the sum of its
magnitudes (Higham (2002), section 3.1), and what the state before was off. An activation passes that on by its
largest slope between the exact and the computed value: at most 1 for tanh and ReLU, 1/4 for the logistic function;
and adds the roundings of a library's function. New states are products and sums of gates, expanded to

    f^ c^ - f c = f^ (c^ - c) + c (f^ - f)

and are rounded to the type of y. ``Deviation`` carries all of it to the next step; ``Linear`` carries what steps before
were off as a product of their matrices, for up to ``BLOCK`` steps, with the remaining terms of second order. The
smaller of both bounds holds. States of all cells but ReLU stay below 1, or below their first values, and cells grow by
at most 1 a step: no error is larger than the sum of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

import numpy as np

from graphdnn.analysis.certificate.error_interval import ErrorInterval
from graphdnn.analysis.certificate.normalizations import Arithmetic, Type
from graphdnn.analysis.certificate.pointwise_rounding import FUNCTION
from graphdnn.analysis.certificate.state_error import Deviation, Linear, Matrix, StateError, boxed, go_on, start_at
from graphdnn.dtypes import Array
from graphdnn.engines.host import rnn as host
from graphdnn.engines.host.rnn import Weights, sigmoid
from graphdnn.operations import Cell, RnnForward
from graphdnn.operations.rnn_spec import RnnSpec


@dataclass(slots=True)
class Growth:
    """One direction of a layer on its way through its steps."""

    stretch: float  # how much longer a recurrent matrix makes a vector, at most
    _norms: list[float] = field(default_factory=list)  # of what is off, all units together, largest of all sequences
    _reached: int = 0  # the step whose bound is as large as what it bounds; 0: none

    def step(self, state: StateError) -> None:
        """After each one."""
        self._norms.append(float(np.max(state.off.norm, initial=0.0)))
        largest = float(np.max(np.abs(state.value), initial=1.0))
        if not self._reached and np.max(state.off.each, initial=0.0) >= largest:
            self._reached = len(self._norms)

    def say(self, remarks: list[str], rnn: RnnSpec, layer: int, direction: int) -> None:
        """Where the bound is as large as what it bounds."""
        if self._reached:
            way = ("", ", backwards")[direction]
            remarks.append(f"{rnn.cell.name}, layer {layer} of {rnn.layers}{way}: {self._words()}")

    def _words(self) -> str:
        if self._reached == 1:
            return "what enters it may be off as much as its values are large: see the layer it reads"
        finite = [norm for norm in self._norms[: self._reached] if 0 < norm < inf]
        factor = (finite[-1] / finite[0]) ** (1 / max(len(finite) - 1, 1)) if finite else inf
        kind = "not contractive" if self.stretch > 1 else "contractive by itself"
        when = f"step {self._reached} of {len(self._norms)}"
        return (
            f"what a step is off may grow by a factor of {factor:.3g} each step (a recurrent matrix stretches "
            f"vectors by up to {self.stretch:.3g}: {kind}); from {when} on the bound "
            "is as large as the values, whatever is observed"
        )


_SIGMOID = FUNCTION + 4
_SIGMOID_BEND, _TANH_BEND = 0.0482, 0.385  # half of the largest second derivatives
BLOCK = 8  # steps of a linear map
_MOST, _LARGEST = 2**33, 2**20  # products of numbers for all linear maps of a layer; numbers of one step's maps
_QUICK = 3  # units of sigmoid(x) for each |x|: what a quick exponential loses


def plain(box: ErrorInterval | None, extents: tuple[int, ...]) -> tuple[Array, Array]:
    """The values of a box and their errors as arrays; zeros where there is none."""
    if box is None:
        return np.zeros(extents), np.zeros(extents)
    return np.broadcast_to(box.low, extents), np.broadcast_to(box.error, extents)


@dataclass(frozen=True, slots=True)
class Sums:
    """Products with some gates' matrices and a bias, all for one pseudo-layer."""

    matrices: tuple[Matrix, ...]
    bias: Array
    bias_error: Array
    arithmetic: Arithmetic

    @classmethod
    def of(cls, matrix: tuple[Array, Array], bias: tuple[Array, Array], gates: int, arithmetic: Arithmetic) -> Sums:
        parts = zip(*(np.split(m, gates) for m in matrix), strict=True)
        return cls(tuple(Matrix.of(m, e) for m, e in parts), *bias, arithmetic)

    @property
    def stretch(self) -> float:
        """How much longer one of the matrices makes a vector, at most."""
        return max(matrix.norm for matrix in self.matrices)

    def gate(self, index: int, x: StateError) -> StateError:
        """The sum of one gate; ``x`` [rows, units]."""
        matrix = self.matrices[index]
        here = slice(index * len(matrix.values), (index + 1) * len(matrix.values))
        bias, bias_error = self.bias[here], self.bias_error[here]
        n = matrix.values.shape[1] + 3
        size = x.reach @ matrix.magnitudes.T + np.abs(bias) + bias_error
        own = self.arithmetic.of_products(n) * size + n * self.arithmetic.floor + bias_error
        if matrix.error is not None:
            own = own + np.abs(x.value) @ matrix.error.T
        lost = np.where(size > self.arithmetic.top / 2, np.inf, own)
        linear = None
        if x.linear is not None:
            rest = x.linear.rest.through(matrix).plus(lost)
            if matrix.error is not None:
                rest = rest.plus(x.off.each @ matrix.error.T)
            linear = Linear(matrix.values @ x.linear.by, rest)
        return StateError(x.value @ matrix.values.T + bias, x.off.through(matrix).plus(lost), linear)


@dataclass(slots=True)
class _Layer:
    """One direction of a layer on its way through the steps."""

    rnn: RnnSpec
    arithmetic: Arithmetic
    state: Type
    h: StateError
    c: StateError
    h_most: Array = field(init=False)
    c_most: Array = field(init=False)
    start: Deviation | None = None  # where linear maps began

    def __post_init__(self) -> None:
        self.h_most, self.c_most = np.maximum(self.h.reach, 1.0), self.c.reach

    def begin(self) -> None:
        """A new start for linear maps."""
        if self.rnn.cell is Cell.LSTM:
            self.start, (self.h, self.c) = start_at(self.h, self.c)
        else:
            self.start, (self.h,) = start_at(self.h)

    def rounded(self, x: StateError, units: float) -> StateError:
        """The remaining roundings of a formula, each of at most its magnitude."""
        return x.plus(units * self.arithmetic.u * x.reach + units * self.arithmetic.floor)

    def sigmoid(self, x: StateError) -> StateError:
        nearest = np.maximum(np.abs(x.value) - x.off.each, 0.0)
        value, steepest = sigmoid(x.value), sigmoid(nearest) * sigmoid(-nearest)
        bend = _SIGMOID_BEND * x.off.each * x.off.each
        found = x.through_function(value, value * sigmoid(-x.value), steepest, bend)
        found = found.at_most(1 + 16 * self.arithmetic.u)
        quick = np.minimum(_QUICK * x.reach * found.reach, 1.0)
        return self.rounded(found, _SIGMOID).plus(np.where(np.isinf(x.off.each), np.inf, quick * self.arithmetic.u))

    def tanh(self, x: StateError) -> StateError:
        nearest = np.maximum(np.abs(x.value) - x.off.each, 0.0)
        slope, steepest = (1 / np.cosh(np.minimum(at, 300.0)) ** 2 for at in (np.abs(x.value), nearest))
        bend = _TANH_BEND * x.off.each * x.off.each
        return self.rounded(x.through_function(np.tanh(x.value), slope, steepest, bend).at_most(1.0), FUNCTION)

    def relu(self, x: StateError) -> StateError:
        """Straight where its sign is certain."""
        slope, unclear = (x.value > 0) * 1.0, ~(np.abs(x.value) > x.off.each)
        steepest = np.where(unclear, 1.0, slope)
        return x.through_function(np.maximum(x.value, 0.0), slope, steepest, np.where(unclear, x.off.each, 0.0))

    def step(self, entering: list[StateError], of_state: list[StateError], batch: int) -> list[StateError]:
        """Goes on by one step; what it keeps."""
        u, kept, start = self.arithmetic.u, [], None if self.start is None else self.start.at(slice(0, batch))
        h, c = self.h.first(batch), self.c.first(batch)
        gates = [(a + b).plus(u * (a.reach + b.reach)) for a, b in zip(entering, of_state, strict=True)]
        if self.rnn.cell is Cell.RELU:
            found = self.relu(gates[0])
        elif self.rnn.cell is Cell.TANH:
            found = self.tanh(gates[0])
        elif self.rnn.cell is Cell.LSTM:
            i, f, o = (self.sigmoid(gates[k]) for k in (0, 1, 3))
            new = self.tanh(gates[2])
            size = u * 3 * (f.reach * c.reach + i.reach * new.reach) + 3 * self.arithmetic.floor
            self.c_most[:batch] = (self.c_most[:batch] + 1) * (1 + 32 * u)
            c = (f * c + i * new).plus(size).seen_from(start).at_most(self.c_most[:batch])
            found = self.rounded(o * self.tanh(c), 2)
            kept = [i, f, new, o, c]
        else:
            r, z = self.sigmoid(gates[0]), self.sigmoid(gates[1])
            q = of_state[2]
            new = self.tanh(
                (entering[2] + self.rounded(r * q, 2)).plus(2 * u * (entering[2].reach + r.reach * q.reach))
            )
            keep = z.times(-np.ones_like(z.value))
            keep = StateError(1 - z.value, keep.off, keep.linear)
            # (1 - z) n + z h, where the error of z meets h - n.
            off = new.off.scaled(keep.reach) + h.off.scaled(z.reach) + z.off.scaled(np.abs(h.value - new.value))
            size = 4 * u * (keep.reach * new.reach + z.reach * h.reach) + 4 * self.arithmetic.floor
            joined = keep * new + z * h
            found = StateError(joined.value, off, joined.linear).plus(size)
            kept = [r, z, new, q]
        found = found.seen_from(start)
        found = found.plus(self.state.rounding(found.reach))
        if self.rnn.cell is not Cell.RELU:
            self.h_most[:batch] = self.h_most[:batch] * (1 + 32 * u + self.state.u) + self.state.eta
            found = found.at_most(self.h_most[:batch])
        self.h, self.c = self.h.with_first(found), self.c.with_first(c)
        if self.start is not None and self.rnn.cell is Cell.LSTM:
            self.start, (self.h, self.c) = go_on(self.start, self.h, self.c)
        elif self.start is not None:
            self.start, (self.h,) = go_on(self.start, self.h)
        return kept


def has_maps(rnn: RnnSpec) -> bool:
    """Linear maps are matrices of each sequence and step: too much work for networks of many units."""
    start = rnn.hidden_size * (2 if rnn.cell is Cell.LSTM else 1)
    size = rnn.hidden_size * start
    work = rnn.rows * rnn.gates * rnn.hidden_size * size * (BLOCK // 2 + 1)
    return work <= _MOST and rnn.batch_sizes[0] * size <= _LARGEST


def masked(rnn: RnnSpec, x: StateError, masks: Array | None, layer: int, arithmetic: Arithmetic) -> StateError:
    """What a layer above the first reads of the one below."""
    if masks is None:
        return x
    factor = host.masked(rnn, np.ones_like(x.value), masks, layer)
    thinned = x.times(factor)
    own = 3 * arithmetic.u * thinned.reach + 3 * arithmetic.floor
    return thinned.plus(np.where(factor == 0, 0.0, own + arithmetic.as_handed(thinned.reach)))


def forward(op: RnnForward, boxes: Mapping[str, ErrorInterval], arithmetic: Arithmetic) -> dict[str, ErrorInterval]:
    rnn = op.rnn
    w, w_error = plain(boxes["w"], (rnn.weight_count,))
    first_h, first_c = (plain(boxes.get(port), rnn.states) for port in ("hx", "cx"))
    masks = None
    if op.masks is not None:
        seed, offset = (int(plain(boxes[port], (1,))[0][0]) for port in ("seed", "offset"))
        masks = host.draw_masks(rnn, seed, offset)
    last_h, last_c = ((np.empty(rnn.states), np.empty(rnn.states)) for _ in range(2))
    kept = np.empty(rnn.kept_count), np.empty(rnn.kept_count)
    values = boxed(*plain(boxes["x"], (rnn.rows, rnn.input_size)))
    for layer in range(rnn.layers):
        if layer:
            values = masked(rnn, values, masks, layer, arithmetic)
        outputs = np.empty((rnn.rows, rnn.width)), np.empty((rnn.rows, rnn.width))
        for direction in range(rnn.directions):
            p = layer * rnn.directions + direction
            weights, errors = host.weights_of(rnn, w, p), host.weights_of(rnn, w_error, p)
            entering = _entering(rnn, values, weights, errors, arithmetic)
            state = Sums.of(
                (weights.state, errors.state), (weights.state_bias, errors.state_bias), rnn.gates, arithmetic
            )
            h, c = (boxed(first[0][p], first[1][p]) for first in (first_h, first_c))
            here = _Layer(rnn, arithmetic, Type.of(op.y.data_type), h, c)
            columns = slice(direction * rnn.hidden_size, (direction + 1) * rnn.hidden_size)
            growth = Growth(state.stretch)
            for count, (rows, batch) in enumerate(host.steps_of(rnn, forward=direction == 0)):
                if count % BLOCK == 0 and has_maps(rnn):
                    here.begin()
                before = here.h.first(batch)
                of_state = [state.gate(g, before) for g in range(rnn.gates)]
                memory = here.step([e.at(rows) for e in entering], of_state, batch)
                for place, found in enumerate(memory):
                    host.kept_of(rnn, kept[0], p)[rows, place] = found.value
                    host.kept_of(rnn, kept[1], p)[rows, place] = found.off.each
                outputs[0][rows, columns], outputs[1][rows, columns] = here.h.value[:batch], here.h.off.each[:batch]
                growth.step(here.h)
            growth.say(arithmetic.remarks, rnn, layer, direction)
            for last, found in ((last_h, here.h), (last_c, here.c)):
                last[0][p], last[1][p] = found.value, found.off.each
        values = boxed(*outputs)
        if layer < rnn.layers - 1:
            for place in range(2):
                host.outputs_of(rnn, kept[place], layer)[...] = outputs[place]
    results = {"y": outputs, "hy": last_h, "cy": last_c, "kept": kept}
    drawn = {} if masks is None else {"masks": ErrorInterval.of(masks)}
    return {port: ErrorInterval.of(value).with_error(error) for port, (value, error) in results.items()} | drawn


def _entering(
    rnn: RnnSpec, values: StateError, weights: Weights, errors: Weights, arithmetic: Arithmetic
) -> list[StateError]:
    """What the input adds to each gate, for all steps."""
    biases = weights.input_bias, errors.input_bias
    if weights.input is None or errors.input is None:
        parts = zip(*(np.split(b, rnn.gates) for b in biases), strict=True)
        return [
            StateError(values.value + b, values.off).plus(e + arithmetic.u * (values.reach + np.abs(b)))
            for b, e in parts
        ]
    sums = Sums.of((weights.input, errors.input), biases, rnn.gates, arithmetic)
    return [sums.gate(g, values) for g in range(rnn.gates)]
