"""The device functions of the forward kernels of a normalization: reads, statistics of a row, and stores."""

from __future__ import annotations

from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import include
from graphdnn.engines.cuda.norm.norm_operands import Operands, of_thread
from graphdnn.engines.cuda.norm.persistent import stored_text, take_text
from graphdnn.engines.cuda.reduction.row_threads import Rows, rows_text
from graphdnn.operations import NormForward
from graphdnn.tensors import TensorSpec

Known = tuple[TensorSpec | None, TensorSpec | None]  # mean and inverse standard deviation in memory


class Functions:
    """The functions of one normalization. ``known``: the tensors in memory for the statistics."""

    def __init__(self, operands: Operands, rows: Rows, known: Known) -> None:
        self.operands, self.rows, self.known = operands, rows, known

    def held(self, parameters: Parameters) -> list[str]:
        """The functions of CTAs that hold their rows in registers."""
        return [
            *self.element(parameters),
            self._before(parameters),
            self.finish(parameters, is_before_known=True),
            *self.epsilon(parameters),
            *self.application(parameters),
        ]

    def element(self, parameters: Parameters, *, is_stored: bool = False) -> list[str]:
        """Reads x through the prologue, in the compute type or in its own type. A prologue of the backward direction
        computes dy.
        """
        if is_stored:
            return [*rows_text(), *self.stored(parameters, is_fetched=True)]
        program = self._taken(parameters)
        program.copy_widened_to("vec.x", self.operands.anchor.x, self.operands.compute)
        return [*rows_text(), include("norm_forward.cuh"), program.function("load_elements", "Elements& vec")]

    def stored(self, parameters: Parameters, *, is_fetched: bool) -> list[str]:
        """Reads x in its own type, for the cache."""
        program, x = self._taken(parameters), self.operands.anchor.x
        program.copy_to("vec.x.data", x)
        files = [include(name) for name in ("norm_forward.cuh", "streaming.cuh", "packed_words.cuh")]
        return [*files, stored_text({"x": x}, self.rows.width), take_text(program, ["x"], is_fetched=is_fetched)]

    def _taken(self, parameters: Parameters) -> Program:
        op, rows = self.operands.op, self.rows
        program = Program(op, parameters, rows.space, "x", width=rows.width, vector_axis=rows.vector_axis)
        if isinstance(self.operands.anchor, NormForward):
            program.apply(op.prologue)
        return program

    def epsilon(self, parameters: Parameters) -> list[str]:
        return [self.operands.epsilon(parameters)]

    def _running(self) -> list[tuple[str, TensorSpec, TensorSpec]]:
        """The running averages: kind, previous value and next value."""
        anchor = self.operands.anchor
        if not isinstance(anchor, NormForward) or anchor.momentum is None:
            return []
        ports = anchor.tensors()
        return [(name, ports[f"input_running_{name}"], ports[f"output_running_{name}"]) for name in ("mean", "var")]

    def _before(self, parameters: Parameters) -> str:
        """Reads the previous running averages of row ``i`` of a thread."""
        program = Program(self.operands.op, parameters, self.rows.space, "b")
        for name, previous, _ in self._running():
            program.copy_widened_to(f"before.{name}", previous, self.operands.compute)
        argument = "Before& before"
        return program.function("read_row", argument) + of_thread("read_before", "read_row", argument)

    def finish(self, parameters: Parameters, *, is_before_known: bool = False) -> str:
        """Stores the statistics of row ``i`` of a thread. ``is_before_known``: running averages were read."""
        text, arguments = self.finish_row(parameters, is_before_known=is_before_known)
        return text + of_thread("finish", "finish_row", arguments)

    def finish_row(self, parameters: Parameters, *, is_before_known: bool = False) -> tuple[str, str]:
        """Stores the statistics of a row. The pair also has the function's parameters."""
        operands, rows, anchor = self.operands, self.rows, self.operands.anchor
        program = Program(operands.op, parameters, rows.space, "s")
        program.comment(anchor)
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
            program.define(spec, value)
        made = {spec.uid for spec, _ in written}
        for spec in operands.op.outputs:
            if spec.uid in made:
                program.store(spec)
        for kept, value in zip(self.known, ("mean", "inverse"), strict=True):
            if kept is not None:
                program.define(kept, value)
                program.store(kept)
        compute = operands.compute
        arguments = f"{compute} mean, {compute} variance, {compute} inverse"
        if is_before_known:
            arguments += ", const Before& before"
        return program.function("finish_row", arguments), arguments

    def channel(self, parameters: Parameters) -> str:
        """Loads the factors of a channel."""
        operands, anchor = self.operands, self.operands.anchor
        assert isinstance(anchor, NormForward)
        program = Program(operands.op, parameters, self.rows.space, "r")
        for field, spec, otherwise in (("scale", anchor.scale, 1), ("bias", anchor.bias, 0)):
            if spec is None:
                program.for_each_element(f"channel.{field}[e] = (Compute){otherwise};")
            else:
                program.copy_widened_to(f"channel.{field}", spec, operands.compute)
        return program.function("of_channel", "Channel& channel")

    def streamed(self, parameters: Parameters) -> str:
        """y from x and the factors of each element, through the epilogue."""
        op, rows, anchor = self.operands.op, self.rows, self.operands.anchor
        assert isinstance(anchor, NormForward)
        axis, stores = rows.vector_axis, "store_streaming"
        body = Program(op, parameters, rows.space, "t", width=rows.width, vector_axis=axis, store_function=stores)
        body.comment(anchor)
        body.define(anchor.y, "(vec.x[e] - row.mean[e]) * row.inverse[e] + row.bias[e]")
        body.apply(op.epilogue)
        body.store_outputs((anchor, *op.epilogue))
        return body.function("epilogue", "const Elements& vec, const Row& row")

    def application(self, parameters: Parameters, *, is_streamed: bool = False) -> list[str]:
        """Loads the factors of a row, and computes y from x through the epilogue."""
        operands, rows, anchor = self.operands, self.rows, self.operands.anchor
        assert isinstance(anchor, NormForward)
        compute = operands.compute
        fixed = Program(
            operands.op, parameters, rows.space, "r", width=rows.rows_per_thread, vector_axis=rows.row_axes - 1
        )
        body = Program(
            operands.op,
            parameters,
            rows.space,
            "t",
            width=rows.width,
            vector_axis=rows.vector_axis,
            store_function="store_streaming" if is_streamed else "store",
        )
        body.comment(anchor)
        mean, inverse = self.known
        for field, spec in (("mean", mean), ("inverse", inverse)):
            if spec is not None:
                fixed.copy_widened_to(f"row.{field}", spec, compute)
        text = "(vec.x[e] - row.mean[row_of(e)])" if operands.centered else "vec.x[e]"
        text += " * row.inverse[row_of(e)]"
        for sign, field, spec in ((" * ", "scale", anchor.scale), (" + ", "bias", anchor.bias)):
            if spec is None:
                continue
            if rows.is_of_row(spec):
                fixed.copy_widened_to(f"row.{field}", spec, compute)
                # Norm_persistent_forward.cuh multiplies it into the inverse deviation
                if spec is not anchor.scale or not is_streamed:
                    text += f"{sign}row.{field}[row_of(e)]"
            else:
                text += f"{sign}widen<{compute}>({body.value(spec)}[e])"
        body.define(anchor.y, text)
        body.apply(operands.op.epilogue)
        leaving = {t.uid for t in operands.op.outputs}
        if anchor.y.uid in leaving:
            body.store(anchor.y)
        body.store_outputs(operands.op.epilogue)
        return [
            fixed.function("of_row", "Row& row"),
            body.function("epilogue", "const Elements& vec, const Row& row"),
        ]
