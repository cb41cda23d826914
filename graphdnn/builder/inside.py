"""What a built graph says of its plan: kernels, values inside them, how far results may be from the exact ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphdnn.builder.execution import Running
from graphdnn.builder.tensor import Tensor

if TYPE_CHECKING:
    from graphdnn.analysis.certificate import Certificate
    from graphdnn.analysis.kernels import KernelView, Place
    from graphdnn.analysis.trace import Trace


class Inside(Running):
    """The plan's questions, addressed by tensors, uids or names."""

    @property
    def kernels(self) -> tuple[KernelView, ...]:
        """Each kernel of the plan: operations, text, launches, registers, occupancy, share of the roofline."""
        kernels: tuple[KernelView, ...] = self.plan.kernels
        return kernels

    def where(self, subject: Tensor | int | str) -> tuple[Place, ...]:
        """Where a tensor is written and read, or an operation (its label) is computed: kernels and lines of text."""
        places: tuple[Place, ...] = self.plan.where(subject.get_uid() if isinstance(subject, Tensor) else subject)
        return places

    def trace(self, variant_pack: Mapping[Any, Any]) -> Trace:
        """Every value inside the kernels for these inputs, and where it first differs from the oracle."""
        trace: Trace = self.plan.trace(self._resolved(variant_pack))
        return trace

    def certificate(
        self, variant_pack: Mapping[Any, Any] | None = None, ranges: Mapping[Any, tuple[float, float]] | None = None
    ) -> Certificate:
        """Error bounds of the outputs, for this data or for all data in ``{tensor, uid or name: (low, high)}``."""
        data = None if variant_pack is None else self._resolved(variant_pack)
        certificate: Certificate = self.plan.certificate(data, None if ranges is None else self._resolved(ranges))
        return certificate
