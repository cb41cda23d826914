"""Engine ``cuda_ctc_loss``: the CTC loss and its gradients, a block for each sequence."""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import COMPUTE
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.extensions.extension_requirements import extension_needs
from graphdnn.engines.engine import Cost, Task
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import CtcLoss

_MOST_THREADS, _LEAST_THREADS = 512, 64
_SHARED = 48 * 1024  # bytes for the rows of a CTA
_ROWS, _NUMBERS = 3, 2  # of a CTA, side by side: probabilities and integers
_BLOCKS_PER_SM = 16
_STEP = 1.5e-6  # seconds of a step of one sequence, forward and backward
_PORTS = ("probs", "labels", "label_lengths", "input_lengths", "costs", "gradients")


def generate(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, CtcLoss)
    steps = LaunchSequence(op, device)
    length, batch, classes = anchor.probs.extents
    longest = anchor.labels.extents[1]
    places, size = 2 * longest + 1, COMPUTE[anchor.arithmetic].itemsize
    row_bytes = -(-places * (_ROWS * size + _NUMBERS * 4) // 16) * 16
    compute = COMPUTE_TYPE[anchor.arithmetic]
    parameters = Parameters(steps.workspace_offsets)
    for name in _PORTS:
        spec = getattr(anchor, name)
        if spec is None:
            parameters.null_pointer(name, STORAGE[DataType.FLOAT])
        else:
            parameters.tensor(name, spec, is_output=name in ("costs", "gradients"))
        parameters.integers(f"{name}_stride", (0, 0, 0) if spec is None else spec.strides)
    for field, value in (
        ("steps", length), ("batch", batch), ("classes", classes), ("longest", longest), ("places", places),
        ("row_bytes", row_bytes),
    ):  # fmt: skip
        parameters.integer(field, value)
    parameters.workspace_pointer("read", compute, steps.allocate(length * batch * places * size))
    parameters.workspace_pointer("totals", compute, steps.allocate(batch * size))
    shared = row_bytes if row_bytes <= _SHARED else 0
    if shared:
        parameters.null_pointer("rows", "unsigned char")
    else:
        parameters.workspace_pointer("rows", "unsigned char", steps.allocate(batch * row_bytes))
    threads = min(_MOST_THREADS, max(_LEAST_THREADS, -(-places // 32) * 32))
    text = kernel_text(
        "ctc",
        ["ctc.cu"],
        parameters=parameters.text,
        functions=[],
        constants={
            "THREADS": threads,
            "Compute": compute,
            "Cost": STORAGE[anchor.costs.data_type],
            "Gradient": STORAGE[DataType.FLOAT if anchor.gradients is None else anchor.gradients.data_type],
        },
    )
    packed = parameters.pack()
    steps.add(Launch(text, "ctc_read", (batch, 1, 1), threads, packed, shared))
    if anchor.gradients is not None:
        blocks = min(-(-length * batch * classes // threads), _BLOCKS_PER_SM * device.sm_count)
        steps.add(Launch(text, "ctc_fill", (blocks, 1, 1), threads, packed))
        steps.add(Launch(text, "ctc_gradient", (batch, 1, 1), threads, packed, shared))
    return steps.kernel("ctc_loss")


def _cost(task: Task) -> Cost:
    op = task.op.main
    assert isinstance(op, CtcLoss)
    length, batch, _ = op.probs.extents
    waves = -(-batch // task.device.sm_count)
    return memory_cost(task, launches=3).plus({"steps": length * waves * _STEP})


ENGINE = cuda_engine(
    id=76,
    name="cuda_ctc_loss",
    summary="the CTC loss and its gradients, a block for each sequence; sums in one order",
    needs=extension_needs("cuda_ctc_loss", CtcLoss.tag),
    cost=lambda task, knobs: _cost(task),
    generate=lambda op, device, knobs: generate(op, device),
    is_general=True,
)
