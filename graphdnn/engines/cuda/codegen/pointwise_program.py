"""Program: a generator of one device function that computes pointwise operations.

The prologue and the epilogue of every engine are such functions. A function computes ``width`` adjacent elements at a
coordinate ``coord`` of an ``IndexSpace``. Each value is an array of its tensor's storage type, so the kernel rounds
exactly where the graph has a tensor. The expressions are in the pointwise table (operations/pointwise_modes.py).

Addresses and strides are fields of ``Params``, which a launch passes. Types, operations and the layout of each operand
along the vector axis are compile-time text. Comments in the text number the operations by their order in the fused
operation, and contain neither uids nor names: graphs that differ only in uids and names have one compiled kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf, prod
from types import MappingProxyType

import numpy as np

from graphdnn.dtypes import COMPUTE, ELEMENTS
from graphdnn.engines.cuda.codegen.addresses import Addresses
from graphdnn.engines.cuda.codegen.index_space import IndexSpace
from graphdnn.engines.cuda.codegen.literals import literal, scaled
from graphdnn.engines.cuda.codegen.parameters import COMPUTE_TYPE, STORAGE, Parameters
from graphdnn.engines.cuda.codegen.vectors import is_column_operand
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation, PointwiseOperation
from graphdnn.operations.pointwise import PointwiseSpec
from graphdnn.tensors import TensorSpec

_L2_LINE_BYTES = 128
_BITS_PER_BYTE = 8
# Sums whose operands are no products. The compiler cannot contract such a sum to a multiply-add, so a plain operator
# replaces the intrinsic.
_WITHOUT_FMA_GUARD = {"__fadd_rn({0}, {1})": "({0} + {1})", "__fsub_rn({0}, {1})": "({0} - {1})"}
_MAX_HALF = 65504.0
# The most floating-point operations of one pointwise operation in all vectors of a thread. More operations become a
# function that is not inlined: instructions stay in the instruction cache, and the compiler takes less time.
_MAX_INLINE_FLOPS = 1600


class Program:
    """Generates one device function, which loads each operand once, before its first use."""

    def __init__(
        self,
        op: FusedOp,
        parameters: Parameters,
        space: IndexSpace,
        prefix: str,
        *,
        width: int = 1,
        vector_axis: int | None = None,
        linear_index: str = "",
        store_function: str = "store",
        has_column_operands: bool = False,
        crosses_rows: bool = False,
        inexact_flag: str = "",
        predicate: str = "",
        accumulators: int = 0,
        static_stride_axes: Collection[int] = (),
        clip_function: str = "",
    ) -> None:
        """
        Args:
            op: The fused operation.
            parameters: The kernel's parameters, to which the program adds the fields of its operands.
            space: The index space of ``coord``.
            prefix: The beginning of the names of fields. The programs of a kernel have different prefixes.
            width: Elements of a vector.
            vector_axis: The axis of ``space`` along which vectors lie; the last axis unless given.
            linear_index: The name of an argument, the element's index in row-major order of the space. The index is the
                offset in tensors that are packed in this order.
            store_function: The C++ function that stores a vector.
            has_column_operands: Whether operands that vary only along the vector axis, such as a bias, are read from
                the argument ``column_operands``, which ``load_column_operands`` fills (``column_operands_text``).
            crosses_rows: Whether a vector may continue past the end of the last axis.
            inexact_flag: The name of an integer that the fast form of an operation changes if its error bound fails.
                Without a flag, operations have their exact form.
            predicate: The name of an argument that predicates the stores. Coordinates must be legal in any case.
            accumulators: Accumulators of a thread, if the kernel calls the function for each vector of them.
            static_stride_axes: Axes whose strides are compile-time constants, which become offsets in instructions.
            clip_function: The C++ function that clips halves to an upper bound, two with each instruction
                (clip_halves.cuh).
        """
        self._op, self._space, self._prefix = op, space, prefix
        self.width = width
        self._vector_axis = space.rank - 1 if vector_axis is None else vector_axis
        self._addresses = Addresses(
            parameters, space, prefix, width, self._vector_axis,
            linear_index=linear_index, static_stride_axes=static_stride_axes, is_conditional=bool(predicate),
        )  # fmt: skip
        self._inexact_flag = inexact_flag
        self._if, self._predicate = f"if ({predicate}) " if predicate else "", predicate
        self._values: dict[int, str] = {}  # uid -> array
        self._products: set[int] = set()  # uids of values that may be products
        self._array_count = 0
        self._store_function = store_function
        self._has_column_operands, self._accumulators = has_column_operands, accumulators
        self._clip_function = clip_function
        self._crosses_rows, self._has_coordinates = crosses_rows, False
        self._column_operands: list[tuple[str, str, str]] = []  # type, name, load
        self._loaded: list[tuple[TensorSpec, str]] = []  # operands in memory, with their addresses
        self._lines: list[str] = []
        self._functions: list[str] = []  # functions that this function calls
        self._operation_index = {id(step): i for i, step in enumerate(op.operations)}

    # Values.

    def _new(self, spec: TensorSpec) -> str:
        name = self._values[spec.uid] = f"v{self._array_count}"
        self._array_count += 1
        self._line(f"{STORAGE[spec.data_type]} {name}[{self.width}];")
        return name

    def _line(self, text: str) -> None:
        self._lines.append(f"    {text}")

    def for_each_element(self, body: str) -> None:
        """Add a loop over the elements of a vector. ``body``: the statements of element ``e``."""
        self._line(f"#pragma unroll\n    for (int e = 0; e < {self.width}; ++e) {{ {body} }}")

    def value(self, spec: TensorSpec) -> str:
        """The name of the array with a tensor's elements, which are loaded unless an operation computes them."""
        array = self._values.get(spec.uid)
        if array is not None:
            return array
        field = self._addresses.field(spec, is_output=False)
        name = self._new(spec)
        kind = STORAGE[spec.data_type]
        if spec.is_by_value or spec.is_constant:
            self.for_each_element(f"{name}[e] = from_bits<{kind}>(p.{field});")
        elif self._addresses.is_bit_vector(spec):
            self._line(f"load_bits(p.{field}, {self._addresses.offset(spec, field, element='')}, {name});")
        elif spec.data_type is DataType.BOOLEAN:
            self.for_each_element(f"{name}[e] = load_bit(p.{field}, {self._addresses.offset(spec, field)});")
        else:
            if self._crosses_rows and not self._addresses.is_linear(spec):
                self._load_elements(spec, field, name)
                return name
            layout, address = self._addresses.layout(spec, field), self._addresses.address(spec, field)
            load = f"load<{self.width}>({address}, {layout}, "
            self._loaded.append((spec, address))
            if self._has_column_operands and is_column_operand(self._space, spec, self._vector_axis):
                self._lines.pop()  # the array's declaration
                self._column_operands.append((kind, name, load))
                name = self._values[spec.uid] = f"column_operands.{name}"
            else:
                self._line(f"{load}{name});")
        return name

    def _load_elements(self, spec: TensorSpec, field: str, name: str) -> None:
        """Load the elements of a vector that continues past the end of an axis, each at its own coordinates."""
        if not self._has_coordinates:
            self._has_coordinates = True
            self._line(f"int each[{self.width}][{self._space.rank}];\n    spread(coord, p.size, each);")
        offset = self._addresses.offset(spec, field, coord="each[e]")
        self.for_each_element(f"{name}[e] = load_vec_read_only<1>(p.{field} + ({offset})).data[0];")

    def previous_output(self, spec: TensorSpec) -> str:
        """The name of an array with the previous contents of an output, which beta scales."""
        self._addresses.field(spec, is_output=True)  # the output is also written
        name = self.value(spec)
        del self._values[spec.uid]
        return name

    @property
    def operands(self) -> tuple[int, ...]:
        """Uids of the operands, in the order of their fields."""
        return self._addresses.operands

    # Statements.

    def define(self, spec: TensorSpec, expression: str) -> str:
        """Define a tensor's elements by an ``expression`` of ``e`` in any arithmetic type, and round them."""
        name = self._new(spec)
        self.for_each_element(f"{name}[e] = narrow<{STORAGE[spec.data_type]}>({expression});")
        self._products.add(spec.uid)
        return name

    def comment(self, step: Operation) -> None:
        """Add a comment with the number and the tag of an operation."""
        self._line(f"// operation {self._operation_index[id(step)]}: {step.tag}")

    def define_anchor(self, step: Operation, spec: TensorSpec, accumulator: str, ctype: str) -> None:
        """Define the anchor's result from an array of accumulators, with alpha and beta.

        Args:
            step: The anchor.
            spec: The tensor of its result.
            accumulator: The name of the array.
            ctype: Its element type: an arithmetic type, or the storage type of ``spec`` if it is rounded already.
        """
        self.comment(step)
        alpha, beta = getattr(step, "alpha", 1.0), getattr(step, "beta", 0.0)
        if alpha == 1.0 and beta == 0.0:
            if ctype == STORAGE[spec.data_type] not in COMPUTE_TYPE.values():
                self._values[spec.uid] = accumulator
            elif self._packs_bytes(spec, ctype):
                self._line(f"narrow_bytes({accumulator}, {self._new(spec)});")
            else:
                self.define(spec, f"{accumulator}[e]")
            if self._accumulators:  # tensor cores have added the products
                self._products.discard(spec.uid)
            return
        kind = _blend_type(ctype, (alpha, beta), spec.data_type if beta else None)
        result = f"({kind}){accumulator}[e]"
        blended = scaled(result, alpha, kind)
        if beta:
            previous = f"widen<{kind}>({self.previous_output(spec)}[e])"
            blended = f"{result} * {literal(alpha, kind)} + {previous} * {literal(beta, kind)}"
        self.define(spec, blended)

    def apply(self, steps: Sequence[Operation]) -> None:
        """Add pointwise operations in order."""
        for step in steps:
            assert isinstance(step, PointwiseOperation)
            self.comment(step)
            self._pointwise(step)

    def _pointwise(self, step: PointwiseOperation) -> None:
        entry, spec = step.spec.row, step.spec  # entry of the pointwise table
        kind = COMPUTE_TYPE[spec.math_type]
        inputs = step.inputs()
        (result,) = step.outputs().values()
        if spec.mode is PointwiseMode.GEN_INDEX:
            self.define(result, self._addresses.index(int(spec.parameters()["axis"]) % len(result.extents)))
            return
        operands = []
        for i, port in enumerate(entry.operands):
            value = f"{self.value(inputs[port])}[e]"
            if port == "t":
                operands.append(f"const bool o{i} = is_true({value});")
                continue
            alpha = (step.alpha1, step.alpha2, 1.0)[i]
            operands.append(f"const {kind} o{i} = {scaled(f'widen<{kind}>({value})', alpha, kind)};")
        text = {"double": entry.cuda_double, "float": entry.cuda}.get(kind, entry.cuda_int)
        if kind == "float" and entry.cuda_pack:
            self._apply_vector_function(entry.cuda_pack, operands, result)
            return
        if not any(inputs[port].uid in self._products for port in entry.operands):
            text = _WITHOUT_FMA_GUARD.get(text, text)
        self._products.add(result.uid)
        bound = self._half_upper_bound(spec, result)
        values = {**spec.parameters(), **({} if bound is None else {"relu_upper_clip": inf})}
        parameters = {name: literal(value, kind) for name, value in values.items()}
        expression = text.format(*(f"o{i}" for i in range(len(operands))), **parameters)
        result_type = "bool" if entry.kind in ("comparison", "logical") else kind
        if kind == "float" and entry.flops * self._accumulators > _MAX_INLINE_FLOPS:
            operands, expression = self._outline(operands, expression)
        body = " ".join(operands)
        if self._packs_bytes(result, result_type):
            self._store_packed_bytes(body, expression, result_type, result)
            return
        name = self._new(result)
        self.for_each_element(f"{body} {name}[e] = narrow<{STORAGE[result.data_type]}>(({result_type}){expression});")
        if bound is not None:
            self._line(f"{self._clip_function}({name}, {bound});")

    def _half_upper_bound(self, spec: PointwiseSpec, result: TensorSpec) -> int | None:
        """The bits of a ReLU's upper bound, if the bound is a half, since clipping then commutes with rounding."""
        if not self._clip_function or spec.mode is not PointwiseMode.RELU_FWD or result.data_type is not DataType.HALF:
            return None
        values = spec.parameters()
        upper = float(values["relu_upper_clip"])
        is_standard = values["relu_lower_clip"] == values["relu_lower_clip_slope"] == 0
        if self.width % 2 or not is_standard or not 0 < upper <= _MAX_HALF or float(np.float16(upper)) != upper:
            return None
        return int(np.float16(upper).view(np.uint16))

    def _outline(self, operands: Sequence[str], expression: str) -> tuple[list[str], str]:
        """Replace an ``expression`` of floats by a call of a function that is not inlined.

        The function takes whole vectors: the elements of a vector are independent, while calls are sequential. Returns
        the operands and the expression that replace the arguments.
        """
        count, name = len(operands), f"{self._prefix}_outlined{len(self._functions)}"
        pack = f"{name}_pack"
        loads = " ".join(f"const float o{i} = a{i}.x[e];" for i in range(count))
        self._functions.append(
            f"struct {pack} {{ float x[{self.width}]; }};\n"
            f"__device__ __noinline__ {pack} {name}({', '.join(f'const {pack} a{i}' for i in range(count))}) {{\n"
            f"    {pack} r;\n    #pragma unroll\n"
            f"    for (int e = 0; e < {self.width}; ++e) {{ {loads} r.x[e] = {expression}; }}\n    return r;\n}}\n"
        )
        packs = [f"{name}_{i}" for i in range(count)]
        self._line(f"{pack} {', '.join(packs)};")
        self.for_each_element(" ".join((*operands, *(f"{array}.x[e] = o{i};" for i, array in enumerate(packs)))))
        self._line(f"const {pack} {name}_r = {name}({', '.join(packs)});")
        return [], f"{name}_r.x[e]"

    def _packs_bytes(self, spec: TensorSpec, ctype: str) -> bool:
        """Whether elements are signed bytes, which ``narrow_bytes`` rounds and packs by one instruction.

        Unsigned bytes are excluded: an H200 rejects the instruction that the compiler generates for them (F2IP.U8).
        """
        return ctype in ("int", "float") and self.width % 4 == 0 and spec.data_type is DataType.INT8

    def _store_packed_bytes(self, body: str, expression: str, ctype: str, result: TensorSpec) -> None:
        """Define signed bytes by an ``expression`` of ``ctype``, and pack four bytes to a word."""
        wide = f"v{self._array_count}"
        self._array_count += 1
        self._line(f"{ctype} {wide}[{self.width}];")
        self.for_each_element(f"{body} {wide}[e] = ({ctype}){expression};")
        self._line(f"narrow_bytes({wide}, {self._new(result)});")

    def _apply_vector_function(self, function: str, operands: Sequence[str], result: TensorSpec) -> None:
        """Define a result by a C++ function of arrays. ``operands`` define ``o0``, ``o1`` ... of element ``e``."""
        arrays = [f"v{self._array_count + i}" for i in range(len(operands) + 1)]
        self._array_count += len(arrays)
        self._line("float " + ", ".join(f"{name}[{self.width}]" for name in arrays) + ";")
        self.for_each_element(" ".join((*operands, *(f"{name}[e] = o{i};" for i, name in enumerate(arrays[:-1])))))
        fast, flag = ("fast_", [self._inexact_flag]) if self._inexact_flag else ("", [])
        self._line(f"{fast}{function}({', '.join(arrays + flag)});")
        self.define(result, f"{arrays[-1]}[e]")

    def store(self, spec: TensorSpec) -> None:
        """Store a tensor's elements to memory."""
        value = self._values[spec.uid]
        field = self._addresses.field(spec, is_output=True)
        if self._addresses.is_bit_vector(spec) and self.width % _BITS_PER_BYTE == 0:
            self._line(f"{self._if}store_bits(p.{field}, {self._addresses.offset(spec, field, element='')}, {value});")
        elif spec.data_type is DataType.BOOLEAN:
            self.for_each_element(f"{self._if}store_bit(p.{field}, {self._addresses.offset(spec, field)}, {value}[e]);")
        else:
            layout = self._addresses.layout(spec, field)
            # The address is computed outside the predicate, so that adjacent calls share its terms.
            self._line(f"{STORAGE[spec.data_type]}* const to_{field} = {self._addresses.address(spec, field)};")
            suffix, condition = ("_if", f"{self._predicate}, ") if self._predicate else ("", "")
            self._line(f"{self._store_function}{suffix}<{self.width}>({condition}to_{field}, {layout}, {value});")

    def store_outputs(self, steps: Sequence[Operation]) -> None:
        """Store every output of the fused operation that one of ``steps`` computes."""
        outputs = {t.uid for t in self._op.outputs}
        for step in steps:
            for spec in step.outputs().values():
                if spec.uid in outputs and spec.uid in self._values:
                    self.store(spec)

    def bind(self, spec: TensorSpec, expression: str) -> None:
        """Define a tensor's elements by an ``expression`` of ``e`` in the storage type, without rounding."""
        name = self._new(spec)
        self.for_each_element(f"{name}[e] = {expression};")

    def copy_to(self, name: str, spec: TensorSpec) -> None:
        """Copy a tensor's elements to the array ``name`` of the storage type, an argument of the function."""
        value = self.value(spec)
        self.for_each_element(f"{name}[e] = {value}[e];")

    def copy_widened_to(self, name: str, spec: TensorSpec, ctype: str) -> None:
        """Copy a tensor's elements to the array ``name`` of the arithmetic type, an argument of the function."""
        value = self.value(spec)
        self.for_each_element(f"{name}[e] = widen<{ctype}>({value}[e]);")

    def widen_array(self, spec: TensorSpec, ctype: str) -> str:
        """The name of a new array with a tensor's elements in the arithmetic type ``ctype``."""
        value = self.value(spec)
        name = f"v{self._array_count}"
        self._array_count += 1
        self._line(f"{ctype} {name}[{self.width}];")
        self.for_each_element(f"{name}[e] = widen<{ctype}>({value}[e]);")
        return name

    def function(self, name: str, arguments: str = "") -> str:
        """The text of ``void name(const Params& p, const int (&coord)[rank], arguments)``."""
        listed = ", ".join(a for a in ("const Params& p", f"const int (&coord)[{self._space.rank}]", arguments) if a)
        body = "\n".join(self._lines)
        return "".join(self._functions) + f"__device__ __forceinline__ void {name}({listed}) {{\n{body}\n}}\n"

    def column_operands_text(self, others: Mapping[str, str] = MappingProxyType({})) -> str:
        """The text of ``struct ColumnOperands``, and of ``load_column_operands``, which loads it at a coordinate.

        ``others``: names and types of further arrays in the struct, which the kernel fills.
        """
        arrays = [
            *((kind, name) for kind, name, _ in self._column_operands),
            *((kind, name) for name, kind in others.items()),
        ]
        fields = "".join(f"    {kind} {name}[{self.width}];\n" for kind, name in arrays)
        body = "".join(f"    {load}column_operands.{name});\n" for _, name, load in self._column_operands)
        arguments = f"const Params& p, const int (&coord)[{self._space.rank}], ColumnOperands& column_operands"
        head = f"__device__ __forceinline__ void load_column_operands({arguments})"
        return f"struct ColumnOperands {{\n{fields}}};\n{head} {{\n{body}}}\n"

    def streamed_operands(self) -> list[TensorSpec]:
        """Operands in memory that are as large as the result and contiguous along the vector axis."""
        count = prod(self._space.sizes)
        strides = self._space.strides
        return [t for t, _ in self._loaded if t.elements >= count and strides(t)[self._vector_axis] == 1]

    @property
    def prefetch_elements(self) -> int:
        """Elements in an L2 line of the streamed operand with the largest elements; 0 without streamed operands."""
        element_bytes = max((ELEMENTS[t.data_type].bytes for t in self.streamed_operands()), default=0)
        return _L2_LINE_BYTES // element_bytes if element_bytes else 0

    def prefetch_text(self, name: str) -> str:
        """The text of the function ``name``, which prefetches the streamed operands at a coordinate into L2."""
        streamed = {t.uid for t in self.streamed_operands()}
        lines = "".join(f"    prefetch_l2_line({address});\n" for t, address in self._loaded if t.uid in streamed)
        head = f"__device__ __forceinline__ void {name}(const Params& p, const int (&coord)[{self._space.rank}])"
        return f"{head} {{\n{lines}}}\n"


def _blend_type(ctype: str, factors: tuple[float, float], previous: DataType | None) -> str:
    """The type of ``alpha * result + beta * previous``. Integer factors and an integer output keep integers exact.

    ``previous``: the type of the output's previous contents; None if beta is 0.
    """
    if ctype in ("float", "double"):
        return ctype
    if previous is not None and ELEMENTS[previous].kind == "float":
        return "double"
    wide = "long long" if ctype == "long long" or previous is DataType.INT64 else "int"
    limit = 2**63 - 1 if wide == "long long" else 2**31 - 1
    return wide if all(float(f).is_integer() and abs(f) <= limit for f in factors) else "double"


def gen_index_axes(steps: Sequence[Operation]) -> frozenset[int]:
    """Logical axes whose index a GEN_INDEX operation reads."""
    return frozenset(
        int(step.spec.parameters()["axis"]) % len(next(iter(step.outputs().values())).extents)
        for step in steps
        if isinstance(step, PointwiseOperation) and step.spec.mode is PointwiseMode.GEN_INDEX
    )


assert set(COMPUTE_TYPE) == set(COMPUTE)
