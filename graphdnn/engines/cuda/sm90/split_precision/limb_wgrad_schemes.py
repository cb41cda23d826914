"""Split-precision schemes of filter gradients: how many bfloat16 limbs the operands have, and which accumulators.

Three limbs represent a float. Their six largest products have a relative error below 2^-24; two limbs and three
products have one of 2^-13.

A byte of an integer is exact in bfloat16, and tensor cores add the products of some pixels exactly. After so many
pixels the sums are promoted to integers, one for each limb order (limb_wgrad_integers.cuh).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from graphdnn.engines.cuda.sm90.fitted_constants import LIMBS_WGRAD
from graphdnn.engines.cuda.sm90.split_precision.limb_schemes import LimbScheme
from graphdnn.enums import DataType

_PROMOTION_PIXELS = 128  # pixels between promotions of floats
_LARGEST_SUM = (1 << 22) - 1  # the largest integer that promotion reads from a float
_STAGE_PIXELS = 64  # the most that a stage has


@dataclass(frozen=True)
class FloatLimbs:
    limbs: int
    compute = DataType.FLOAT
    max_products = 0

    @property
    def name(self) -> str:
        return f"float{self.limbs}"

    @property
    def products(self) -> int:
        return self.limbs * (self.limbs + 1) // 2

    @property
    def promotion_pixels(self) -> int:
        """Pixels between promotions; 0: no promotion."""
        return _PROMOTION_PIXELS if self.limbs > 2 else 0

    @property
    def registers_per_result(self) -> int:
        """Registers for each result: the first limbs' products, the other products, and the promoted sum."""
        return 2 + (self.promotion_pixels > 0)

    @property
    def relative_clocks(self) -> float:
        """Measured clocks of a product, relative to the tensor cores' peak rate."""
        return LIMBS_WGRAD.two_limb_mma_factor if self.limbs == 2 else LIMBS_WGRAD.three_limb_mma_factor

    @property
    def is_integer(self) -> bool:
        return False

    @property
    def constants(self) -> dict[str, int]:
        return {}

    def functions(self, columns: int) -> tuple[str, ...]:  # noqa: ARG002
        return ()


@dataclass(frozen=True)
class IntegerLimbs:
    scheme: LimbScheme

    @property
    def name(self) -> str:
        return f"{self.scheme.a.name.lower()}_{self.scheme.b.name.lower()}"

    @property
    def limbs(self) -> int:
        return len(self.scheme.limbs[0])

    @property
    def compute(self) -> DataType:
        return self.scheme.compute

    @property
    def max_products(self) -> int:
        return self.scheme.max_products

    @property
    def products(self) -> int:
        return self.limbs * self.limbs

    @cached_property
    def promotion_pixels(self) -> int:
        return _LARGEST_SUM // self.scheme.largest_product // _STAGE_PIXELS * _STAGE_PIXELS

    @property
    def registers_per_result(self) -> int:
        return 2 * self.scheme.orders

    @property
    def relative_clocks(self) -> float:
        return LIMBS_WGRAD.integer_mma_factor

    @property
    def is_integer(self) -> bool:
        return True

    @property
    def constants(self) -> dict[str, int]:
        return {"LIMB_ORDERS": self.scheme.orders}

    def functions(self, columns: int) -> tuple[str, ...]:
        return (self.scheme.combine_text(columns, "int"),)


Scheme = FloatLimbs | IntegerLimbs


@lru_cache(maxsize=16)
def integer_limbs_of(x: DataType, dy: DataType, compute: DataType) -> IntegerLimbs | None:
    """None if another engine multiplies these types."""
    sizes = {DataType.INT8: 1, DataType.UINT8: 1, DataType.INT16: 2}
    if compute not in (DataType.INT32, DataType.INT64) or sizes.get(x) is None or sizes.get(x) != sizes.get(dy):
        return None
    return IntegerLimbs(LimbScheme(x, dy, compute))
