"""Kinds of wide operands: the planes that each is split into, the products of planes, and their text (wgmma).

An integer is bytes, the lowest first: all are unsigned but the highest of a signed type. A float is three parts of
eight bits (bfloat16), the largest first, which together are the float. Products of one weight share sums:

    int16 x int16   2^16 hh + 2^8 (hl + lh) + ll       (modulo 2^32 or exact)
    float x float   aa + (ab + ba + ac + bb + ca)      (what is left out is below 2^-24 of a product)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from graphdnn.dtypes import ELEMENTS
from graphdnn.enums import DataType

_BYTES = {
    DataType.INT8: ("s8",),
    DataType.UINT8: ("u8",),
    DataType.INT16: ("u8", "s8"),
    DataType.INT32: ("u8", "u8", "u8", "s8"),
}
INTEGERS = tuple(_BYTES)
_LARGEST = {"u8": 255, "s8": 128}
_ENDS = {"u8": (0, 255), "s8": (-128, 127)}
_FLOAT_PARTS = 3
_ROW = 128  # bytes of a row of the gathered operand
_INSTRUCTION = 32  # bytes of k, of one plane
_LINES = (128, 64, 32)  # bytes that a copy takes of a row of planes
_MATRIX = "unsigned long long"  # a descriptor
_PLANE_AT = f"__device__ __forceinline__ {_MATRIX} plane_at({_MATRIX} b, int plane, int block);\n"


@dataclass(frozen=True)
class Kind:
    """``a``: the gathered operand, split in registers; ``b``: the filter, whose planes lie in memory."""

    a: DataType
    b: DataType
    compute: DataType

    @cached_property
    def is_float(self) -> bool:
        return self.a is DataType.FLOAT

    @cached_property
    def planes(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The instruction's types of the planes of a and of b."""
        if self.is_float:
            return (("bf16",) * _FLOAT_PARTS,) * 2
        return _BYTES[self.a], _BYTES[self.b]

    @cached_property
    def plane_bytes(self) -> int:
        """Of a plane's element."""
        return 2 if self.is_float else 1

    @cached_property
    def depth(self) -> int:
        """Channels of one instruction."""
        return _INSTRUCTION // self.plane_bytes

    @cached_property
    def boxes(self) -> int:
        """Rows of 128 bytes of the gathered operand in a stage: whole pairs of instructions."""
        return 2 if self.a is DataType.INT32 else 1

    @cached_property
    def channels(self) -> int:
        """Of a stage."""
        return self.boxes * _ROW // ELEMENTS[self.a].bytes

    @cached_property
    def blocks(self) -> int:
        """Instructions along k in a stage."""
        return self.channels // self.depth

    @cached_property
    def filter_row(self) -> int:
        """Bytes of a stage's row of planes."""
        return len(self.planes[1]) * self.channels * self.plane_bytes

    @cached_property
    def line(self) -> int:
        return next(line for line in _LINES if self.filter_row % line == 0)

    @cached_property
    def products(self) -> tuple[tuple[int, int, int], ...]:
        """(plane of a, plane of b, sums), in their order."""
        first, second = self.planes
        pairs = [(i, j) for i in range(len(first)) for j in range(len(second))]
        if self.is_float:
            small = sorted(((i, j) for i, j in pairs if 0 < i + j < _FLOAT_PARTS), key=lambda pair: -sum(pair))
            return (*((i, j, 0) for i, j in small), (0, 0, 1))
        most = 4 if self.compute is DataType.INT32 else len(first) + len(second)
        return tuple((i, j, i + j) for i, j in pairs if i + j < most)

    @cached_property
    def sums(self) -> int:
        return 1 + max(group for *_, group in self.products)

    @cached_property
    def longest(self) -> int:
        """Products whose sums certainly fit 32 bits; 0: any number, as they are kept modulo 2^32 or are floats."""
        if self.compute is not DataType.INT64:
            return 0
        return min((2**32 - 1 if self._is_unsigned(g) else 2**31 - 1) // self._reach(g) for g in range(self.sums))

    def _types(self, group: int) -> list[tuple[str, str]]:
        return [(self.planes[0][i], self.planes[1][j]) for i, j, g in self.products if g == group]

    def _is_unsigned(self, group: int) -> bool:
        return all(pair == ("u8", "u8") for pair in self._types(group))

    def _reach(self, group: int) -> int:
        return sum(_LARGEST[a] * _LARGEST[b] for a, b in self._types(group))

    @property
    def largest_product(self) -> int:
        """Of a channel's products of one weight together, without its sign."""
        return max(map(self._reach, range(self.sums)))

    @cached_property
    def is_turned(self) -> bool:
        """Sums of weights 2 and 3 share a register: of both together, 16 bits count (limb_accum_packed.cuh)."""
        return self.compute is DataType.INT32 and self.sums == 4

    @cached_property
    def high_start(self) -> int:
        """What the sum of two blocks' products of weight 3 begins with, times 2^16: it stays between 0 and 2^24."""
        ends = [(_ENDS[a], _ENDS[b]) for a, b in self._types(3)]
        corners = [[x * y for x in first for y in second] for first, second in ends]
        channels = 2 * self.depth
        start = -(channels * sum(map(min, corners)) // 2**16)
        assert 2**16 * start + 255 + channels * sum(map(max, corners)) < 2**24
        return start

    @property
    def sets_of_sums(self) -> int:
        """Registers of a thread for each place of its tile."""
        return 3 if self.is_turned else self.sums + self.is_float

    # Text.

    @cache  # noqa: B019  there are as many kinds as pairs of types
    def text(self, columns: int) -> str:
        """``multiply_block``, which adds a block's products, and ``combine_limbs``, the result at one place; or
        ``multiply_weight``, which adds a block's products of one weight.
        """
        first, second = self.planes
        pairs = sorted({(first[i], second[j]) for i, j, _ in self.products})
        functions = [self._instruction(a, b, columns) for a, b in pairs]
        if self.is_turned:
            return "".join((*functions, _PLANE_AT, self._by_weight(columns)))
        begun: set[int] = set()
        lines = []
        for i, j, group in self.products:
            add = "1" if group in begun else "add"
            begun.add(group)
            lines.append(
                f"    multiply_{first[i]}_{second[j]}(sum[{group}], a[{i}], plane_at(b, {j}, block), {add});\n"
            )
        head = (
            f"{_PLANE_AT}"
            "__device__ __forceinline__ void multiply_block(\n"
            f"    Sum (&sum)[GROUPS][{columns // 2}], const unsigned int (&a)[PLANES_A][4],\n"
            f"    {_MATRIX} b, int block, int add\n) {{\n"
        )
        return "".join((*functions, head, *lines, "}\n", self.joined_text(columns, "Sum")))

    def _by_weight(self, columns: int) -> str:
        first, second = self.planes
        lines = [
            f"    if (weight == {group}) multiply_{first[i]}_{second[j]}(sum, a[{i}], plane_at(b, {j}, block), 1);\n"
            for i, j, group in self.products
        ]
        head = (
            "__device__ __forceinline__ void multiply_weight(\n"
            f"    int (&sum)[{columns // 2}], const unsigned int (&a)[PLANES_A][4],\n"
            f"    {_MATRIX} b, int block, int weight\n) {{\n"
        )
        return "".join((head, *lines, "}\n"))

    def _instruction(self, a: str, b: str, columns: int) -> str:
        count = columns // 2
        ctype, constraint = ("float", "f") if self.is_float else ("int", "r")
        sums = ", ".join(f"%{i}" for i in range(count))
        held = ", ".join(f'"+{constraint}"(sum[{i}])' for i in range(count))
        parts = ", ".join(f"%{count + i}" for i in range(4))
        flags = "p, 1, 1, 0" if self.is_float else "p"
        types = "f32.bf16.bf16" if self.is_float else f"s32.{a}.{b}"
        return (
            f"__device__ __forceinline__ void multiply_{a}_{b}"
            f"({ctype} (&sum)[{count}], const unsigned int (&a)[4], {_MATRIX} b, int add) {{\n"
            f'#ifdef __CUDA_ARCH__\n    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 5}, 0;\\n"\n'
            f'                 "wgmma.mma_async.sync.aligned.m64n{columns}k{self.depth}.{types} "\n'
            f'                 "{{{sums}}}, {{{parts}}}, %{count + 4}, {flags};\\n}}"\n'
            f"                 : {held}\n"
            f'                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));\n'
            f'#else\n    emulated_multiply(sum, a, b, "{a}", "{b}", 0, add != 0);\n#endif\n}}\n'
        )

    def joined_text(self, columns: int, sum_type: str) -> str:
        """``sum_type``: of what is joined."""
        sums = f"const {sum_type} (&sum)[GROUPS][{columns // 2}]"
        head = f"__device__ __forceinline__ Accum combine_limbs({sums}, int i) {{\n"
        if self.is_float:
            # Parts of an infinity are infinity, NaN and NaN: what they add to the small sums is not wanted.
            return (
                f"{head}    const float all = sum[1][i] + sum[0][i];\n"
                "    return fabsf(all) < INFINITY ? all : sum[1][i];\n}\n"
            )
        wide = "unsigned long long" if self.compute is DataType.INT64 else "unsigned int"
        terms = []
        for group in range(self.sums):
            plain = "(unsigned int)" if self._is_unsigned(group) else ""
            terms.append(f"(({wide}){plain}sum[{group}][i] << {8 * group})")
        return f"{head}    return (Accum)({' + '.join(terms)});\n}}\n"


@lru_cache(maxsize=64)
def kind_of(a: DataType, b: DataType, compute: DataType) -> Kind | None:
    """None: no sums of planes give this product."""
    if a is DataType.FLOAT and b is DataType.FLOAT:
        return Kind(a, b, compute) if compute is DataType.FLOAT else None
    if a not in _BYTES or b not in _BYTES:
        return None
    kind = Kind(a, b, compute)
    if compute is DataType.INT64:
        return kind if kind.sums <= 3 else None
    is_plain = len(_BYTES[a]) == len(_BYTES[b]) == 1
    return kind if compute is DataType.INT32 and not is_plain else None
