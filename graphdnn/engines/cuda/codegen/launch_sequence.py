"""LaunchSequence: the launches of one fused operation and the workspace that they share.

Most fused operations are one launch. This module adds further launches in the same way for every engine: it copies
operands whose layout kernels cannot address, and it runs the reduction at the exit on the finished values, which stay
in the workspace when the graph does not store them.
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

ALIGNMENT = 256
Step = Launch | LibraryCall


class LaunchSequence:
    """Collects the launches of a fused operation in order."""

    def __init__(self, op: FusedOp, device: DeviceSpec) -> None:
        self.op, self.device = op, device
        self.workspace_offsets: dict[int, int] = {}  # uid -> offset of tensors in scratch memory
        self._steps: list[Step] = []
        self._bytes = 0
        self._kept: list[TensorSpec] = []
        if op.exit is not None:
            read = {t.uid for t in op.exit.inputs().values()}  # by two ports, maybe
            self._kept = [t for t in op.internal if t.uid in read]
        for spec in self._kept:
            self.workspace_offsets[spec.uid] = self.allocate(spec.bytes)

    def allocate(self, size: int) -> int:
        """Reserve bytes of workspace and return their offset."""
        offset = self._bytes
        self._bytes += -(-size // ALIGNMENT) * ALIGNMENT
        return offset

    def new_uid(self) -> int:
        """A uid that no tensor of this operation has."""
        return (
            min((*self.workspace_offsets, *(t.uid for t in (*self.op.inputs, *self.op.outputs, *self.op.internal)))) - 1
        )

    def add(self, step: Step) -> None:
        self._steps.append(step)

    def add_early(self, launch: Launch) -> None:
        self.add(early(launch, self.device))

    def include(self, kernel: DeviceKernel, of: FusedOp | None = None) -> None:
        """Append the launches of another kernel, whose workspace and tensors in it move into this workspace.

        ``of``: what it was made for, where its text numbers other operations than the list of this fused operation.
        """
        base = self.allocate(kernel.scratch)
        moved = (_moved(step, self.workspace_offsets, base) for step in kernel.steps)
        self._steps.extend(moved if of is None else (_numbering(step, of) for step in moved))

    def relayout(self, spec: TensorSpec, strides: tuple[int, ...] | None = None) -> TensorSpec:
        """Add a launch that copies an operand to the workspace, packed, with at least a byte for each element.

        ``strides``: of the copy, without gaps; row-major unless given.
        """
        plain = DataType.BYTE_BOOLEAN if spec.data_type is DataType.BOOLEAN else spec.data_type
        copy = spec.model_copy(
            update={
                "uid": self.new_uid(),
                "dims": spec.extents,
                "strides": strides or packed_strides(spec.extents),
                "data_type": plain,
                "vector_count": 1,
                "vectorized_dimension": -1,
                "byte_alignment": 16,
                "is_virtual": False,
            }
        )
        self.add_copy(spec, copy)
        return copy

    def add_copy(self, spec: TensorSpec, copy: TensorSpec) -> None:
        """Add a launch that copies ``spec`` to ``copy`` in the workspace, in another layout or type."""
        self.workspace_offsets[copy.uid] = self.allocate(copy.bytes)
        self.moved(spec, copy)

    def moved(self, spec: TensorSpec, to: TensorSpec) -> None:
        """Add a launch that copies ``spec`` to ``to``, whose memory exists already."""
        alone = _copy(spec, to)
        self.include(_copied(alone, self.device), alone)

    # The end of a kernel's text.

    def epilogue_tensors(self) -> list[TensorSpec]:
        """Every tensor that the epilogue reads or writes in memory."""
        op, leaving = self.op, {t.uid for t in self.op.outputs}
        made = op.uses.made
        read = [t for step in op.epilogue for t in step.inputs().values() if t.uid not in made]
        written = [t for step in self._tail for t in step.outputs().values() if t.uid in leaving]
        return [*read, *written, *self._kept]

    @property
    def _tail(self) -> tuple[Operation, ...]:
        anchor = () if self.op.anchor is None else (self.op.anchor,)
        return (*anchor, *self.op.epilogue)

    def finish(self, program: Program, accumulator: str, ctype: str) -> None:
        """Generate the epilogue: the operations after the anchor's first result, and the stores."""
        anchor = self.op.anchor
        assert anchor is not None
        program.anchor(anchor, next(iter(anchor.outputs().values())), accumulator, ctype)
        program.apply(self.op.epilogue)
        program.store_outputs(self._tail)
        for kept in self._kept:
            program.store(kept)

    def kernel(self, name: str) -> DeviceKernel:
        """The kernel with all launches so far, and the launches of the exit."""
        op = self.op
        if op.exit is not None:
            from graphdnn.engines.cuda.codegen.final_reduction import generate_exit  # exits are kernels themselves

            alone = _alone(op, op.exit)
            self.include(generate_exit(alone, self.device), alone)
        return DeviceKernel(name, tuple(self._steps), self._bytes)


def _copied(alone: FusedOp, device: DeviceSpec) -> DeviceKernel:
    generate = generate_pointwise if alone.anchor is None else generate_movement
    return generate(alone, device)


def _copy(source: TensorSpec, target: TensorSpec) -> FusedOp:
    """Bits move as they are, turned in shared memory where both run along different axes; booleans become bytes."""
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


def _alone(op: FusedOp, step: Operation) -> FusedOp:
    """A fused operation of the exit only."""
    inputs, outputs = tuple(step.inputs().values()), tuple(step.outputs().values())
    return FusedOp(op.index, RULE_OF[type(step)].id, step, (), (), None, inputs, outputs, ())


def _numbering(step: Step, of: FusedOp) -> Step:
    if not isinstance(step, Launch) or step.operations:
        return step
    return replace(step, operations=of.operations)


def _moved(step: Step, places: Mapping[int, int], base: int) -> Step:
    if isinstance(step, Launch):
        slots = tuple(_moved_slot(slot, places, base) for slot in step.params.slots)
        return replace(step, params=replace(step.params, slots=slots))
    prepare = step.prepare

    def prepare_moved() -> Function:
        function = prepare()

        def call(addresses: Mapping[int, int], scratch: int, stream: int) -> None:
            here = {uid: scratch + offset for uid, offset in places.items()}
            function({**addresses, **here}, scratch + base, stream)

        return call

    return LibraryCall(step.name, prepare_moved)


def _moved_slot(slot: Slot, places: Mapping[int, int], base: int) -> Slot:
    if slot.uid is None:
        return replace(slot, offset=slot.offset + base)
    place = places.get(slot.uid)
    return slot if place is None else replace(slot, uid=None, offset=place)


def fused_inputs(steps: Sequence[Operation]) -> list[TensorSpec]:
    """The tensors that a chain of operations reads from memory."""
    made = {t.uid for step in steps for t in step.outputs().values()}
    return list({t.uid: t for step in steps for t in step.inputs().values() if t.uid not in made}.values())
