"""RewriteStep: what a rewrite makes of a fused operation, as plans and ``explain`` show it."""

from __future__ import annotations

from dataclasses import dataclass

from graphdnn.fusion.fused_graph import FusedOp


@dataclass(frozen=True, slots=True, eq=False)
class RewriteStep:
    """A rewrite that applies to a fused operation, and the engine that computes the rewritten operation."""

    name: str  # of the rewrite
    why: str  # it applies
    op: FusedOp  # the rewritten operation
    engine: str  # that computes it
    kernel: str  # that the engine launches, with its tile
    before: tuple[str, ...]  # launches that write operands of the rewritten operation to scratch memory
    after: tuple[str, ...]  # launches that write its results to their tensors

    @property
    def operation(self) -> str:
        """``conv_fprop+add of [448, 48, 16, 14] and [768, 48, 16, 1]``."""
        operands = " and ".join(str(list(t.dims)) for t in self.op.main.inputs().values())
        return f"{self.op.name} of {operands}"

    @property
    def method(self) -> str:
        """How the engine computes it: the part of the kernel's name between its operation and the whole list."""
        parts = self.kernel.split("__")
        return parts[1] if len(parts) > 1 else self.kernel

    def lines(self) -> tuple[str, ...]:
        """The rewrite, then a line for each launch beside the rewritten operation."""
        first = f"rewrite: {self.name} ({self.why}) -> {self.operation} by {self.engine}, {self.method}"
        beside = [*(f"before: {launch}" for launch in self.before), *(f"after: {launch}" for launch in self.after)]
        return first, *(f"  {line}" for line in beside)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_json(self) -> dict[str, object]:
        return {
            "name": self.name,
            "why": self.why,
            "operation": self.op.name,
            "operands": [list(t.dims) for t in self.op.main.inputs().values()],
            "engine": self.engine,
            "kernel": self.kernel,
            "before": list(self.before),
            "after": list(self.after),
        }
