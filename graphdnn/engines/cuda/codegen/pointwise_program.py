"""Program: pointwise operations as the text of one device function. Every engine's prologue and epilogue.

The function works on ``width`` neighbouring elements at a coordinate ``at`` of a
``IndexSpace``. Values live in arrays of their tensor's storage type, so each is rounded
exactly where the graph says; the expressions are those of the pointwise table.
Operands are found at run time (addresses and strides are fields of ``Params``);
types, operations and the way each operand lies along the vector axis are text.

Comments number the operations as the fused operation lists them, and say nothing
of uids or names: graphs that differ only in those share one compiled kernel.
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
from graphdnn.engines.cuda.codegen.vectors import is_of_vector_axis
from graphdnn.enums import DataType, PointwiseMode
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation, PointwiseOperation
from graphdnn.operations.pointwise import PointwiseSpec
from graphdnn.tensors import TensorSpec

_LINE = 128  # bytes
_BITS = 8  # of a byte
# Sums of operands in memory and of tensor cores' sums: there is no product to take into a multiply-add.
_OF_NO_PRODUCTS = {"__fadd_rn({0}, {1})": "({0} + {1})", "__fsub_rn({0}, {1})": "({0} - {1})"}
_LARGEST_HALF = 65504.0
# Operations of one kind in all packs of a thread, beyond which they are a function that is called: instructions then
# stay in their cache, and the compiler takes less time.
_LONG = 1600


class Program:
    """Builds one device function. Operands are loaded when first used, each once."""

    def __init__(
        self,
        op: FusedOp,
        parameters: Parameters,
        space: IndexSpace,
        prefix: str,
        *,
        width: int = 1,
        vector_axis: int | None = None,
        linear: str = "",
        stores: str = "store",
        keeps: bool = False,
        wraps: bool = False,
        flag: str = "",
        condition: str = "",
        sums: int = 0,
        written: Collection[int] = (),
        clips: str = "",
    ) -> None:
        """``prefix`` keeps the fields of several programs of one kernel apart. ``linear``: the name of an argument
        that counts elements in the order of the space, which is the offset in tensors that are packed in that order.
        ``stores``: the function that stores neighbours. ``keeps``: what varies along the vector axis only
        is taken from ``kept``, an argument that the function ``keep`` filled (``keeping``). ``wraps``: a pack goes on
        past the end of the last axis, as what is packed in the order of the space does. ``flag``: the
        name of an integer that the fast form of an operation sets where its error bound fails; without it the exact
        form is used. ``condition``: an argument without which nothing is stored; coordinates have to be legal all the
        same. ``sums``: results of a thread, where the kernel's text calls the function for each pack of them.
        ``written``: axes along which strides are numbers of the text, which addresses of neighbours then have inside
        instructions. ``clips``: the function that bounds an array of halves, two by one instruction (clip_halves.cuh).
        """
        self._op, self._space, self._prefix = op, space, prefix
        self.width = width
        self._vector_axis = space.rank - 1 if vector_axis is None else vector_axis
        self._at = Addresses(
            parameters, space, prefix, width, self._vector_axis,
            linear=linear, written=written, is_conditional=bool(condition),
        )  # fmt: skip
        self._flag = flag
        self._if, self._condition = f"if ({condition}) " if condition else "", condition
        self._values: dict[int, str] = {}  # uid -> array
        self._calculated: set[int] = set()  # uids of what may end with a product
        self._arrays = 0
        self._stores = stores
        self._keeps, self._sums, self._clips = keeps, sums, clips
        self._wraps, self._is_spread = wraps, False
        self._kept: list[tuple[str, str, str]] = []  # type, name, load
        self._loaded: list[tuple[TensorSpec, str]] = []  # from memory, and where
        self._lines: list[str] = []
        self._functions: list[str] = []  # that the function calls
        self._number = {id(step): i for i, step in enumerate(op.operations)}

    # Values.

    def _new(self, spec: TensorSpec) -> str:
        name = self._values[spec.uid] = f"v{self._arrays}"
        self._arrays += 1
        self._line(f"{STORAGE[spec.data_type]} {name}[{self.width}];")
        return name

    def _line(self, text: str) -> None:
        self._lines.append(f"    {text}")

    def each(self, body: str) -> None:
        """One statement for every element; ``e`` counts them."""
        self._line(f"#pragma unroll\n    for (int e = 0; e < {self.width}; ++e) {{ {body} }}")

    def value(self, spec: TensorSpec) -> str:
        """The array that holds a tensor's elements, loaded from memory when nothing here computes them."""
        known = self._values.get(spec.uid)
        if known is not None:
            return known
        field = self._at.field(spec, is_output=False)
        name = self._new(spec)
        kind = STORAGE[spec.data_type]
        if spec.is_by_value or spec.is_constant:
            self.each(f"{name}[e] = from_bits<{kind}>(p.{field});")
        elif self._at.is_pack_of_bits(spec):
            self._line(f"load_bits(p.{field}, {self._at.offset(spec, field, lane='')}, {name});")
        elif spec.data_type is DataType.BOOLEAN:
            self.each(f"{name}[e] = load_bit(p.{field}, {self._at.offset(spec, field)});")
        else:
            if self._wraps and not self._at.is_linear(spec):
                self._one_by_one(spec, field, name)
                return name
            step, place = self._at.step(spec, field), self._at.place(spec, field)
            load = f"load<{self.width}>({place}, {step}, "
            self._loaded.append((spec, place))
            if self._keeps and is_of_vector_axis(self._space, spec, self._vector_axis):
                self._lines.pop()  # the array's declaration
                self._kept.append((kind, name, load))
                name = self._values[spec.uid] = f"kept.{name}"
            else:
                self._line(f"{load}{name});")
        return name

    def _one_by_one(self, spec: TensorSpec, field: str, name: str) -> None:
        """Load the elements of a pack that goes on past the end of an axis."""
        if not self._is_spread:
            self._is_spread = True
            self._line(f"int each[{self.width}][{self._space.rank}];\n    spread(at, p.size, each);")
        self.each(
            f"{name}[e] = load_vec_read_only<1>(p.{field} + ({self._at.offset(spec, field, at='each[e]')})).data[0];"
        )

    def old(self, spec: TensorSpec) -> str:
        """What an output held before, for beta: loaded, but not the tensor's value."""
        self._at.field(spec, is_output=True)  # it is written too
        name = self.value(spec)
        del self._values[spec.uid]
        return name

    @property
    def operands(self) -> tuple[int, ...]:
        """Uids of the tensors in memory and by value, in the order of their fields."""
        return self._at.operands

    # Statements.

    def set(self, spec: TensorSpec, expression: str) -> str:
        """Define a tensor's elements: ``expression`` of ``e``, in any arithmetic type, rounded to the tensor's."""
        name = self._new(spec)
        self.each(f"{name}[e] = narrow<{STORAGE[spec.data_type]}>({expression});")
        self._calculated.add(spec.uid)
        return name

    def note(self, step: Operation) -> None:
        self._line(f"// operation {self._number[id(step)]}: {step.tag}")

    def anchor(self, step: Operation, spec: TensorSpec, accumulator: str, ctype: str) -> None:
        """The anchor's result enters: ``accumulator`` is an array of ``ctype``; alpha and beta are applied here. A
        storage type is the result's own: it was rounded already.
        """
        self.note(step)
        alpha, beta = getattr(step, "alpha", 1.0), getattr(step, "beta", 0.0)
        if alpha == 1.0 and beta == 0.0:
            if ctype == STORAGE[spec.data_type] not in COMPUTE_TYPE.values():
                self._values[spec.uid] = accumulator
            elif self._fills_words(spec, ctype):
                self._line(f"narrow_bytes({accumulator}, {self._new(spec)});")
            else:
                self.set(spec, f"{accumulator}[e]")
            if self._sums:  # of tensor cores
                self._calculated.discard(spec.uid)
            return
        kind = _blending_type(ctype, (alpha, beta), spec.data_type if beta else None)
        result = f"({kind}){accumulator}[e]"
        blended = scaled(result, alpha, kind)
        if beta:
            blended = f"{result} * {literal(alpha, kind)} + widen<{kind}>({self.old(spec)}[e]) * {literal(beta, kind)}"
        self.set(spec, blended)

    def apply(self, steps: Sequence[Operation]) -> None:
        """Pointwise operations in order."""
        for step in steps:
            assert isinstance(step, PointwiseOperation)
            self.note(step)
            self._pointwise(step)

    def _pointwise(self, step: PointwiseOperation) -> None:
        row, spec = step.spec.row, step.spec
        kind = COMPUTE_TYPE[spec.math_type]
        inputs = step.inputs()
        (result,) = step.outputs().values()
        if spec.mode is PointwiseMode.GEN_INDEX:
            self.set(result, self._at.index(int(spec.parameters()["axis"]) % len(result.extents)))
            return
        operands = []
        for i, port in enumerate(row.operands):
            value = f"{self.value(inputs[port])}[e]"
            if port == "t":
                operands.append(f"const bool o{i} = is_true({value});")
                continue
            alpha = (step.alpha1, step.alpha2, 1.0)[i]
            operands.append(f"const {kind} o{i} = {scaled(f'widen<{kind}>({value})', alpha, kind)};")
        text = {"double": row.cuda_double, "float": row.cuda}.get(kind, row.cuda_int)
        if kind == "float" and row.cuda_pack:
            self._by_packs(row.cuda_pack, operands, result)
            return
        if not any(inputs[port].uid in self._calculated for port in row.operands):
            text = _OF_NO_PRODUCTS.get(text, text)
        self._calculated.add(result.uid)
        bound = self._bound_of_halves(spec, result)
        values = {**spec.parameters(), **({} if bound is None else {"relu_upper_clip": inf})}
        parameters = {name: literal(value, kind) for name, value in values.items()}
        expression = text.format(*(f"o{i}" for i in range(len(operands))), **parameters)
        result_type = "bool" if row.kind in ("comparison", "logical") else kind
        if kind == "float" and row.flops * self._sums > _LONG:
            operands, expression = self._apart(operands, expression)
        body = " ".join(operands)
        if self._fills_words(result, result_type):
            self._by_bytes(body, expression, result_type, result)
            return
        name = self._new(result)
        self.each(f"{body} {name}[e] = narrow<{STORAGE[result.data_type]}>(({result_type}){expression});")
        if bound is not None:
            self._line(f"{self._clips}({name}, {bound});")

    def _bound_of_halves(self, spec: PointwiseSpec, result: TensorSpec) -> int | None:
        """The bits of a ReLU's upper bound that is a half itself: the least of it and a result is then the same before
        and after the result is rounded.
        """
        if not self._clips or spec.mode is not PointwiseMode.RELU_FWD or result.data_type is not DataType.HALF:
            return None
        values = spec.parameters()
        upper = float(values["relu_upper_clip"])
        is_plain = values["relu_lower_clip"] == values["relu_lower_clip_slope"] == 0
        if self.width % 2 or not is_plain or not 0 < upper <= _LARGEST_HALF or float(np.float16(upper)) != upper:
            return None
        return int(np.float16(upper).view(np.uint16))

    def _apart(self, operands: Sequence[str], expression: str) -> tuple[list[str], str]:
        """``expression`` of floats as a function that is called; of a whole pack, whose elements wait for each other
        less than calls do. Operands and expression after it.
        """
        count, name = len(operands), f"{self._prefix}_apart{len(self._functions)}"
        pack = f"{name}_pack"
        taken = " ".join(f"const float o{i} = a{i}.x[e];" for i in range(count))
        self._functions.append(
            f"struct {pack} {{ float x[{self.width}]; }};\n"
            f"__device__ __noinline__ {pack} {name}({', '.join(f'const {pack} a{i}' for i in range(count))}) {{\n"
            f"    {pack} r;\n    #pragma unroll\n"
            f"    for (int e = 0; e < {self.width}; ++e) {{ {taken} r.x[e] = {expression}; }}\n    return r;\n}}\n"
        )
        packs = [f"{name}_{i}" for i in range(count)]
        self._line(f"{pack} {', '.join(packs)};")
        self.each(" ".join((*operands, *(f"{array}.x[e] = o{i};" for i, array in enumerate(packs)))))
        self._line(f"const {pack} {name}_r = {name}({', '.join(packs)});")
        return [], f"{name}_r.x[e]"

    def _fills_words(self, spec: TensorSpec, ctype: str) -> bool:
        """Whether elements are bytes that are packed while they are rounded. An H200 refuses the instruction that the
        compiler makes of unsigned ones (F2IP.U8).
        """
        return ctype in ("int", "float") and self.width % 4 == 0 and spec.data_type is DataType.INT8

    def _by_bytes(self, body: str, expression: str, ctype: str, result: TensorSpec) -> None:
        """``expression`` of ``ctype``, four elements to a word."""
        whole = f"v{self._arrays}"
        self._arrays += 1
        self._line(f"{ctype} {whole}[{self.width}];")
        self.each(f"{body} {whole}[e] = ({ctype}){expression};")
        self._line(f"narrow_bytes({whole}, {self._new(result)});")

    def _by_packs(self, function: str, operands: Sequence[str], result: TensorSpec) -> None:
        """A function of arrays in float: ``operands`` define ``o0``, ``o1`` ... of element ``e``."""
        arrays = [f"v{self._arrays + i}" for i in range(len(operands) + 1)]
        self._arrays += len(arrays)
        self._line("float " + ", ".join(f"{name}[{self.width}]" for name in arrays) + ";")
        self.each(" ".join((*operands, *(f"{name}[e] = o{i};" for i, name in enumerate(arrays[:-1])))))
        fast, flag = ("fast_", [self._flag]) if self._flag else ("", [])
        self._line(f"{fast}{function}({', '.join(arrays + flag)});")
        self.set(result, f"{arrays[-1]}[e]")

    def store(self, spec: TensorSpec) -> None:
        """Write a tensor's elements to memory."""
        value = self._values[spec.uid]
        field = self._at.field(spec, is_output=True)
        if self._at.is_pack_of_bits(spec) and self.width % _BITS == 0:
            self._line(f"{self._if}store_bits(p.{field}, {self._at.offset(spec, field, lane='')}, {value});")
        elif spec.data_type is DataType.BOOLEAN:
            self.each(f"{self._if}store_bit(p.{field}, {self._at.offset(spec, field)}, {value}[e]);")
        else:
            step = self._at.step(spec, field)
            # The address outside the condition: neighbouring calls share what it is made of.
            self._line(f"{STORAGE[spec.data_type]}* const to_{field} = {self._at.place(spec, field)};")
            how, condition = ("_if", f"{self._condition}, ") if self._condition else ("", "")
            self._line(f"{self._stores}{how}<{self.width}>({condition}to_{field}, {step}, {value});")

    def store_outputs(self, steps: Sequence[Operation]) -> None:
        """Write every output of the fused operation that one of ``steps`` computes."""
        leaving = {t.uid for t in self._op.outputs}
        for step in steps:
            for spec in step.outputs().values():
                if spec.uid in leaving and spec.uid in self._values:
                    self.store(spec)

    def given(self, spec: TensorSpec, expression: str) -> None:
        """The caller holds a tensor's elements: ``expression`` of ``e``, in the storage type."""
        name = self._new(spec)
        self.each(f"{name}[e] = {expression};")

    def hand(self, name: str, spec: TensorSpec) -> None:
        """Hand a tensor's elements to the caller, in the storage type."""
        value = self.value(spec)
        self.each(f"{name}[e] = {value}[e];")

    def result(self, name: str, spec: TensorSpec, ctype: str) -> None:
        """Hand a tensor's elements to the caller, in the arithmetic type."""
        value = self.value(spec)
        self.each(f"{name}[e] = widen<{ctype}>({value}[e]);")

    def widened(self, spec: TensorSpec, ctype: str) -> str:
        """An array of a tensor's elements in an arithmetic type."""
        value = self.value(spec)
        name = f"v{self._arrays}"
        self._arrays += 1
        self._line(f"{ctype} {name}[{self.width}];")
        self.each(f"{name}[e] = widen<{ctype}>({value}[e]);")
        return name

    def function(self, name: str, arguments: str = "") -> str:
        """The text of ``void name(const Params& p, const int (&at)[rank], arguments)``."""
        listed = ", ".join(a for a in ("const Params& p", f"const int (&at)[{self._space.rank}]", arguments) if a)
        body = "\n".join(self._lines)
        return "".join(self._functions) + f"__device__ __forceinline__ void {name}({listed}) {{\n{body}\n}}\n"

    def keeping(self, others: Mapping[str, str] = MappingProxyType({})) -> str:
        """The text of ``struct Kept``, and of ``keep``, which fills one at a coordinate. ``others``: names and types of
        arrays in it that the caller fills.
        """
        filled = [*((kind, name) for kind, name, _ in self._kept), *((kind, name) for name, kind in others.items())]
        fields = "".join(f"    {kind} {name}[{self.width}];\n" for kind, name in filled)
        body = "".join(f"    {load}kept.{name});\n" for _, name, load in self._kept)
        arguments = f"const Params& p, const int (&at)[{self._space.rank}], ColumnOperands& kept"
        head = f"__device__ __forceinline__ void load_column_operands({arguments})"
        return f"struct ColumnOperands {{\n{fields}}};\n{head} {{\n{body}}}\n"

    def streamed(self) -> list[TensorSpec]:
        """What the function reads from memory that is as large as what it computes, along the vector axis."""
        most = prod(self._space.sizes)
        strides = self._space.strides
        return [t for t, _ in self._loaded if t.elements >= most and strides(t)[self._vector_axis] == 1]

    @property
    def fetched(self) -> int:
        """Elements that one line of the device's cache holds of every streamed operand; 0 when there is none."""
        widest = max((ELEMENTS[t.data_type].bytes for t in self.streamed()), default=0)
        return _LINE // widest if widest else 0

    def fetching(self, name: str) -> str:
        """The text of ``name``, which asks for the lines of streamed operands at a coordinate, ahead of their use."""
        streamed = {t.uid for t in self.streamed()}
        lines = "".join(f"    fetch_line({place});\n" for t, place in self._loaded if t.uid in streamed)
        head = f"__device__ __forceinline__ void {name}(const Params& p, const int (&at)[{self._space.rank}])"
        return f"{head} {{\n{lines}}}\n"


def _blending_type(ctype: str, factors: tuple[float, float], old: DataType | None) -> str:
    """The type of alpha * result + beta * old: whole factors and an integer old contents keep integers exact."""
    if ctype in ("float", "double"):
        return ctype
    if old is not None and ELEMENTS[old].kind == "float":
        return "double"
    wide = "long long" if ctype == "long long" or old is DataType.INT64 else "int"
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
