"""Graph: describe operations by the method names of cuDNN's Python frontend, then build and execute.

Operations appear in the order of the calls; each returns its output tensors,
virtual until ``set_output(True)``. What is left open (extents, strides, types,
uids) is inferred; where each operation was written is kept, and errors print it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from graphdnn.builder.border import guard
from graphdnn.builder.inside import Inside
from graphdnn.builder.pointwise_methods import POINTWISE_METHODS, pointwise_method
from graphdnn.builder.tensor import Tensor
from graphdnn.builder.tuning import Tuning
from graphdnn.device.profiles import DeviceSpec
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.plan import ExecutionPlan
from graphdnn.text_format import meant, plural

if TYPE_CHECKING:
    from graphdnn.analysis.cuts import Cuts

Elementwise: TypeAlias = Callable[..., Tensor]
_ELSEWHERE = {
    **dict.fromkeys(("conv", "conv1d", "conv2d", "conv3d", "convolution"), "conv_fprop"),
    **dict.fromkeys(("conv_transpose2d", "deconvolution"), "conv_dgrad"),
    **dict.fromkeys(("linear", "gemm", "bmm", "mm", "dot"), "matmul"),
    **dict.fromkeys(("max_pool2d", "avg_pool2d", "pooling", "interpolate"), "resample"),
    **dict.fromkeys(("sum", "mean", "reduce"), "reduction"),
    **dict.fromkeys(("permute", "swapaxes"), "transpose"),
    "softmax": "reduction, sub, exp, reduction and div, which become one kernel",
    **dict.fromkeys(("attention", "scaled_dot_product_attention"), "sdpa"),
    "silu": "swish", "relu6": "relu(upper_clip=6.0)", "hardtanh": "relu(lower_clip=-1.0, upper_clip=1.0)",
    "serialize": "graphdnn.plan_to_json(graph.plan)",
    "cat": "concatenate", "concat": "concatenate", "view": "reshape", "dropout": "rng and mul", "cast": "identity",
}  # fmt: skip  # what methods are called elsewhere


class Graph(Inside, Tuning):
    """An operation graph that is being described; ``build`` makes a plan of it and ``execute`` runs the plan.

    The elementwise methods (``add``, ``relu``, ``gelu_backward``, ...) are the rows of ``POINTWISE_METHODS``. A type
    is a name (``"float16"``), a type of NumPy or PyTorch, or a member of ``DataType``. Extents are lists of integers,
    and strides count elements.

    Args:
        name: The name of the graph in reports and error messages.
        io_data_type: The element type of tensors with memory that have no type of their own.
        intermediate_data_type: The element type of virtual tensors that have no type of their own.
        compute_data_type: The type of the arithmetic of operations that name none.
        device: A device profile, its name, or None for the default device; see ``graphdnn.device_spec``.

    Raises:
        BadParam: A type or a device is unknown.
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

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {plural(len(self._nodes), 'operation')}>"

    if not TYPE_CHECKING:  # which knows every method

        def __getattr__(self, name: str) -> Any:
            """For what is missing: the method that was meant."""
            if name.startswith("_") or hasattr(type(self), name):  # a property failed: as it did
                return object.__getattribute__(self, name)
            known = [method for method in dir(type(self)) if not method.startswith("_")]
            hint = _ELSEWHERE.get(name.lower())
            said = f"did you mean {hint}? else " if hint else meant(name.lower(), known)
            if name in OperationGraph.__dataclass_fields__ or hasattr(OperationGraph, name):
                said = "an OperationGraph does, so pass graph.build_operation_graph() here; else "
            elif hasattr(ExecutionPlan, name):
                said = "its plan does, so pass graph.plan here; else "
            raise AttributeError(f"Graph has no {name!r}: {said}see docs/builder.md", name=name, obj=self)

    def cuts(self, *, measure: bool = False, margin: float | None = None) -> Cuts:
        """Every place where the graph could be split into other kernels, and whether the split is faster than the
        whole.

        Args:
            measure: True executes the whole graph and all parts. That needs the device.
            margin: The share of the time, for example 0.05, below which a difference counts as none. None takes the
                default.

        Returns:
            A ``graphdnn.analysis.cuts.Cuts`` with one entry for each place.

        Raises:
            NotSupported: No engine serves the graph, or the device is not present and ``measure`` is set.
        """
        from graphdnn.analysis.cuts import cuts_of  # few ask

        graph = self.build_operation_graph()
        return cuts_of(
            graph, self.device, measure=measure, margin=margin, filters=self._filters, without=self._deselected,
            limits=self._limits,
        )  # fmt: skip

    if TYPE_CHECKING:  # the names of ``POINTWISE_METHODS``, whose methods are made below
        add: Elementwise
        sub: Elementwise
        mul: Elementwise
        div: Elementwise
        add_square: Elementwise
        logical_and: Elementwise
        logical_or: Elementwise
        max: Elementwise
        min: Elementwise
        mod: Elementwise
        pow: Elementwise
        atan2: Elementwise
        floor_mod: Elementwise
        cmp_eq: Elementwise
        cmp_neq: Elementwise
        cmp_gt: Elementwise
        cmp_ge: Elementwise
        cmp_lt: Elementwise
        cmp_le: Elementwise
        abs: Elementwise
        ceil: Elementwise
        cos: Elementwise
        erf: Elementwise
        exp: Elementwise
        floor: Elementwise
        identity: Elementwise
        log: Elementwise
        logical_not: Elementwise
        neg: Elementwise
        reciprocal: Elementwise
        rsqrt: Elementwise
        sin: Elementwise
        sqrt: Elementwise
        tan: Elementwise
        elu: Elementwise
        gelu: Elementwise
        gelu_approx_tanh: Elementwise
        sigmoid: Elementwise
        softplus: Elementwise
        tanh: Elementwise
        elu_backward: Elementwise
        gelu_backward: Elementwise
        gelu_approx_tanh_backward: Elementwise
        sigmoid_backward: Elementwise
        softplus_backward: Elementwise
        tanh_backward: Elementwise
        bias: Elementwise
        scale: Elementwise
        relu: Elementwise
        leaky_relu: Elementwise
        swish: Elementwise
        gen_index: Elementwise
        binary_select: Elementwise
        relu_backward: Elementwise
        leaky_relu_backward: Elementwise
        swish_backward: Elementwise


for _name, _row in POINTWISE_METHODS.items():
    setattr(Graph, _name, pointwise_method(_name, _row))
guard(Graph)
guard(Tensor)
