"""Graph: describe operations by the method names of cuDNN's Python frontend, then build and execute.

Operations appear in the order of the calls; each returns its output tensors,
virtual until ``set_output(True)``. What is left open (extents, strides, types,
uids) is inferred; where each operation was written is kept, and errors print it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from graphdnn.builder import attention_methods, extension_methods, norm_methods, operation_methods, tuning
from graphdnn.builder.analysis import Analysis
from graphdnn.builder.border import checked, delegated, guard
from graphdnn.builder.description import Description
from graphdnn.builder.execution import Execution
from graphdnn.builder.plan_selection import PlanSelection
from graphdnn.builder.pointwise_methods import POINTWISE_METHODS, pointwise_function
from graphdnn.builder.tensor import Tensor
from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.fusion import FusedGraph
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Ranking
from graphdnn.plan import ExecutionPlan
from graphdnn.text_format import meant, plural

if TYPE_CHECKING:
    from graphdnn.analysis.kernels import KernelView

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


class Graph:
    """An operation graph that is being described; ``build`` makes a plan of it and ``execute`` runs the plan.

    A graph is made of four parts: the description of its tensors and operations, the selection of a plan, the
    execution, and the analysis. Each method calls the part of its section with the same arguments.

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

    @checked
    def __init__(
        self,
        name: str = "graph",
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
        device: DeviceSpec | str | None = None,
    ) -> None:
        spec = device_spec(device)
        self._description = Description(name, io_data_type, intermediate_data_type, compute_data_type)
        self._selection = PlanSelection(self._description, spec)
        self._execution = Execution(self._selection)
        self._analysis = Analysis(self._selection)

    @property
    def name(self) -> str:
        """The name of the graph in reports and error messages."""
        return self._description.name

    @name.setter
    def name(self, name: str) -> None:
        self._description.name = name

    @property
    def device(self) -> DeviceSpec:
        """The device that plans are made for."""
        return self._selection.device

    @device.setter
    def device(self, device: DeviceSpec | str | None) -> None:
        self._selection.device = device_spec(device)

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {plural(len(self._description.nodes), 'operation')}>"

    def __str__(self) -> str:
        return str(self.build_operation_graph())

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

    # Tensors.
    tensor = delegated("_description", Description.tensor)
    tensor_like = delegated("_description", Description.tensor_like)
    tensor_scalar = delegated("_description", Description.tensor_scalar)
    query_tensor_attributes_of_uid = delegated("_description", Description.query_tensor_attributes_of_uid)
    natural_type = delegated("_description", Description.natural_type)

    # Operations.
    conv_fprop = delegated("_description", operation_methods.conv_fprop)
    conv_dgrad = delegated("_description", operation_methods.conv_dgrad)
    conv_wgrad = delegated("_description", operation_methods.conv_wgrad)
    matmul = delegated("_description", operation_methods.matmul)
    pointwise = delegated("_description", operation_methods.pointwise)
    reduction = delegated("_description", operation_methods.reduction)
    genstats = delegated("_description", operation_methods.genstats)
    reshape = delegated("_description", operation_methods.reshape)
    transpose = delegated("_description", operation_methods.transpose)
    slice = delegated("_description", operation_methods.slice)
    concatenate = delegated("_description", operation_methods.concatenate)
    resample = delegated("_description", operation_methods.resample)
    resample_backward = delegated("_description", operation_methods.resample_backward)
    rng = delegated("_description", operation_methods.rng)

    # Attention.
    sdpa = delegated("_description", attention_methods.sdpa)

    # Normalizations.
    batchnorm = delegated("_description", norm_methods.batchnorm)
    batchnorm_inference = delegated("_description", norm_methods.batchnorm_inference)
    layernorm = delegated("_description", norm_methods.layernorm)
    adalayernorm = delegated("_description", norm_methods.adalayernorm)
    instancenorm = delegated("_description", norm_methods.instancenorm)
    rmsnorm = delegated("_description", norm_methods.rmsnorm)
    batchnorm_backward = delegated("_description", norm_methods.batchnorm_backward)
    layernorm_backward = delegated("_description", norm_methods.layernorm_backward)
    adalayernorm_backward = delegated("_description", norm_methods.adalayernorm_backward)
    instancenorm_backward = delegated("_description", norm_methods.instancenorm_backward)
    rmsnorm_backward = delegated("_description", norm_methods.rmsnorm_backward)
    bn_finalize = delegated("_description", norm_methods.bn_finalize)
    dbn_weight = delegated("_description", norm_methods.dbn_weight)

    # Operations that the v8 header does not have.
    im2col = delegated("_description", extension_methods.im2col)
    grid_sample = delegated("_description", extension_methods.grid_sample)
    grid_sample_backward = delegated("_description", extension_methods.grid_sample_backward)
    rnn_forward = delegated("_description", extension_methods.rnn_forward)
    rnn_backward_data = delegated("_description", extension_methods.rnn_backward_data)
    rnn_backward_weights = delegated("_description", extension_methods.rnn_backward_weights)
    ctc_loss = delegated("_description", extension_methods.ctc_loss)

    # The checked operation graph.
    validate = delegated("_description", Description.validate)
    build_operation_graph = delegated("_description", Description.build_operation_graph)
    key = delegated("_description", Description.key)

    # Configurations and plans.
    limit_fusion = delegated("_selection", PlanSelection.limit_fusion)
    create_execution_plans = delegated("_selection", PlanSelection.create_execution_plans)
    create_execution_plan = delegated("_selection", PlanSelection.create_execution_plan)
    get_engine_count = delegated("_selection", PlanSelection.get_engine_count)
    get_knobs_for_engine = delegated("_selection", PlanSelection.get_knobs_for_engine)
    get_engine_and_knobs_at_index = delegated("_selection", PlanSelection.get_engine_and_knobs_at_index)
    check_support = delegated("_selection", PlanSelection.check_support)
    build_plans = delegated("_selection", PlanSelection.build_plans)
    build_plan_at_index = delegated("_selection", PlanSelection.build_plan_at_index)
    build = delegated("_selection", PlanSelection.build)
    get_workspace_size = delegated("_selection", PlanSelection.get_workspace_size)
    get_execution_plan_count = delegated("_selection", PlanSelection.get_execution_plan_count)
    get_plan_name_at_index = delegated("_selection", PlanSelection.get_plan_name_at_index)
    get_workspace_size_plan_at_index = delegated("_selection", PlanSelection.get_workspace_size_plan_at_index)
    get_behavior_notes = delegated("_selection", PlanSelection.get_behavior_notes)
    get_behavior_notes_for_plan_at_index = delegated("_selection", PlanSelection.get_behavior_notes_for_plan_at_index)
    get_numeric_notes = delegated("_selection", PlanSelection.get_numeric_notes)
    deselect_engines = delegated("_selection", PlanSelection.deselect_engines)
    deselect_numeric_notes = delegated("_selection", PlanSelection.deselect_numeric_notes)
    allow_numeric_notes = delegated("_selection", PlanSelection.allow_numeric_notes)
    deselect_behavior_notes = delegated("_selection", PlanSelection.deselect_behavior_notes)
    deselect_workspace_greater_than = delegated("_selection", PlanSelection.deselect_workspace_greater_than)
    autotune = delegated("_selection", tuning.autotune)

    # Execution.
    def execute(
        self, variant_pack: Mapping[Any, Any], workspace: Any = None, handle: Any = None, *, stream: Any = None
    ) -> None:
        """Run the plan on ``{tensor, uid or name: array}``; outputs are written in place.

        On a device the call returns when the work is in the stream. Any number of threads may execute a graph at a
        time.

        Args:
            variant_pack: One array in the memory of the plan's device for each tensor with memory. Keys that are None
                are skipped.
            workspace: A contiguous byte array of at least ``get_workspace_size()`` bytes. With None the graph keeps
                one for each thread and stream.
            handle: What ``cudnnCreate`` returned; its stream is used.
            stream: A stream in place of a handle. None takes PyTorch's current one if an output
                is a tensor of PyTorch, else CuPy's.

        Raises:
            BadParam: An array is missing, unknown or bound twice, or it has the wrong type, extents or strides.
                Nothing is written then.
            NotInitialized: The graph is not built.
            NotSupported: The device of the plan is not present.
            ExecutionFailed: A kernel failed.
        """
        self._execution.execute(variant_pack, workspace, handle, stream=stream)  # each microsecond counts here

    capture = delegated("_execution", Execution.capture)
    run = delegated("_execution", Execution.run)
    bind = delegated("_execution", Execution.bind)

    # Questions.
    where = delegated("_analysis", Analysis.where)
    trace = delegated("_analysis", Analysis.trace)
    certificate = delegated("_analysis", Analysis.certificate)
    explain = delegated("_analysis", Analysis.explain)
    refusals = delegated("_analysis", Analysis.refusals)
    repairs = delegated("_analysis", Analysis.repairs)
    cuts = delegated("_analysis", Analysis.cuts)

    @property
    def fused(self) -> FusedGraph:
        """The fused operations, and the rule for every edge that was not fused."""
        return self._selection.fused

    @property
    def ranking(self) -> Ranking:
        """The configurations in mode A on the graph's device, best first."""
        return self._selection.ranking

    @property
    def plan(self) -> ExecutionPlan:
        """The plan that ``build`` made.

        Raises:
            NotInitialized: The graph is not built.
        """
        return self._selection.plan

    @property
    def kernels(self) -> tuple[KernelView, ...]:
        """Each kernel of the plan: operations, text, launches, registers, occupancy and share of the roofline."""
        return self._analysis.kernels

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
    setattr(Graph, _name, delegated("_description", pointwise_function(_name, _row)))
guard(Tensor)
