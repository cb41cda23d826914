"""What the kernels that go through the steps of a layer read and write, as fields of their struct."""

from __future__ import annotations

from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.recurrent.rnn_matmuls import Products
from graphdnn.engines.cuda.recurrent.rnn_network import Network, Values, rows_of
from graphdnn.enums import DataType
from graphdnn.operations import RnnBackwardData, RnnBackwardWeights, RnnForward
from graphdnn.operations.rnn_spec import KEPT_GRADIENTS
from graphdnn.tensors import TensorSpec


def enter(
    network: Network, products: Products, op: RnnForward, layer: int, values: Values, entering: Values,
    masks: TensorSpec | None, thin: DataType,
) -> Values:  # fmt: skip
    """What a layer reads, thinned out as ``thin`` where there are masks; its product with the input's matrices is in
    ``entering`` then.
    """
    rnn, steps = op.rnn, network.steps
    if layer and masks is not None:
        fewer = network.scratch(thin, rnn.width)
        network.join(values, fewer, rnn.width, masks=masks, layer=layer)
        values = fewer
    if rnn.has_input_matrices(layer):
        source = values.matrix(steps, rnn.rows, rnn.fan_in(layer))
        result = entering.matrix(steps, rnn.directions * rnn.rows, rnn.gates * rnn.hidden_size)
        for direction in range(rnn.directions):
            matrix = network.input_matrix(op.w, layer * rnn.directions + direction)
            products.add(source, matrix.transposed, result.part(direction * rnn.rows, rnn.rows))
    return values


def entered(network: Network, parameters: Parameters, layer: int, values: Values, entering: Values) -> None:
    """The input itself where a layer has no matrices for it, else their product."""
    if network.rnn.has_input_matrices(layer):
        parameters.nothing("x", network.wide)
        parameters.integers("x_stride", (0, 0))
        parameters.scratch("entering", network.wide, entering.start)
    else:
        values.parameter(parameters, "x")
        parameters.nothing("entering", network.wide)


def states(network: Network, parameters: Parameters, op: RnnForward) -> None:
    """First and last states, and what is kept for the gradients."""
    for name, spec in (("hx", op.hx), ("cx", op.cx)):
        network.optional(parameters, name, spec)
    for name, spec in (("hy", op.hy), ("cy", op.cy)):
        network.optional(parameters, name, spec, is_output=True)
    if op.kept is None:
        parameters.nothing("kept", network.wide)
    else:
        parameters.tensor("kept", op.kept, is_output=True)
    parameters.integer("kept_step", 0 if op.kept is None else op.kept.strides[0])


def gradients(network: Network, parameters: Parameters, op: RnnBackwardData, layer: int, leaving: Values) -> None:
    """Gradients of a layer's outputs, what was kept of them, and where the gradients of its gates go."""
    leaving.parameter(parameters, "leaving")
    outputs_of(network, op, layer).parameter(parameters, "out")
    for name, spec in (("hx", op.hx), ("cx", op.cx), ("dhy", op.dhy), ("dcy", op.dcy)):
        network.optional(parameters, name, spec)
    for name, spec in (("dhx", op.dhx), ("dcx", op.dcx)):
        network.optional(parameters, name, spec, is_output=True)
    if op.kept is None:
        parameters.nothing("kept", f"const {network.wide}")
    else:
        parameters.tensor("kept", op.kept)
    parameters.integer("kept_step", 0 if op.kept is None else op.kept.strides[0])
    parameters.tensor("found", op.kept_gradients, is_output=True)
    parameters.integer("found_step", op.kept_gradients.strides[0])


def outputs_of(network: Network, op: RnnBackwardData | RnnBackwardWeights, layer: int) -> Values:
    """Of a layer, as the forward pass left them."""
    return rows_of(op.y) if layer == op.rnn.layers - 1 or op.kept is None else network.kept_outputs(op.kept, layer)


def found_of(op: RnnBackwardData | RnnBackwardWeights, pseudo: int) -> Values:
    """Gradients of what enters the gates: [rows, values * hidden]."""
    rnn, kept = op.rnn, op.kept_gradients
    assert kept is not None
    width, step = KEPT_GRADIENTS[rnn.cell] * rnn.hidden_size, kept.strides[0]
    return Values(kept, rnn.arithmetic, pseudo * rnn.rows * width * step, width * step, step)


def storage(spec: TensorSpec | None) -> str:
    """The type of a state that may not be there."""
    return STORAGE[DataType.FLOAT if spec is None else spec.data_type]
