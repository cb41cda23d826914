"""Matrices, values and launches that the engines of recurrent networks share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import gcd

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import BOOLEANS, COMPUTE, ELEMENTS
from graphdnn.engines.cuda.codegen.fast_division import count_type
from graphdnn.engines.cuda.codegen.launch import Launch
from graphdnn.engines.cuda.codegen.launch_sequence import ALIGNMENT, LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.cublas.gemm_launches import Place
from graphdnn.engines.cuda.recurrent.rnn_matmuls import Matrix
from graphdnn.enums import DataType
from graphdnn.operations import RnnBackwardData, RnnBackwardWeights, RnnForward
from graphdnn.operations.rnn_spec import GATE_GRADIENTS, RESERVE_VALUES
from graphdnn.tensors import TensorSpec

_THREADS = 256
_RUNS = 64  # runs of time steps with the same number of sequences, in a launch
_BLOCKS_PER_SM = 8
TILE, DEPTH = 16, 128  # sequences and units of a tile; values of a chunk in shared memory
_PARTS = 4  # split of the reduction among the threads of a tile
_VEC_BYTES, _MAX_VEC_WIDTH = 32, 8  # bytes and elements of a thread

Recurrent = RnnForward | RnnBackwardData | RnnBackwardWeights


@dataclass(frozen=True, slots=True)
class Values:
    """Values of one data type: a tensor of the graph (with an address in parameters), or scratch memory."""

    spec: TensorSpec | None
    data_type: DataType
    start: int  # elements from the beginning of the tensor, or bytes into scratch memory
    row: int
    column: int = 1

    def parameter(self, parameters: Parameters, name: str, *, is_output: bool = False) -> None:
        """Adds the address, the first element and the strides as parameters."""
        if self.spec is None:
            parameters.workspace_pointer(name, STORAGE[self.data_type], self.start)
        else:
            parameters.tensor(name, self.spec, is_output=is_output)
        parameters.integer(f"{name}_at", 0 if self.spec is None else self.start)
        parameters.integers(f"{name}_stride", (self.row, self.column))

    def beginning(self, column: int) -> Values:
        """The same values from another column on."""
        size = ELEMENTS[self.data_type].bytes if self.spec is None else 1
        return replace(self, start=self.start + column * self.column * size)

    def width(self, steps: LaunchSequence, *multiples: int) -> int:
        """The widest vector of a row, if these numbers of elements are offsets between vectors."""
        if self.column != 1:
            return 1
        size = ELEMENTS[self.data_type].bytes
        scratch = self.spec is None or self.spec.uid in steps.workspace_offsets
        alignment = _VEC_BYTES if scratch or self.spec is None else gcd(self.spec.byte_alignment, _VEC_BYTES)
        start = self.start if self.spec is None else self.start * size
        return max(1, gcd(alignment, start, self.row * size, *(m * size for m in multiples)) // size)

    def matrix(self, steps: LaunchSequence, rows: int, columns: int) -> Matrix:
        if self.spec is None:
            return Matrix(Place(None, self.start), self.data_type, rows, columns, self.row, self.column)
        offset = self.start * ELEMENTS[self.data_type].bytes
        alignment = ALIGNMENT if self.spec.uid in steps.workspace_offsets else self.spec.byte_alignment
        place = Place.of(steps, self.spec, offset)
        return Matrix(place, self.data_type, rows, columns, self.row, self.column, alignment)


@dataclass(frozen=True, slots=True)
class TiledLaunch:
    """Constants, grid and shared memory for rnn_tile.cuh."""

    grid: tuple[int, int, int]
    shared: int
    constants: Mapping[str, int | bool]


class Network:
    """A recurrent operation and the scratch memory that its launches share."""

    def __init__(self, op: Recurrent, steps: LaunchSequence, layers: int) -> None:
        """``layers``: launches with a grid barrier."""
        self.op, self.rnn, self.steps = op, op.rnn, steps
        self.arithmetic = op.rnn.arithmetic
        self.wide = COMPUTE_TYPE[self.arithmetic]
        self._starts = steps.allocate(4 * (len(op.rnn.batch_sizes) + 1))
        self._barriers = layers * op.rnn.directions
        self._arrived = steps.allocate(4 * max(1, self._barriers))
        self._begin()

    @property
    def device(self) -> DeviceSpec:
        return self.steps.device

    def _begin(self) -> None:
        """Launches that store the first row of each step; the first launch also clears the barrier counters."""
        sizes = (*self.rnn.batch_sizes, 0)
        runs = list(_runs(sizes, self.rnn.starts))
        for i in range(0, len(runs), _RUNS):
            some = runs[i : i + _RUNS]
            parameters = Parameters()
            self.counting(parameters)
            parameters.integer("barriers", 0 if i else self._barriers)
            parameters.integer("first", some[0][0])
            parameters.integer("last", runs[i + _RUNS][0] if i + _RUNS < len(runs) else len(sizes))
            parameters.integer("runs", len(some))
            for field, values in zip(("run_step", "run_row", "run_batch"), zip(*some, strict=True), strict=True):
                parameters.integers(field, [*values, *[0] * (_RUNS - len(some))])
            text = kernel_text(
                "rnn_begin", ["rnn_begin.cu"], parameters=parameters.text, functions=[], constants={"THREADS": _THREADS}
            )
            self.steps.add(Launch(text, "rnn_begin", (1, 1, 1), _THREADS, parameters.pack()))

    def counting(self, parameters: Parameters, layer: int = 0) -> None:
        """Adds parameters: the first rows of steps, and the barrier counters of a layer's launch."""
        parameters.workspace_pointer("starts", "int", self._starts)
        parameters.workspace_pointer("arrived", "unsigned int", self._arrived + 4 * layer * self.rnn.directions)
        parameters.integer("steps", len(self.rnn.batch_sizes))
        parameters.integer("batch", self.rnn.batch_sizes[0])
        parameters.integer("rows", self.rnn.rows)
        parameters.integer("hidden", self.rnn.hidden_size)

    def layer(self, w: TensorSpec, layer: int, counts: int) -> Parameters:
        """Adds the parameters of a layer's launch; ``counts``: its index among the launches with a grid barrier."""
        parameters = Parameters(self.steps.workspace_offsets)
        self.counting(parameters, counts)
        self.weights(parameters, w, layer)
        parameters.integer("pseudo", layer * self.rnn.directions)
        return parameters

    def constants(self) -> dict[str, int | bool | str]:
        """The constants of rnn_cells.cuh."""
        cell = self.rnn.cell
        return {
            "CELL": int(cell), "GATES": self.rnn.gates, "RESERVE_VALUES": RESERVE_VALUES[cell],
            "GATE_GRADIENTS": GATE_GRADIENTS[cell], "Compute": self.wide,
        }  # fmt: skip

    # Locations in memory.

    def input_matrix(self, w: TensorSpec, pseudo: int) -> Matrix:
        """[gates * hidden, fan in] of the packed weights."""
        block, step = self.rnn.matrix(pseudo, 0), w.strides[0]
        whole = Values(w, w.data_type, block.offset * step, block.columns * step, step)
        return whole.matrix(self.steps, self.rnn.gates * self.rnn.hidden_size, block.columns)

    def state_matrix(self, w: TensorSpec, pseudo: int) -> Matrix:
        """[gates * hidden, hidden] of the packed weights."""
        block, step = self.rnn.matrix(pseudo, self.rnn.gates), w.strides[0]
        whole = Values(w, w.data_type, block.offset * step, block.columns * step, step)
        return whole.matrix(self.steps, self.rnn.gates * self.rnn.hidden_size, block.columns)

    def weights(self, parameters: Parameters, w: TensorSpec, layer: int) -> None:
        """Adds parameters: the address of packed weights, and the offsets of both directions' matrices and biases."""
        first, gates = layer * self.rnn.directions, self.rnn.gates
        directions = range(first, first + self.rnn.directions)
        parameters.tensor("w", w)
        parameters.integer("w_step", w.strides[0])
        parameters.integers("matrix_at", [self.rnn.matrix(p, gates).offset for p in directions])
        parameters.integers("bias_at", [self.rnn.bias(p, 0).offset for p in directions])

    def reserve_outputs(self, kept: TensorSpec, layer: int) -> Values:
        """The outputs of a layer below the top, in the reserve space: [rows, width]."""
        rnn, step = self.rnn, kept.strides[0]
        start = rnn.rows * (rnn.pseudo_layers * RESERVE_VALUES[rnn.cell] * rnn.hidden_size + layer * rnn.width)
        return Values(kept, kept.data_type, start * step, rnn.width * step, step)

    def scratch(self, data_type: DataType, columns: int, matrices: int = 1) -> Values:
        """Scratch memory for [rows, columns]."""
        size = matrices * self.rnn.rows * columns * ELEMENTS[data_type].bytes
        return Values(None, data_type, self.steps.allocate(size), columns)

    def optional(self, parameters: Parameters, name: str, spec: TensorSpec | None, *, is_output: bool = False) -> None:
        """Adds an optional state."""
        if spec is None:
            parameters.null_pointer(name, f"{'' if is_output else 'const '}{STORAGE[DataType.FLOAT]}")
        else:
            parameters.tensor(name, spec, is_output=is_output)
        parameters.integers(f"{name}_stride", (0, 0, 0) if spec is None else spec.strides)

    def plain_masks(self, masks: TensorSpec | None) -> TensorSpec | None:
        """Masks in bytes, contiguous."""
        if masks is None:
            return None
        packed = self.rnn.rows * self.rnn.width, self.rnn.width, 1
        is_plain = masks.data_type is not DataType.BOOLEAN and all(
            have == want or n == 1 for have, want, n in zip(masks.strides, packed, masks.extents, strict=True)
        )
        assert masks.data_type in BOOLEANS
        return masks if is_plain and masks.vector_count == 1 else self.steps.relayout(masks)

    # The launches of a layer, for every cell.

    def tiles(self, out: int, values: int) -> TiledLaunch:
        """One CTA for each tile of sequences and units, or as many CTAs as fit the device at the same time.

        ``out``: results for each pair of a sequence and a unit; ``values``: summed values of each unit. Matrices stay
        in shared memory if each tile has a CTA and they fit.
        """
        rnn, size = self.rnn, COMPUTE[self.arithmetic].itemsize
        vector = 16 // size
        depth = values * -(-rnn.hidden_size // DEPTH) * DEPTH
        fixed = TILE * (DEPTH + vector) + _PARTS * TILE * out * TILE
        tiles = -(-rnn.batch_sizes[0] // TILE) * -(-rnn.hidden_size // TILE)
        blocks = min(tiles, self.device.sm_count // rnn.directions)
        kept = (fixed + out * TILE * (depth + vector)) * size
        stays = blocks == tiles and kept <= self.device.shared_memory - RESERVED
        shared = kept if stays else (fixed + out * TILE * (DEPTH + vector)) * size
        constants = {"THREADS": TILE * TILE, "TILE": TILE, "DEPTH": DEPTH, "WEIGHTS_STATIONARY": stays}
        return TiledLaunch((blocks, rnn.directions, 1), shared, constants)

    # The launch between layers.

    def join(
        self, source: Values, target: Values, columns: int, *, sources: int = 1, source_stride: int = 0, terms: int = 1,
        term_stride: int = 0, masks: TensorSpec | None = None, layer: int = 0,
    ) -> None:  # fmt: skip
        """target[row, column] = the sum over sources and terms, with the dropout mask below ``layer``."""
        parameters = Parameters(self.steps.workspace_offsets)
        source.parameter(parameters, "from")
        target.parameter(parameters, "to", is_output=True)
        for field, value in (
            ("columns", columns), ("rows", self.rnn.rows), ("sources", sources), ("source_stride", source_stride),
            ("terms", terms), ("term_stride", term_stride), ("mask_at", (layer - 1) * self.rnn.rows * self.rnn.width),
        ):  # fmt: skip
            parameters.integer(field, value)
        parameters.number("scale", 1.0 / (1.0 - self.rnn.dropout) if self.rnn.dropout < 1.0 else 0.0)
        if masks is None:
            parameters.null_pointer("masks", "const bool_t")
        else:
            parameters.tensor("masks", masks)
        spans = columns, term_stride, source_stride
        width = gcd(source.width(self.steps, *spans), target.width(self.steps, columns), _MAX_VEC_WIDTH)
        count = self.rnn.rows * columns // width
        text = kernel_text(
            "rnn_combine",
            ["rnn_combine.cu"],
            parameters=parameters.text,
            functions=[],
            constants={
                "THREADS": _THREADS,
                "VEC_WIDTH": width,
                "Compute": self.wide,
                "From": STORAGE[source.data_type],
                "To": STORAGE[target.data_type],
                "Count": count_type(count),
            },
        )
        blocks = min(-(-count // _THREADS), _BLOCKS_PER_SM * self.device.sm_count)
        self.steps.add(Launch(text, "rnn_combine", (blocks, 1, 1), _THREADS, parameters.pack()))


def _runs(sizes: tuple[int, ...], starts: tuple[int, ...]) -> Iterator[tuple[int, int, int]]:
    """First step, its row and its number of sequences, for each run of steps with the same number of sequences."""
    for _, steps in groupby(range(len(sizes)), key=lambda t: sizes[t]):
        t = next(steps)
        yield t, starts[t], sizes[t]


def rows_of(spec: TensorSpec) -> Values:
    """A tensor [rows, columns] of the graph."""
    return Values(spec, spec.data_type, 0, *spec.strides)
