"""ReduceTensor and its sizes."""

from __future__ import annotations

from math import inf, prod
from typing import Any

from graphdnn.enums import DataType, PointwiseMode, ReductionOperator, Status
from graphdnn.tensors import TensorSpec, packed_strides
from graphdnn.v6.call_graph import Draft
from graphdnn.v6.descriptor_checks import DIM_MAX, broadcasts, rank_in, same_type
from graphdnn.v6.descriptor_values import Descriptor, Handle, ReduceTensor
from graphdnn.v6.enums import cudnnDataType_t, cudnnIndicesType_t, cudnnReduceTensorIndices_t, cudnnReduceTensorOp_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.pointwise_subgraphs import compare, ignores_nan, instead_of_nan
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import BUFFER, COMPUTE_TYPE, INDICES, NULL, SAME_DIMS

Op = cudnnReduceTensorOp_t
P = PointwiseMode
_INDEX = DataType.INT32
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
        _check_indices(where, op)
        math = DataType(int(wanted))
        memory = draft.memory(0, av, "A")
        ignores = op.op in _WITHOUT_NAN and ignores_nan(op.nan)

        def numbers() -> TensorSpec:
            return instead_of_nan(draft, math, memory, draft.constant(_WITHOUT_NAN[op.op], memory, math))

        source = numbers() if ignores else memory
        operator = ReductionOperator(int(op.op))
        if op.indices is _NO_INDICES:
            out = draft.target(1, cv, "C", alpha, beta, math)
            draft.reduce(operator, math, source, out=out)
            draft.settle(out, 1, cv, "C", alpha, beta, math)
            return
        extreme = draft.reduce(operator, math, source, cv.dims)
        draft.settle(extreme, 1, cv, "C", alpha, beta, math)
        # Computed once more: A is read again, and nothing of its size is written.
        again = numbers() if ignores else draft.pointwise(P.IDENTITY, math, memory)
        _position(draft, math, again, extreme, ignores_nan(op.nan))

    if op.indices is not _NO_INDICES:
        _check_buffer(where, "indicesSizeInBytes", indices_bytes, 4 * prod(cv.dims), indices)
    prepared(where, handle, (op, av, cv, alpha, beta), draw)((a, c, indices))


def _check_indices(where: str, op: ReduceTensor) -> None:
    if op.indices is _NO_INDICES:
        return
    if op.op not in (Op.CUDNN_REDUCE_TENSOR_MIN, Op.CUDNN_REDUCE_TENSOR_MAX):
        expected = "CUDNN_REDUCE_TENSOR_NO_INDICES for this operator"
        raise CudnnError(INDICES.reject(where, "reduceTensorIndices", op.op.name, expected=expected))
    if op.indices_type is not cudnnIndicesType_t.CUDNN_32BIT_INDICES:
        given, expected = op.indices_type.name, "CUDNN_32BIT_INDICES"
        status = Status.NOT_SUPPORTED
        raise CudnnError(INDICES.reject(where, "reduceTensorIndicesType", given, status=status, expected=expected))


def _check_buffer(where: str, name: str, given: int, size: int, memory: Any) -> None:
    if memory is None:
        raise CudnnError(NULL.reject(where, "indices", None, expected="memory for the positions"))
    if given < size:
        raise CudnnError(BUFFER.reject(where, name, f"{given} bytes", size=size))


def _position(draft: Draft, math: DataType, source: TensorSpec, extreme: TensorSpec, ignores: bool) -> None:
    """Data argument 2: where the extreme lies first, counted along the reduced axes."""
    hit = compare(draft, P.CMP_EQ, math, source, extreme)
    if not ignores:  # NaN is an extreme that equals nothing
        both = [compare(draft, P.CMP_NEQ, math, t, t) for t in (source, extreme)]
        nan = draft.pointwise(P.LOGICAL_AND, DataType.BYTE_BOOLEAN, *both)
        hit = draft.pointwise(P.LOGICAL_OR, DataType.BYTE_BOOLEAN, hit, nan)
    place: TensorSpec | None = None
    step = 1
    for axis in reversed(range(source.rank)):
        extent = source.dims[axis]
        if extent == extreme.dims[axis]:
            continue
        along = draft.pointwise(P.GEN_INDEX, _INDEX, source, axis=axis)
        zero = draft.constant(0, source, _INDEX) if place is None else place
        place = draft.pointwise(P.ADD, _INDEX, along, zero, alpha1=float(step))
        step *= extent
    assert place is not None  # something is reduced
    found = draft.pointwise(P.BINARY_SELECT, _INDEX, place, draft.constant(step, source, _INDEX), hit)
    out = draft.view(2, _INDEX, extreme.dims, packed_strides(extreme.dims), "indices")
    draft.reduce(ReductionOperator.MIN, _INDEX, found, out=out)
