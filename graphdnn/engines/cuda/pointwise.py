"""Engine ``cuda_pointwise``: a pointwise graph in one pass over memory."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.cost import memory_cost
from graphdnn.engines.cuda.engine import cuda_engine
from graphdnn.engines.cuda.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.parameters import Parameters
from graphdnn.engines.cuda.program import Program, asked_indices, width_for
from graphdnn.engines.cuda.source import kernel_text
from graphdnn.engines.cuda.space import collapsed, whole
from graphdnn.engines.engine import needs_rule
from graphdnn.fusion.fused import FusedOp
from graphdnn.tensors import TensorSpec

_THREADS = 256
_MOST_BLOCKS = 2**20  # beyond this many, a block takes several turns
_PAIRED = 8  # operations; the text of longer chains would grow more than the loads gain


def generate_pointwise(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    """A pointwise graph."""
    steps = op.epilogue

    def write(program: Program) -> None:
        program.apply(steps)
        program.store_outputs(steps)

    return elementwise(op, device, "pointwise", write, op.outputs[0], asked_indices(steps))


def elementwise(
    op: FusedOp,
    device: DeviceSpec,
    kind: str,
    write: Callable[[Program], None],
    main: TensorSpec,
    asked: frozenset[int],
    *,
    is_reversed: bool = False,
) -> DeviceKernel:
    """One launch over the extents of ``main``; as many neighbours per thread as 16-byte accesses hold.

    ``write`` says what happens to them; ``asked``: logical axes whose index it reads; ``is_reversed``: from the end.
    """
    tensors = [*op.inputs, *op.outputs]
    in_memory = [t for t in tensors if not (t.is_by_value or t.is_constant)]
    space = collapsed(whole(main.extents), main, in_memory, asked)
    width = width_for(space, tensors)
    parameters = Parameters()
    program = Program(op, parameters, space, "t", width=width, linear="linear")
    write(program)
    chain = program.function("chain", "long long linear")
    count = prod(space.sizes) // width
    parameters.integer("count", count)
    parameters.integers("size", space.sizes)
    pairs = len(op.operations) <= _PAIRED and count > _THREADS * device.sm_count
    name = f"{kind}__v{width}r{space.rank}__{op.name}"
    text = kernel_text(
        name,
        ["pointwise.cu"],
        parameters=parameters.text,
        functions=[chain],
        constants={
            "THREADS": _THREADS,
            "RANK": space.rank,
            "WIDTH": width,
            "PAIRS": pairs,
            "REVERSED": is_reversed,
            "Count": "unsigned int" if count < 2**31 else "unsigned long long",
        },
    )
    blocks = min(-(-count // (_THREADS * (2 if pairs else 1))), _MOST_BLOCKS)
    return DeviceKernel(name, (Launch(text, "pointwise", (blocks, 1, 1), _THREADS, parameters.pack()),))


ENGINE = cuda_engine(
    id=30,
    name="cuda_pointwise",
    summary="pointwise graphs in one pass over memory, 16 bytes per access where layouts allow",
    needs=(needs_rule("cuda_pointwise.operation", "pointwise"),),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate_pointwise(op, device),
    is_general=True,
)
