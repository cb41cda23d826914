"""LaunchSequence: the launches of one fused operation, and their workspace.

Most fused operations are one launch. This module adds further launches in the same way for every engine: copies of
operands whose layout kernels cannot address, and the final reduction over the finished values. Finished values that the
graph does not store are kept in the workspace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import BOOLEANS, FLOATS
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Function, Launch, LibraryCall, early
from graphdnn.engines.cuda.codegen.parameters import Slot
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.data_movement.data_movement import generate as generate_movement
from graphdnn.engines.cuda.pointwise.pointwise import generate_pointwise
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.fusion.templates import RULE_OF
from graphdnn.operations import Operation, PointwiseOperation, PointwiseSpec, Transpose
from graphdnn.tensors import TensorSpec, packed_strides

ALIGNMENT = 256  # bytes, of tensors in the workspace
Step = Launch | LibraryCall


class LaunchSequence:
    """Collects the launches of a fused operation in order."""

    def __init__(self, op: FusedOp, device: DeviceSpec) -> None:
        self.op, self.device = op, device
        self.workspace_offsets: dict[int, int] = {}  # bytes, by uid
        self._steps: list[Step] = []
        self._bytes = 0
        self._final_reduction_inputs: list[TensorSpec] = []
        if op.exit is not None:
            read = {t.uid for t in op.exit.inputs().values()}  # two ports may read one tensor
            self._final_reduction_inputs = [t for t in op.internal if t.uid in read]
        for spec in self._final_reduction_inputs:
            self.workspace_offsets[spec.uid] = self.allocate(spec.bytes)

    def allocate(self, size: int) -> int:
        """Reserve bytes of workspace and return their offset."""
        offset = self._bytes
        self._bytes += -(-size // ALIGNMENT) * ALIGNMENT
        return offset

    def new_uid(self) -> int:
        """A uid that no tensor of this operation has."""
        tensors = (*self.op.inputs, *self.op.outputs, *self.op.internal)
        return min((*self.workspace_offsets, *(t.uid for t in tensors))) - 1

    def add(self, step: Step) -> None:
        """Append a launch or a library call."""
        self._steps.append(step)

    def add_early(self, launch: Launch) -> None:
        """Append a programmatic dependent launch, whose kernel calls ``pdl_wait``."""
        self.add(early(launch, self.device))

    def include(self, kernel: DeviceKernel, of: FusedOp | None = None) -> None:
        """Append the launches of another kernel, and relocate its workspace into this workspace.

        ``of``: the fused operation of the kernel, if its text has other operation numbers than this fused operation.
        """
        base = self.allocate(kernel.workspace_bytes)
        relocated = (_relocated(step, self.workspace_offsets, base) for step in kernel.steps)
        self._steps.extend(relocated if of is None else (_with_operations(step, of) for step in relocated))

    def relayout(self, spec: TensorSpec, strides: tuple[int, ...] | None = None) -> TensorSpec:
        """Add a launch that copies an operand to the workspace, packed, with at least a byte for each element.

        ``strides``: the strides of the copy, which has no gaps; row-major unless given.
        """
        data_type = DataType.BYTE_BOOLEAN if spec.data_type is DataType.BOOLEAN else spec.data_type
        copy = spec.model_copy(
            update={
                "uid": self.new_uid(),
                "dims": spec.extents,
                "strides": strides or packed_strides(spec.extents),
                "data_type": data_type,
                "vector_count": 1,
                "vectorized_dimension": -1,
                "byte_alignment": 16,
                "is_virtual": False,
            }
        )
        self.add_copy(spec, copy)
        return copy

    def add_copy(self, spec: TensorSpec, copy: TensorSpec) -> None:
        """Allocate ``copy`` in the workspace, and add a launch that copies ``spec`` to it in its layout and type."""
        self.workspace_offsets[copy.uid] = self.allocate(copy.bytes)
        self.copy_into(spec, copy)

    def copy_into(self, spec: TensorSpec, to: TensorSpec) -> None:
        """Add a launch that copies ``spec`` to ``to``, which has memory already."""
        copy_op = _copy_operation(spec, to)
        self.include(_copy_kernel(copy_op, self.device), copy_op)

    # The epilogue of a kernel.

    def epilogue_tensors(self) -> list[TensorSpec]:
        """Every tensor that the epilogue reads or writes in memory."""
        op, outputs = self.op, {t.uid for t in self.op.outputs}
        computed = op.uses.made
        read = [t for step in op.epilogue for t in step.inputs().values() if t.uid not in computed]
        written = [t for step in self._tail for t in step.outputs().values() if t.uid in outputs]
        return [*read, *written, *self._final_reduction_inputs]

    @property
    def _tail(self) -> tuple[Operation, ...]:
        anchor = () if self.op.anchor is None else (self.op.anchor,)
        return (*anchor, *self.op.epilogue)

    def write_epilogue(self, program: Program, accumulator: str, ctype: str) -> None:
        """Generate the epilogue: alpha and beta, the operations after the anchor, and the stores.

        ``accumulator``: the name of the array of accumulators. ``ctype``: its element type.
        """
        anchor = self.op.anchor
        assert anchor is not None
        program.define_anchor(anchor, next(iter(anchor.outputs().values())), accumulator, ctype)
        program.apply(self.op.epilogue)
        program.store_outputs(self._tail)
        for spec in self._final_reduction_inputs:
            program.store(spec)

    def kernel(self, name: str) -> DeviceKernel:
        """The kernel with all launches so far, and the launches of the final reduction."""
        op = self.op
        if op.exit is not None:
            from graphdnn.engines.cuda.codegen.final_reduction import generate_exit  # which imports this module

            reduction_op = _reduction_operation(op, op.exit)
            self.include(generate_exit(reduction_op, self.device), reduction_op)
        return DeviceKernel(name, tuple(self._steps), self._bytes)


def _copy_kernel(copy_op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    generate = generate_pointwise if copy_op.anchor is None else generate_movement
    return generate(copy_op, device)


def _copy_operation(source: TensorSpec, target: TensorSpec) -> FusedOp:
    """The fused operation that copies ``source`` to ``target``. Equal types are a transposition, which keeps all bits;
    other types are a pointwise IDENTITY, as for booleans that become bytes.
    """
    kind = source.data_type
    if kind is target.data_type:
        move = Transpose(x=source, y=target, permutation=tuple(range(len(target.dims))))
        return FusedOp(0, "movement", move, (), (), None, (source,), (target,), ())
    math = (
        DataType.BOOLEAN if kind in BOOLEANS
        else DataType.INT64 if kind not in FLOATS
        else DataType.DOUBLE if kind is DataType.DOUBLE
        else DataType.FLOAT
    )  # fmt: skip
    step = PointwiseOperation(spec=PointwiseSpec(mode=PointwiseMode.IDENTITY, math_type=math), x=source, y=target)
    return FusedOp(0, "pointwise", None, (), (step,), None, (source,), (target,), ())


def _reduction_operation(op: FusedOp, step: Operation) -> FusedOp:
    """A fused operation that consists of the final reduction."""
    inputs, outputs = tuple(step.inputs().values()), tuple(step.outputs().values())
    return FusedOp(op.index, RULE_OF[type(step)].id, step, (), (), None, inputs, outputs, ())


def _with_operations(step: Step, of: FusedOp) -> Step:
    """The launch with the operations of ``of``, whose numbers its text has."""
    if not isinstance(step, Launch) or step.operations:
        return step
    return replace(step, operations=of.operations)


def _relocated(step: Step, workspace_offsets: Mapping[int, int], base: int) -> Step:
    """The step with its workspace at offset ``base``, and with tensors at ``workspace_offsets``."""
    if isinstance(step, Launch):
        slots = tuple(_relocated_slot(slot, workspace_offsets, base) for slot in step.params.slots)
        return replace(step, params=replace(step.params, slots=slots))
    prepare = step.prepare

    def prepare_relocated() -> Function:
        function = prepare()

        def call(addresses: Mapping[int, int], scratch: int, stream: int) -> None:
            in_workspace = {uid: scratch + offset for uid, offset in workspace_offsets.items()}
            function({**addresses, **in_workspace}, scratch + base, stream)

        return call

    return LibraryCall(step.name, prepare_relocated)


def _relocated_slot(slot: Slot, workspace_offsets: Mapping[int, int], base: int) -> Slot:
    if slot.uid is None:
        return replace(slot, offset=slot.offset + base)
    offset = workspace_offsets.get(slot.uid)
    return slot if offset is None else replace(slot, uid=None, offset=offset)


def fused_inputs(steps: Sequence[Operation]) -> list[TensorSpec]:
    """The tensors that a chain of operations reads and does not compute."""
    computed = {t.uid for step in steps for t in step.outputs().values()}
    return list({t.uid: t for step in steps for t in step.inputs().values() if t.uid not in computed}.values())
