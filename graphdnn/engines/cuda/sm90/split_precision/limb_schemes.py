"""Split-precision schemes: the limbs of each operand, the products of limbs, and the text that multiplies them.

An integer consists of bytes, the lowest first; the highest byte of a signed type is signed, the other bytes are
unsigned. A float is the exact sum of three bfloat16 numbers, the largest first. The order of a product of limbs i and j
is i + j. Products of one order share accumulators; floats have one set for aa and one for all smaller products:

    int16 x int16   2^16 hh + 2^8 (hl + lh) + ll       (modulo 2^32 or exact)
    float x float   aa + (ab + ba + ac + bb + ca)      (the omitted products are below 2^-24 of the whole product)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache

from graphdnn.dtypes import ELEMENTS, FLOAT_COMPUTE
from graphdnn.enums import DataType

_BYTES = {
    DataType.INT8: ("s8",),
    DataType.UINT8: ("u8",),
    DataType.INT16: ("u8", "s8"),
    DataType.INT32: ("u8", "u8", "u8", "s8"),
}
INTEGERS = tuple(_BYTES)
_LARGEST_ABS = {"u8": 255, "s8": 128}
_RANGES = {"u8": (0, 255), "s8": (-128, 127)}
_FLOAT_LIMBS = 3
_BOX_BYTES = 128  # bytes of a TMA box along the channels of the im2col operand
_MMA_K_BYTES = 32  # bytes of one limb that one instruction multiplies
_SWIZZLES = (128, 64, 32)  # bytes; the widest swizzle that divides a filter row is used
_DESCRIPTOR = "unsigned long long"  # a shared-memory matrix descriptor
_LIMB_DESC = f"__device__ __forceinline__ {_DESCRIPTOR} limb_desc({_DESCRIPTOR} b, int limb, int k);\n"


@dataclass(frozen=True)
class LimbScheme:
    """Limbs of two types. ``a``: the im2col operand, split in registers; ``b``: the filter, split in memory."""

    a: DataType
    b: DataType
    compute: DataType

    @cached_property
    def is_float(self) -> bool:
        return self.a is DataType.FLOAT

    @cached_property
    def limbs(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The types of the limbs of a and of b, as wgmma names them."""
        if self.is_float:
            return (("bf16",) * _FLOAT_LIMBS,) * 2
        return _BYTES[self.a], _BYTES[self.b]

    @cached_property
    def limb_bytes(self) -> int:
        """Bytes of one limb of one element."""
        return 2 if self.is_float else 1

    @cached_property
    def mma_k(self) -> int:
        """Channels that one instruction multiplies."""
        return _MMA_K_BYTES // self.limb_bytes

    @cached_property
    def boxes(self) -> int:
        """Boxes of 128 bytes of the im2col operand in a stage, so that a stage has an even number of MMA K steps."""
        return 2 if self.a is DataType.INT32 else 1

    @cached_property
    def channels(self) -> int:
        """Channels of a stage."""
        return self.boxes * _BOX_BYTES // ELEMENTS[self.a].bytes

    @cached_property
    def mma_k_steps(self) -> int:
        """Instructions along K in a stage, for each product of limbs."""
        return self.channels // self.mma_k

    @cached_property
    def filter_row_bytes(self) -> int:
        """Bytes of all limbs of one filter row in a stage."""
        return len(self.limbs[1]) * self.channels * self.limb_bytes

    @cached_property
    def swizzle_bytes(self) -> int:
        return next(swizzle for swizzle in _SWIZZLES if self.filter_row_bytes % swizzle == 0)

    @cached_property
    def products(self) -> tuple[tuple[int, int, int], ...]:
        """(limb of a, limb of b, accumulator), in the sequence in which the kernel multiplies."""
        first, second = self.limbs
        pairs = [(i, j) for i in range(len(first)) for j in range(len(second))]
        if self.is_float:
            small = sorted(((i, j) for i, j in pairs if 0 < i + j < _FLOAT_LIMBS), key=lambda pair: -sum(pair))
            return (*((i, j, 0) for i, j in small), (0, 0, 1))
        orders_end = 4 if self.compute is DataType.INT32 else len(first) + len(second)
        return tuple((i, j, i + j) for i, j in pairs if i + j < orders_end)

    @cached_property
    def orders(self) -> int:
        return 1 + max(order for *_, order in self.products)

    @cached_property
    def max_products(self) -> int:
        """Channels whose products fit 32-bit accumulators; 0: any number, modulo 2^32 or in floats."""
        if self.compute is not DataType.INT64:
            return 0
        return min(
            (2**32 - 1 if self._is_unsigned(g) else 2**31 - 1) // self._largest_sum(g) for g in range(self.orders)
        )

    def _types(self, order: int) -> list[tuple[str, str]]:
        return [(self.limbs[0][i], self.limbs[1][j]) for i, j, g in self.products if g == order]

    def _is_unsigned(self, order: int) -> bool:
        return all(pair == ("u8", "u8") for pair in self._types(order))

    def _largest_sum(self, order: int) -> int:
        return sum(_LARGEST_ABS[a] * _LARGEST_ABS[b] for a, b in self._types(order))

    @property
    def largest_product(self) -> int:
        """The largest absolute sum of one channel's products of one order."""
        return max(map(self._largest_sum, range(self.orders)))

    @cached_property
    def is_packed(self) -> bool:
        """Orders 2 and 3 share a register, because only 16 bits of both count (limb_accum_packed.cuh)."""
        return self.compute is DataType.INT32 and self.orders == 4

    @cached_property
    def packed_bias(self) -> int:
        """A multiple of 2^16 that keeps the packed register between 0 and 2^24 during two MMA K steps of order 3."""
        ranges = [(_RANGES[a], _RANGES[b]) for a, b in self._types(3)]
        corners = [[x * y for x in first for y in second] for first, second in ranges]
        channels = 2 * self.mma_k
        start = -(channels * sum(map(min, corners)) // 2**16)
        assert 2**16 * start + 255 + channels * sum(map(max, corners)) < 2**24
        return start

    @property
    def registers_per_result(self) -> int:
        """Accumulator registers of a thread for each result of its tile."""
        return 3 if self.is_packed else self.orders + self.is_float

    # The generated text.

    @cache  # noqa: B019  there are as many schemes as pairs of types
    def text(self, columns: int) -> str:
        """``wgmma_k_step``, which multiplies all limbs of an MMA K step, and ``combine_limbs``, which returns a result;
        or, in the packed scheme, ``wgmma_limb_order``, which multiplies the limbs of one order of an MMA K step.
        """
        first, second = self.limbs
        pairs = sorted({(first[i], second[j]) for i, j, _ in self.products})
        functions = [self._instruction(a, b, columns) for a, b in pairs]
        if self.is_packed:
            return "".join((*functions, _LIMB_DESC, self._order_text(columns)))
        started: set[int] = set()
        lines = []
        for i, j, order in self.products:
            add = "1" if order in started else "add"
            started.add(order)
            lines.append(f"    wgmma_rs_{first[i]}_{second[j]}(accum[{order}], a[{i}], limb_desc(b, {j}, k), {add});\n")
        head = (
            f"{_LIMB_DESC}"
            "__device__ __forceinline__ void wgmma_k_step(\n"
            f"    MmaAccum (&accum)[LIMB_ORDERS][{columns // 2}], const unsigned int (&a)[LIMBS_A][4],\n"
            f"    {_DESCRIPTOR} b, int k, int add\n) {{\n"
        )
        return "".join((*functions, head, *lines, "}\n", self.combine_text(columns, "MmaAccum")))

    def _order_text(self, columns: int) -> str:
        first, second = self.limbs
        lines = [
            f"    if (order == {order}) wgmma_rs_{first[i]}_{second[j]}(accum, a[{i}], limb_desc(b, {j}, k), 1);\n"
            for i, j, order in self.products
        ]
        head = (
            "__device__ __forceinline__ void wgmma_limb_order(\n"
            f"    int (&accum)[{columns // 2}], const unsigned int (&a)[LIMBS_A][4],\n"
            f"    {_DESCRIPTOR} b, int k, int order\n) {{\n"
        )
        return "".join((head, *lines, "}\n"))

    def _instruction(self, a: str, b: str, columns: int) -> str:
        count = columns // 2
        ctype, constraint = ("float", "f") if self.is_float else ("int", "r")
        accums = ", ".join(f"%{i}" for i in range(count))
        operands = ", ".join(f'"+{constraint}"(sum[{i}])' for i in range(count))
        fragment = ", ".join(f"%{count + i}" for i in range(4))
        flags = "p, 1, 1, 0" if self.is_float else "p"
        types = "f32.bf16.bf16" if self.is_float else f"s32.{a}.{b}"
        return (
            f"__device__ __forceinline__ void wgmma_rs_{a}_{b}"
            f"({ctype} (&sum)[{count}], const unsigned int (&a)[4], {_DESCRIPTOR} b, int add) {{\n"
            f'#ifdef __CUDA_ARCH__\n    asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 5}, 0;\\n"\n'
            f'                 "wgmma.mma_async.sync.aligned.m64n{columns}k{self.mma_k}.{types} "\n'
            f'                 "{{{accums}}}, {{{fragment}}}, %{count + 4}, {flags};\\n}}"\n'
            f"                 : {operands}\n"
            f'                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));\n'
            f'#else\n    emulated_multiply(sum, a, b, "{a}", "{b}", 0, add != 0);\n#endif\n}}\n'
        )

    def combine_text(self, columns: int, sum_type: str) -> str:
        """``sum_type``: the accumulator type that ``combine_limbs`` reads."""
        accum = f"const {sum_type} (&sum)[LIMB_ORDERS][{columns // 2}]"
        head = f"__device__ __forceinline__ Accum combine_limbs({accum}, int i) {{\n"
        if self.is_float:
            # The limbs of an infinity are infinity, NaN and NaN: then the sum of the small products must not count.
            return (
                f"{head}    const float all = sum[1][i] + sum[0][i];\n"
                "    return fabsf(all) < INFINITY ? all : sum[1][i];\n}\n"
            )
        unsigned_type = "unsigned long long" if self.compute is DataType.INT64 else "unsigned int"
        terms = []
        for order in range(self.orders):
            unsigned = "(unsigned int)" if self._is_unsigned(order) else ""
            terms.append(f"(({unsigned_type}){unsigned}sum[{order}][i] << {8 * order})")
        return f"{head}    return (Accum)({' + '.join(terms)});\n}}\n"


@lru_cache(maxsize=64)
def limb_scheme_of(a: DataType, b: DataType, compute: DataType) -> LimbScheme | None:
    """None if no scheme computes this product."""
    if a is DataType.FLOAT and b is DataType.FLOAT:
        return LimbScheme(a, b, DataType.FLOAT) if compute in FLOAT_COMPUTE else None
    if a not in _BYTES or b not in _BYTES:
        return None
    scheme = LimbScheme(a, b, compute)
    if compute is DataType.INT64:
        return scheme if scheme.orders <= 3 else None
    both_are_bytes = len(_BYTES[a]) == len(_BYTES[b]) == 1
    return scheme if compute is DataType.INT32 and not both_are_bytes else None
