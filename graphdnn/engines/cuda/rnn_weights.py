"""Engine ``cuda_rnn_backward_weights``: the gradient of the packed weights, a product over all rows for each matrix."""

from __future__ import annotations

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.cost import memory_cost
from graphdnn.engines.cuda.engine import cuda_engine
from graphdnn.engines.cuda.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.rnn_needs import rnn_needs
from graphdnn.engines.cuda.rnn_network import Network, Values, rows_of
from graphdnn.engines.cuda.rnn_products import Products
from graphdnn.engines.cuda.source import kernel_text
from graphdnn.engines.cuda.steps import Steps
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import Cell, RnnBackwardWeights
from graphdnn.operations.rnn_spec import KEPT_GRADIENTS

_THREADS = 256
_COLUMNS = 32  # biases of a block
_BLOCKS_PER_SM = 8


def generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, RnnBackwardWeights)
    rnn, steps = anchor.rnn, Steps(op, device)
    network, products = Network(anchor, steps, 0), Products(steps, rnn.arithmetic)
    masks = network.plain_masks(anchor.masks)
    before = network.scratch(rnn.arithmetic, rnn.hidden_size)
    thin = network.scratch(rnn.arithmetic, rnn.width) if masks is not None else None
    values = rows_of(anchor.x)
    for layer in range(rnn.layers):
        if layer and thin is not None:
            network.join(values, thin, rnn.width, masks=masks, layer=layer)
            values = thin
        outputs = _outputs(network, anchor, layer)
        for direction in range(rnn.directions):
            pseudo = layer * rnn.directions + direction
            steps.add(_before(network, anchor, outputs, before, pseudo))
            steps.add(_biases(network, anchor, pseudo))
            _products(network, products, anchor, values, before, pseudo)
        values = outputs
    return steps.kernel(f"rnn_bwd_weights__{rnn.cell.name.lower()}")


def _outputs(network: Network, op: RnnBackwardWeights, layer: int) -> Values:
    return rows_of(op.y) if layer == op.rnn.layers - 1 or op.kept is None else network.kept_outputs(op.kept, layer)


def _found(op: RnnBackwardWeights, pseudo: int, value: int) -> Values:
    """Gradients of what enters the gates from one of their values on: [rows, values * hidden]."""
    assert op.kept_gradients is not None
    width, step = KEPT_GRADIENTS[op.rnn.cell] * op.rnn.hidden_size, op.kept_gradients.strides[0]
    start = (pseudo * op.rnn.rows * width + value * op.rnn.hidden_size) * step
    return Values(op.kept_gradients, op.rnn.arithmetic, start, width * step, step)


def _products(
    network: Network, products: Products, op: RnnBackwardWeights, values: Values, before: Values, pseudo: int
) -> None:
    """Both gradients of matrices; the last gate of a GRU has another one for the state."""
    rnn, steps, layer = op.rnn, network.steps, pseudo // op.rnn.directions
    size = rnn.gates * rnn.hidden_size
    if rnn.has_input_matrices(layer):
        entered = _found(op, pseudo, 0).matrix(steps, rnn.rows, size)
        products.add(
            entered.transposed, values.matrix(steps, rnn.rows, rnn.fan_in(layer)), network.input_matrix(op.dw, pseudo)
        )
    state, matrix = before.matrix(steps, rnn.rows, rnn.hidden_size), network.state_matrix(op.dw, pseudo)
    parts = [(0, 0, 2), (2, 3, 1)] if rnn.cell is Cell.GRU else [(0, 0, rnn.gates)]
    for gate, value, count in parts:
        entered = _found(op, pseudo, value).matrix(steps, rnn.rows, count * rnn.hidden_size)
        products.add(entered.transposed, state, matrix.part(gate * rnn.hidden_size, count * rnn.hidden_size))


def _before(network: Network, op: RnnBackwardWeights, outputs: Values, to: Values, pseudo: int) -> Launch:
    """The state that each step began with."""
    rnn, direction = op.rnn, pseudo % op.rnn.directions
    parameters = Parameters(network.steps.places)
    network.counting(parameters)
    outputs.parameter(parameters, "out")
    network.optional(parameters, "hx", op.hx)
    parameters.integer("pseudo", pseudo)
    parameters.integer("back", direction)
    parameters.integer("first", direction * rnn.hidden_size)
    parameters.scratch("to", STORAGE[to.data_type], to.start)
    text = kernel_text(
        "rnn_before",
        ["rnn_rows.cuh", "rnn_before.cu"],
        parameters=parameters.text,
        functions=[],
        constants={"THREADS": _THREADS, "Compute": network.wide, "To": STORAGE[to.data_type]},
    )
    blocks = min(len(rnn.batch_sizes), _BLOCKS_PER_SM * network.device.sm_count)
    return Launch(text, "rnn_before", (blocks, 1, 1), _THREADS, parameters.pack())


def _biases(network: Network, op: RnnBackwardWeights, pseudo: int) -> Launch:
    rnn, found = op.rnn, _found(op, pseudo, 0)
    assert op.kept_gradients is not None
    parameters = Parameters(network.steps.places)
    parameters.integer("hidden", rnn.hidden_size)
    parameters.integer("rows", rnn.rows)
    parameters.tensor("found", op.kept_gradients)
    parameters.integer("found_at", found.start)
    parameters.integer("found_step", found.column)
    parameters.tensor("dw", op.dw, is_output=True)
    parameters.integer("dw_step", op.dw.strides[0])
    parameters.integer("bias_at", rnn.bias(pseudo, 0).offset)
    text = kernel_text(
        f"rnn_bias__{rnn.cell.name.lower()}",
        ["rnn_bias.cu"],
        parameters=parameters.text,
        functions=["enum { RELU, TANH, LSTM, GRU };\n"],
        constants={
            **{name: value for name, value in network.constants().items() if name != "KEPT"},
            "THREADS": _THREADS,
            "COLUMNS": _COLUMNS,
            "Weight": STORAGE[op.dw.data_type],
        },
    )
    blocks = -(-2 * rnn.gates * rnn.hidden_size // _COLUMNS)
    return Launch(text, "rnn_bias", (blocks, 1, 1), _THREADS, parameters.pack())


ENGINE = cuda_engine(
    id=72,
    name="cuda_rnn_backward_weights",
    summary="gradients of packed weights of recurrent networks, a product over all rows for each matrix",
    needs=rnn_needs("cuda_rnn_backward_weights", RnnBackwardWeights.tag),
    cost=lambda task, knobs: memory_cost(task, launches=4 * task.op.main.rnn.pseudo_layers),  # type: ignore[attr-defined]
    generate=lambda op, device, knobs: generate(op, device),
    is_general=True,
)
