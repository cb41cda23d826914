"""Copies of a device's memory, made and compared by kernels in a stream's order: recording waits for nothing."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Any

from graphdnn.cuda import driver_api
from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import Array
from graphdnn.enums import DataType, PointwiseMode, ReductionOperator
from graphdnn.graph.operation_graph import OperationGraph
from graphdnn.operations import PointwiseOperation, PointwiseSpec, Reduction, ReductionSpec
from graphdnn.pipeline import rank
from graphdnn.plan import ExecutionPlan
from graphdnn.tensors import TensorSpec, packed_strides
from graphdnn.v6.device_memory import copier, planned

_WHOLE = {1: DataType.UINT8, 2: DataType.INT16, 4: DataType.INT32, 8: DataType.INT64}  # by bytes
_NOW, _THEN, _DIFFERS, _FLAG = 1, 2, 3, 4  # uids


class DeviceKeeper:
    """``stream``: the one that the recorded calls go to. Memory is kept until the last comparison is asked for."""

    def __init__(self, device: DeviceSpec, stream: int) -> None:
        self._device, self._stream = device, stream

    def keep(self, array: Array, into: Any = None) -> Any:
        spec = _spec(array)
        plan = copier(spec, self._device)
        copy = plan.new_array(spec) if into is None else into
        plan.execute({_NOW: _begin(array), _THEN: copy}, None, self._stream)
        return copy

    def differs(self, array: Array, copy: Any) -> Callable[[], bool]:
        plan = planned(_comparer, _spec(array), self._device)
        flag = plan.new_array(plan.config.fused.graph.tensors[_FLAG])
        workspace = plan.new_workspace()
        plan.execute({_NOW: _begin(array), _THEN: copy, _FLAG: flag}, workspace, self._stream)

        def answer(_used: Any = (copy, workspace)) -> bool:
            driver_api.synchronize(self._stream)
            return bool(plan.to_host({_FLAG: flag})[_FLAG].any())

        return answer


def _begin(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def _spec(array: Array) -> TensorSpec:
    """The elements as integers, so that a NaN is like itself."""
    size = array.itemsize
    shape, strides = (array.shape, array.strides) if array.ndim else ((1,), (size,))
    return TensorSpec(
        uid=_NOW, data_type=_WHOLE[size], dims=shape, strides=tuple(step // size for step in strides),
        byte_alignment=gcd(16, _begin(array)),
    )  # fmt: skip


def _comparer(spec: TensorSpec, device: DeviceSpec) -> ExecutionPlan:
    """A plan that says whether two tensors of this layout differ anywhere."""
    math = DataType.INT64 if spec.data_type is DataType.INT64 else DataType.INT32
    then = spec.model_copy(update={"uid": _THEN, "byte_alignment": 16})
    ones = (1,) * spec.rank
    differs = TensorSpec(
        uid=_DIFFERS, data_type=DataType.INT32, dims=spec.dims, strides=packed_strides(spec.dims), is_virtual=True
    )
    flag = TensorSpec(uid=_FLAG, data_type=DataType.INT32, dims=ones, strides=ones)
    graph = OperationGraph.of([
        PointwiseOperation(spec=PointwiseSpec(mode=PointwiseMode.CMP_NEQ, math_type=math), x=spec, b=then, y=differs),
        Reduction(x=differs, y=flag, spec=ReductionSpec(operator=ReductionOperator.MAX, compute_type=DataType.INT32)),
    ])  # fmt: skip
    return ExecutionPlan(rank(graph, device).best)
