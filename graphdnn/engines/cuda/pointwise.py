"""Engine ``cuda_pointwise``: a pointwise graph in one pass over memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.cost import memory_cost
from graphdnn.engines.cuda.engine import cuda_engine
from graphdnn.engines.cuda.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.parameters import Parameters
from graphdnn.engines.cuda.program import Program, asked_indices, width_for
from graphdnn.engines.cuda.source import kernel_text
from graphdnn.engines.cuda.space import Space, collapsed, whole
from graphdnn.engines.engine import needs_rule
from graphdnn.fusion.fused import FusedOp
from graphdnn.tensors import TensorSpec

_THREADS = 256
_MOST_BLOCKS = 2**20  # beyond this many, a block takes several turns
LINEAR = "long long linear"  # what ``chain`` takes besides the coordinates: the place in tensors packed alike
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
    pairs = len(op.operations) <= _PAIRED and prod(space.sizes) // width > _THREADS * device.sm_count
    name = f"{kind}__v{width}r{space.rank}__{op.name}"
    functions = [program.function("chain", LINEAR)]
    launch = element_launch(name, functions, parameters, space, width, pairs=pairs, is_reversed=is_reversed)
    return DeviceKernel(name, (launch,))


def element_launch(
    name: str,
    functions: Sequence[str],
    parameters: Parameters,
    space: Space,
    width: int,
    *,
    threads: int = _THREADS,
    pairs: bool = False,
    is_reversed: bool = False,
) -> Launch:
    """The launch that calls the function ``chain`` for each pack of ``width`` neighbours in ``space``."""
    count = prod(space.sizes) // width
    parameters.integer("count", count)
    parameters.integers("size", space.sizes)
    text = kernel_text(
        name,
        ["pointwise.cu"],
        parameters=parameters.text,
        functions=functions,
        constants={
            "THREADS": threads,
            "RANK": space.rank,
            "WIDTH": width,
            "PAIRS": pairs,
            "REVERSED": is_reversed,
            "Count": "unsigned int" if count < 2**31 else "unsigned long long",
        },
    )
    blocks = min(-(-count // (threads * (2 if pairs else 1))), _MOST_BLOCKS)
    return Launch(text, "pointwise", (blocks, 1, 1), threads, parameters.pack())


ENGINE = cuda_engine(
    id=30,
    name="cuda_pointwise",
    summary="pointwise graphs in one pass over memory, 16 bytes per access where layouts allow",
    needs=(needs_rule("cuda_pointwise.operation", "pointwise"),),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate_pointwise(op, device),
    is_general=True,
)
