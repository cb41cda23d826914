"""Right or wrong: results against the definition, in float64 or exactly."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from gpu.problem import Problem, Tensors


@dataclass(frozen=True, slots=True)
class Checked:
    """One output. ``error`` is the relative l2 distance, or for integers the number of wrong elements."""

    name: str
    error: float
    bound: float  # 0 for integers
    unwritten: int  # elements that are not finite, as the poison

    @property
    def is_right(self) -> bool:
        return self.error <= self.bound and self.unwritten == 0  # False for NaN

    def __str__(self) -> str:
        if self.is_right:
            return "exact" if self.bound == 0 else f"{self.error:.1e}"
        holes = f", {self.unwritten} not finite" if self.unwritten else ""
        what = f"{self.error:.0f} elements differ" if self.bound == 0 else f"{self.error:.1e} over {self.bound:.0e}"
        return f"{self.name}: {what}{holes}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"right": self.is_right}


def definition(problem: Problem, tensors: Tensors, torch: Any) -> dict[str, Any]:
    """The outputs in float64, from plain row-major operands and without cuDNN."""
    wide = {name: tensor.to(torch.float64).contiguous() for name, tensor in tensors.items()}
    before = torch.backends.cudnn.enabled
    torch.backends.cudnn.enabled = False
    try:
        return dict(problem.formula(torch, wide))
    finally:
        torch.backends.cudnn.enabled = before


def compare(problem: Problem, found: Tensors, expected: Tensors, torch: Any) -> list[Checked]:
    """Each of ``found`` with the value of the same name. Integer outputs found as floats are held to a rounding."""
    checked = []
    for name, tensor in found.items():
        bound = problem.bound(name)
        value, want = tensor.to(torch.float64), expected[name].reshape(tensor.shape)
        if tensor.is_floating_point():
            unwritten = int((~torch.isfinite(value)).sum())
            error = float((value - want).norm() / want.norm())
            checked.append(Checked(name, error, 1e-5 if bound is None else bound, unwritten))
        else:
            checked.append(Checked(name, float((value != want).sum()), 0.0, 0))
    return checked
