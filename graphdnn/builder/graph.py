"""Graph: describe operations by the method names of cuDNN's Python frontend, then build and execute.

Operations appear in the order of the calls; each returns its output tensors,
virtual until ``set_output(True)``. What is left open (extents, strides, types,
uids) is inferred; where each operation was written is kept, and errors print it.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from graphdnn.build import rank
from graphdnn.builder.inference import Defaults, Node, complete, compute_type, infer_extents
from graphdnn.builder.methods import POINTWISE_METHODS, pointwise_method
from graphdnn.builder.tensor import Freeze, Tensor, element_type
from graphdnn.device import DeviceSpec, device_spec
from graphdnn.dtypes import FLOATS, Array
from graphdnn.engines.host.memory import empty
from graphdnn.enums import (
    BehaviorNote,
    BnFinalizeStatsMode,
    ConvolutionMode,
    DataType,
    HeurMode,
    NanPropagation,
    NormMode,
    NormPhase,
    NumericalNote,
    PaddingMode,
    PointwiseMode,
    ReductionOperator,
    ResampleMode,
    ReshapeMode,
    RngDistribution,
    Status,
    TensorReordering,
)
from graphdnn.errors import BadParam, GraphdnnError, NotInitialized, NotSupported, Rejection, error_for
from graphdnn.fusion import FusedGraph, fuse
from graphdnn.graph import OperationGraph
from graphdnn.heuristics import EngineConfig, Filters, Ranking
from graphdnn.operations import (
    BnBackwardWeights,
    BnFinalize,
    Concat,
    ConvBackwardData,
    ConvBackwardFilter,
    ConvForward,
    ConvolutionSpec,
    GenStats,
    Matmul,
    MatmulSpec,
    NormBackward,
    NormForward,
    Operation,
    PointwiseOperation,
    PointwiseSpec,
    Reduction,
    ReductionSpec,
    ResampleBackward,
    ResampleForward,
    ResampleSpec,
    Reshape,
    Rng,
    RngSpec,
    Slice,
    Transpose,
)
from graphdnn.plan import ExecutionPlan
from graphdnn.pointwise import POINTWISE
from graphdnn.rules import Rule
from graphdnn.tensors import TensorSpec, packed_strides

NOT_BUILT = Rule(
    id="builder.not_built",
    expected="a built graph",
    reason="there is no plan yet",
    fix="call build() first",
    status=Status.NOT_INITIALIZED,
)
FOREIGN = Rule(
    id="builder.tensor.foreign",
    expected="a tensor of this graph",
    reason="uids are local to a graph",
    fix="make the operand with this graph's tensor() or tensor_like()",
)
UID_TWICE = Rule(
    id="builder.uid.duplicate",
    expected="a uid of its own",
    reason="uid {uid} was given to two tensors",
    fix="leave uids to the graph, or number the tensors differently",
    status=Status.BAD_PARAM_DUPLICATED_ENTRIES,
)
UNKNOWN_KEY = Rule(
    id="builder.binding.unknown",
    expected="a tensor of this graph, its uid or its name",
    reason="the variant pack is addressed by tensor, uid or name",
    fix="pass the tensor that the graph returned",
)
LAYOUT = Rule(
    id="builder.tensor_like",
    expected="a tensor of a graph, or an array (__array_interface__ or __dlpack__)",
    reason="extents, strides and type are read off the object",
    fix="use tensor(dim, ...) instead",
)

_PACKAGE = str(Path(__file__).resolve().parents[1])


class Graph:
    """An operation graph in the making. Types: anything ``graphdnn.dtypes.data_type_of`` reads."""

    def __init__(
        self,
        name: str = "graph",
        io_data_type: Any = None,
        intermediate_data_type: Any = None,
        compute_data_type: Any = None,
        device: DeviceSpec | str | None = None,
    ) -> None:
        where = f"Graph '{name}'"
        self.name = name
        self.device = device_spec(device)
        self._io = element_type(io_data_type, where)
        self._intermediate = element_type(intermediate_data_type, where)
        self._compute = element_type(compute_data_type, where)
        self._freeze = Freeze()
        self._tensors: list[Tensor] = []
        self._nodes: list[Node] = []
        self._graph: OperationGraph | None = None
        self._rankings: list[Ranking] = []
        self._filters = Filters()
        self._deselected: tuple[str, ...] = ()
        self._plan: ExecutionPlan | None = None
        self._uids: dict[Any, int] = {}
        self._workspace: Array | None = None

    # Tensors.

    def tensor(
        self,
        dim: Sequence[int],
        stride: Sequence[int] | None = None,
        data_type: Any = None,
        is_virtual: bool = False,
        is_pass_by_value: bool = False,
        reordering_type: TensorReordering = TensorReordering.NONE,
        name: str = "",
        uid: int | None = None,
    ) -> Tensor:
        """An operand from outside. Strides count elements; left open, they are row-major."""
        tensor = self._new(name)
        tensor.set_dim(dim).set_data_type(data_type).set_is_virtual(is_virtual)
        tensor.set_is_pass_by_value(is_pass_by_value).set_reordering_type(reordering_type)
        if stride is not None:
            tensor.set_stride(stride)
        if uid is not None and uid >= 0:
            tensor.set_uid(uid)
        return tensor

    def tensor_like(self, like: Any, name: str = "") -> Tensor:
        """An operand with the extents, strides and type of a tensor, a NumPy array or a DLPack object."""
        tensor = self._new(name)
        if isinstance(like, Tensor):
            tensor.dim, tensor.stride, tensor.data_type = like.dim, like.stride, like.data_type
            tensor.is_by_value, tensor.vector = like.is_by_value, like.vector
            return tensor
        try:
            array = like if isinstance(like, np.ndarray) else np.from_dlpack(like)
        except (TypeError, AttributeError, BufferError, RuntimeError) as error:
            raise BadParam(LAYOUT.reject(tensor.where, "like", f"{type(like).__name__}: {error}")) from None
        tensor.set_data_type(array.dtype).set_dim(array.shape)
        strides = [s // array.itemsize for s in array.strides]
        # NumPy gives a new axis of extent 1 the stride 0; any other does as well there.
        outermost = max((d * s for d, s in zip(array.shape, strides, strict=True)), default=1)
        return tensor.set_stride([s or outermost if d == 1 else s for d, s in zip(array.shape, strides, strict=True)])

    def tensor_scalar(self, value: float, data_type: Any = "float32", name: str = "") -> Tensor:
        """A constant; its rank follows from the operation that reads it."""
        tensor = self._new(name).set_dim([1]).set_data_type(data_type).set_is_pass_by_value(True)
        tensor.constant = value
        return tensor

    def _new(self, name: str = "") -> Tensor:
        self._freeze.check(f"Graph '{self.name}'", "tensor")
        tensor = Tensor(self._freeze, name, _origin())
        self._tensors.append(tensor)
        return tensor

    # Operations. ``name`` names the operation; compute_data_type the arithmetic.

    def conv_fprop(
        self,
        image: Tensor,
        weight: Tensor,
        padding: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        convolution_mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
        compute_data_type: Any = None,
        name: str = "",
        pre_padding: Sequence[int] | None = None,
        post_padding: Sequence[int] | None = None,
    ) -> Tensor:
        """y of x ``[N, G*C, ...]`` and w ``[G*K, C, ...]``, or with a group axis ``[N, G, C, ...]``, ``[G, K, C, ...]``."""
        settings = (padding, stride, dilation, pre_padding, post_padding, convolution_mode)
        return self._convolution(ConvForward, {"x": image, "w": weight}, "y", settings, compute_data_type, name)

    def conv_dgrad(
        self,
        loss: Tensor,
        filter: Tensor,
        padding: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        convolution_mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
        compute_data_type: Any = None,
        name: str = "",
        pre_padding: Sequence[int] | None = None,
        post_padding: Sequence[int] | None = None,
    ) -> Tensor:
        """dx; call ``set_dim`` on it, several extents are possible. The parameters are the forward's."""
        settings = (padding, stride, dilation, pre_padding, post_padding, convolution_mode)
        return self._convolution(ConvBackwardData, {"dy": loss, "w": filter}, "dx", settings, compute_data_type, name)

    def conv_wgrad(
        self,
        image: Tensor,
        loss: Tensor,
        padding: Sequence[int] | None = None,
        stride: Sequence[int] | None = None,
        dilation: Sequence[int] | None = None,
        convolution_mode: ConvolutionMode = ConvolutionMode.CROSS_CORRELATION,
        compute_data_type: Any = None,
        name: str = "",
        pre_padding: Sequence[int] | None = None,
        post_padding: Sequence[int] | None = None,
    ) -> Tensor:
        """dw; call ``set_dim`` on it, several extents are possible. The parameters are the forward's."""
        settings = (padding, stride, dilation, pre_padding, post_padding, convolution_mode)
        return self._convolution(ConvBackwardFilter, {"x": image, "dy": loss}, "dw", settings, compute_data_type, name)

    def _convolution(
        self,
        cls: type[Operation],
        operands: dict[str, Tensor],
        output: str,
        settings: tuple[Any, ...],
        kind: Any,
        name: str,
    ) -> Tensor:
        padding, stride, dilation, pre, post, mode = settings
        lengths = [len(s) for s in (padding, stride, dilation, pre, post) if s is not None]
        first = next(iter(operands.values()))
        spatial = lengths[0] if lengths else max(len(first.dim or ()) - 2, 1)
        compute = self._compute_type(operands.values(), kind)
        conv = ConvolutionSpec(
            compute_type=compute, mode=mode, spatial_dims=spatial,
            dilations=dilation or (1,) * spatial, filter_strides=stride or (1,) * spatial,
            pre_paddings=pre or padding or (0,) * spatial, post_paddings=post or padding or (0,) * spatial,
        )  # fmt: skip
        (tensor,) = self._add(cls, {**operands, "conv": conv}, (output,), name, compute)
        return tensor

    def matmul(
        self, A: Tensor, B: Tensor, compute_data_type: Any = None, name: str = ""
    ) -> Tensor:  # the frontend's names
        """C = A @ B over the last two axes; leading axes are batch."""
        compute = self._compute_type((A, B), compute_data_type)
        return self._add(Matmul, {"a": A, "b": B, "spec": MatmulSpec(compute_type=compute)}, ("c",), name, compute)[0]

    def pointwise(
        self,
        mode: PointwiseMode,
        *,
        x: Tensor | None = None,
        b: Tensor | None = None,
        t: Tensor | None = None,
        dy: Tensor | None = None,
        compute_data_type: Any = None,
        name: str = "",
        **parameters: float,
    ) -> Tensor:
        """Any elementwise mode; the methods ``add``, ``relu``, ``gelu_backward`` ... are rows over this one.

        Operands broadcast, right-aligned; ``parameters`` are fields of ``PointwiseSpec``.
        """
        given = {port: tensor for port, tensor in (("x", x), ("b", b), ("t", t), ("dy", dy)) if tensor is not None}
        arithmetic = [tensor for port, tensor in given.items() if port != "t"]
        compute = self._compute_type(arithmetic, compute_data_type, exact=POINTWISE[mode].integer)
        spec = PointwiseSpec(mode=mode, math_type=compute, **parameters)
        output = "dx" if spec.row.kind == "backward" else "y"
        return self._add(PointwiseOperation, {**given, "spec": spec}, (output,), name, compute)[0]

    def reduction(
        self, input: Tensor, mode: ReductionOperator, compute_data_type: Any = None, name: str = ""
    ) -> Tensor:
        """y; call ``set_dim`` with 1 on the axes to reduce."""
        compute = self._compute_type((input,), compute_data_type)
        spec = ReductionSpec(operator=mode, compute_type=compute)
        return self._add(Reduction, {"x": input, "spec": spec}, ("y",), name, compute)[0]

    def genstats(self, input: Tensor, compute_data_type: Any = None, name: str = "") -> list[Tensor]:
        """[sum, sum of squares] per channel."""
        compute = self._compute_type((input,), compute_data_type)
        return self._add(GenStats, {"x": input, "math_type": compute}, ("sum", "sqsum"), name, compute)

    def reshape(self, input: Tensor, name: str = "", reshape_mode: ReshapeMode = ReshapeMode.VIEW_ONLY) -> Tensor:
        """The same elements under other extents; call ``set_dim``."""
        return self._add(Reshape, {"x": input, "mode": reshape_mode}, ("y",), name)[0]

    def transpose(self, input: Tensor, permutation: Sequence[int], name: str = "") -> Tensor:
        """Axis j of the result is axis permutation[j] of the input."""
        return self._add(Transpose, {"x": input, "permutation": tuple(permutation)}, ("y",), name)[0]

    def slice(self, input: Tensor, slices: Sequence[builtins.slice], name: str = "") -> Tensor:
        """input[slices], one Python slice per axis."""
        cuts = [cut.indices(extent) for cut, extent in zip(slices, input.dim or (), strict=True)]
        starts, limits, steps = (tuple(part) for part in zip(*cuts, strict=True))
        fields = {"x": input, "starts": starts, "limits": limits, "slice_strides": steps}
        return self._add(Slice, fields, ("y",), name)[0]

    def concatenate(self, inputs: Sequence[Tensor], axis: int, name: str = "") -> Tensor:
        """The inputs one after another along an axis."""
        return self._add(Concat, {"inputs_list": tuple(inputs), "axis": axis}, ("y",), name)[0]

    # Normalization.

    def batchnorm(
        self,
        input: Tensor,
        scale: Tensor,
        bias: Tensor,
        in_running_mean: Tensor | None = None,
        in_running_var: Tensor | None = None,
        epsilon: Tensor | None = None,
        momentum: Tensor | None = None,
        compute_data_type: Any = None,
        name: str = "",
    ) -> list[Tensor | None]:
        """[y, mean, inverse variance, next running mean, next running variance]; the last two None without running ones."""
        running = {"input_running_mean": in_running_mean, "input_running_var": in_running_var, "momentum": momentum}
        outputs = ["y", "mean", "inv_variance"]
        if in_running_mean is not None:
            outputs += ["output_running_mean", "output_running_var"]
        fields = {"scale": scale, "bias": bias, "epsilon": epsilon, **running}
        found = self._norm(NormMode.BATCH_NORM, NormPhase.TRAINING, input, fields, outputs, compute_data_type, name)
        return [*found, *(None,) * (5 - len(found))]

    def batchnorm_inference(
        self, input: Tensor, mean: Tensor, inv_variance: Tensor, scale: Tensor, bias: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> Tensor:  # fmt: skip
        """y from given statistics."""
        fields = {"mean": mean, "inv_variance": inv_variance, "scale": scale, "bias": bias}
        return self._norm(NormMode.BATCH_NORM, NormPhase.INFERENCE, input, fields, ["y"], compute_data_type, name)[0]

    def layernorm(
        self, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None, epsilon: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[y, mean, inverse variance]; the statistics are None in INFERENCE."""
        return self._phased(
            NormMode.LAYER_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name
        )

    def adalayernorm(
        self, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None = None,
        epsilon: Tensor | None = None, compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[y, mean, inverse variance] with scale and bias per sample."""
        return self._phased(
            NormMode.ADA_LAYER_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name
        )

    def instancenorm(
        self, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None, epsilon: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[y, mean, inverse variance] over the spatial axes."""
        return self._phased(
            NormMode.INSTANCE_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name
        )

    def rmsnorm(
        self, norm_forward_phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None = None,
        epsilon: Tensor | None = None, compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[y, inverse root mean square]."""
        y, _, inv = self._phased(
            NormMode.RMS_NORM, norm_forward_phase, input, scale, bias, epsilon, compute_data_type, name
        )
        return [y, inv]

    def _phased(
        self, mode: NormMode, phase: NormPhase, input: Tensor, scale: Tensor, bias: Tensor | None,
        epsilon: Tensor | None, kind: Any, name: str,
    ) -> list[Tensor | None]:  # fmt: skip
        statistics = ["mean", "inv_variance"] if mode is not NormMode.RMS_NORM else ["inv_variance"]
        outputs = ["y", *(statistics if phase is NormPhase.TRAINING else [])]
        found = dict(zip(outputs, self._norm(
            mode, phase, input, {"scale": scale, "bias": bias, "epsilon": epsilon}, outputs, kind, name
        ), strict=True))  # fmt: skip
        return [found.get(port) for port in ("y", "mean", "inv_variance")]

    def _norm(
        self,
        mode: NormMode,
        phase: NormPhase,
        x: Tensor,
        fields: Mapping[str, Any],
        outputs: list[str],
        kind: Any,
        name: str,
    ) -> list[Tensor]:
        compute = self._compute_type((x,), kind)
        given = {port: tensor for port, tensor in fields.items() if tensor is not None}
        node = {"x": x, "mode": mode, "phase": phase, "math_type": compute, **given}
        return self._add(NormForward, node, tuple(outputs), name, compute)

    def batchnorm_backward(
        self, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor | None = None, inv_variance: Tensor | None = None,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor]:  # fmt: skip
        """[dx, dscale, dbias]."""
        return self._norm_backward(
            NormMode.BATCH_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name
        )

    def layernorm_backward(
        self, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor]:  # fmt: skip
        """[dx, dscale, dbias]."""
        return self._norm_backward(
            NormMode.LAYER_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name
        )

    def adalayernorm_backward(
        self, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor]:  # fmt: skip
        """[dx, dscale, dbias]."""
        return self._norm_backward(
            NormMode.ADA_LAYER_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name
        )

    def instancenorm_backward(
        self, grad: Tensor, input: Tensor, scale: Tensor, mean: Tensor, inv_variance: Tensor,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor]:  # fmt: skip
        """[dx, dscale, dbias]."""
        return self._norm_backward(
            NormMode.INSTANCE_NORM, grad, input, scale, mean, inv_variance, True, compute_data_type, name
        )

    def rmsnorm_backward(
        self, grad: Tensor, input: Tensor, scale: Tensor, inv_variance: Tensor, has_dbias: bool = False,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[dx, dscale, dbias or None]."""
        found: list[Tensor | None] = list(
            self._norm_backward(
                NormMode.RMS_NORM, grad, input, scale, None, inv_variance, has_dbias, compute_data_type, name
            )
        )
        return found if has_dbias else [*found, None]

    def _norm_backward(
        self, mode: NormMode, dy: Tensor, x: Tensor, scale: Tensor, mean: Tensor | None, inv: Tensor | None,
        dbias: bool, kind: Any, name: str,
    ) -> list[Tensor]:  # fmt: skip
        compute = self._compute_type((x,), kind)
        fields = {"x": x, "dy": dy, "scale": scale, "mode": mode, "math_type": compute}
        fields |= {port: t for port, t in (("mean", mean), ("inv_variance", inv)) if t is not None}
        outputs = ("dx", "dscale", "dbias") if dbias else ("dx", "dscale")
        return self._add(NormBackward, fields, outputs, name, compute)

    # Beyond the frontend's Python methods.

    def resample(
        self,
        input: Tensor,
        mode: ResampleMode,
        window: Sequence[Any],
        stride: Sequence[Any] | None = None,
        pre_padding: Sequence[Any] | None = None,
        post_padding: Sequence[Any] | None = None,
        padding_mode: PaddingMode | None = None,
        generate_index: bool = False,
        nan_propagation: NanPropagation = NanPropagation.PROPAGATE_NAN,
        compute_data_type: Any = None,
        name: str = "",
    ) -> list[Tensor | None]:
        """[y, index or None]: pooling and interpolation; the stride is the window's unless given."""
        compute = self._compute_type((input,), compute_data_type, exact=mode is ResampleMode.MAXPOOL)
        spec = _resample_spec(mode, window, stride, pre_padding, post_padding, padding_mode, nan_propagation, compute)
        outputs = ("y", "index") if generate_index else ("y",)
        found: list[Tensor | None] = list(
            self._add(ResampleForward, {"x": input, "spec": spec}, outputs, name, compute)
        )
        return found if generate_index else [*found, None]

    def resample_backward(
        self,
        loss: Tensor,
        mode: ResampleMode,
        window: Sequence[Any],
        stride: Sequence[Any] | None = None,
        pre_padding: Sequence[Any] | None = None,
        post_padding: Sequence[Any] | None = None,
        padding_mode: PaddingMode | None = None,
        index: Tensor | None = None,
        x: Tensor | None = None,
        nan_propagation: NanPropagation = NanPropagation.PROPAGATE_NAN,
        compute_data_type: Any = None,
        name: str = "",
    ) -> Tensor:
        """dx, with the forward's parameters; its extents are x's, or those of ``set_dim``. Maxima need index or x."""
        compute = self._compute_type((loss,), compute_data_type, exact=mode is ResampleMode.MAXPOOL)
        spec = _resample_spec(mode, window, stride, pre_padding, post_padding, padding_mode, nan_propagation, compute)
        fields = {"dy": loss, "spec": spec} | {p: t for p, t in (("index", index), ("x", x)) if t is not None}
        (dx,) = self._add(ResampleBackward, fields, ("dx",), name, compute)
        dx.dim = None if x is None else x.dim
        return dx

    def bn_finalize(
        self, sum: Tensor, sq_sum: Tensor, scale: Tensor, bias: Tensor, epsilon: Tensor, accum_count: Tensor,
        momentum: Tensor, in_running_mean: Tensor | None = None, in_running_var: Tensor | None = None,
        compute_data_type: Any = None, name: str = "",
    ) -> list[Tensor | None]:  # fmt: skip
        """[eq scale, eq bias, mean, inverse std, next running mean, next running variance] (the last two optional)."""
        compute = self._compute_type((), compute_data_type)
        fields = {
            "mode": BnFinalizeStatsMode.TRAINING, "math_type": compute, "y_sum": sum, "y_sq_sum": sq_sum, "scale": scale,
            "bias": bias, "epsilon": epsilon, "accumulation_count": accum_count, "momentum": momentum,
        }  # fmt: skip
        outputs = ["eq_scale", "eq_bias", "saved_mean", "saved_inv_std"]
        if in_running_mean is not None:
            fields |= {"previous_running_mean": in_running_mean, "previous_running_var": in_running_var}
            outputs += ["updated_running_mean", "updated_running_var"]
        found = self._add(BnFinalize, fields, tuple(outputs), name, compute)
        return [*found, *(None,) * (6 - len(found))]

    def dbn_weight(
        self, dy: Tensor, x: Tensor, mean: Tensor, inv_variance: Tensor, scale: Tensor, compute_data_type: Any = None,
        name: str = "",
    ) -> list[Tensor]:  # fmt: skip
        """[dscale, dbias, A, B, C] of dx = A*dy + B*x + C."""
        compute = self._compute_type((x,), compute_data_type)
        fields = {"x": x, "dy": dy, "mean": mean, "inv_std": inv_variance, "scale": scale, "math_type": compute}
        outputs = ("dscale", "dbias", "eq_dy_scale", "eq_x_scale", "eq_bias")
        return self._add(BnBackwardWeights, fields, outputs, name, compute)

    def rng(
        self, distribution: RngDistribution, seed: Tensor | int, offset: Tensor, name: str = "", **parameters: float
    ) -> Tensor:
        """Random numbers; call ``set_dim``. ``parameters``: probability; minimum, maximum; mean, standard_deviation."""
        spec = RngSpec(distribution=distribution, **parameters)
        return self._add(Rng, {"spec": spec, "seed": seed, "offset": offset}, ("y",), name)[0]

    # Bookkeeping.

    def _compute_type(self, operands: Any, given: Any, *, exact: bool = True) -> DataType:
        """``exact``: False for operations that have no integer arithmetic."""
        types = [t.data_type or (self.natural_type(t) if t.is_virtual else self._io) for t in operands]
        found = compute_type(types, element_type(given, f"Graph '{self.name}'"), self._compute)
        if not exact and given is None and found in (DataType.INT32, DataType.INT64):
            return DataType.FLOAT
        return found

    def _add(
        self,
        cls: type[Operation],
        fields: dict[str, Any],
        outputs: tuple[str, ...],
        name: str,
        compute: DataType | None = None,
    ) -> list[Tensor]:
        self._freeze.check(f"Graph '{self.name}'", cls.tag)
        made = {port: self._new(f"{name}::{port}" if name else "").set_is_virtual(True) for port in outputs}
        node = Node(cls, {**fields, **made}, made, name, _origin(), {"compute_type": compute or DataType.FLOAT})
        for tensor in node.inputs():
            if tensor._freeze is not self._freeze:
                raise BadParam(FOREIGN.reject(node.where, "input", repr(tensor)))
            tensor.readers += 1
        infer_extents(node)
        self._nodes.append(node)
        self._check_early(node)
        return list(made.values())

    def _check_early(self, node: Node) -> None:
        """Raise what is wrong with the extents at the call, where the user can see it; types may still change."""
        inputs = node.inputs()
        if any(t.dim is None for t in inputs):
            return
        always_inferred = node.cls in (
            PointwiseOperation,
            Matmul,
        )  # open extents can only mean operands that do not fit
        if any(t.dim is None for t in node.outputs.values()) and not always_inferred:
            return
        tensors = [*inputs, *node.outputs.values()]
        stand_in = {id(t): _stand_in(t, uid, inputs) for uid, t in enumerate(tensors, start=1)}
        try:
            node.cls(**_with_specs(node, stand_in), name=node.name, origin=node.origin)
        except GraphdnnError as error:
            wrong = [r for r in error.rejections if r.status is Status.BAD_PARAM_SHAPE_MISMATCH]
            if wrong:
                self._nodes.remove(node)
                for tensor in node.outputs.values():
                    self._tensors.remove(tensor)
                raise error_for(wrong) from None

    def natural_type(self, tensor: Tensor) -> DataType:
        """The type an open tensor gets: that of the arithmetic that makes it."""
        for node in self._nodes:
            if tensor in node.outputs.values():
                found: DataType = node.settings["compute_type"]
                return found
        return self._io or DataType.FLOAT

    def validate(self) -> None:
        """Infer everything that is open. Raises with every open extent and type, and every duplicate uid."""
        found: list[Rejection] = []
        suggested = (t.data_type for t in self._tensors if not t.is_virtual and t.data_type in FLOATS)
        defaults = Defaults(self._io, self._intermediate, self._io or next(suggested, None))
        for node in self._nodes:
            try:
                complete(node, defaults)
            except BadParam as error:
                found += error.rejections
        taken: dict[int, Tensor] = {}
        for tensor in self._tensors:
            if tensor.uid is not None and taken.setdefault(tensor.uid, tensor) is not tensor:
                found.append(UID_TWICE.reject(tensor.where, "uid", tensor.uid, uid=tensor.uid))
        if found:
            raise BadParam(found)

    def build_operation_graph(self) -> OperationGraph:
        """The checked graph; uids are 1, 2, 3 ... for tensors without one. The builder is frozen from here on."""
        if self._graph is None:
            self.validate()
            used = {t.uid for t in self._tensors if t.uid is not None}
            free = (uid for uid in range(1, len(self._tensors) + len(used) + 1) if uid not in used)
            for tensor in self._tensors:
                if tensor.uid is None:
                    tensor.uid = next(free)
            in_use = {id(t): t.spec() for node in self._nodes for t in (*node.inputs(), *node.outputs.values())}
            operations = [
                node.cls(**_with_specs(node, in_use), name=node.name, origin=node.origin) for node in self._nodes
            ]
            self._graph = OperationGraph.of(operations, name=self.name)
            self._freeze.frozen = True
            self._uids = {t: t.uid for t in self._tensors} | {t.name: t.uid for t in self._tensors if t.name}  # type: ignore[assignment,misc]
        return self._graph

    # Planning.

    def create_execution_plans(self, heur_modes: Sequence[HeurMode] = (HeurMode.A,)) -> None:
        """Rank configurations; may be called again to append other modes'."""
        graph = self.build_operation_graph()
        self._rankings += [rank(graph, self.device, mode, self._filters) for mode in heur_modes]

    def _configs(self) -> list[EngineConfig]:
        return [config for ranking in self._rankings for config in ranking]

    def check_support(self) -> None:
        """Raise ``NotSupported`` with every engine's reasons when no configuration is left."""
        self._first()

    def _first(self) -> EngineConfig:
        """The best allowed configuration, without working out the others."""
        refused: list[Rejection] = []
        for ranking in self._rankings:
            for config in ranking:
                if not any(word in config.name for word in self._deselected):
                    return config
            refused += [r for declined in ranking.declined for r in declined.rejections]
        if not self._rankings:
            raise NotInitialized(NOT_BUILT.reject(f"Graph '{self.name}'", "plans", "none"))
        raise NotSupported(refused or [NOT_BUILT.reject(f"Graph '{self.name}'", "plans", "all deselected")])

    def build_plans(self) -> None:
        """Build the best configuration."""
        if self._plan is None:
            self._plan = ExecutionPlan(self._first())

    def build_plan_at_index(self, index: int) -> None:
        """Build one configuration of the list and make it the plan."""
        self._plan = ExecutionPlan(self._configs()[index])

    def build(self, heur_modes: Sequence[HeurMode] = (HeurMode.A, HeurMode.FALLBACK)) -> ExecutionPlan:
        """Everything: validate, make the graph, rank, compile. Returns the plan."""
        if self._plan is None:
            if not self._rankings:
                self.create_execution_plans(heur_modes)
            self.build_plans()
        return self.plan

    @property
    def plan(self) -> ExecutionPlan:
        if self._plan is None:
            raise NotInitialized(NOT_BUILT.reject(f"Graph '{self.name}'", "plan", "none"))
        return self._plan

    @property
    def fused(self) -> FusedGraph:
        """What became one kernel, and why the rest did not."""
        return fuse(self.build_operation_graph())

    @property
    def ranking(self) -> Ranking:
        """Configurations in mode A on the graph's device."""
        return rank(self.build_operation_graph(), self.device, HeurMode.A, self._filters)

    def explain(self) -> str:
        """Fused operations, ranking and refusals as text."""
        return f"{self.fused}\n\n{self.ranking}"

    def get_workspace_size(self) -> int:
        return self.plan.workspace_size

    def get_execution_plan_count(self) -> int:
        return len(self._configs())

    def get_plan_name_at_index(self, index: int) -> str:
        return self._configs()[index].name

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self._configs()[index].workspace_size

    def get_behavior_notes(self) -> list[BehaviorNote]:
        return list(self.plan.behavior_notes)

    def get_numeric_notes(self) -> list[NumericalNote]:
        return list(self.plan.numerical_notes)

    def deselect_engines(self, names: Sequence[str]) -> None:
        """Bar configurations whose name contains one of these words."""
        self._deselected += tuple(names)

    def deselect_numeric_notes(self, notes: Sequence[NumericalNote]) -> None:
        self._refilter(without_numerical_notes=self._filters.without_numerical_notes.union(notes))

    def deselect_behavior_notes(self, notes: Sequence[BehaviorNote]) -> None:
        self._refilter(without_behavior_notes=self._filters.without_behavior_notes.union(notes))

    def deselect_workspace_greater_than(self, workspace: int) -> None:
        self._refilter(workspace_limit=workspace)

    def _refilter(self, **changes: Any) -> None:
        """Apply a filter to the lists that exist and to those that will."""
        self._filters = replace(self._filters, **changes)
        if self._rankings:
            modes = [ranking.mode for ranking in self._rankings]
            self._rankings = []
            self.create_execution_plans(modes)

    # Running.

    def execute(self, variant_pack: Mapping[Any, Any], workspace: Any = None) -> None:
        """Run on ``{tensor, uid or name: array}``; None keys are skipped. Outputs are written in place.

        ``workspace`` None lets the graph keep one of its own, which serves one execution at a time.
        """
        plan = self.plan
        try:
            bindings = {key if type(key) is int else self._uids[key]: value for key, value in variant_pack.items()}
        except (KeyError, TypeError):
            bindings = self._resolved(variant_pack)
        if workspace is None and plan.workspace_size:
            if self._workspace is None:
                self._workspace = plan.new_workspace()
            workspace = self._workspace
        plan.execute(bindings, workspace)

    def _resolved(self, variant_pack: Mapping[Any, Any]) -> dict[int, Any]:
        given = {key: value for key, value in variant_pack.items() if key is not None}
        unknown = [key for key in given if not isinstance(key, int) and key not in self._uids]
        if unknown:
            raise BadParam([UNKNOWN_KEY.reject(f"Graph '{self.name}'", "variant_pack", repr(key)) for key in unknown])
        return {key if isinstance(key, int) else self._uids[key]: value for key, value in given.items()}

    def run(self, inputs: Mapping[Any, Any]) -> dict[Tensor, Array]:
        """Execute with new arrays for the outputs, and return them by tensor."""
        graph = self.build_operation_graph()
        self.build()
        by_uid = {t.uid: t for t in self._tensors}
        outputs = {by_uid[spec.uid]: empty(spec) for spec in graph.outputs}
        self.execute({**inputs, **outputs})
        return outputs

    def query_tensor_attributes_of_uid(self, uid: int) -> Tensor:
        """The tensor with this uid. Raises when there is none."""
        for tensor in self._tensors:
            if tensor.uid == uid:
                return tensor
        raise BadParam(UNKNOWN_KEY.reject(f"Graph '{self.name}'", "uid", uid))

    def key(self) -> str:
        """Equal for graphs that compute the same."""
        return self.build_operation_graph().key

    def __str__(self) -> str:
        return str(self.build_operation_graph())


for _name, _row in POINTWISE_METHODS.items():
    setattr(Graph, _name, pointwise_method(_name, _row))


def _resample_spec(
    mode: ResampleMode,
    window: Any,
    stride: Any,
    pre: Any,
    post: Any,
    padding: Any,
    nan: NanPropagation,
    compute: DataType,
) -> ResampleSpec:
    natural = PaddingMode.NEG_INF_PAD if mode is ResampleMode.MAXPOOL else PaddingMode.ZERO_PAD
    zeros = (0,) * len(window)
    return ResampleSpec(
        mode=mode, compute_type=compute, spatial_dims=len(window), window_dims=window, strides=stride or window,
        pre_paddings=pre or zeros, post_paddings=post or pre or zeros, nan_propagation=nan,
        padding_mode=natural if padding is None else padding,
    )  # fmt: skip


def _stand_in(tensor: Tensor, uid: int, inputs: Sequence[Tensor]) -> Any:
    """A description good enough to check extents with."""
    dim = tensor.dim or inputs[0].dim or (1,)
    return TensorSpec(
        uid=uid, data_type=tensor.data_type or DataType.FLOAT, dims=dim, strides=packed_strides(dim),
        is_by_value=tensor.is_by_value, vector_count=tensor.vector[0], vectorized_dimension=tensor.vector[1],
    )  # fmt: skip


def _with_specs(node: Node, specs: Mapping[int, Any]) -> dict[str, Any]:
    """The node's fields with specs in place of builder tensors."""

    def spec(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(spec(item) for item in value)
        return specs[id(value)] if isinstance(value, Tensor) else value

    return {field: spec(value) for field, value in node.fields.items()}


def _origin() -> str:
    """``file.py:12`` of the innermost frame outside this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back  # type: ignore[assignment]
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}" if frame is not None else ""
