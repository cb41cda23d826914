"""Engine ``cuda_norm_forward``: statistics of rows and their normalization.

A row is what is averaged over: a sample's features (layer, RMS), a plane (instance), a
channel (batch). Rows that fit into a block are read once and written once. Longer ones
are divided among blocks: those that fill a device stay and keep what they read, and wait
for each other in between (norm_resident). Otherwise a first kernel takes the moments, a
second one joins the parts, a third one normalizes. With given statistics each element
stands by itself, as in a pointwise graph.
"""

from __future__ import annotations

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.elementwise.pointwise import Chain
from graphdnn.engines.cuda.generator.cost import memory_cost
from graphdnn.engines.cuda.generator.engine import cuda_engine
from graphdnn.engines.cuda.generator.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.generator.parameters import Parameters
from graphdnn.engines.cuda.generator.program import Program
from graphdnn.engines.cuda.generator.source import file_text, kernel_text
from graphdnn.engines.cuda.generator.steps import Steps
from graphdnn.engines.cuda.normalization.operands import Operands, direction, of_rows, of_thread, place
from graphdnn.engines.cuda.normalization.planes import Planes, are_channels, planes_of
from graphdnn.engines.cuda.normalization.resident import Residence, stored_text, take_text
from graphdnn.engines.cuda.normalization.rounds import resident
from graphdnn.engines.cuda.reductions.rows import Division, Rows, Tile, divided, held, rows_of, rows_text
from graphdnn.engines.engine import Cost, Knobs, Task, needs_rule
from graphdnn.engines.images import once_for_images
from graphdnn.engines.once import once
from graphdnn.fusion.fused import FusedOp
from graphdnn.operations import NormForward
from graphdnn.tensors import TensorSpec

Known = tuple[TensorSpec | None, TensorSpec | None]  # mean and inverse deviation in memory

_STATISTICS = (
    "mean",
    "inv_variance",
    *(f"{way}_running_{which}" for way in ("input", "output") for which in ("mean", "var")),
)
_FINISH = 128  # threads that join the parts of a row


def generate_norm_forward(op: FusedOp, device: DeviceSpec) -> DeviceKernel:
    anchor = op.anchor
    assert isinstance(anchor, NormForward)
    steps = Steps(op, device)
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
    staying = resident(rows, operands.bytes, [anchor.x], device, is_plain=operands.is_plain)
    if staying is not None:
        rows, placed = staying
        Forward(steps, operands, rows, (None, None)).reside(placed)
        return steps.kernel(_name(op, rows, placed.text()))
    known = _known(op)
    place(steps, known)
    rows, division = divided(rows, operands.bytes, 1, device)
    Forward(steps, operands, rows, known).moments(division)
    steps.include(_normalized(operands, known, device, is_reversed=True))
    return steps.kernel(_name(op, rows, "divided"))


def _is_given(anchor: NormForward) -> bool:
    return "inv_variance" in anchor.inputs()


@once
def _operands(op: FusedOp) -> Operands:
    assert isinstance(op.anchor, NormForward)
    return Operands.of(op, op.anchor)


@once
def _known(op: FusedOp) -> Known:
    """Mean and inverse deviation as the last kernel reads them."""
    operands, anchor = _operands(op), op.anchor
    assert isinstance(anchor, NormForward)
    if _is_given(anchor):
        return anchor.mean, anchor.inv_variance
    mean, inverse = (of_rows(operands, i, operands.statistic_extents) for i in range(2))
    return mean if operands.centered else None, inverse


@once
def _rows(op: FusedOp) -> Rows:
    extents = _operands(op).anchor.x.extents
    rows, axis = _rows_of_images(op)
    if rows.space.extents == extents:
        return rows
    return _find_rows(op) if axis is None else rows.longer(axis, extents)


@once_for_images
def _rows_of_images(op: FusedOp) -> tuple[Rows, int | None]:
    """Those of some number of images, and the axis that is longer where there are more of them."""
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
    if not operands.centered or not are_channels(anchor):
        return None
    own = {t.uid for t in anchor.tensors().values()} - {anchor.x.uid}
    beside = [t for t in operands.epilogue() if not (t.is_by_value or t.is_constant)]
    stored = [*operands.read, *(t for t in beside if t.uid not in own or t.extents == anchor.x.extents)]
    return planes_of(operands, stored, [anchor.x], device)


def _name(op: FusedOp, rows: Rows, how: str) -> str:
    return f"norm__{rows.text()}_{how}__{op.name}"


def _normalized(operands: Operands, known: Known, device: DeviceSpec, *, is_reversed: bool) -> DeviceKernel:
    """y from x and known statistics, as a kernel."""
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
    """Each element by itself."""
    op, anchor, compute = operands.op, operands.anchor, operands.compute
    assert isinstance(anchor, NormForward)
    mean, inverse = known
    program.apply(op.prologue)
    program.note(anchor)
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
    program.set(anchor.y, text)
    program.apply(op.epilogue)
    program.store_outputs((anchor, *op.epilogue))


class Functions:
    """The functions of one normalization's kernels. ``known``: where the statistics are, or are to be, in memory."""

    def __init__(self, operands: Operands, rows: Rows, known: Known) -> None:
        self.operands, self.rows, self.known = operands, rows, known

    def held(self, parameters: Parameters) -> list[str]:
        """Of blocks that hold their rows."""
        return [
            *self._element(parameters),
            self._before(parameters),
            self._finish(parameters, is_before_known=True),
            *self._epsilon(parameters),
            *self._application(parameters),
        ]

    def _element(self, parameters: Parameters, *, is_stored: bool = False) -> list[str]:
        """x through the prologue, in the arithmetic's type or in its own. A prologue of the backward direction is one
        of dy.
        """
        if is_stored:
            return [*rows_text(), *self._stored(parameters, is_fetched=True)]
        program = self._taken(parameters)
        program.result("pack.x", self.operands.anchor.x, self.operands.compute)
        return [*rows_text(), file_text("norm_forward.cuh"), program.function("take", "Elements& pack")]

    def _stored(self, parameters: Parameters, *, is_fetched: bool) -> list[str]:
        """x as it is kept: in its own type."""
        program, x = self._taken(parameters), self.operands.anchor.x
        program.hand("pack.x.at", x)
        files = [file_text(name) for name in ("norm_forward.cuh", "streaming.cuh", "words.cuh")]
        return [*files, stored_text({"x": x}, self.rows.width), take_text(program, ["x"], is_fetched=is_fetched)]

    def _taken(self, parameters: Parameters) -> Program:
        op, rows = self.operands.op, self.rows
        program = Program(op, parameters, rows.space, "x", width=rows.width, vector_axis=rows.vector_axis)
        if isinstance(self.operands.anchor, NormForward):
            program.apply(op.prologue)
        return program

    def _epsilon(self, parameters: Parameters) -> list[str]:
        return [self.operands.epsilon(parameters)]

    def _running(self) -> list[tuple[str, TensorSpec, TensorSpec]]:
        """Running averages: which one, where it was and where it goes."""
        anchor = self.operands.anchor
        if not isinstance(anchor, NormForward) or anchor.momentum is None:
            return []
        ports = anchor.tensors()
        return [(name, ports[f"input_running_{name}"], ports[f"output_running_{name}"]) for name in ("mean", "var")]

    def _before(self, parameters: Parameters) -> str:
        """What the running averages of row ``i`` of a thread were."""
        program = Program(self.operands.op, parameters, self.rows.space, "b")
        for name, previous, _ in self._running():
            program.result(f"before.{name}", previous, self.operands.compute)
        argument = "Before& before"
        return program.function("read_row", argument) + of_thread("read_before", "read_row", argument)

    def _finish(self, parameters: Parameters, *, is_before_known: bool = False) -> str:
        """The statistics of row ``i`` of a thread into memory; ``is_before_known``: running averages were read."""
        text, arguments = self._finish_row(parameters, is_before_known=is_before_known)
        return text + of_thread("finish", "finish_row", arguments)

    def _finish_row(self, parameters: Parameters, *, is_before_known: bool = False) -> tuple[str, str]:
        """The statistics of a row into memory, and what the function takes."""
        operands, rows, anchor = self.operands, self.rows, self.operands.anchor
        program = Program(operands.op, parameters, rows.space, "s")
        program.note(anchor)
        outputs = anchor.outputs()
        found = {"mean": "mean", "inv_variance": "inverse"}
        written = [(outputs[port], value) for port, value in found.items() if port in outputs]
        for name, previous, following in self._running():
            momentum = operands.scalar(anchor.tensors()["momentum"])
            factor = f"widen<double>({program.value(momentum)}[e])"
            value = "mean" if name == "mean" else "unbiased(variance, p.elements)"
            old = f"before.{name}[0]" if is_before_known else f"widen<{operands.compute}>({program.value(previous)}[e])"
            written.append((following, f"averaged({old}, {value}, {factor})"))
        for spec, value in written:
            program.set(spec, value)
        made = {spec.uid for spec, _ in written}
        for spec in operands.op.outputs:
            if spec.uid in made:
                program.store(spec)
        for kept, value in zip(self.known, ("mean", "inverse"), strict=True):
            if kept is not None:
                program.set(kept, value)
                program.store(kept)
        compute = operands.compute
        arguments = f"{compute} mean, {compute} variance, {compute} inverse"
        if is_before_known:
            arguments += ", const Before& before"
        return program.function("finish_row", arguments), arguments

    def _channel(self, parameters: Parameters) -> str:
        """What is known of a channel beforehand."""
        operands, anchor = self.operands, self.operands.anchor
        assert isinstance(anchor, NormForward)
        program = Program(operands.op, parameters, self.rows.space, "r")
        for field, spec, otherwise in (("scale", anchor.scale, 1), ("bias", anchor.bias, 0)):
            if spec is None:
                program.each(f"channel.{field}[e] = (Compute){otherwise};")
            else:
                program.result(f"channel.{field}", spec, operands.compute)
        return program.function("of_channel", "Channel& channel")

    def _streamed(self, parameters: Parameters) -> str:
        """y from x and factors of each element, through the epilogue."""
        op, rows, anchor = self.operands.op, self.rows, self.operands.anchor
        assert isinstance(anchor, NormForward)
        axis, stores = rows.vector_axis, "store_streaming"
        body = Program(op, parameters, rows.space, "t", width=rows.width, vector_axis=axis, stores=stores)
        body.note(anchor)
        body.set(anchor.y, "(pack.x[e] - row.mean[e]) * row.inverse[e] + row.bias[e]")
        body.apply(op.epilogue)
        body.store_outputs((anchor, *op.epilogue))
        return body.function("epilogue", "const Elements& pack, const Row& row")

    def _application(self, parameters: Parameters, *, is_streamed: bool = False) -> list[str]:
        """What is the same for a row, and y from x through the epilogue."""
        operands, rows, anchor = self.operands, self.rows, self.operands.anchor
        assert isinstance(anchor, NormForward)
        compute = operands.compute
        fixed = Program(operands.op, parameters, rows.space, "r", width=rows.row_width, vector_axis=rows.kept - 1)
        body = Program(
            operands.op,
            parameters,
            rows.space,
            "t",
            width=rows.width,
            vector_axis=rows.vector_axis,
            stores="store_streaming" if is_streamed else "store",
        )
        body.note(anchor)
        mean, inverse = self.known
        for field, spec in (("mean", mean), ("inverse", inverse)):
            if spec is not None:
                fixed.result(f"row.{field}", spec, compute)
        text = "(pack.x[e] - row.mean[row_of(e)])" if operands.centered else "pack.x[e]"
        text += " * row.inverse[row_of(e)]"
        for sign, field, spec in ((" * ", "scale", anchor.scale), (" + ", "bias", anchor.bias)):
            if spec is None:
                continue
            if rows.is_of_row(spec):
                fixed.result(f"row.{field}", spec, compute)
                if spec is not anchor.scale or not is_streamed:  # norm_resident_forward.cuh has it in the inverse
                    text += f"{sign}row.{field}[row_of(e)]"
            else:
                text += f"{sign}widen<{compute}>({body.value(spec)}[e])"
        body.set(anchor.y, text)
        body.apply(operands.op.epilogue)
        leaving = {t.uid for t in operands.op.outputs}
        if anchor.y.uid in leaving:
            body.store(anchor.y)
        body.store_outputs(operands.op.epilogue)
        return [
            fixed.function("of_row", "Row& row"),
            body.function("epilogue", "const Elements& pack, const Row& row"),
        ]


@once_for_images
def _held_of_images(op: FusedOp, width: int) -> tuple[list[str], Parameters]:
    """Functions of blocks that hold rows in packs of this width, and the fields that they read."""
    parameters = Parameters()
    return Functions(_operands(op), _rows(op).narrowed(width), (None, None)).held(parameters), parameters


class Forward(Functions):
    """The kernels of one normalization."""

    def __init__(self, steps: Steps, operands: Operands, rows: Rows, known: Known) -> None:
        super().__init__(operands, rows, known)
        self.steps = steps

    def hold(self, tile: Tile) -> None:
        if self.steps.places:
            parameters = Parameters(self.steps.places)
            functions = self.held(parameters)
        else:
            functions, written = _held_of_images(self.steps.op, self.rows.width)
            parameters = written.copy()
        self.rows.parameters(parameters)
        text = kernel_text(
            _name(self.steps.op, self.rows, tile.text()),
            ["next_launch.cuh", "norm_held.cuh", "norm_rows.cu"],
            parameters=parameters.text,
            functions=functions,
            constants={**self._constants(tile), "EXACT": tile.lanes * tile.steps == self.rows.packs},
        )
        blocks = -(-self.rows.row_packs // tile.columns)
        self.steps.add_early(Launch(text, "norm_rows", (blocks, 1, 1), tile.threads, parameters.pack()))

    def reside(self, residence: Residence) -> None:
        """In one pass, by blocks that wait for each other."""
        steps, rows, operands = self.steps, self.rows, self.operands
        parameters = Parameters(steps.places)
        functions = [
            *self._element(parameters, is_stored=True),
            self._finish(parameters),
            *self._epsilon(parameters),
            *self._application(parameters, is_streamed=True),
        ]
        name = _name(steps.op, rows, residence.text())
        scale = operands.anchor.scale
        constants: dict[str, bool | str] = {
            "CENTERED": operands.centered,
            "SCALED": scale is not None and rows.is_of_row(scale),
            "PAST_L1": False,
            "Compute": operands.compute,
        }
        residence.launch(steps, name, rows, parameters, functions, "norm_resident_forward.cuh", constants)

    def lie_in_planes(self, planes: Planes) -> None:
        """By blocks that have neighbouring channels."""
        operands, parameters = self.operands, Parameters(self.steps.places)
        whole = Forward(self.steps, operands, planes.channel_rows, (None, None))
        channel, body = whole._channel(parameters), self._streamed(parameters)
        functions = [
            file_text("norm_planes_elements.cuh"),
            *self._stored(parameters, is_fetched=False),
            "struct Channel {\n    Compute scale[1], bias[1];\n};\n",
            whole._finish_row(parameters)[0],
            *self._epsilon(parameters),
            channel,
            body,
        ]
        name = _name(self.steps.op, self.rows, planes.text())
        constants: dict[str, bool | str] = {"CENTERED": True, "PAST_L1": False, "Compute": operands.compute}
        planes.launch(self.steps, name, parameters, functions, "norm_planes_forward.cuh", constants)

    def moments(self, division: Division) -> None:
        """Find the statistics."""
        steps, rows, operands = self.steps, self.rows, self.operands
        parameters = Parameters(steps.places)
        functions = [*self._element(parameters), self._finish(parameters), *self._epsilon(parameters)]
        rows.parameters(parameters)
        division.parameters(parameters)
        is_split = division.splits > 1
        for field, is_used in (("partial_mean", is_split and operands.centered), ("partial_squares", is_split)):
            if is_used:
                size = division.splits * rows.count * operands.bytes
                parameters.scratch(field, operands.compute, steps.allocate(size))
            else:
                parameters.nothing(field, operands.compute)
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
    if _planes(task.op, task.device) or held(rows, operands.bytes) is not None:
        return memory_cost(task)
    staying = resident(rows, operands.bytes, [anchor.x], task.device, is_plain=operands.is_plain)
    if staying is not None:
        return memory_cost(task, staying[1].read_twice, launches=2)
    return memory_cost(task, sum(t.bytes for t in operands.read), launches=3)


ENGINE = cuda_engine(
    id=34,
    name="cuda_norm_forward",
    summary="normalizations forward, one read and one write where a row fits into a block, and their statistics",
    needs=(needs_rule("cuda_norm_forward.operation", "norm"), direction("cuda_norm_forward", "norm_fwd")),
    cost=_cost,
    generate=lambda op, device, knobs: generate_norm_forward(op, device),
    is_general=True,
)
