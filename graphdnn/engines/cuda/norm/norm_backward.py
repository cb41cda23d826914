"""Engine ``cuda_norm_backward``: gradients of normalizations.

The gradient of x needs two sums over each row. The gradients of scale and bias need two sums over the axes along which
these have one element.
In batch norm both pairs of sums are the same. A CTA that holds its rows computes everything in one kernel; longer rows
take one kernel for the sums and one for dx. If each row has one scale, as in instance norm, a small kernel adds the
sums of rows to the gradients of scale and bias. If the scale changes along rows, CTAs that loop over rows compute both
pairs (row_gradient); otherwise the sums for scale and bias are a separate kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphdnn.cuda.nvrtc import KernelText
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import include, kernel_text
from graphdnn.engines.cuda.norm.channel_groups import choose_group_tile
from graphdnn.engines.cuda.norm.channel_planes import Planes, are_channels, planes_of
from graphdnn.engines.cuda.norm.norm_backward_functions import Functions
from graphdnn.engines.cuda.norm.norm_forward import Forward
from graphdnn.engines.cuda.norm.norm_forward_functions import Known
from graphdnn.engines.cuda.norm.norm_operands import Operands, direction, of_rows, place
from graphdnn.engines.cuda.norm.persistent import PersistentTile
from graphdnn.engines.cuda.norm.persistent_rows import choose_persistent_tile
from graphdnn.engines.cuda.norm.row_gradient import RowGradient, row_gradient_of
from graphdnn.engines.cuda.reduction.reduction_kernels import Fold, FoldKind, generate_fold
from graphdnn.engines.cuda.reduction.row_threads import Rows, Tile, divided, held, rows_of, rows_text
from graphdnn.engines.engine import Cost, Knobs, Task, needs_rule
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import NormBackward


def generate_norm_backward(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, NormBackward)
    operands = Operands.of(op, anchor)
    steps = LaunchSequence(op, device)
    known = _known(operands)
    if anchor.inv_variance is None:
        place(steps, known)
        _find_statistics(steps, operands, known)
    backward = _Backward(steps, operands, known)
    backward.generate(device)
    return steps.kernel(f"norm_backward__{backward.rows.text()}__{op.name}")


def _known(operands: Operands) -> Known:
    """The mean and the inverse standard deviation, from the graph or in scratch memory."""
    anchor = operands.anchor
    if anchor.inv_variance is not None:
        return anchor.mean, anchor.inv_variance
    mean, inverse = (of_rows(operands, i, operands.statistic_extents) for i in range(2))
    return mean if operands.centered else None, inverse


def _find_statistics(steps: LaunchSequence, operands: Operands, known: Known) -> None:
    """Computes the statistics from x with the kernels of the forward direction."""
    anchor = operands.anchor
    stored = [t for t in known if t is not None]
    rows = rows_of(anchor.x.extents, anchor.axes, anchor.x, [anchor.x], stored, frozenset())
    rows, division = divided(rows, operands.bytes, 1, steps.device)
    Forward(steps, operands, rows, known).moments(division)


class _Backward(Functions):
    """The kernels of one gradient."""

    def generate(self, device: DeviceSpec) -> None:
        planes = self.planes(device)
        if planes is not None:
            self._lie_in_planes(planes)
        else:
            self._generate(device)
        if self.parts_parameters or (planes is not None and planes.is_of_groups):
            self._add_rows(device)

    def _generate(self, device: DeviceSpec) -> None:
        steps, anchor = self.steps, self.anchor
        layout = self.row_gradient(device)
        if layout is not None:
            self._row_gradient(layout)
            return
        fitting = held(self.rows, 2 * self.operands.bytes)
        if self.parts_parameters:
            place(steps, self.sums)
        elif not self.owns_parameters:
            self._fold("norm_parameters", anchor.scale.extents, device)
        if fitting is not None:
            self.rows, tile = fitting
            self._hold(tile)
            return
        persistent_choice = self.persistent_tile(device)
        if persistent_choice is not None:
            self.rows, persistent = persistent_choice
            self._add_persistent(persistent)
            return
        if not self.parts_parameters:
            place(steps, self.sums)
        self._fold("norm_sums", self.operands.statistic_extents, device, of_rows=True)
        self.rows, division = divided(self.rows, self.operands.bytes, 2, device)
        parameters = Parameters(steps.workspace_offsets)
        functions = [*self.loads(parameters), *self.application(parameters, self.sums)]
        self.rows.parameters(parameters)
        division.parameters(parameters)
        text = self._text(["norm_apply.cu"], parameters, functions, division.tile, {})
        grid = (division.tiles, division.splits, 1)
        steps.add(Launch(text, "norm_apply", grid, division.tile.threads, parameters.pack()))

    def _fold(self, name: str, extents: tuple[int, ...], device: DeviceSpec, *, of_rows: bool = False) -> None:
        """Sums into dscale and dbias, or sums of rows into scratch memory, or both if they are the same sums."""
        op, anchor = self.steps.op, self.anchor
        is_scaled = of_rows and self.is_scaled_along
        written = {} if of_rows and not self.owns_parameters else self.parameter_gradients()
        kept = self.sums if of_rows else []

        def finish(steps: LaunchSequence, program: Program) -> None:
            program.comment(anchor)
            for uid, part in written.items():
                program.define(self.gradient(uid), f"acc[{part}][e]")
            program.store_outputs((anchor,))
            for part, spec in enumerate(kept):
                program.define(spec, f"acc[{part}][e]")
                program.store(spec)

        beside = [t for t in (self.inverse, self.mean, anchor.scale if is_scaled else None) if t is not None]
        outputs = tuple(t for t in op.outputs if t.uid in written)
        sums = FusedOp(op.index, op.rule, anchor, op.prologue, (), None, op.inputs, outputs, ())
        fold = Fold(
            name=name,
            kind=FoldKind.NORM_GRADIENTS,
            streamed=(anchor.x, anchor.dy),
            beside=tuple(beside),
            extents=extents,
            finish=finish,
            parts=2,
            after=tuple(kept),
            constants={"CENTERED": self.mean is not None, "SCALED": is_scaled},
        )
        self.steps.include(generate_fold(sums, device, fold))

    def _add_rows(self, device: DeviceSpec) -> None:
        """Adds the sums of rows, from scratch memory, to dscale and dbias."""
        op, anchor, written = self.steps.op, self.anchor, self.parameter_gradients()

        def finish(steps: LaunchSequence, program: Program) -> None:
            program.comment(anchor)
            for uid, part in written.items():
                program.define(self.gradient(uid), f"acc[{part}][e]")
            program.store_outputs((anchor,))

        sums = tuple(self.sums)
        outputs = tuple(t for t in op.outputs if t.uid in written)
        alone = FusedOp(op.index, op.rule, anchor, (), (), None, sums, outputs, ())
        kind = FoldKind.NORM_PARTIAL_SUMS
        fold = Fold("norm_parts", kind, streamed=sums, extents=anchor.scale.extents, finish=finish, parts=2)
        self.steps.include(generate_fold(alone, device, fold), alone)

    def _hold(self, tile: Tile) -> None:
        parameters = Parameters(self.steps.workspace_offsets)
        functions = [*self.loads(parameters), self.finish(parameters), *self.application(parameters, [])]
        self.rows.parameters(parameters)
        exact = {"EXACT": tile.threads_per_row * tile.steps == self.rows.vecs_per_row, **tile.bounds()}
        text = self._text(["norm_backward_rows.cu"], parameters, functions, tile, exact)
        blocks = -(-self.rows.row_vecs // tile.columns)
        self.steps.add_early(Launch(text, "norm_backward_rows", (blocks, 1, 1), tile.threads, parameters.pack()))

    def persistent_tile(self, device: DeviceSpec) -> tuple[Rows, PersistentTile] | None:
        """Persistent CTAs, if the kernel needs only the sums of rows."""
        anchor = self.anchor
        if self.is_scaled_along:
            return None
        return choose_persistent_tile(
            self.rows, self.operands.bytes, [anchor.x, anchor.dy], device, is_plain=self.operands.is_plain
        )

    def row_gradient(self, device: DeviceSpec) -> RowGradient | None:
        """CTAs that loop over rows, if each element of a row has its own scale."""
        return row_gradient_of(self.rows, self.operands, device) if self.is_scaled_along else None

    def _row_gradient(self, layout: RowGradient) -> None:
        parameters, anchor, rows, compute = (
            Parameters(self.steps.workspace_offsets),
            self.anchor,
            self.rows,
            self.operands.compute,
        )
        scale = Program(self.steps.op, parameters, rows.space, "w", width=rows.width, vector_axis=rows.vector_axis)
        scale.copy_widened_to("scale", anchor.scale, compute)
        functions = [
            *rows_text(),
            include("norm_backward.cuh"),
            include("streaming.cuh"),
            *self.loads(parameters, is_stored=True, is_fetched=False),
            include("norm_backward_cache.cuh"),
            scale.function("scale_at", "Compute (&scale)[VEC_WIDTH]"),
            self.finish_row(parameters, rows, self.parameter_gradients())[0],
            *self.application(parameters, [], is_concluded=True),
        ]
        name = f"norm_backward__{rows.text()}_{layout.text()}__{self.steps.op.name}"
        layout.launch(self.steps, name, parameters, functions, {"CENTERED": self.operands.centered, "Compute": compute})

    def planes(self, device: DeviceSpec) -> Planes | None:
        """CTAs with adjacent channels."""
        operands, anchor = self.operands, self.anchor
        if anchor.inv_variance is None or not operands.centered:
            return None
        stored = [*operands.read, *(t for t in operands.epilogue() if not (t.is_by_value or t.is_constant))]
        kept = [anchor.x, anchor.dy]
        if not are_channels(anchor):
            return choose_group_tile(operands, stored, kept, device)
        if self.is_scaled_along or not self.owns_parameters:
            return None
        return planes_of(operands, stored, kept, device)

    def _lie_in_planes(self, planes: Planes) -> None:
        self.rows, channels = planes.rows, planes.channel_rows
        written, kept, left = self.parameter_gradients(), self.sums[:0], channels
        if planes.is_of_groups:
            left = planes.place_rows
            kept = self.sums = [of_rows(self.operands, 2 + i, left.space.extents) for i in range(2)]
            written = {}
            place(self.steps, kept)
        parameters, compute = Parameters(self.steps.workspace_offsets), self.operands.compute
        known = Program(self.steps.op, parameters, channels.space, "r")
        for field, spec in (("mean", self.mean), ("inverse", self.inverse), ("scale", self.anchor.scale)):
            assert spec is not None
            known.copy_widened_to(f"channel.{field}", spec, compute)
        functions = [
            include("channel_planes_elements.cuh"),
            include("norm_backward.cuh"),
            include("streaming.cuh"),
            "struct Channel {\n    Compute mean[1], inverse[1], scale[1];\n};\n",
            known.function("of_channel", "Channel& channel"),
            self.finish_row(parameters, left, written, kept)[0],
            *self.loads(parameters, is_stored=True, is_fetched=False),
            include("norm_backward_cache.cuh"),
            self.body(parameters, is_streamed=True, is_concluded=True),
        ]
        name = f"norm_backward__{self.rows.text()}_{planes.text()}__{self.steps.op.name}"
        constants: dict[str, bool | str] = {"CENTERED": True, "L1_NO_ALLOCATE": True, "Compute": compute}
        planes.launch(self.steps, name, parameters, functions, constants, is_backward=True)

    def _add_persistent(self, persistent: PersistentTile) -> None:
        parameters = Parameters(self.steps.workspace_offsets)
        functions = [
            *rows_text(),
            include("norm_backward.cuh"),
            include("streaming.cuh"),
            *self.application(parameters, [], is_streamed=True),
            self.finish(parameters),
            *self.loads(parameters, is_stored=True),
            include("norm_backward_cache.cuh"),
        ]
        name = f"norm_backward__{self.rows.text()}_{persistent.text()}__{self.steps.op.name}"
        constants: dict[str, bool | str] = {
            "CENTERED": self.operands.centered,
            "Compute": self.operands.compute,
            "L1_NO_ALLOCATE": True,  # faster as measured; the forward kernel becomes slower by as much
        }
        persistent.launch(self.steps, name, self.rows, parameters, functions, constants, is_backward=True)

    def _text(
        self,
        files: Sequence[str],
        parameters: Parameters,
        functions: Sequence[str],
        tile: Tile,
        constants: Mapping[str, int | bool],
    ) -> KernelText:
        name = f"norm_backward__{self.rows.text()}_{tile.text()}__{self.steps.op.name}"
        return kernel_text(
            name,
            files,
            parameters=parameters.text,
            functions=[*rows_text(), include("norm_backward.cuh"), *functions],
            constants={
                **self.rows.constants(),
                **tile.constants(),
                "Compute": self.operands.compute,
                "CENTERED": self.operands.centered,
                **constants,
            },
        )


def _cost(task: Task, knobs: Knobs) -> Cost:
    anchor = task.op.anchor
    assert isinstance(anchor, NormBackward)
    operands = Operands.of(task.op, anchor)
    backward = _Backward(LaunchSequence(task.op, task.device), operands, _known(operands))
    reads = float(sum(t.bytes for t in operands.read))
    planes = backward.planes(task.device)
    if planes is not None and planes.is_of_groups:
        again = reads if planes.is_divided else 0.0
        return memory_cost(task, again + 4 * planes.place_rows.count * operands.bytes, 4 if planes.is_divided else 2)
    is_held = planes is not None or held(backward.rows, 2 * operands.bytes) is not None
    passes = float((not backward.owns_parameters and not backward.parts_parameters) + (not is_held))
    launches = 1 + 2 * int(passes)
    layout = backward.row_gradient(task.device)
    if layout is not None:
        is_held, passes, launches = True, 2 * layout.partial_bytes / reads, 2
    persistent_choice = None if is_held else backward.persistent_tile(task.device)
    if persistent_choice is not None:
        passes, launches = persistent_choice[1].read_twice / reads, 2
    if backward.parts_parameters:
        launches += 1
    if anchor.inv_variance is None:
        return memory_cost(task, passes * reads + anchor.x.bytes, launches + 2)
    return memory_cost(task, passes * reads, launches)


ENGINE = cuda_engine(
    id=38,
    name="cuda_norm_backward",
    summary="gradients of normalizations, with the sums for scale and bias, in a fixed order",
    needs=(needs_rule("cuda_norm_backward.operation", "norm"), direction("cuda_norm_backward", "norm_bwd")),
    cost=_cost,
    generate=lambda op, device, knobs: generate_norm_backward(op, device),
    is_general=True,
)
