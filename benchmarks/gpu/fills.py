"""What inputs hold: random values, never zeros, which hide unwritten results and can run faster than data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Normal:
    scale: float = 1.0
    mean: float = 0.0

    def draw(self, torch: Any, like: Any, generator: Any) -> Any:
        values = torch.randn(like.shape, generator=generator, device=like.device, dtype=torch.float32)
        return values.mul_(self.scale).add_(self.mean)


@dataclass(frozen=True, slots=True)
class Uniform:
    low: float
    high: float

    def draw(self, torch: Any, like: Any, generator: Any) -> Any:
        values = torch.rand(like.shape, generator=generator, device=like.device, dtype=torch.float32)
        return values.mul_(self.high - self.low).add_(self.low)


@dataclass(frozen=True, slots=True)
class Integers:
    """From ``low`` to ``high``, both included."""

    low: int
    high: int

    def draw(self, torch: Any, like: Any, generator: Any) -> Any:
        return torch.randint(self.low, self.high + 1, like.shape, generator=generator, device=like.device)


Fill = Normal | Uniform | Integers
