"""Engine ``cuda_resample_windows``: window averages of window averages, with the pointwise operations before, between
and after them, as in the gradient of local response normalization. One pass over memory.

The operations keep the graph's order, so virtual tensors round as in separate kernels. This module assigns each
operation to a stage: the number of averages that it depends on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import COMPUTE
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.fast_division import count_type, magic
from graphdnn.engines.cuda.codegen.index_space import Axis, IndexSpace, collapsed
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program, gen_index_axes
from graphdnn.engines.cuda.codegen.source import kernel_text
from graphdnn.engines.cuda.codegen.vectors import width_for
from graphdnn.engines.engine import needs_rule
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation, PointwiseOperation, ResampleForward
from graphdnn.tensors import TensorSpec, stride_order

_THREADS, _REGISTERS_OF_AN_SM = 256, 65536
_REGISTERS, _REGISTERS_ACROSS = 64, 96  # of a thread that holds 32-bit elements
_BANKS = 32
_VEC_BYTES = 16
_TILE = 128  # elements of a CTA along the windows, if these lie along a strided axis
_TURNS, _ACROSS = 4, 4  # elements of a thread along the windows and across them, if these lie along a strided axis


def generate_windows(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    steps = WindowSteps(op)
    tile = tile_of(steps)
    space, last = tile.space, steps.averages[-1]
    parameters = Parameters()
    functions = _Functions(steps, tile, parameters).all()
    sizes = [
        size // (tile.vec_width if axis == tile.pixel_axis and not tile.along else 1)
        for axis, size in enumerate(space.sizes)
    ]
    vecs = prod(sizes[:-1])
    parameters.integers("magic", [magic(size) for size in sizes])
    parameters.integers("steps", sizes)
    parameters.integer("vecs", vecs)
    parameters.integer("extent", space.sizes[-1])
    name = f"windows__{'along' if tile.along else 'across'}_v{tile.vec_width}_{tile.tile}x{tile.columns}__{op.name}"
    first, second = (int(average.spec.pre_paddings[steps.axis - 2]) for average in steps.averages)
    text = kernel_text(
        name,
        ["resample_windows.cu"],
        parameters=parameters.text,
        functions=functions,
        constants={
            "RANK": space.rank,
            "ALONG": tile.along,
            "VEC_WIDTH": tile.vec_width,
            "TURNS": tile.turns,
            "TILE": tile.tile,
            "COLUMNS": tile.columns,
            "THREADS": tile.threads,
            "BLOCKS": tile.blocks,
            "PITCH": tile.pitch,
            "WINDOW": steps.window,
            "BACK": first,
            "BACK_AGAIN": second,
            "BEFORE": tile.before,
            "OUTPUTS": tile.outputs,
            "Compute": COMPUTE_TYPE[last.compute_type],
            "Count": count_type(vecs),
        },
    )
    grid = (-(-vecs // tile.columns), -(-space.sizes[-1] // tile.outputs), 1)
    return DeviceKernel(name, (Launch(text, "resample_windows", grid, tile.threads, parameters.pack()),))


@dataclass(frozen=True, slots=True)
class WindowSteps:
    """The operations by stage: the number of averages that they depend on."""

    op: FusedOp

    @property
    def averages(self) -> list[ResampleForward]:
        return [step for step in self.op.operations if isinstance(step, ResampleForward)]

    @property
    def axis(self) -> int:
        """The logical axis along which windows move."""
        spec = self.averages[0].spec
        return next(axis for axis, window in enumerate(spec.window_dims, 2) if window != 1)

    @property
    def window(self) -> int:
        return int(self.averages[0].spec.window_dims[self.axis - 2])

    def stage(self) -> dict[int, int]:
        """For the uid of every computed tensor: the number of averages that it depends on."""
        stages: dict[int, int] = {}
        for step in self.op.operations:
            operand_stages = [stages.get(t.uid, 0) for t in step.inputs().values()]
            stages[_result(step).uid] = max(operand_stages, default=0) + isinstance(step, ResampleForward)
        return stages

    def steps(self, stage: int) -> list[PointwiseOperation]:
        stages = self.stage()
        pointwise = (step for step in self.op.operations if isinstance(step, PointwiseOperation))
        return [step for step in pointwise if stages[_result(step).uid] == stage]

    def kept(self, stage: int) -> list[TensorSpec]:
        """Elements that are available after a stage, from memory or computed, and that a later stage needs."""
        stages, outputs = self.stage(), {t.uid for t in self.op.outputs}

        def stage_operands(at: int) -> dict[int, TensorSpec]:
            operands = [t for step in self.steps(at) for t in step.inputs().values()]
            operands += [self.averages[at].x] if at < 2 else []
            return {t.uid: t for t in operands if t.extents == self.averages[0].x.extents and not _is_scalar(t)}

        available = {
            uid: t for at in range(stage + 1) for uid, t in stage_operands(at).items() if stages.get(uid, 0) <= stage
        }
        computed = [_result(step) for step in self.op.operations if stages[_result(step).uid] <= stage]
        available.update({t.uid: t for t in computed})
        needed = {uid for at in range(stage + 1, 3) for uid in stage_operands(at)} | outputs
        return [t for uid, t in available.items() if uid in needed]


def _result(step: Operation) -> TensorSpec:
    return step.outputs()["y"] if isinstance(step, ResampleForward) else next(iter(step.outputs().values()))


def _is_scalar(spec: TensorSpec) -> bool:
    return spec.is_by_value or spec.is_constant


@dataclass(frozen=True, slots=True)
class WindowTile:
    """The elements of a CTA: ``tile`` along the windows, for each of ``columns`` vectors (or pixels) side by side.

    ``before``: the offset of the first element that the CTA writes; ``outputs``: the number of elements it writes.
    """

    space: IndexSpace  # the last axis is the axis of the windows
    along: bool  # the axis of the windows is contiguous
    vec_width: int
    turns: int
    tile: int
    columns: int
    pitch: int
    before: int
    outputs: int
    blocks: int

    @property
    def threads(self) -> int:
        return self.columns * self.tile // (self.vec_width if self.along else self.turns)

    @property
    def pixel_axis(self) -> int:
        return self.space.rank - 2

    @property
    def vector_axis(self) -> int:
        return self.space.rank - 1 if self.along else self.pixel_axis


def tile_of(steps: WindowSteps) -> WindowTile:
    op, axis, window = steps.op, steps.axis, steps.window
    extents = steps.averages[0].x.extents
    stored = [t for t in (*op.inputs, *op.outputs) if not _is_scalar(t)]
    main = next(t for t in (*op.outputs, *op.inputs) if t.extents == extents)
    rest = IndexSpace(extents, tuple(Axis(size, i) for i, size in enumerate(extents) if i != axis))
    still = collapsed(rest, main, stored, gen_index_axes(op.operations))
    space = IndexSpace(extents, (*still.axes, Axis(extents[axis], axis)))
    order = stride_order(main.dims, main.strides)
    along = extents[axis] > 1 and all(order.index(axis) >= order.index(a.logical) for a in still.axes if a.size > 1)
    wide = COMPUTE[steps.averages[0].compute_type].itemsize
    vec_width = min(width_for(space, stored, space.rank - (1 if along else 2), _VEC_BYTES), 8 if along else _ACROSS)
    turns = 1 if along else _TURNS
    own = vec_width if along else turns
    most = _TILE // own if not along else 64 if own >= 4 else 128
    axis_threads = min(-(-extents[axis] // own), most)
    tile = axis_threads * own
    vecs = prod(space.sizes[:-1]) // (1 if along else vec_width)
    columns = min(vecs, max(1, _THREADS // axis_threads))
    if along:  # pad rows so that the threads of the next pixel use other banks
        needed = tile + 2 * (window - 1)
        needed += needed // vec_width if vec_width > 1 else 0
        wanted = axis_threads * (own + (vec_width > 1)) % _BANKS
        pitch = needed + (wanted - needed) % _BANKS
    else:
        pitch = columns * vec_width
    first, second = (int(average.spec.pre_paddings[axis - 2]) for average in steps.averages)
    is_whole = tile >= extents[axis]
    unit = vec_width if along else 1
    before = 0 if is_whole else -(-(first + second) // unit) * unit
    behind = 0 if is_whole else -(-(2 * (window - 1) - first - second) // unit) * unit
    threads = columns * axis_threads
    registers = (_REGISTERS if along else _REGISTERS_ACROSS) * wide // 4
    blocks = max(1, _REGISTERS_OF_AN_SM // registers // max(32, threads))
    return WindowTile(space, along, vec_width, turns, tile, columns, pitch, before, tile - before - behind, blocks)


class _Functions:
    """The generated functions of resample_windows.cu: ``before``, ``between`` and ``after``."""

    def __init__(self, steps: WindowSteps, tile: WindowTile, parameters: Parameters) -> None:
        self.steps, self.tile, self.parameters = steps, tile, parameters
        kept = {t.uid: t for stage in range(2) for t in steps.kept(stage)}
        self.held = {uid: (f"h{i}", t) for i, (uid, t) in enumerate(kept.items())}
        self.compute = COMPUTE_TYPE[steps.averages[0].compute_type]

    def all(self) -> list[str]:
        fields = "".join(f"    {STORAGE[t.data_type]} {name}[VEC_WIDTH];\n" for name, t in self.held.values())
        value, mean = f"{self.compute} (&value)[VEC_WIDTH]", f"const {self.compute} (&mean)[VEC_WIDTH]"
        return [
            f"struct Held {{\n{fields}}};\n",
            self._stage(0).function("before", f"Held& held, {value}"),
            self._stage(1).function("between", f"Held& held, {mean}, {value}"),
            self._stage(2).function("after", f"const Held& held, {mean}"),
        ]

    def _stage(self, stage: int) -> Program:
        steps, tile = self.steps, self.tile
        program = Program(
            steps.op, self.parameters, tile.space, f"s{stage}_", width=tile.vec_width, vector_axis=tile.vector_axis
        )
        asked = {t.uid for step in steps.steps(stage) for t in step.inputs().values()}
        asked |= {t.uid for t in steps.op.outputs} if stage == 2 else {steps.averages[stage].x.uid}
        if stage:
            for spec in steps.kept(stage - 1):
                if spec.uid in asked:
                    program.bind(spec, f"held.{self.held[spec.uid][0]}[e]")
            program.define(steps.averages[stage - 1].y, "mean[e]")
        program.apply(steps.steps(stage))
        if stage == 2:
            program.store_outputs(steps.op.operations)
            return program
        known = {t.uid for t in steps.kept(stage - 1)} if stage else set()
        for spec in steps.kept(stage):
            if spec.uid not in known:
                program.copy_to(f"held.{self.held[spec.uid][0]}", spec)
        program.copy_widened_to("value", steps.averages[stage].x, self.compute)
        return program


ENGINE = cuda_engine(
    id=90,
    name="cuda_resample_windows",
    summary="window averages of window averages, as in gradients of local response normalization, in one pass",
    needs=(needs_rule("cuda_resample_windows.operation", "windows"),),
    cost=lambda task, knobs: memory_cost(task),
    generate=lambda op, device, knobs: generate_windows(op, device),
    is_general=True,
)
