"""SumError: the error bound that an engine states for its convolutions and matrix products."""

from __future__ import annotations

from dataclasses import dataclass

UNIT = 2.0**-24  # of fp32


@dataclass(frozen=True, slots=True)
class SumError:
    """For a sum of n products x w, as long as ``headroom`` times sum |x w| is a number of fp32,

        |error| <= units(n) * 2**-24 * sum |x w| + n * floor * max(1, |x|, |w|).

    Where ``of_largest``, n times the largest |x| and the largest |w| stand in place of the sum.
    """

    once: float  # units, of operands that are rounded or split
    each: float  # units, for each of the products that are added without a break
    restart: int = 0  # products after which that sum is added to another one in fp32; 0: never
    floor: float = 2.0**-149  # what an operand or a product may lack that is smaller than fp32's normal numbers
    of_largest: bool = False
    drift: float = 0.0  # units that a product loses in the mean where all have one sign
    headroom: float = 1.0  # transformed operands, and sums of them, may be larger than those of the convolution
    spreads: bool = False  # an infinity or NaN reaches results that it is no operand of

    def units(self, n: int) -> float:
        if not self.restart:
            return self.once + self.each * n
        return self.once + self.each * min(n, self.restart) + n / self.restart

    def __str__(self) -> str:
        if self.restart:
            units = f"{self.once + self.each * self.restart:g} + n / {self.restart}"
        else:
            units = f"{self.once:g} + {self.each:g} n" if self.each != 1 else f"{self.once:g} + n"
        return f"({units}) 2^-24 " + ("n max(abs x) max(abs w)" if self.of_largest else "sum abs(x w)")


# Each product and each sum is rounded to nearest once.
ROUNDED = SumError(1, 1)
# Tensor cores cut: each term of an instruction by 2^-25 of the largest one, its result by 2^-23. An instruction adds 8
# or 16 products, so that is below one unit for each product. Sums of 512 to 65,536 positive terms were 0.1 n units low.
CUT = SumError(1, 1, drift=0.12)
# Operands rounded to 11 digits: 2^-11 each, and their product.
TF32 = SumError(2.0**14 + 8, 1, drift=0.12)
# Terms of 32 products of fp8 are cut by 2^-13 of the largest one.
FP8 = SumError(1, 33 / 32 * 2.0**11, restart=128)
