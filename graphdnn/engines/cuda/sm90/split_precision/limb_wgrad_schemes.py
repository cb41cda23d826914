"""How a filter gradient's operands are split into planes of 16-bit floats, and what their products are added to.

Three planes hold a float; six products lack less than 2^-24 of it. Two planes and three products lack 2^-13.

Bytes of integers are 16-bit floats as they are, and tensor cores add the products of some pixels exactly; then they are
taken into integers, one for each weight (limb_wgrad_integers.cuh).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

from graphdnn.engines.cuda.sm90.split_precision.limb_schemes import Kind
from graphdnn.enums import DataType

_PROMOTED = 128  # pixels whose products of floats are added by the tensor cores
_LARGEST = (1 << 22) - 1  # of a sum that is taken from a float
_PIXELS = 64  # of a stage, at most


@dataclass(frozen=True)
class Floats:
    planes: int
    compute = DataType.FLOAT
    longest = 0

    @property
    def name(self) -> str:
        return f"float{self.planes}"

    @property
    def products(self) -> int:
        return self.planes * (self.planes + 1) // 2

    @property
    def promoted(self) -> int:
        """Pixels after which sums are taken from the tensor cores; 0: never."""
        return _PROMOTED if self.planes > 2 else 0

    @property
    def sets(self) -> int:
        """Of sums: of the first planes' products, of the others, and what is added apart."""
        return 2 + (self.promoted > 0)

    @property
    def pace(self) -> float:
        """Clocks for each that products take at least."""
        return 1.06 if self.planes == 2 else 1.2

    @property
    def files(self) -> tuple[str, ...]:
        return ("limb_wgrad_floats.cuh",)

    @property
    def constants(self) -> dict[str, int]:
        return {}

    def functions(self, columns: int) -> tuple[str, ...]:  # noqa: ARG002
        return ()


@dataclass(frozen=True)
class Integers:
    kind: Kind

    @property
    def name(self) -> str:
        return f"{self.kind.a.name.lower()}_{self.kind.b.name.lower()}"

    @property
    def planes(self) -> int:
        return len(self.kind.planes[0])

    @property
    def compute(self) -> DataType:
        return self.kind.compute

    @property
    def longest(self) -> int:
        return self.kind.longest

    @property
    def products(self) -> int:
        return self.planes * self.planes

    @cached_property
    def promoted(self) -> int:
        return _LARGEST // self.kind.largest_product // _PIXELS * _PIXELS

    @property
    def sets(self) -> int:
        return 2 * self.kind.sums

    @property
    def pace(self) -> float:
        return 1.4

    @property
    def files(self) -> tuple[str, ...]:
        return ("limb_wgrad_integers.cuh",)

    @property
    def constants(self) -> dict[str, int]:
        return {"GROUPS": self.kind.sums}

    def functions(self, columns: int) -> tuple[str, ...]:
        return (self.kind.joined_text(columns, "int"),)


Scheme = Floats | Integers


@lru_cache(maxsize=16)
def integers_of(x: DataType, dy: DataType, compute: DataType) -> Integers | None:
    """None: products of these are another engine's."""
    sizes = {DataType.INT8: 1, DataType.UINT8: 1, DataType.INT16: 2}
    if compute not in (DataType.INT32, DataType.INT64) or sizes.get(x) is None or sizes.get(x) != sizes.get(dy):
        return None
    return Integers(Kind(x, dy, compute))
