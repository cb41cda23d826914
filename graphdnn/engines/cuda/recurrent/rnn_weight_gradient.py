"""Engine ``cuda_rnn_backward_weights``: the gradient of the packed weights, a product over all rows for each matrix."""

from __future__ import annotations

from math import gcd

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import device_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.recurrent.rnn_matmuls import Products
from graphdnn.engines.cuda.recurrent.rnn_network import Network, Values, rows_of
from graphdnn.engines.cuda.recurrent.rnn_operands import gate_gradients_of, outputs_of
from graphdnn.engines.cuda.recurrent.rnn_requirements import half_needs, rnn_needs
from graphdnn.engines.engine import Cost, Task
from graphdnn.engines.operation_cost import flops
from graphdnn.enums import DataType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Cell, RnnBackwardWeights
from graphdnn.operations.rnn_spec import GATE_GRADIENTS, RnnSpec

_THREADS = 256
_COLUMNS = 32  # biases of a CTA
_BIAS_THREADS = 1024
_MAX_VEC_WIDTH = 8  # elements of a thread
_MOST_BLOCKS = 64  # of a time step
_SHARE = 0.5  # of the peak rate
_GROWTH = 2.0**13  # error factor: gradients are rounded to 16 bits


def generate(op: FusedOp, device: DeviceSpec, data_type: DataType | None = None) -> DeviceKernel:
    """``data_type``: the type to which gradients are rounded before products; None for no rounding."""
    anchor = op.anchor
    assert isinstance(anchor, RnnBackwardWeights)
    rnn, steps = anchor.rnn, LaunchSequence(op, device)
    operand = rnn.arithmetic if data_type is None else data_type
    network, products = Network(anchor, steps, 0), Products(steps, rnn.arithmetic)
    masks = network.plain_masks(anchor.masks)
    width = GATE_GRADIENTS[rnn.cell] * rnn.hidden_size
    before = network.scratch(operand, rnn.hidden_size)
    copy = None if data_type is None else network.scratch(operand, width)
    between = network.scratch(operand, rnn.width) if masks is not None or copy is not None else None
    values = rows_of(anchor.x)
    for layer in range(rnn.layers):
        if layer and between is not None:
            network.join(values, between, rnn.width, masks=masks, layer=layer)
            values = between
        outputs = outputs_of(network, anchor, layer)
        for direction in range(rnn.directions):
            pseudo = layer * rnn.directions + direction
            steps.add(_before(network, anchor, outputs, before, pseudo))
            steps.add(_biases(network, anchor, pseudo))
            gradients = gate_gradients_of(anchor, pseudo)
            if copy is not None:
                network.join(gradients, copy, width)
                gradients = copy
            _products(network, products, anchor, values, before, gradients, pseudo)
        values = outputs
    return steps.kernel(f"rnn_bwd_weights__{rnn.cell.name.lower()}")


def _products(
    network: Network, products: Products, op: RnnBackwardWeights, values: Values, before: Values, gradients: Values,
    pseudo: int,
) -> None:  # fmt: skip
    """The gradients of both matrices; the last gate of a GRU has another gradient for the state."""
    rnn, steps, layer = op.rnn, network.steps, pseudo // op.rnn.directions
    hidden = rnn.hidden_size
    if rnn.has_input_matrices(layer):
        entered = gradients.matrix(steps, rnn.rows, rnn.gates * hidden)
        products.add(
            entered.transposed, values.matrix(steps, rnn.rows, rnn.fan_in(layer)), network.input_matrix(op.dw, pseudo)
        )
    state, matrix = before.matrix(steps, rnn.rows, hidden), network.state_matrix(op.dw, pseudo)
    parts = [(0, 0, 2), (2, 3, 1)] if rnn.cell is Cell.GRU else [(0, 0, rnn.gates)]
    for gate, value, count in parts:
        entered = gradients.beginning(value * hidden).matrix(steps, rnn.rows, count * hidden)
        products.add(entered.transposed, state, matrix.part(gate * hidden, count * hidden))


def _before(network: Network, op: RnnBackwardWeights, outputs: Values, to: Values, pseudo: int) -> Launch:
    """Copies the state before each time step."""
    rnn, direction = op.rnn, pseudo % op.rnn.directions
    parameters = Parameters(network.steps.workspace_offsets)
    network.counting(parameters)
    outputs.parameter(parameters, "out")
    network.optional(parameters, "hx", op.hx)
    parameters.integer("pseudo", pseudo)
    parameters.integer("back", direction)
    parameters.integer("first", direction * rnn.hidden_size)
    parameters.workspace_pointer("to", STORAGE[to.data_type], to.start)
    hidden = rnn.hidden_size
    width = gcd(outputs.width(network.steps, hidden), to.width(network.steps, hidden), _MAX_VEC_WIDTH)
    text = kernel_text(
        "rnn_previous_states",
        ["rnn_previous_states.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            "THREADS": _THREADS,
            "VEC_WIDTH": width,
            "Compute": network.wide,
            "Out": STORAGE[outputs.data_type],
            "To": STORAGE[to.data_type],
        },
    )
    blocks = min(-(-rnn.batch_sizes[0] * rnn.hidden_size // (_THREADS * width)), _MOST_BLOCKS)
    return Launch(text, "rnn_previous_states", (len(rnn.batch_sizes), blocks, 1), _THREADS, parameters.pack())


def _biases(network: Network, op: RnnBackwardWeights, pseudo: int) -> Launch:
    rnn, gate_gradients = op.rnn, gate_gradients_of(op, pseudo)
    assert op.kept_gradients is not None
    parameters = Parameters(network.steps.workspace_offsets)
    parameters.integer("hidden", rnn.hidden_size)
    parameters.integer("rows", rnn.rows)
    parameters.tensor("dgates", op.kept_gradients)
    parameters.integer("dgates_at", gate_gradients.start)
    parameters.integer("dgates_step", gate_gradients.column)
    parameters.tensor("dw", op.dw, is_output=True)
    parameters.integer("dw_step", op.dw.strides[0])
    parameters.integer("bias_at", rnn.bias(pseudo, 0).offset)
    text = kernel_text(
        f"rnn_bias__{rnn.cell.name.lower()}",
        ["rnn_bias.cu"],
        parameters=parameters.text,
        functions=["enum { RELU, TANH, LSTM, GRU };\n"],
        constants={
            **{name: value for name, value in network.constants().items() if name != "RESERVE_VALUES"},
            "THREADS": _BIAS_THREADS,
            "COLUMNS": _COLUMNS,
            "Weight": STORAGE[op.dw.data_type],
        },
    )
    blocks = -(-GATE_GRADIENTS[rnn.cell] * rnn.hidden_size // _COLUMNS)
    return Launch(text, "rnn_bias", (blocks, 1, 1), _BIAS_THREADS, parameters.pack())


def _rnn(task: Task) -> RnnSpec:
    op = task.op.main
    assert isinstance(op, RnnBackwardWeights)
    return op.rnn


def _cost(task: Task, operand: DataType, copies: int) -> Cost:
    """``copies``: bytes moved for each rounded gradient, besides the product that reads it."""
    rnn = _rnn(task)
    moved = float(rnn.gradient_count * copies)
    seconds = flops(task.op.main) / (task.device.rate(operand) * _SHARE)
    return device_cost(task, seconds, moved, launches=1 + (4 + bool(copies)) * rnn.pseudo_layers)


ENGINE = cuda_engine(
    id=72,
    name="cuda_rnn_backward_weights",
    summary="gradients of packed weights of recurrent networks, a product over all rows for each matrix",
    needs=rnn_needs("cuda_rnn_backward_weights", RnnBackwardWeights.tag),
    cost=lambda task, knobs: _cost(task, task.op.main.compute_type, 0),
    generate=lambda op, device, knobs: generate(op, device),
    is_general=True,
)
NARROW = cuda_engine(
    id=75,
    name="cuda_rnn_backward_weights_16bit",
    summary="gradients of packed weights from gate gradients rounded to 16 bits, on tensor cores",
    needs=half_needs("cuda_rnn_backward_weights_16bit", RnnBackwardWeights.tag, ("x", "y")),
    cost=lambda task, knobs: _cost(task, DataType.HALF, 4),
    generate=lambda op, device, knobs: generate(op, device, op.main.inputs()["x"].data_type),
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    error_growth=_GROWTH,
)
