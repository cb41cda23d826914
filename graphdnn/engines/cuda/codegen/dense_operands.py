"""Launches around a library call: copies of operands to a dense layout before it, and the epilogue after it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import with_launches
from graphdnn.engines.cuda.codegen.index_space import collapsed, is_addressable, whole
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence, fused_inputs
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program, gen_index_axes
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.cuda.pointwise.pointwise import Written, element_launch, generate_pointwise
from graphdnn.engines.engine import Cost, Task
from graphdnn.engines.operation_cost import flops
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation, Operation
from graphdnn.tensors import TensorSpec, ordered_strides, packed_strides, stride_order


def materialize(steps: LaunchSequence, spec: TensorSpec) -> TensorSpec:
    """The operand in memory: the tensor itself, the result of its prologue, or a copy if its layout is not addressable.

    Adds the launch that computes the prologue or the copy.
    """
    if spec.uid in steps.workspace_offsets:
        return spec
    chain = steps.op.leading_to(spec)
    if chain:
        largest = max((t for t in fused_inputs(chain) if not t.is_by_value), key=lambda t: prod(t.extents))
        order = stride_order(largest.dims, largest.strides) if largest.extents == spec.extents else range(spec.rank)
        made = dense_tensor(spec, ordered_strides(spec.extents, tuple(order)))
        alone = FusedOp(
            steps.op.index, "pointwise", None, (), tuple(storing_operations(chain, made)), None,
            tuple(fused_inputs(chain)), (made,), (),
        )  # fmt: skip
        steps.workspace_offsets[spec.uid] = steps.allocate(made.bytes)
        steps.include(generate_pointwise(alone, steps.device), alone)
        return made
    return spec if is_addressable(spec) else steps.relayout(spec)


def storing_operations(chain: Sequence[Operation], made: TensorSpec) -> list[Operation]:
    """The operations of a prologue whose result, a virtual tensor, is replaced by the stored tensor ``made``."""
    last = chain[-1]
    (port,) = (name for name, t in last.outputs().items() if t.uid == made.uid)
    return [*chain[:-1], last.model_copy(update={port: made})]


def dense_tensor(spec: TensorSpec, strides: Sequence[int] | None = None, **changes: object) -> TensorSpec:
    """A stored tensor with the extents of ``spec``, row-major unless ``strides`` are given.

    ``changes``: further fields, such as ``uid`` and ``data_type``.
    """
    return spec.model_copy(
        update={
            "dims": spec.extents,
            "strides": packed_strides(spec.extents) if strides is None else tuple(strides),
            "vector_count": 1,
            "vectorized_dimension": -1,
            "byte_alignment": 16,
            "is_virtual": False,
            **changes,
        }
    )


def with_prologue_launches(cost: Cost, task: Task) -> Cost:
    """The cost with the launches that compute the prologues of operands."""
    op = task.op
    chains = {t.uid: (t, chain) for t in op.main.inputs().values() if (chain := op.leading_to(t))}
    if not chains:
        return cost
    traffic = sum(made.bytes + sum(t.bytes for t in fused_inputs(chain)) for made, chain in chains.values())
    return with_launches(cost, task.device, "prologue", float(traffic), len(chains))


def can_library_store(steps: LaunchSequence, spec: TensorSpec) -> bool:
    """Whether the library may write the anchor's output itself: there is no epilogue, and the output is in memory."""
    op = steps.op
    is_stored = spec.uid in steps.workspace_offsets or any(t.uid == spec.uid for t in op.outputs)
    return is_stored and not op.epilogue and not _blends(op) and is_addressable(spec)


def result_type(spec: TensorSpec, op: FusedOp, supported: Sequence[DataType]) -> DataType:
    """The type that the library writes: the anchor's output type if it is supported, otherwise the first type."""
    return spec.data_type if spec.data_type in supported and not _blends(op) else supported[0]


def _blends(op: FusedOp) -> bool:
    """Whether the anchor has an alpha other than 1 or a beta other than 0."""
    anchor = op.anchor
    return isinstance(anchor, ConvolutionOperation) and (anchor.alpha != 1.0 or anchor.beta != 0.0)


def add_epilogue_launch(steps: LaunchSequence, result: TensorSpec, entering: TensorSpec, arithmetic: DataType) -> None:
    """Add the launch after the library call, which applies alpha, beta and the epilogue and stores the outputs.

    Args:
        steps: The launches of the fused operation.
        result: The result of the library call, in the workspace.
        entering: The anchor's result in the graph.
        arithmetic: The compute type.
    """
    op = steps.op
    tensors = [result, *steps.epilogue_tensors()]
    if getattr(op.anchor, "beta", 0.0):
        tensors.append(entering)
    stored = [t for t in tensors if not (t.is_by_value or t.is_constant)]
    main = next((t for t in op.outputs if t.extents == entering.extents), entering)
    space = collapsed(whole(entering.extents), main, stored, gen_index_axes(op.epilogue))
    width = width_for(space, stored)
    parameters = Parameters(steps.workspace_offsets)
    program = Program(op, parameters, space, "t", width=width, linear_index="linear")
    compute = COMPUTE_TYPE[arithmetic]
    steps.write_epilogue(program, program.widen_array(result, compute), compute)
    name = f"finish__v{width}r{space.rank}__{op.name}"
    steps.add(element_launch(name, Written.of(program, parameters), space.sizes, width))


def epilogue_phase(op: FusedOp, device: DeviceSpec, result: int) -> tuple[float, float]:
    """Seconds of arithmetic and bytes of the launch after the library call, which reads ``result`` bytes."""
    front_only = op.uses.front_only
    traffic = sum(t.bytes for t in (*op.inputs, *op.outputs) if t.uid not in front_only)
    work = sum(flops(step) for step in op.epilogue)
    return 2.0 * work / device.rate(DataType.FLOAT), float(result + traffic)
