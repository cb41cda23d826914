"""Engine ``cuda_rnn_backward_data``: gradients of inputs and initial states, for every kind of network."""

from __future__ import annotations

from collections.abc import Sequence

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.recurrent.rnn_matmuls import Products
from graphdnn.engines.cuda.recurrent.rnn_network import TILE, Network, Values, rows_of
from graphdnn.engines.cuda.recurrent.rnn_operands import gate_gradients_of, gradients, storage
from graphdnn.engines.cuda.recurrent.rnn_requirements import rnn_needs, waiting_cost
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Cell, RnnBackwardData
from graphdnn.tensors import TensorSpec


def generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, RnnBackwardData)
    rnn, steps = anchor.rnn, LaunchSequence(op, device)
    network, products = Network(anchor, steps, rnn.layers), Products(steps, rnn.arithmetic)
    masks = network.plain_masks(anchor.masks)
    states = rnn.directions * rnn.batch_sizes[0] * rnn.hidden_size * 8
    bypass = steps.allocate(states)
    widest = max(rnn.input_size, rnn.width)
    parts = network.scratch(rnn.arithmetic, widest, rnn.directions)
    leaving = rows_of(anchor.dy)
    below = network.scratch(rnn.arithmetic, rnn.width)
    for layer in reversed(range(rnn.layers)):
        steps.add(_layer(network, anchor, layer, leaving, bypass))
        target = below if layer else rows_of(anchor.dx)
        gate_gradients = layer_gate_gradients(anchor, layer)
        add_entering(network, products, anchor, layer, gate_gradients, parts, target, masks if layer else None)
        leaving = below
    return steps.kernel(f"rnn_bwd_data__{rnn.cell.name.lower()}")


def layer_gate_gradients(op: RnnBackwardData, layer: int) -> list[Values]:
    """The gradients of the gate inputs, of each direction."""
    first = layer * op.rnn.directions
    return [gate_gradients_of(op, pseudo) for pseudo in range(first, first + op.rnn.directions)]


def add_entering(
    network: Network, products: Products, op: RnnBackwardData, layer: int, gate_gradients: Sequence[Values],
    parts: Values, target: Values, masks: TensorSpec | None,
) -> None:  # fmt: skip
    """Computes the gradient of a layer's input from its gate gradients, one item for each direction."""
    rnn, steps = op.rnn, network.steps
    fan_in, columns = rnn.fan_in(layer), rnn.gates * rnn.hidden_size
    if not rnn.has_input_matrices(layer):
        first, *others = reserve = layer_gate_gradients(op, layer)
        source_stride = others[0].start - first.start if others else 0
        network.join(first, target, fan_in, sources=len(reserve), source_stride=source_stride, terms=rnn.gates,
                     term_stride=rnn.hidden_size * first.column, masks=masks, layer=layer)  # fmt: skip
        return
    matrices = [network.input_matrix(op.w, layer * rnn.directions + d) for d in range(rnn.directions)]
    entered = [values.matrix(steps, rnn.rows, columns) for values in gate_gradients]
    if rnn.directions == 1 and masks is None:
        products.add(entered[0], matrices[0], target.matrix(steps, rnn.rows, fan_in))
        return
    source = Values(None, rnn.arithmetic, parts.start, fan_in)
    results = source.matrix(steps, rnn.directions * rnn.rows, fan_in)
    for direction in range(rnn.directions):
        products.add(entered[direction], matrices[direction], results.part(direction * rnn.rows, rnn.rows))
    network.join(
        source, target, fan_in, sources=rnn.directions, source_stride=rnn.rows * fan_in, masks=masks, layer=layer
    )


def _layer(network: Network, op: RnnBackwardData, layer: int, leaving: Values, bypass: int) -> Launch:
    rnn = op.rnn
    parameters = network.layer(op.w, layer, layer)
    gradients(network, parameters, op, layer, leaving)
    for name, is_used in (("bypass", rnn.cell is Cell.GRU), ("dcells", rnn.cell is Cell.LSTM)):
        if is_used:
            parameters.workspace_pointer(name, network.wide, bypass)
        else:
            parameters.null_pointer(name, network.wide)
    tiled = network.tiles(1, rnn.gates)
    text = kernel_text(
        f"rnn_backward__{rnn.cell.name.lower()}",
        ["rnn_backward.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            **network.constants(),
            **tiled.constants,
            "Weight": STORAGE[op.w.data_type],
            "StateOut": storage(op.dhx),
            "CellOut": storage(op.dcx),
        },
    )
    return Launch(text, "rnn_backward", tiled.grid, TILE * TILE, parameters.pack(), tiled.shared, is_cooperative=True)


ENGINE = cuda_engine(
    id=71,
    name="cuda_rnn_backward_data",
    summary="gradients of data of recurrent networks of every kind, type and size, by persistent CTAs",
    needs=rnn_needs("cuda_rnn_backward_data", RnnBackwardData.tag),
    cost=lambda task, knobs: waiting_cost(task),
    generate=lambda op, device, knobs: generate(op, device),
    is_general=True,
)
