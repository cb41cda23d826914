"""Engine ``cuda_norm_forward``: statistics of rows and their normalization.

A row is the set of elements that one mean covers: a sample's features (layer norm, RMS norm), a plane (instance norm)
or a channel (batch norm). Rows that fit into a CTA are read once and written once. Longer rows are divided among CTAs.
If persistent CTAs fill the device, they cache the elements they read and wait for each other between statistics and
normalization (norm_persistent). Otherwise one kernel computes partial moments, a second one combines them, and a third
one normalizes. If the statistics are inputs, the operation is a pointwise graph.
"""

from __future__ import annotations

from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.batch_invariance import memoize_for_images
from graphdnn.engines.cuda.codegen.cost import memory_cost
from graphdnn.engines.cuda.codegen.cuda_engine import cuda_engine
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import include, kernel_text
from graphdnn.engines.cuda.norm.channel_groups import choose_group_tile
from graphdnn.engines.cuda.norm.channel_planes import Planes, are_channels, planes_of
from graphdnn.engines.cuda.norm.norm_forward_functions import Functions, Known
from graphdnn.engines.cuda.norm.norm_operands import Operands, direction, of_rows, place
from graphdnn.engines.cuda.norm.persistent import PersistentTile
from graphdnn.engines.cuda.norm.persistent_rows import choose_persistent_tile
from graphdnn.engines.cuda.pointwise.pointwise import Chain
from graphdnn.engines.cuda.reduction.row_threads import Division, Rows, Tile, divided, held, rows_of
from graphdnn.engines.engine import Cost, Knobs, Task, needs_rule
from graphdnn.engines.memoization import memoize
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import NormForward

_STATISTICS = (
    "mean",
    "inv_variance",
    *(f"{way}_running_{which}" for way in ("input", "output") for which in ("mean", "var")),
)
_FINISH = 128  # threads that combine the partial moments of a row


def generate_norm_forward(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, NormForward)
    steps = LaunchSequence(op, device)
    operands = _operands(op)
    if _is_given(anchor):
        return _normalized(operands, _known(op), device, is_reversed=False)
    rows = _rows(op)
    planes = _planes(op, device)
    if planes is not None:
        Forward(steps, operands, planes.rows, (None, None)).lie_in_planes(planes)
        return steps.kernel(_name(op, planes.rows, planes.text()))
    fitting = held(rows, operands.bytes, is_deep=True)
    if fitting is not None:
        rows, tile = fitting
        Forward(steps, operands, rows, (None, None)).hold(tile)
        return steps.kernel(_name(op, rows, tile.text()))
    persistent_choice = choose_persistent_tile(rows, operands.bytes, [anchor.x], device, is_plain=operands.is_plain)
    if persistent_choice is not None:
        rows, placed = persistent_choice
        Forward(steps, operands, rows, (None, None)).add_persistent(placed)
        return steps.kernel(_name(op, rows, placed.text()))
    known = _known(op)
    place(steps, known)
    rows, division = divided(rows, operands.bytes, 1, device)
    Forward(steps, operands, rows, known).moments(division)
    steps.include(_normalized(operands, known, device, is_reversed=True))
    return steps.kernel(_name(op, rows, "divided"))


def _is_given(anchor: NormForward) -> bool:
    return "inv_variance" in anchor.inputs()


@memoize
def _operands(op: FusedOp) -> Operands:
    assert isinstance(op.anchor, NormForward)
    return Operands.of(op, op.anchor)


@memoize
def _known(op: FusedOp) -> Known:
    """The mean and the inverse standard deviation as the last kernel reads them."""
    operands, anchor = _operands(op), op.anchor
    assert isinstance(anchor, NormForward)
    if _is_given(anchor):
        return anchor.mean, anchor.inv_variance
    mean, inverse = (of_rows(operands, i, operands.statistic_extents) for i in range(2))
    return mean if operands.centered else None, inverse


@memoize
def _rows(op: FusedOp) -> Rows:
    extents = _operands(op).anchor.x.extents
    rows, axis = _rows_of_images(op)
    if rows.space.extents == extents:
        return rows
    return _find_rows(op) if axis is None else rows.longer(axis, extents)


@memoize_for_images
def _rows_of_images(op: FusedOp) -> tuple[Rows, int | None]:
    """The extents for another number of images, and the axis that changes with it."""
    rows = _find_rows(op)
    return rows, rows.axis_of_images(_operands(op).main)


def _find_rows(op: FusedOp) -> Rows:
    operands, anchor = _operands(op), op.anchor
    assert isinstance(anchor, NormForward)
    packed = [t for t in (anchor.scale, anchor.bias, *_known(op)) if t is not None]
    return rows_of(
        anchor.x.extents,
        anchor.axes,
        operands.main,
        [*operands.read, *packed, *operands.epilogue()],
        [t for port, t in anchor.tensors().items() if port in _STATISTICS],
        operands.asked,
    )


def _planes(op: FusedOp, device: DeviceSpec) -> Planes | None:
    operands = _operands(op)
    anchor = operands.anchor
    assert isinstance(anchor, NormForward)
    if not operands.centered:
        return None
    beside = [t for t in operands.epilogue() if not (t.is_by_value or t.is_constant)]
    stored, kept = [*operands.read, *beside], [anchor.x]
    if not are_channels(anchor):
        return choose_group_tile(operands, stored, kept, device)
    if not all(_rows(op).is_of_row(t) for t in (anchor.scale, anchor.bias) if t is not None):
        return None
    return planes_of(operands, stored, kept, device)


def _name(op: FusedOp, rows: Rows, how: str) -> str:
    return f"norm__{rows.text()}_{how}__{op.name}"


def _normalized(operands: Operands, known: Known, device: DeviceSpec, *, is_reversed: bool) -> DeviceKernel:
    """y from x and existing statistics, in one kernel."""
    op, anchor = operands.op, operands.anchor
    assert isinstance(anchor, NormForward)
    statistics = {t.uid for port, t in anchor.tensors().items() if port in (*_STATISTICS, "epsilon", "momentum")}
    inputs = (*(t for t in op.inputs if t.uid not in statistics), *(t for t in known if t is not None))
    outputs = tuple(t for t in op.outputs if t.uid not in statistics)
    apart = FusedOp(op.index, op.rule, anchor, op.prologue, op.epilogue, None, inputs, outputs, op.internal)

    def write(program: Program) -> None:
        _normalize(operands, known, program)

    chain = Chain(apart, "norm_apply", write, anchor.x, operands.asked, is_reversed=is_reversed)
    return chain.kernel(anchor.x, device)


def _normalize(operands: Operands, known: Known, program: Program) -> None:
    """One pointwise kernel."""
    op, anchor, compute = operands.op, operands.anchor, operands.compute
    assert isinstance(anchor, NormForward)
    mean, inverse = known
    program.apply(op.prologue)
    program.comment(anchor)
    text = f"widen<{compute}>({program.value(anchor.x)}[e])"
    terms = (
        (" - ", mean if operands.centered else None),
        (" * ", inverse),
        (" * ", anchor.scale),
        (" + ", anchor.bias),
    )
    for sign, spec in terms:
        if spec is not None:
            text = f"({text}{sign}widen<{compute}>({program.value(spec)}[e]))"
    program.define(anchor.y, text)
    program.apply(op.epilogue)
    program.store_outputs((anchor, *op.epilogue))


@memoize_for_images
def _held_of_images(op: FusedOp, width: int) -> tuple[list[str], Parameters]:
    """The functions of CTAs that hold rows in vectors of this width, and the fields that they read."""
    parameters = Parameters()
    return Functions(_operands(op), _rows(op).narrowed(width), (None, None)).held(parameters), parameters


class Forward(Functions):
    """The kernels of one normalization."""

    def __init__(self, steps: LaunchSequence, operands: Operands, rows: Rows, known: Known) -> None:
        super().__init__(operands, rows, known)
        self.steps = steps

    def hold(self, tile: Tile) -> None:
        if self.steps.workspace_offsets:
            parameters = Parameters(self.steps.workspace_offsets)
            functions = self.held(parameters)
        else:
            functions, written = _held_of_images(self.steps.op, self.rows.width)
            parameters = written.copy()
        self.rows.parameters(parameters)
        text = kernel_text(
            _name(self.steps.op, self.rows, tile.text()),
            ["norm_rows.cu"],
            parameters=parameters.text,
            functions=functions,
            constants={**self._constants(tile), "EXACT": tile.threads_per_row * tile.steps == self.rows.vecs_per_row},
        )
        blocks = -(-self.rows.row_vecs // tile.columns)
        self.steps.add_early(Launch(text, "norm_rows", (blocks, 1, 1), tile.threads, parameters.pack()))

    def add_persistent(self, persistent: PersistentTile) -> None:
        """One pass, by persistent CTAs that wait for each other."""
        steps, rows, operands = self.steps, self.rows, self.operands
        parameters = Parameters(steps.workspace_offsets)
        functions = [
            *self.element(parameters, is_stored=True),
            self.finish(parameters),
            *self.epsilon(parameters),
            *self.application(parameters, is_streamed=True),
        ]
        name = _name(steps.op, rows, persistent.text())
        scale = operands.anchor.scale
        constants: dict[str, bool | str] = {
            "CENTERED": operands.centered,
            "SCALED": scale is not None and rows.is_of_row(scale),
            "L1_NO_ALLOCATE": False,
            "Compute": operands.compute,
        }
        persistent.launch(steps, name, rows, parameters, functions, constants, is_backward=False)

    def lie_in_planes(self, planes: Planes) -> None:
        """CTAs with adjacent channels."""
        operands, parameters = self.operands, Parameters(self.steps.workspace_offsets)
        whole = Forward(self.steps, operands, planes.channel_rows, (None, None))
        channel, body = whole.channel(parameters), self.streamed(parameters)
        functions = [
            include("channel_planes_elements.cuh"),
            *self.stored(parameters, is_fetched=False),
            "struct Channel {\n    Compute scale[1], bias[1];\n};\n",
            whole.finish_row(parameters)[0],
            *self.epsilon(parameters),
            channel,
            body,
        ]
        name = _name(self.steps.op, self.rows, planes.text())
        constants: dict[str, bool | str] = {"CENTERED": True, "L1_NO_ALLOCATE": False, "Compute": operands.compute}
        planes.launch(self.steps, name, parameters, functions, constants, is_backward=False)

    def moments(self, division: Division) -> None:
        """Computes the statistics."""
        steps, rows, operands = self.steps, self.rows, self.operands
        parameters = Parameters(steps.workspace_offsets)
        functions = [*self.element(parameters), self.finish(parameters), *self.epsilon(parameters)]
        rows.parameters(parameters)
        division.parameters(parameters)
        is_split = division.splits > 1
        for field, is_used in (("partial_mean", is_split and operands.centered), ("partial_squares", is_split)):
            if is_used:
                size = division.splits * rows.count * operands.bytes
                parameters.workspace_pointer(field, operands.compute, steps.allocate(size))
            else:
                parameters.null_pointer(field, operands.compute)
        text = kernel_text(
            _name(steps.op, rows, "divided"),
            ["norm_moments.cu"],
            parameters=parameters.text,
            functions=functions,
            constants={**self._constants(division.tile), "SPLIT": is_split, "FINISH": _FINISH},
        )
        packed, grid, threads = parameters.pack(), (division.tiles, division.splits, 1), division.tile.threads
        steps.add(Launch(text, "moments", grid, threads, packed))
        if is_split:
            steps.add(Launch(text, "finish_moments", (rows.count, 1, 1), _FINISH, packed))

    def _constants(self, tile: Tile) -> dict[str, int | bool | str]:
        operands = self.operands
        return {
            **self.rows.constants(),
            **tile.constants(),
            "Compute": operands.compute,
            "CENTERED": operands.centered,
            **tile.bounds(),
        }


def _cost(task: Task, knobs: Knobs) -> Cost:
    anchor = task.op.anchor
    assert isinstance(anchor, NormForward)
    if _is_given(anchor):
        return memory_cost(task)
    operands, rows = _operands(task.op), _rows(task.op)
    planes = _planes(task.op, task.device)
    if planes is not None and planes.is_divided:
        return memory_cost(task, sum(t.bytes for t in operands.read), launches=3)
    if planes is not None or held(rows, operands.bytes) is not None:
        return memory_cost(task)
    persistent_choice = choose_persistent_tile(
        rows, operands.bytes, [anchor.x], task.device, is_plain=operands.is_plain
    )
    if persistent_choice is not None:
        return memory_cost(task, persistent_choice[1].read_twice, launches=2)
    return memory_cost(task, sum(t.bytes for t in operands.read), launches=3)


ENGINE = cuda_engine(
    id=34,
    name="cuda_norm_forward",
    summary="normalizations forward, one read and one write if a row fits into a CTA, and their statistics",
    needs=(needs_rule("cuda_norm_forward.operation", "norm"), direction("cuda_norm_forward", "norm_fwd")),
    cost=_cost,
    generate=lambda op, device, knobs: generate_norm_forward(op, device),
    is_general=True,
)
