"""Graph: describe operations by the method names of cuDNN's Python frontend, then build and execute.

Operations appear in the order of the calls; each returns its output tensors,
virtual until ``set_output(True)``. What is left open (extents, strides, types,
uids) is inferred; where each operation was written is kept, and errors print it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from graphdnn.builder.methods import POINTWISE_METHODS, pointwise_method
from graphdnn.builder.planning import Planning
from graphdnn.builder.tensor import Tensor
from graphdnn.device import DeviceSpec


class Graph(Planning):
    """An operation graph in the making. Types: anything ``graphdnn.dtypes.data_type_of`` reads.

    The elementwise methods (``add``, ``relu``, ``gelu_backward``, ...) are the rows of ``POINTWISE_METHODS``.
    """

    def __init__(
        self,
        name: str = "graph",
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
        device: DeviceSpec | str | None = None,
    ) -> None:
        super().__init__(name, io_data_type, intermediate_data_type, compute_data_type, device)

    if TYPE_CHECKING:  # the elementwise methods are made below

        def __getattr__(self, name: str) -> Callable[..., Tensor]: ...


for _name, _row in POINTWISE_METHODS.items():
    setattr(Graph, _name, pointwise_method(_name, _row))
