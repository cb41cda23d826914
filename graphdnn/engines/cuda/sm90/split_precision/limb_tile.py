"""A block's tile of a product of planes: 64 rows for each warpgroup that multiplies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RowsTile:
    bm: int
    bn: int

    @property
    def consumers(self) -> int:
        return self.bm // 64

    @property
    def name(self) -> str:
        return f"{self.bm}x{self.bn}"
