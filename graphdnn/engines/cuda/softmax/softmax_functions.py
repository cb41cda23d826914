"""The device functions of softmax.cu: the operations on elements and on rows, by pass."""

from __future__ import annotations

from collections.abc import Sequence

from graphdnn.dtypes import FP8
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.pointwise_program import Program
from graphdnn.engines.cuda.reduction.row_threads import Rows
from graphdnn.engines.cuda.softmax.softmax_passes import Stages, result_of
from graphdnn.engines.cuda.softmax.softmax_runs import Runs
from graphdnn.enums import DataType, PointwiseMode, ReductionOperator
from graphdnn.operations import PointwiseOperation
from graphdnn.tensors import TensorSpec

_COMBINE = {ReductionOperator.ADD: "Sum", ReductionOperator.MAX: "Largest"}
# Results with at most 11 significant bits
_SHORT = (*FP8, DataType.HALF, DataType.BFLOAT16, DataType.INT8, DataType.UINT8)


class Functions:
    """The generated functions of softmax.cu."""

    def __init__(
        self,
        stages: Stages,
        rows: Rows,
        parameters: Parameters,
        is_held: bool,
        is_shared: bool,
        runs: Runs | None,
    ) -> None:
        self.stages, self.rows, self.parameters, self.is_held = stages, rows, parameters, is_held or is_shared
        self.is_shared, self.runs = is_shared, runs
        self.row_values = stages.row_values()
        count = len(stages.reductions)
        by_stage = [stages.kept_first] if is_shared else [stages.kept(s) for s in range(count)] if is_held else []
        kept = [t for stage in by_stage for t in stage]
        self.held = {t.uid: f"h{i}" for i, t in enumerate({t.uid: t for t in kept}.values())}
        self._kept = {t.uid: t for t in kept}
        self.row = {uid: f"r{i}" for i, uid in enumerate(self.row_values)}
        self.is_plain = stages.is_plain
        self.is_short = self.is_plain and all(t.data_type in _SHORT for t in stages.op.outputs)
        ends = stages.steps(count, of_rows=False)
        self.divisors = {step.b.uid for step in ends if self._is_quotient(step) and step.b is not None}

    def all(self) -> list[str]:
        count = len(self.stages.reductions)
        parts = [self._held(), self._row(), "template <int S> struct Stage;\n"]
        for stage in range(count):
            parts.append(self._stage(stage))
        parts.append(self._finish(count))
        return parts

    # Values that threads keep.

    def _held(self) -> str:
        fields = {uid: f"{STORAGE[self._kept[uid].data_type]} {name}[VEC_WIDTH];" for uid, name in self.held.items()}
        return _struct("Held", list(fields.values()))

    def _row(self) -> str:
        fields = [f"{STORAGE[t.data_type]} {self.row[uid]}[ROWS_PER_THREAD];" for uid, t in self.row_values.items()]
        fields += [
            f"float {self.row[uid]}_reciprocal[ROWS_PER_THREAD];" for uid in self.row_values if uid in self.divisors
        ]
        return _struct("RowValues", fields)

    # Elements.

    def _elements(self, stage: int) -> Program:
        """The pointwise operations of a pass on elements."""
        rows = self.rows
        program = Program(
            self.stages.op, self.parameters, rows.space, f"s{stage}_", width=rows.width, vector_axis=rows.vector_axis
        )
        steps = self._needed(stage)
        operands = {t.uid: t for step in steps for t in self._operands(step)}
        if stage < len(self.stages.reductions):
            x = self.stages.reductions[stage].x
            operands[x.uid] = x
        computed = {t.uid for step in steps for t in step.outputs().values()}
        before = self._before(stage)
        for uid, spec in operands.items():
            if uid in computed:
                continue
            if uid in self.row_values:
                program.bind(spec, f"row.{self.row[uid]}[row_of(e)]")
            elif uid in before:
                program.bind(spec, f"held.{self.held[uid]}[e]")
            elif self.runs is not None and uid in self.runs.brought:
                program.bind(spec, self.runs.read(spec))
        for step in steps:
            if self._is_quotient(step):
                self._quotient(program, step)
            elif self.is_short and step in self.stages.plain_steps[1:]:
                self._power(program, step)
            else:
                program.apply([step])
        self._store(program, [step for step in self.stages.steps(stage, of_rows=False) if step in steps])
        return program

    def _store(self, program: Program, steps: Sequence[PointwiseOperation]) -> None:
        """Stores outputs to memory, or to the shared memory from which the CTA stores them."""
        if self.runs is None:
            program.store_outputs(steps)
            return
        for spec in map(result_of, steps):
            if spec.uid in self.runs.sent:
                program.copy_to(self.runs.written(spec), spec)

    def _before(self, stage: int) -> set[int]:
        """Loads the values that threads keep from the previous pass."""
        if not stage or not self.is_held:
            return set()
        return {t.uid for t in (self.stages.kept_first if self.is_shared else self.stages.kept(stage - 1))}

    def _needed(self, stage: int) -> list[PointwiseOperation]:
        """The operations of a pass. If some earlier results are not kept, also the operations that they depend on; the
        first pass leaves out operations that only later passes read.
        """
        own = self.stages.steps(stage, of_rows=False)
        if self.is_held and not self.is_shared:
            return own
        if not stage:
            return [step for step in own if not self.is_shared or self.stages.is_first(step)]
        available = self._before(stage)
        uids = {t.uid for step in own for t in step.inputs().values()}
        if stage < len(self.stages.reductions):
            uids.add(self.stages.reductions[stage].x.uid)
        uids -= available
        needed = list(own)
        for at in reversed(range(stage)):
            for step in reversed(self.stages.steps(at, of_rows=False)):
                if any(t.uid in uids for t in step.outputs().values()):
                    needed.insert(0, step)
                    uids |= {t.uid for t in step.inputs().values()} - available
        return needed

    def _operands(self, step: PointwiseOperation) -> list[TensorSpec]:
        """An operand of an operation; a sum that only divides may be replaced by its reciprocal."""
        inputs = step.inputs()
        return [inputs["x"]] if self.is_short and self._is_quotient(step) else list(inputs.values())

    def _is_quotient(self, step: PointwiseOperation) -> bool:
        """The division of exponentials by their sum."""
        total = self.stages.reductions[-1]
        return (
            self.is_plain
            and step.spec.mode is PointwiseMode.DIV
            and COMPUTE_TYPE[step.spec.math_type] == "float"
            and step.alpha1 == step.alpha2 == 1.0
            and [t.uid for t in step.inputs().values()] == [total.x.uid, total.y.uid]
        )

    def _quotient(self, program: Program, step: PointwiseOperation) -> None:
        program.comment(step)
        a, *b = (f"widen<float>({program.value(operand)}[e])" for operand in self._operands(step))
        reciprocal = f"row.{self.row[step.inputs()['b'].uid]}_reciprocal[row_of(e)]"
        program.define(result_of(step), f"quotient({a}, {b[0]}, {reciprocal})" if b else f"{a} * {reciprocal}")

    def _power(self, program: Program, step: PointwiseOperation) -> None:
        program.comment(step)
        program.define(result_of(step), f"fast_exp(widen<float>({program.value(step.inputs()['x'])}[e]))")

    def _stage(self, stage: int) -> str:
        reduction = self.stages.reductions[stage]
        value = COMPUTE_TYPE[reduction.compute_type]
        combine = _COMBINE[reduction.spec.operator]
        program = self._elements(stage)
        if self.is_held and not (self.is_shared and stage):
            for spec in self.stages.kept_first if self.is_shared else self.stages.kept(stage):
                program.copy_to(f"held.{self.held[spec.uid]}", spec)
        program.copy_widened_to("value", reduction.x, value)
        element = program.function("element", f"Held& held, const RowValues& row, {value} (&value)[VEC_WIDTH]")
        identity = f"lowest<{value}>()" if combine == "Largest" else f"({value})0"
        return (
            f"template <> struct Stage<{stage}> {{\n"
            f"typedef {value} Value;\ntypedef {combine} Combine;\n"
            f"static __device__ __forceinline__ {value} identity() {{ return {identity}; }}\n"
            f"static {element}{self._conclude(stage, value)}}};\n"
        )

    def _finish(self, stage: int) -> str:
        return self._elements(stage).function("finish", "const Held& held, const RowValues& row")

    # Rows.

    def _conclude(self, stage: int, value: str) -> str:
        """The results of a reduction and of operations on a row; one thread of the row stores them."""
        reduction, rows = self.stages.reductions[stage], self.rows
        steps = self.stages.steps(stage + 1, of_rows=True)
        program = self._of_rows("c", stage)
        results = [reduction.y, *map(result_of, steps)]
        result_uids = {t.uid for t in results}
        operands = {t.uid: t for step in steps for t in step.inputs().values()}
        for uid, spec in operands.items():
            if uid in self.row_values and uid not in result_uids:
                program.bind(spec, f"row.{self.row[uid]}[e]")
        program.define(reduction.y, "total[e]")
        program.apply(steps)
        for spec in results:
            program.copy_to(f"row.{self.row[spec.uid]}", spec)
            if spec.uid in self.divisors:
                name = self.row[spec.uid]
                program.for_each_element(f"row.{name}_reciprocal[e] = 1.0f / widen<float>(row.{name}[e]);")
        writer = self._of_rows("w", stage)
        for spec in results:
            if spec.uid in {t.uid for t in self.stages.op.outputs}:
                writer.bind(spec, f"row.{self.row[spec.uid]}[e]")
                writer.store(spec)
        known = program.function("known", f"const {value} (&total)[{rows.rows_per_thread}], RowValues& row")
        write = writer.function("write", "const RowValues& row")
        return (
            f"static {known}static {write}"
            "static __device__ __forceinline__ void conclude(\n"
            f"    const Params& p, const int (&at)[RANK], const {value} (&total)[{rows.rows_per_thread}],\n"
            "    RowValues& row, bool writes) {\n"
            "    known(p, at, total, row);\n    if (writes) write(p, at, row);\n}\n"
        )

    def _of_rows(self, prefix: str, stage: int) -> Program:
        rows = self.rows
        return Program(
            self.stages.op,
            self.parameters,
            rows.space,
            f"{prefix}{stage}_",
            width=rows.rows_per_thread,
            vector_axis=rows.row_axes - 1,
        )


def _struct(name: str, fields: Sequence[str]) -> str:
    return f"struct {name} {{\n" + "".join(f"    {field}\n" for field in fields) + "};\n"
