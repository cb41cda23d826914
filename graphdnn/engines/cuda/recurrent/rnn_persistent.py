"""Engine ``cuda_rnn_persistent``: recurrent networks of 16-bit data on tensor cores, with weights in registers.

A layer is one launch of persistent CTAs. Each CTA has some units and some sequences, keeps its part of the recurrent
matrix, and polls for the states that other CTAs store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

from graphdnn.checks import Empty, MultipleOf
from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.recurrent.rnn_forward import draw_masks
from graphdnn.engines.cuda.recurrent.rnn_matmuls import Products
from graphdnn.engines.cuda.recurrent.rnn_network import Network, Values, rows_of
from graphdnn.engines.cuda.recurrent.rnn_operands import enter, entered, states, storage
from graphdnn.engines.cuda.recurrent.rnn_requirements import half_needs, rnn_of, waiting_cost
from graphdnn.engines.engine import Task, need
from graphdnn.enums import DataType, NumericalNote, Status
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import RnnForward
from graphdnn.operations.rnn_spec import RnnSpec
from graphdnn.rules import Constraint
from graphdnn.tensors import TensorSpec

UNITS = 16  # the fewest units of a CTA
_UNITS = (16, 32)
_WARPS = 8
THREADS = 32 * _WARPS
_DEEP = 32  # values along K in one step of a warp
_ROWS = (8, 16, 32)  # sequences of a CTA
_REGISTERS = 200  # of a thread, for operands and accumulators
_FILL_BLOCKS_PER_SM = 8
_STEP = 2.4e-6  # seconds, as measured on an H200
GROWTH = 2.0**13  # error factor: CTAs exchange 16-bit values, other engines FLOAT
_ID = "cuda_rnn_persistent"


@dataclass(frozen=True, slots=True)
class Shape:
    """The division of a layer among CTAs.

    ``blocks_of_k``: blocks of 32 units of a warp; ``at_once``: blocks that it loads at a time.
    """

    units: int
    rows: int  # sequences
    blocks: tuple[int, int, int]  # of units, of sequences, directions
    blocks_of_k: int
    at_once: int
    staged: bool  # matrices are in shared memory
    shared: int

    @property
    def count(self) -> int:
        units, sequences, directions = self.blocks
        return units * sequences * directions

    def fits(self, device: DeviceSpec) -> bool:
        """Whether all CTAs fit the device at the same time."""
        return self.count <= device.sm_count and self.shared <= device.shared_memory - RESERVED

    def text(self) -> str:
        return f"u{self.units}r{self.rows}k{self.blocks_of_k}a{self.at_once}{'s' * self.staged}"

    def constants(self, rnn: RnnSpec, tensors: Mapping[str, TensorSpec]) -> dict[str, int | bool | str]:
        most = max(2 * rnn.rows * rnn.gates * rnn.width, rnn.kept_count, *(t.span for t in tensors.values()))
        return {
            "THREADS": THREADS, "UNITS": self.units, "ROWS": self.rows, "STAGED": self.staged,
            "WHOLE": rnn.hidden_size == self.blocks_of_k * _DEEP * _WARPS,
            "Index": "int" if most < 2**31 else "long long",
        }  # fmt: skip


def fitting(rnn: RnnSpec, *, columns: int, values: int, pair: int) -> list[Shape]:
    """The divisions of a layer whose operands fit, sorted by the values that a CTA reads from others.

    A CTA computes ``columns`` sums for each unit and sequence, over ``values`` of each unit. Divisions with matrices in
    registers are preferred. ``pair``: registers for each further pair of a unit and a sequence in a thread.
    """
    deep, candidates = -(-rnn.hidden_size // (_WARPS * _DEEP)), []
    for units, rows, staged, chunks in product(_UNITS, _ROWS, (False, True), (1, values)):
        tiles, at_once = columns * units // 8, values * deep // chunks
        matrix = 0 if staged else values * deep * tiles
        registers = 4 * (matrix + rows // 8 * at_once + rows // 8 * tiles // 2)
        registers += pair * (rows * units // THREADS - 1)
        if rnn.hidden_size % units or rows * units < THREADS or registers > _REGISTERS:
            continue
        blocks = rnn.hidden_size // units, -(-rnn.batch_sizes[0] // rows), rnn.directions
        joined = (1 if staged else 2) * _WARPS * rows * (columns * units + 4) * 4
        shared = joined + staged * THREADS * values * deep * tiles * 16
        candidates.append(Shape(units, rows, blocks, deep, at_once, staged, shared))
    return sorted(candidates, key=lambda s: (s.staged, s.at_once != values * deep, s.count * s.rows, s.rows))


def shapes(rnn: RnnSpec) -> list[Shape]:
    """The divisions for the forward pass, in which a CTA sums all gates of its units."""
    return fitting(rnn, columns=rnn.gates, values=1, pair=40)


def generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, RnnForward)
    rnn, steps = anchor.rnn, LaunchSequence(op, device)
    network, products = Network(anchor, steps, 0), Products(steps, rnn.arithmetic)
    if anchor.masks is not None:
        draw_masks(anchor, steps)
    masks = network.plain_masks(anchor.masks)
    state, batch = anchor.y.data_type, rnn.batch_sizes[0]
    layer_bytes = (batch + rnn.rows) * rnn.width * 2
    shared = steps.allocate(rnn.layers * layer_bytes)
    steps.add(fill(network, state, shared, layers=rnn.layers, width=rnn.hidden_size, first=batch, hx=anchor.hx))
    entering = network.scratch(rnn.arithmetic, rnn.gates * rnn.hidden_size, rnn.directions)
    values = rows_of(anchor.x)
    for layer in range(rnn.layers):
        values = enter(network, products, anchor, layer, values, entering, masks, state)
        here = shared + layer * layer_bytes
        steps.add(_layer(network, anchor, layer, values, entering, here))
        values = Values(None, state, here + batch * rnn.width * 2, rnn.width)
    return steps.kernel(f"rnn_resident__{rnn.cell.name.lower()}")


def fill(
    network: Network, data_type: DataType, shared: int, *, layers: int, width: int, first: int, hx: TensorSpec | None
) -> Launch:
    """The launch that fills the exchange memory with ABSENT, ``width`` values for each row and direction.

    ``first``: rows of initial states at the beginning of each layer.
    """
    rnn, state = network.rnn, STORAGE[data_type]
    parameters = Parameters(network.steps.workspace_offsets)
    parameters.workspace_pointer("shared", state, shared)
    network.optional(parameters, "hx", hx)
    for field, value in (
        ("layers", layers), ("directions", rnn.directions), ("rows", rnn.rows), ("batch", first), ("hidden", width),
    ):  # fmt: skip
        parameters.integer(field, value)
    text = kernel_text(
        "rnn_fill",
        ["rnn_fill.cu"],
        parameters=parameters.text,
        functions=[],
        constants={"THREADS": THREADS, "State": state},
    )
    vectors = layers * (first + rnn.rows) * rnn.directions * width // 8
    blocks = min(-(-vectors // THREADS), _FILL_BLOCKS_PER_SM * network.device.sm_count)
    return Launch(text, "rnn_fill", (blocks, 1, 1), THREADS, parameters.pack())


def _layer(network: Network, op: RnnForward, layer: int, values: Values, entering: Values, shared: int) -> Launch:
    rnn = op.rnn
    shape = next(s for s in shapes(rnn) if s.fits(network.device))
    state = STORAGE[op.y.data_type]
    parameters = network.layer(op.w, layer, 0)
    parameters.integer("directions", rnn.directions)
    parameters.workspace_pointer("shared", state, shared)
    entered(network, parameters, layer, values, entering)
    outputs = _outputs(network, op, layer)
    if outputs is None:
        parameters.null_pointer("out", state)
        parameters.integer("out_at", 0)
        parameters.integers("out_stride", (0, 0))
    else:
        outputs.parameter(parameters, "out", is_output=True)
    states(network, parameters, op)
    name = f"rnn_resident__{rnn.cell.name.lower()}_{shape.text()}"
    text = kernel_text(
        name,
        ["rnn_persistent.cu"],
        parameters=parameters.text,
        functions=["#define FAST\n"],
        constants={
            **network.constants(),
            **shape.constants(rnn, op.tensors()),
            "BLOCKS_OF_K": shape.blocks_of_k,
            "SKIP": not rnn.has_input_matrices(layer),
            "State": state,
            "Out": state if outputs is None else STORAGE[outputs.data_type],
            "StateOut": storage(op.hy),
            "CellOut": storage(op.cy),
        },
    )
    return Launch(text, "rnn_persistent", shape.blocks, THREADS, parameters.pack(), shape.shared, is_cooperative=True)


def _outputs(network: Network, op: RnnForward, layer: int) -> Values | None:
    """Where the outputs of a layer are stored besides the exchange memory."""
    if layer == op.rnn.layers - 1:
        return rows_of(op.y)
    return None if op.kept is None else network.reserve_outputs(op.kept, layer)


# Needs of the engines.


def persistent_needs(
    engine: str, tag: str, data: tuple[str, ...], ways: Callable[[RnnSpec], list[Shape]], handed: str
) -> tuple[Constraint, ...]:
    """The needs of both persistent engines: 16-bit data, and CTAs that fit at the same time.

    ``data``: ports with a common type; ``handed``: the values that CTAs exchange.
    """

    def is_asked(task: Task) -> bool:
        return task.op.main.tag == tag

    return (
        *half_needs(engine, tag, data),
        need(
            f"{engine}.hidden_size",
            "hidden_size",
            lambda task: rnn_of(task).hidden_size,
            MultipleOf(UNITS),
            reason=f"a block has {UNITS} units",
            fix="pad the network with units whose weights are 0, or use another engine",
            status=Status.NOT_SUPPORTED_SHAPE,
            when=is_asked,
        ),
        need(
            f"{engine}.size",
            "hidden_size, batch_sizes, directions",
            lambda task: _misfit(task, ways),
            Empty("blocks that all run at the same time and keep their part of the matrix"),
            reason=f"blocks wait for each other's {handed} from step to step",
            fix="divide the sequences among several runs, or use another engine",
            status=Status.NOT_SUPPORTED_SHAPE,
            when=is_asked,
        ),
    )


def _misfit(task: Task, ways: Callable[[RnnSpec], list[Shape]]) -> list[str]:
    """The reason why the network does not fit the device; empty if it fits."""
    rnn = rnn_of(task)
    shapes = ways(rnn)
    if any(s.fits(task.device) for s in shapes):
        return []
    least = min((f"{s.count} blocks" for s in shapes), default="no shape")
    return [f"{rnn.hidden_size} units and {rnn.batch_sizes[0]} sequences: {least}"]


ENGINE = cuda_engine(
    id=73,
    name=_ID,
    summary="recurrent networks of 16-bit data on tensor cores; weights in registers, CTAs exchange states",
    needs=persistent_needs(_ID, RnnForward.tag, ("x", "w", "y", "hx"), shapes, "states"),
    cost=lambda task, knobs: waiting_cost(task, _STEP, DataType.HALF),
    generate=lambda op, device, knobs: generate(op, device),
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    error_growth=GROWTH,
)
