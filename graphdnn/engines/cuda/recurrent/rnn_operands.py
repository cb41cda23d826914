"""Operands of the kernels that loop over the time steps of a layer, as their parameters."""

from __future__ import annotations

from graphdnn.engines.cuda.codegen.parameters import STORAGE, Parameters
from graphdnn.engines.cuda.recurrent.rnn_matmuls import Products
from graphdnn.engines.cuda.recurrent.rnn_network import Network, Values, rows_of
from graphdnn.enums import DataType
from graphdnn.operations import RnnBackwardData, RnnBackwardWeights, RnnForward
from graphdnn.operations.rnn_spec import GATE_GRADIENTS
from graphdnn.tensors import TensorSpec


def enter(
    network: Network, products: Products, op: RnnForward, layer: int, values: Values, entering: Values,
    masks: TensorSpec | None, thin: DataType,
) -> Values:  # fmt: skip
    """Computes a layer's input. Dropout masks are applied in ``thin``, and the product with the input matrices is
    stored in ``entering``.
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
    """Adds the input itself if a layer has no input matrices, and the product otherwise."""
    if network.rnn.has_input_matrices(layer):
        parameters.null_pointer("x", network.wide)
        parameters.integers("x_stride", (0, 0))
        parameters.workspace_pointer("entering", network.wide, entering.start)
    else:
        values.parameter(parameters, "x")
        parameters.null_pointer("entering", network.wide)


def states(network: Network, parameters: Parameters, op: RnnForward) -> None:
    """Adds initial and final states, and the reserve space."""
    for name, spec in (("hx", op.hx), ("cx", op.cx)):
        network.optional(parameters, name, spec)
    for name, spec in (("hy", op.hy), ("cy", op.cy)):
        network.optional(parameters, name, spec, is_output=True)
    if op.kept is None:
        parameters.null_pointer("reserve", network.wide)
    else:
        parameters.tensor("reserve", op.kept, is_output=True)
    parameters.integer("reserve_step", 0 if op.kept is None else op.kept.strides[0])


def gradients(network: Network, parameters: Parameters, op: RnnBackwardData, layer: int, leaving: Values) -> None:
    """Adds the gradients of a layer's outputs, its reserve values, and the target of its gate gradients."""
    leaving.parameter(parameters, "leaving")
    outputs_of(network, op, layer).parameter(parameters, "out")
    for name, spec in (("hx", op.hx), ("cx", op.cx), ("dhy", op.dhy), ("dcy", op.dcy)):
        network.optional(parameters, name, spec)
    for name, spec in (("dhx", op.dhx), ("dcx", op.dcx)):
        network.optional(parameters, name, spec, is_output=True)
    if op.kept is None:
        parameters.null_pointer("reserve", f"const {network.wide}")
    else:
        parameters.tensor("reserve", op.kept)
    parameters.integer("reserve_step", 0 if op.kept is None else op.kept.strides[0])
    parameters.tensor("dgates", op.kept_gradients, is_output=True)
    parameters.integer("dgates_step", op.kept_gradients.strides[0])


def outputs_of(network: Network, op: RnnBackwardData | RnnBackwardWeights, layer: int) -> Values:
    """The outputs of a layer in the forward pass."""
    return rows_of(op.y) if layer == op.rnn.layers - 1 or op.kept is None else network.reserve_outputs(op.kept, layer)


def gate_gradients_of(op: RnnBackwardData | RnnBackwardWeights, pseudo: int) -> Values:
    """The gradients of the gate inputs: [rows, values * hidden]."""
    rnn, kept = op.rnn, op.kept_gradients
    assert kept is not None
    width, step = GATE_GRADIENTS[rnn.cell] * rnn.hidden_size, kept.strides[0]
    return Values(kept, rnn.arithmetic, pseudo * rnn.rows * width * step, width * step, step)


def storage(spec: TensorSpec | None) -> str:
    """The storage type of an optional state."""
    return STORAGE[DataType.FLOAT if spec is None else spec.data_type]
