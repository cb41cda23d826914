"""Engines ``cuda_rnn`` and ``cuda_rnn_16bit``: recurrent networks of every kind, type and size.

The input's part of the gates is one matrix product for all time steps of a layer. The time steps are one launch of
persistent CTAs, which wait for each other after each step.
"""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.recurrent.rnn_matmuls import ANY, PLAIN, Products
from graphdnn.engines.cuda.recurrent.rnn_network import TILE, Network, Values, rows_of
from graphdnn.engines.cuda.recurrent.rnn_operands import enter, entered, states, storage
from graphdnn.engines.cuda.recurrent.rnn_requirements import half_needs, rnn_needs, waiting_cost
from graphdnn.engines.cuda.rng import rng
from graphdnn.engines.engine import Engine
from graphdnn.enums import NumericalNote, RngDistribution
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Rng, RngSpec, RnnForward


def _without_tensor_cores(op: FusedOp) -> tuple[Engine, ...]:
    """Engines without tensor cores; none of the general engines uses them for floats of 32 bits or more."""
    return PLAIN if ELEMENTS[op.main.inputs()["x"].data_type].bits < 32 else ANY


def draw_masks(op: RnnForward, steps: LaunchSequence) -> None:
    """The dropout masks between layers, as the operation ``rng`` draws them."""
    assert op.masks is not None
    assert op.seed is not None
    assert op.offset is not None
    keep = RngSpec(distribution=RngDistribution.BERNOULLI, probability=1.0 - op.rnn.dropout)
    anchor = Rng(spec=keep, y=op.masks, seed=op.seed, offset=op.offset)
    alone = FusedOp(steps.op.index, "rng", anchor, (), (), None, (op.seed, op.offset), (op.masks,), ())
    steps.include(rng.generate(alone, steps.device), alone)


def generate(op: FusedOp, device: DeviceSpec, engines: tuple[Engine, ...] = ANY) -> DeviceKernel:
    """``engines``: candidates for the matrix products of the input."""
    anchor = op.anchor
    assert isinstance(anchor, RnnForward)
    rnn, steps = anchor.rnn, LaunchSequence(op, device)
    network, products = Network(anchor, steps, rnn.layers), Products(steps, rnn.arithmetic, engines)
    if anchor.masks is not None:
        draw_masks(anchor, steps)
    masks = network.plain_masks(anchor.masks)
    cells = steps.allocate(rnn.directions * rnn.batch_sizes[0] * rnn.hidden_size * 8)
    entering = network.scratch(rnn.arithmetic, rnn.gates * rnn.hidden_size, rnn.directions)
    values = rows_of(anchor.x)
    for layer in range(rnn.layers):
        values = enter(network, products, anchor, layer, values, entering, masks, rnn.arithmetic)
        outputs = outputs_of(network, anchor, layer)
        steps.add(_layer(network, anchor, layer, values, entering, outputs, cells))
        values = outputs
    return steps.kernel(f"rnn__{rnn.cell.name.lower()}")


def outputs_of(network: Network, op: RnnForward, layer: int) -> Values:
    """Where the outputs of a layer are stored: in y, in the reserve space, or in scratch memory."""
    if layer == op.rnn.layers - 1:
        return rows_of(op.y)
    if op.kept is not None:
        return network.reserve_outputs(op.kept, layer)
    return network.scratch(op.y.data_type, op.rnn.width)


def _layer(
    network: Network, op: RnnForward, layer: int, values: Values, entering: Values, outputs: Values, cells: int
) -> Launch:
    rnn = op.rnn
    parameters = network.layer(op.w, layer, layer)
    entered(network, parameters, layer, values, entering)
    outputs.parameter(parameters, "out", is_output=True)
    parameters.workspace_pointer("cells", network.wide, cells)
    states(network, parameters, op)
    tiled = network.tiles(rnn.gates, 1)
    text = kernel_text(
        f"rnn_forward__{rnn.cell.name.lower()}",
        ["rnn_forward.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            **network.constants(),
            **tiled.constants,
            "SKIP": not rnn.has_input_matrices(layer),
            "Weight": STORAGE[op.w.data_type],
            "State": STORAGE[op.y.data_type],
            "Out": STORAGE[outputs.data_type],
            "StateOut": storage(op.hy),
            "CellOut": storage(op.cy),
        },
    )
    return Launch(text, "rnn_forward", tiled.grid, TILE * TILE, parameters.pack(), tiled.shared, is_cooperative=True)


ENGINE = cuda_engine(
    id=70,
    name="cuda_rnn",
    summary="recurrent networks of every kind, type and size, by persistent CTAs",
    needs=rnn_needs("cuda_rnn", RnnForward.tag),
    cost=lambda task, knobs: waiting_cost(task),
    generate=lambda op, device, knobs: generate(op, device, _without_tensor_cores(op)),
    is_general=True,
)
NARROW = cuda_engine(
    id=104,
    name="cuda_rnn_16bit",
    summary="recurrent networks of 16-bit data and any size; the input is multiplied by its matrices on tensor cores",
    needs=half_needs("cuda_rnn_16bit", RnnForward.tag, ("x", "w")),
    cost=lambda task, knobs: waiting_cost(task),
    generate=lambda op, device, knobs: generate(op, device),
    numerical_notes=(NumericalNote.TENSOR_CORE,),
)
