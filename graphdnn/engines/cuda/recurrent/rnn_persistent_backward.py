"""Engine ``cuda_rnn_persistent_backward_data``: gradients of recurrent networks of 16-bit data on tensor cores.

Work is divided as in ``cuda_rnn_persistent``. CTAs exchange gate gradients in 16 bits, and the layer below reads the
rounded values; ``kept_gradients`` has the values before that rounding.
"""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import STORAGE
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.recurrent.rnn_backward import add_entering
from graphdnn.engines.cuda.recurrent.rnn_matmuls import Products
from graphdnn.engines.cuda.recurrent.rnn_network import Network, Values, rows_of
from graphdnn.engines.cuda.recurrent.rnn_operands import gradients, storage
from graphdnn.engines.cuda.recurrent.rnn_persistent import (
    GROWTH,
    THREADS,
    Shape,
    fill,
    fitting,
    persistent_needs,
)
from graphdnn.engines.cuda.recurrent.rnn_requirements import waiting_cost
from graphdnn.enums import DataType, NumericalNote
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Cell, RnnBackwardData
from graphdnn.operations.rnn_spec import GATE_GRADIENTS, RnnSpec

_ID = "cuda_rnn_persistent_backward_data"
_STEP = 3.4e-6  # seconds, as measured on an H200


def shapes(rnn: RnnSpec) -> list[Shape]:
    """The divisions of a layer whose operands fit into registers."""
    return fitting(rnn, columns=1, values=rnn.gates, pair=48)


def generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, RnnBackwardData)
    rnn, steps = anchor.rnn, LaunchSequence(op, device)
    network, products = Network(anchor, steps, 0), Products(steps, rnn.arithmetic)
    masks = network.plain_masks(anchor.masks)
    width = GATE_GRADIENTS[rnn.cell] * rnn.hidden_size
    row_bytes = 2 * rnn.directions * width
    shared = steps.allocate((1 + rnn.rows) * row_bytes)  # with a row of zeros
    handed = Values(None, anchor.y.data_type, shared + row_bytes, rnn.directions * width)
    parts = network.scratch(rnn.arithmetic, max(rnn.input_size, rnn.width), rnn.directions)
    below = network.scratch(rnn.arithmetic, rnn.width)
    leaving = rows_of(anchor.dy)
    for layer in reversed(range(rnn.layers)):
        steps.add(fill(network, handed.data_type, shared, layers=1, width=width, first=1, hx=None))
        steps.add(_layer(network, anchor, layer, leaving, shared))
        target = below if layer else rows_of(anchor.dx)
        first = rnn.hidden_size if rnn.cell is Cell.GRU else 0  # offset of the input's part
        gate_gradients = [handed.beginning(first + direction * width) for direction in range(rnn.directions)]
        add_entering(network, products, anchor, layer, gate_gradients, parts, target, masks if layer else None)
        leaving = below
    return steps.kernel(f"rnn_resident_bwd_data__{rnn.cell.name.lower()}")


def _layer(network: Network, op: RnnBackwardData, layer: int, leaving: Values, shared: int) -> Launch:
    rnn = op.rnn
    shape = next(s for s in shapes(rnn) if s.fits(network.device))
    state = STORAGE[op.y.data_type]
    parameters = network.layer(op.w, layer, 0)
    parameters.integer("directions", rnn.directions)
    parameters.workspace_pointer("shared", state, shared)
    gradients(network, parameters, op, layer, leaving)
    text = kernel_text(
        f"rnn_resident_backward__{rnn.cell.name.lower()}_{shape.text()}",
        ["rnn_persistent_backward.cu"],
        parameters=parameters.text,
        functions=["#define FAST\n"],
        constants={
            **network.constants(),
            **shape.constants(rnn, op.tensors()),
            "AT_ONCE": shape.at_once,
            "WARP_UNITS": shape.blocks_of_k,
            "State": state,
            "StateOut": storage(op.dhx),
            "CellOut": storage(op.dcx),
        },
    )
    return Launch(
        text, "rnn_persistent_backward", shape.blocks, THREADS, parameters.pack(), shape.shared, is_cooperative=True
    )


ENGINE = cuda_engine(
    id=74,
    name=_ID,
    summary="gradients of recurrent networks of 16-bit data on tensor cores, which CTAs exchange in 16 bits",
    needs=persistent_needs(_ID, RnnBackwardData.tag, ("w", "y"), shapes, "gradients"),
    cost=lambda task, knobs: waiting_cost(task, _STEP, DataType.HALF),
    generate=lambda op, device, knobs: generate(op, device),
    numerical_notes=(NumericalNote.TENSOR_CORE,),
    error_growth=GROWTH,
)
