"""The device functions of the gradient kernels of a normalization: reads, sums, and dx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphdnn.engines.cuda.codegen.launch_sequence import LaunchSequence
from graphdnn.engines.cuda.codegen.parameters import Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.codegen.source import include
from graphdnn.engines.cuda.norm.norm_forward_functions import Known
from graphdnn.engines.cuda.norm.norm_operands import Operands, of_rows, of_thread
from graphdnn.engines.cuda.norm.persistent import stored_text, take_text
from graphdnn.engines.cuda.reduction.row_threads import Rows, rows_of
from graphdnn.operations import NormBackward
from graphdnn.tensors import TensorSpec


class Functions:
    """The functions of one gradient. ``known``: tensors in memory for the mean and the inverse deviation."""

    def __init__(self, steps: LaunchSequence, operands: Operands, known: Known) -> None:
        self.steps, self.operands, self.known = steps, operands, known
        anchor = operands.anchor
        assert isinstance(anchor, NormBackward)
        self.anchor = anchor
        self.mean, self.inverse = known
        # Sums over rows: of g, and of g times the normalized x.
        self.sums = [of_rows(operands, 2 + i, operands.statistic_extents) for i in range(2)]
        stored = [t for t in (*known, *self.sums) if t is not None]
        self.rows = rows_of(
            anchor.x.extents,
            anchor.axes,
            operands.main,
            [*operands.read, anchor.scale, *stored, *operands.epilogue()],
            [t for t in (anchor.dscale, anchor.dbias) if t is not None],
            operands.asked,
        )

    @property
    def is_scaled_along(self) -> bool:
        """Whether the scale changes along a row."""
        return not self.rows.is_of_row(self.anchor.scale)

    @property
    def owns_parameters(self) -> bool:
        """Whether the gradients of scale and bias are the sums over rows."""
        anchor = self.anchor
        summed = {a for a, extent in enumerate(anchor.x.extents) if anchor.scale.extents[a] == 1 and extent != 1}
        return summed == {a for a in anchor.axes if anchor.x.extents[a] != 1}

    @property
    def parts_parameters(self) -> bool:
        """Whether the gradients of scale and bias are sums over the sums of rows."""
        return not self.owns_parameters and not self.is_scaled_along

    def parameter_gradients(self) -> dict[int, int]:
        """From the uid of a gradient to the index of its sum: 0 or 1."""
        found = {self.anchor.dscale.uid: 1}
        if self.anchor.dbias is not None:
            found[self.anchor.dbias.uid] = 0
        return found

    def gradient(self, uid: int) -> TensorSpec:
        return next(t for t in (self.anchor.dscale, self.anchor.dbias) if t is not None and t.uid == uid)

    def loads(self, parameters: Parameters, *, is_stored: bool = False, is_fetched: bool = True) -> list[str]:
        """Reads x, and the gradient through the prologue, in the compute type or in their own types. The gradient
        includes a scale that changes along a row.
        """
        op, rows, anchor, compute = self.steps.op, self.rows, self.anchor, self.operands.compute
        program = Program(op, parameters, rows.space, "x", width=rows.width, vector_axis=rows.vector_axis)
        program.apply(op.prologue)
        if is_stored:
            program.copy_to("vec.x.data", anchor.x)
            program.copy_to("vec.g.data", anchor.dy)
            kept = stored_text({"x": anchor.x, "g": anchor.dy}, rows.width)
            return [include("packed_words.cuh"), kept, take_text(program, ["x", "g"], is_fetched=is_fetched)]
        program.copy_widened_to("vec.x", anchor.x, compute)
        program.copy_widened_to("vec.g", anchor.dy, compute)
        if self.is_scaled_along:
            program.for_each_element(f"vec.g[e] *= widen<{compute}>({program.value(anchor.scale)}[e]);")
        return [program.function("load_elements", "Elements& vec")]

    def finish(self, parameters: Parameters) -> str:
        """Stores the sums of row ``i`` of a thread, if they are gradients."""
        written = self.parameter_gradients() if self.owns_parameters else {}
        text, arguments = self.finish_row(parameters, self.rows, written, self.sums if self.parts_parameters else ())
        return text + of_thread("finish", "finish_row", arguments)

    def finish_row(
        self, parameters: Parameters, rows: Rows, written: Mapping[int, int], kept: Sequence[TensorSpec] = ()
    ) -> tuple[str, str]:
        """Stores the sums of a row, or of one element of rows. ``written``: see ``parameter_gradients``; ``kept``:
        tensors for the sums themselves. The pair also has the function's parameters.
        """
        compute = self.operands.compute
        arguments = f"{compute} sum, {compute} dot"
        program = Program(self.steps.op, parameters, rows.space, "s")
        if written:
            program.comment(self.anchor)
            for uid, part in written.items():
                program.define(self.gradient(uid), ("sum", "dot")[part])
            program.store_outputs((self.anchor,))
        for spec, value in zip(kept, ("sum", "dot"), strict=False):
            program.define(spec, value)
            program.store(spec)
        return program.function("finish_row", arguments), arguments

    def application(
        self, parameters: Parameters, sums: list[TensorSpec], *, is_streamed: bool = False, is_concluded: bool = False
    ) -> list[str]:
        op, rows, anchor, compute = self.steps.op, self.rows, self.anchor, self.operands.compute
        fixed = Program(op, parameters, rows.space, "r", width=rows.rows_per_thread, vector_axis=rows.row_axes - 1)
        known = {"mean": self.mean, "inverse": self.inverse}
        known |= dict(zip(("sum", "dot"), sums, strict=False))
        if self.is_scaled_along:
            fixed.for_each_element("row.scale[e] = (Compute)1;")
        else:
            known["scale"] = anchor.scale
        for field, spec in known.items():
            if spec is not None:
                fixed.copy_widened_to(f"row.{field}", spec, compute)
        load = fixed.function("load_row" if sums else "of_row", "Row& row")
        if sums:
            load += (
                "__device__ __forceinline__ void of_row(const Params& p, const int (&at)[RANK], Row& row) {\n"
                "    load_row(p, at, row);\n    average(p, row);\n}\n"
            )
        return [load, self.body(parameters, is_streamed=is_streamed, is_concluded=is_streamed or is_concluded)]

    def body(self, parameters: Parameters, *, is_streamed: bool, is_concluded: bool) -> str:
        """dx of each element, through the epilogue. ``is_concluded``: the factors of a row are already multiplied."""
        op, rows, anchor = self.steps.op, self.rows, self.anchor
        body = Program(
            op,
            parameters,
            rows.space,
            "t",
            width=rows.width,
            vector_axis=rows.vector_axis,
            store_function="store_streaming" if is_streamed else "store",
        )
        body.comment(anchor)
        body.define(anchor.dx, "concluded_gradient(vec, row, e)" if is_concluded else "gradient(vec, row, e)")
        body.apply(op.epilogue)
        if anchor.dx.uid in {t.uid for t in op.outputs}:
            body.store(anchor.dx)
        body.store_outputs(op.epilogue)
        return body.function("epilogue", "const Elements& vec, const Row& row")
