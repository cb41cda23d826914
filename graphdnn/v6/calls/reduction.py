"""ReduceTensor and its sizes."""

from __future__ import annotations

from math import inf, prod
from typing import Any

from graphdnn.enums import DataType, ReductionOperator
from graphdnn.v6.arithmetic import ignores_nan, instead_of_nan
from graphdnn.v6.checks import DIM_MAX, broadcasts, rank_in, same_type
from graphdnn.v6.draft import Draft
from graphdnn.v6.enums import cudnnDataType_t, cudnnReduceTensorIndices_t, cudnnReduceTensorOp_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.execution import prepared
from graphdnn.v6.objects import Descriptor, Handle
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import COMPUTE_TYPE, INDICES, SAME_DIMS

Op = cudnnReduceTensorOp_t
_DOUBLE, _FLOAT = cudnnDataType_t.CUDNN_DATA_DOUBLE, cudnnDataType_t.CUDNN_DATA_FLOAT
_WITHOUT_NAN = {
    Op.CUDNN_REDUCE_TENSOR_MIN: inf,
    Op.CUDNN_REDUCE_TENSOR_MAX: -inf,
    Op.CUDNN_REDUCE_TENSOR_AMAX: 0.0,
}  # what loses against every number
_NO_INDICES = cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_NO_INDICES


@implements("cudnnGetReductionIndicesSize")
def indices_size(handle: Handle, desc: Descriptor, a_desc: Descriptor, c_desc: Descriptor) -> int:
    """Four bytes for each element of C where positions are asked for."""
    return 0 if desc.value.indices is _NO_INDICES else 4 * prod(c_desc.value.dims)


@implements("cudnnGetReductionWorkspaceSize")
def workspace_size(handle: Handle, desc: Descriptor, a_desc: Descriptor, c_desc: Descriptor) -> int:
    """0: the host needs none."""
    return 0


@implements("cudnnReduceTensor", "reduction", "loops")
def reduce_tensor(handle: Handle, desc: Descriptor, indices: Any, indices_bytes: int, workspace: Any,
                  workspace_bytes: int, alpha: float, a_desc: Descriptor, a: Any, beta: float, c_desc: Descriptor,
                  c: Any) -> None:  # fmt: skip
    """C = alpha * reduce(A) + beta * C over the axes where C has extent 1."""
    where, op, av, cv = "cudnnReduceTensor", desc.value, a_desc.value, c_desc.value

    def draw(draft: Draft) -> None:
        rank_in(where, "aDesc", len(av.dims), 1, DIM_MAX)
        broadcasts(where, "cDesc", cv, av)
        if av.dims == cv.dims:
            reason = "the axes of extent 1 in C are the reduced ones, and there are none"
            raise CudnnError(SAME_DIMS.reject(where, "cDesc.dims", cv.dims, expected="1 on some axis", reason=reason))
        if _DOUBLE in (av.data_type, cv.data_type):
            same_type(where, {"aDesc": av, "cDesc": cv})
        wanted = _DOUBLE if av.data_type is _DOUBLE else _FLOAT
        if op.compute_type is not wanted:
            given = op.compute_type.name
            raise CudnnError(COMPUTE_TYPE.reject(where, "reduceTensorCompType", given, expected=wanted.name))
        if op.indices is not _NO_INDICES:
            raise CudnnError(INDICES.reject(where, "reduceTensorIndices", op.indices.name))
        math = DataType(int(wanted))
        source = draft.memory(0, av, "A")
        if op.op in _WITHOUT_NAN and ignores_nan(op.nan):
            source = instead_of_nan(draft, math, source, draft.constant(_WITHOUT_NAN[op.op], source, math))
        out = draft.target(1, cv, "C", alpha, beta, math)
        draft.reduce(ReductionOperator(int(op.op)), math, source, out=out)
        draft.settle(out, 1, cv, "C", alpha, beta, math)

    prepared(where, handle, (op, av, cv, alpha, beta), draw)((a, c))
