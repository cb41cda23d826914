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
    """Questions about the plan, with tensors, uids or names as keys."""

    @property
    def kernels(self) -> tuple[KernelView, ...]:
        """Each kernel of the plan: operations, text, launches, registers, occupancy and share of the roofline."""
        kernels: tuple[KernelView, ...] = self.plan.kernels
        return kernels

    def where(self, subject: Tensor | int | str) -> tuple[Place, ...]:
        """The kernels and the lines of their texts that write or read a tensor, or that compute an operation.

        Args:
            subject: A tensor, its uid or its name, or the label of an operation.

        Returns:
            A ``Place`` for each kernel that takes part.

        Raises:
            BadParam: The graph has no such tensor or operation.
            NotInitialized: The graph is not built.
        """
        places: tuple[Place, ...] = self.plan.where(subject.get_uid() if isinstance(subject, Tensor) else subject)
        return places

    def trace(self, variant_pack: Mapping[Any, Any]) -> Trace:
        """Every value inside the kernels for the given arrays, and the first tensor that differs from the oracle.

        Args:
            variant_pack: ``{tensor, uid or name: array}`` of the inputs.

        Returns:
            The trace; ``first_difference`` is the first tensor beyond its error bound.

        Raises:
            BadParam: An array is missing, or it has the wrong type, extents or strides.
            NotSupported: The device of the plan is not present.
            NotInitialized: The graph is not built.
        """
        trace: Trace = self.plan.trace(self._resolved(variant_pack))
        return trace

    def certificate(
        self, variant_pack: Mapping[Any, Any] | None = None, ranges: Mapping[Any, tuple[float, float]] | None = None
    ) -> Certificate:
        """Error bounds of the outputs, for given data or for all data in given ranges.

        Args:
            variant_pack: ``{tensor, uid or name: array}``; the bounds then hold for this data.
            ranges: ``{tensor, uid or name: (low, high)}``; the bounds then hold for all data in the ranges.

        Returns:
            The certificate. Without data and ranges it states what each operation adds to the error.

        Raises:
            BadParam: A range or an array is invalid.
            NotInitialized: The graph is not built.
        """
        data = None if variant_pack is None else self._resolved(variant_pack)
        certificate: Certificate = self.plan.certificate(data, None if ranges is None else self._resolved(ranges))
        return certificate
