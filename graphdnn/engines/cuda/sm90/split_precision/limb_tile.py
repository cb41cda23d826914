"""A CTA's tile in split precision: each consumer warpgroup has 64 rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LimbTile:
    bm: int
    bn: int

    @property
    def consumers(self) -> int:
        return self.bm // 64

    @property
    def name(self) -> str:
        return f"{self.bm}x{self.bn}"
