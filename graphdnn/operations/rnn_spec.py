"""Settings of recurrent networks, and where everything lies: packed weights, kept values, states.

Steps may have fewer sequences than the step before (sequences sorted by falling length); the rows of all steps lie
one after another. A pseudo-layer is one direction of one layer: index ``layer * directions + direction``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import BeforeValidator

from graphdnn.checks import AtLeast, Each, Equals, InRange, LengthIn, OneOf
from graphdnn.dtypes import COMPUTE
from graphdnn.enums import DataType, Status
from graphdnn.rules import Constraint
from graphdnn.spec import ElementType, Float, Int64, Int64s, Spec


class Cell(IntEnum):
    """What a step of a recurrent network computes.

    The input's matrices have the ids 0 to gates - 1, and the state's matrices the ids gates to 2 * gates - 1. LSTM:
    input, forget, new and output gate. GRU: reset, update and new gate; the reset gate multiplies after the matrix.
    """

    RELU = 0
    TANH = 1
    LSTM = 2
    GRU = 3


GATES = {Cell.RELU: 1, Cell.TANH: 1, Cell.LSTM: 4, Cell.GRU: 3}
# Values of width ``hidden`` that a step keeps for the gradients, beside its output: LSTM its gates and the cell,
# GRU its gates and the new gate's product of the state; and gradients that the weights' gradients are made from.
RESERVE_VALUES = {Cell.RELU: 0, Cell.TANH: 0, Cell.LSTM: 5, Cell.GRU: 4}
GATE_GRADIENTS = {Cell.RELU: 1, Cell.TANH: 1, Cell.LSTM: 4, Cell.GRU: 4}


class Block(NamedTuple):
    """A matrix or a bias among the packed weights, in elements. No rows: there is none."""

    offset: int
    rows: int
    columns: int


def _cell(value: Any) -> Any:
    """A member by its name as well, as enums of the header are named; what is none, the spec refuses."""
    return Cell.__members__.get(value.upper(), value) if isinstance(value, str) else value


def _rises(sizes: Sequence[int]) -> bool:
    return any(later > earlier for earlier, later in pairwise(sizes))


class RnnSpec(Spec):
    """A stack of recurrent layers over a batch of sequences.

    Args:
        cell: ``RELU``, ``TANH``, ``LSTM`` or ``GRU``.
        input_size: Values of one row of x.
        hidden_size: Values of one state.
        layers: The number of layers.
        directions: 1, or 2 for sequences that are read forward and backward.
        skip_input: True leaves out the input matrices of the first layer.
        dropout: The probability that a value between layers is set to 0 in training.
        batch_sizes: The number of sequences of each step. It never rises from step to step.
        arithmetic: The type of sums and gates: FLOAT or DOUBLE.

    Raises:
        BadParam: A field is wrong. The error lists every problem.
    """

    constraints: ClassVar[tuple[tuple[Constraint, ...], ...]] = (
        (
            Constraint(
                id="rnn.sizes",
                attribute="input_size, hidden_size, layers",
                look=lambda s: (s.input_size, s.hidden_size, s.layers),
                check=Each(AtLeast(1)),
                reason="the sizes and the number of layers are counts",
                fix="use positive numbers",
            ),
            Constraint(
                id="rnn.directions",
                attribute="directions",
                look=lambda s: s.directions,
                check=OneOf(1, 2),
                reason="sequences are read forward, or forward and backward",
                fix="use 1 or 2",
            ),
            Constraint(
                id="rnn.batch_sizes",
                attribute="batch_sizes",
                look=lambda s: s.batch_sizes,
                check=LengthIn(1, 2**31),
                reason="there is one batch size for each step",
                fix="give as many as the longest sequence has steps",
            ),
            Constraint(
                id="rnn.dropout",
                attribute="dropout",
                look=lambda s: s.dropout,
                check=InRange(0.0, 1.0),
                reason="it is the probability that a value between layers is zeroed",
                fix="use a number from 0 to 1",
            ),
            Constraint(
                id="rnn.arithmetic",
                attribute="arithmetic",
                look=lambda s: s.arithmetic,
                check=OneOf(DataType.FLOAT, DataType.DOUBLE),
                reason="gates are not integers, and sums over many steps need the precision",
                fix="use FLOAT, also for narrower data",
                status=Status.NOT_SUPPORTED_DATA_TYPE,
            ),
        ),
        (
            Constraint(
                id="rnn.batch_sizes.order",
                attribute="batch_sizes",
                look=lambda s: s.batch_sizes,
                check=Equals("positive numbers that never rise"),
                when=lambda s: min(s.batch_sizes) < 1 or _rises(s.batch_sizes),
                reason="sequences are sorted by falling length, so that each step takes the first ones",
                fix="sort the sequences",
            ),
            Constraint(
                id="rnn.skip_input",
                attribute="input_size",
                look=lambda s: s.input_size,
                check=lambda s: Equals(s.hidden_size),
                when=lambda s: s.skip_input,
                reason="without a matrix the input is added to each gate as it is",
                fix="make both sizes equal, or clear skip_input",
                status=Status.BAD_PARAM_SHAPE_MISMATCH,
            ),
        ),
    )

    cell: Annotated[Cell, BeforeValidator(_cell)]
    input_size: Int64
    hidden_size: Int64
    layers: Int64 = 1
    directions: Int64 = 1
    skip_input: bool = False  # the first layer has no input matrices
    dropout: Float = 0.0  # between layers, in training
    batch_sizes: Int64s
    arithmetic: ElementType = DataType.FLOAT

    @classmethod
    def kind(cls) -> str:
        """The name of the specification in reports."""
        return "RNN"

    def __str__(self) -> str:
        layers = f"{self.layers} layer{'s' if self.layers > 1 else ''}{', both directions' * (self.directions - 1)}"
        steps, batch = len(self.batch_sizes), self.batch_sizes[0]
        return f"{self.cell.name}, {layers}, {self.input_size} to {self.hidden_size}, {steps} steps of {batch}"

    @property
    def gates(self) -> int:
        """The number of gates of a cell."""
        return GATES[self.cell]

    @property
    def has_cells(self) -> bool:
        """Whether there is a cell state beside the output."""
        return self.cell is Cell.LSTM

    @property
    def width(self) -> int:
        """Values of one row of y."""
        return self.hidden_size * self.directions

    @property
    def pseudo_layers(self) -> int:
        """The number of pairs of a layer and a direction."""
        return self.layers * self.directions

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first row of each step, and the number of all rows."""
        return (0, *accumulate(self.batch_sizes))

    @property
    def rows(self) -> int:
        """The number of rows of x and y: the sum of ``batch_sizes``."""
        return self.starts[-1]

    @property
    def states(self) -> tuple[int, int, int]:
        """The extents of hx, cx, hy and cy."""
        return self.pseudo_layers, self.batch_sizes[0], self.hidden_size

    # Weights: all matrices by pseudo-layer and id, then all biases in the same order.

    def fan_in(self, layer: int) -> int:
        """The number of columns of a layer's input matrices.

        Args:
            layer: The index of the layer.

        Returns:
            The number of columns.
        """
        return self.input_size if layer == 0 else self.width

    def has_input_matrices(self, layer: int) -> bool:
        """Whether a layer has input matrices.

        Args:
            layer: The index of the layer.

        Returns:
            False for the first layer with ``skip_input``.
        """
        return layer > 0 or not self.skip_input

    def _matrix_start(self, pseudo_layer: int) -> int:
        """Where the matrices of a pseudo-layer begin; of the number after the last one, where the biases do."""
        below = min(pseudo_layer, self.directions)  # pseudo-layers of the first layer, which the input enters
        first = self.hidden_size + self.input_size * self.has_input_matrices(0)
        other = self.hidden_size + self.width
        return self.gates * self.hidden_size * (below * first + (pseudo_layer - below) * other)

    @property
    def macs(self) -> int:
        """Multiply-adds of a forward pass: each row goes through every matrix once."""
        return self.rows * self._matrix_start(self.pseudo_layers)

    @property
    def weight_count(self) -> int:
        """The number of elements of the packed weights."""
        return self._matrix_start(self.pseudo_layers) + self.pseudo_layers * 2 * self.gates * self.hidden_size

    def matrix(self, pseudo_layer: int, id: int) -> Block:
        """The place of a matrix among the packed weights.

        Args:
            pseudo_layer: ``layer * directions + direction``.
            id: The id of the matrix; see ``Cell``.

        Returns:
            Offset, rows and columns, in elements. The rows are 0 if there is no such matrix.
        """
        layer, hidden = pseudo_layer // self.directions, self.hidden_size
        columns = self.fan_in(layer) * self.has_input_matrices(layer)
        start = self._matrix_start(pseudo_layer)
        if id < self.gates:
            return Block(start + id * hidden * columns, hidden if columns else 0, columns)
        return Block(start + self.gates * hidden * columns + (id - self.gates) * hidden * hidden, hidden, hidden)

    def bias(self, pseudo_layer: int, id: int) -> Block:
        """The place of a bias among the packed weights.

        Args:
            pseudo_layer: ``layer * directions + direction``.
            id: The id of the matrix that the bias belongs to.

        Returns:
            Offset, rows and columns, in elements.
        """
        start = self._matrix_start(self.pseudo_layers) + (pseudo_layer * 2 * self.gates + id) * self.hidden_size
        return Block(start, self.hidden_size, 1)

    # What training keeps: values of each pseudo-layer, then outputs of each layer but the last.

    @property
    def kept_count(self) -> int:
        """The number of elements that the forward pass keeps for the gradients."""
        return self.rows * (
            self.pseudo_layers * RESERVE_VALUES[self.cell] * self.hidden_size + (self.layers - 1) * self.width
        )

    @property
    def gradient_count(self) -> int:
        """The number of elements that the data gradient keeps for the weight gradient."""
        return self.rows * self.pseudo_layers * GATE_GRADIENTS[self.cell] * self.hidden_size

    @property
    def draws_masks(self) -> bool:
        """Whether training draws dropout masks."""
        return self.dropout > 0.0 and self.layers > 1

    @property
    def mask_extents(self) -> tuple[int, int, int]:
        """Extents of the masks between layers."""
        return self.layers - 1, self.rows, self.width

    @property
    def scratch_bytes(self) -> int:
        """Products of one direction's input, for every gate."""
        return self.rows * self.gates * self.hidden_size * COMPUTE[self.arithmetic].itemsize
