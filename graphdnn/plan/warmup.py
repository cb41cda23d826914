"""A small operation ranked and written beforehand: what every first plan works out is there then."""

from __future__ import annotations

from graphdnn import debug_log
from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import ConvolutionMode, DataType, PointwiseMode
from graphdnn.fusion import fuse
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.heuristics import Ranking
from graphdnn.operations import ConvForward, ConvolutionSpec, PointwiseOperation, PointwiseSpec
from graphdnn.plan.binding_check import BindingCheck
from graphdnn.plan.execution_plan import bound_of
from graphdnn.tensors import TensorSpec

_done: set[tuple[object, ...]] = set()


def rehearse(device: DeviceSpec) -> None:
    """Once for a kind of device. Nothing is compiled, and nobody reads about it."""
    kind = device.kind, device.compute_capability
    if kind in _done or debug_log.asks("rank"):
        return
    _done.add(kind)
    best = next(iter(Ranking(fuse(_convolution()), device)), None)
    if best is None:
        return
    for choice in best.choices:
        choice.engine.compile(choice.task, choice.knobs)
    BindingCheck(bound_of(best).arrays)


def _convolution() -> OperationGraph:
    """With bias and ReLU, in 16-bit floats, channels last; as builders describe it, bias and values inside in fp32."""
    n, c, size = 4, 32, 8
    x, w, b = _tensor(1, n, c, size), _tensor(2, c, c, 3), _tensor(4, 1, c, 1, DataType.FLOAT)
    y, sum = (_tensor(uid, n, c, size, DataType.FLOAT, is_virtual=True) for uid in (3, 5))
    conv = ConvolutionSpec(
        spatial_dims=2, compute_type=DataType.FLOAT, mode=ConvolutionMode.CROSS_CORRELATION,
        filter_strides=(1, 1), dilations=(1, 1), pre_paddings=(1, 1), post_paddings=(1, 1),
    )  # fmt: skip
    modes = PointwiseMode.ADD, PointwiseMode.RELU_FWD
    add, relu = (PointwiseSpec(mode=mode, math_type=DataType.FLOAT) for mode in modes)
    return OperationGraph.of(
        [
            ConvForward(conv=conv, x=x, w=w, y=y),
            PointwiseOperation(spec=add, x=y, b=b, y=sum),
            PointwiseOperation(spec=relu, x=sum, y=_tensor(6, n, c, size)),
        ]
    )


def _tensor(
    uid: int, n: int, c: int, size: int, data_type: DataType = DataType.HALF, *, is_virtual: bool = False
) -> TensorSpec:
    return TensorSpec(
        uid=uid, data_type=data_type, dims=(n, c, size, size), strides=(c * size * size, 1, size * c, c),
        is_virtual=is_virtual,
    )  # fmt: skip
