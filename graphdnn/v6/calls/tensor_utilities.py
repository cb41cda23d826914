"""Tensor utilities: transform, add, op, set, scale."""

from __future__ import annotations

from graphdnn.enums import DataType, PointwiseMode
from graphdnn.operations import Transpose
from graphdnn.tensors import TensorSpec
from graphdnn.v6.call_graph import Draft, math_of
from graphdnn.v6.descriptor_checks import broadcasts, rank_in, same_dims, same_type
from graphdnn.v6.descriptor_values import Descriptor, Handle, OpTensor, Tensor
from graphdnn.v6.enums import cudnnDataType_t, cudnnOpTensorOp_t
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.layouts import is_vector
from graphdnn.v6.plan_cache import prepared
from graphdnn.v6.pointwise_subgraphs import compare, ignores_nan, repeated
from graphdnn.v6.registry import implements
from graphdnn.v6.rules import ALIAS, COMPUTE_TYPE, SAME_DIMS

P = PointwiseMode
Op = cudnnOpTensorOp_t
_DOUBLE = cudnnDataType_t.CUDNN_DATA_DOUBLE
_FLOAT = cudnnDataType_t.CUDNN_DATA_FLOAT
_MOST_AXES = 5
_BINARY = {
    Op.CUDNN_OP_TENSOR_ADD: P.ADD,
    Op.CUDNN_OP_TENSOR_MUL: P.MUL,
    Op.CUDNN_OP_TENSOR_MIN: P.MIN,
    Op.CUDNN_OP_TENSOR_MAX: P.MAX,
}


@implements("cudnnTransformTensor", "transpose; pointwise identity, add", "loops")
def transform_tensor(handle: Handle, alpha: float, x_desc: Descriptor, x: object, beta: float, y_desc: Descriptor,
                     y: object) -> None:  # fmt: skip
    """y = alpha * x + beta * y between two layouts."""
    where, xv, yv = "cudnnTransformTensor", x_desc.value, y_desc.value

    def draw(draft: Draft) -> None:
        same_dims(where, "elements are copied one to one", {"xDesc": xv, "yDesc": yv})
        if not is_vector(xv.data_type) and not is_vector(yv.data_type):
            same_type(where, {"xDesc": xv, "yDesc": yv})
        math = math_of(xv.data_type, yv.data_type)
        source = draft.memory(0, xv, "x")
        turns = xv.strides != yv.strides and xv.data_type is yv.data_type and not is_vector(xv.data_type)
        if turns and (alpha, beta) == (1.0, 0.0):  # nothing to compute: the kernel that moves whole lines of memory
            axes = tuple(range(len(yv.dims)))
            draft.add(Transpose(x=source, y=draft.memory(1, yv, "y"), permutation=axes))
            return
        if beta == 0.0:
            draft.pointwise(P.IDENTITY, math, source, out=draft.memory(1, yv, "y"), alpha1=alpha)
        else:
            old = draft.memory(1, yv, "old y", is_copy=True)
            out = draft.memory(1, yv, "y")
            draft.pointwise(P.ADD, math, source, old, out=out, alpha1=alpha, alpha2=beta)

    prepared(where, handle, (xv, yv, alpha, beta), draw)((x, y))


@implements("cudnnAddTensor", "pointwise add", "loops")
def add_tensor(handle: Handle, alpha: float, a_desc: Descriptor, a: object, beta: float, c_desc: Descriptor,
               c: object) -> None:  # fmt: skip
    """C = alpha * A + beta * C; A repeats along its axes of extent 1."""
    where, av, cv = "cudnnAddTensor", a_desc.value, c_desc.value

    def draw(draft: Draft) -> None:
        rank_in(where, "cDesc", len(cv.dims), 1, _MOST_AXES)
        broadcasts(where, "aDesc", av, cv)
        same_type(where, {"cDesc": cv, "aDesc": av})
        math = math_of(cv.data_type)
        source = draft.memory(0, av, "A")
        if beta == 0.0 and av.dims == cv.dims:
            draft.pointwise(P.IDENTITY, math, source, out=draft.memory(1, cv, "C"), alpha1=alpha)
            return
        old = draft.memory(1, cv, "old C", is_copy=True)
        out = draft.memory(1, cv, "C")
        if beta == 0.0:
            repeated(draft, math, source, old, alpha, out)
        else:
            draft.pointwise(P.ADD, math, source, old, out=out, alpha1=alpha, alpha2=beta)

    prepared(where, handle, (av, cv, alpha, beta), draw, in_place=(0,))((a, c))


def _check_op_tensor(where: str, op: OpTensor, a: Tensor, b: Tensor, c: Tensor) -> None:
    rank_in(where, "cDesc", len(c.dims), 1, _MOST_AXES)
    if a.dims != c.dims:
        reason = "only B repeats along axes of extent 1"
        raise CudnnError(SAME_DIMS.reject(where, "aDesc.dims", a.dims, expected=str(c.dims), reason=reason))
    broadcasts(where, "bDesc", b, c)
    same_type(where, {"aDesc": a, "bDesc": b})
    if c.data_type is _DOUBLE:
        same_type(where, {"cDesc": c, "aDesc": a})
    wanted = _DOUBLE if c.data_type is _DOUBLE else _FLOAT
    if op.compute_type is not wanted:
        raise CudnnError(COMPUTE_TYPE.reject(where, "opTensorCompType", op.compute_type.name, expected=wanted.name))


@implements("cudnnOpTensor", "pointwise", "loops")
def op_tensor(handle: Handle, desc: Descriptor, alpha1: float, a_desc: Descriptor, a: object, alpha2: float,
              b_desc: Descriptor, b: object, beta: float, c_desc: Descriptor, c: object) -> None:  # fmt: skip
    """C = op(alpha1 * A, alpha2 * B) + beta * C; B repeats along its axes of extent 1."""
    where, op = "cudnnOpTensor", desc.value
    av, bv, cv = a_desc.value, b_desc.value, c_desc.value
    if b is c and a is not c:
        raise CudnnError(ALIAS.reject(where, "B", "the memory of C", reason="B may be C only where A is C as well"))

    def draw(draft: Draft) -> None:
        _check_op_tensor(where, op, av, bv, cv)
        math = math_of(cv.data_type)
        first = draft.memory(0, av, "A")
        out = draft.target(2, cv, "C", 1.0, beta, math)
        if op.op is Op.CUDNN_OP_TENSOR_SQRT:
            draft.pointwise(P.SQRT, math, first, out=out, alpha1=alpha1)
        elif op.op is Op.CUDNN_OP_TENSOR_NOT:
            draft.pointwise(P.SUB, math, draft.constant(1.0, first, math), first, out=out, alpha2=alpha1)
        else:
            _binary(draft, op, math, first, draft.memory(1, bv, "B"), out, alpha1, alpha2)
        draft.settle(out, 2, cv, "C", 1.0, beta, math)

    settings = (op, av, bv, cv, alpha1, alpha2, beta)
    prepared(where, handle, settings, draw, in_place=(0, 1))((a, b, c))


def _binary(draft: Draft, op: OpTensor, math: DataType, a: TensorSpec, b: TensorSpec, out: TensorSpec, alpha1: float,
            alpha2: float) -> None:  # fmt: skip
    mode = _BINARY[op.op]
    if mode in (P.MIN, P.MAX) and ignores_nan(op.nan):
        # One after the other, as one kernel: B for an A that is NaN; then that, where the result is NaN for a B.
        a = draft.pointwise(P.IDENTITY, math, a, alpha1=alpha1)
        a = draft.pointwise(P.BINARY_SELECT, math, a, b, compare(draft, P.CMP_EQ, math, a, a), alpha2=alpha2)
        found = draft.pointwise(mode, math, a, b, alpha2=alpha2)
        hit = compare(draft, P.CMP_EQ, math, found, found)
        draft.pointwise(P.BINARY_SELECT, math, found, a, hit, out=out)
        return
    draft.pointwise(mode, math, a, b, out=out, alpha1=alpha1, alpha2=alpha2)


@implements("cudnnSetTensor", "pointwise gen_index, add", "loops")
def set_tensor(handle: Handle, y_desc: Descriptor, y: object, value: float) -> None:
    """Every element becomes the value; gaps between elements stay as they are."""
    where, yv = "cudnnSetTensor", y_desc.value

    def draw(draft: Draft) -> None:
        exact = yv.data_type in (_DOUBLE, cudnnDataType_t.CUDNN_DATA_INT32)
        math = DataType.DOUBLE if exact else DataType.FLOAT
        like = draft.memory(0, yv, "y before", is_copy=True)
        out = draft.memory(0, yv, "y")
        repeated(draft, math, draft.constant(value, like, math), like, out=out)

    prepared(where, handle, (yv, value), draw)((y,))


@implements("cudnnScaleTensor", "pointwise identity", "loops")
def scale_tensor(handle: Handle, y_desc: Descriptor, y: object, alpha: float) -> None:
    """y = alpha * y."""
    where, yv = "cudnnScaleTensor", y_desc.value

    def draw(draft: Draft) -> None:
        old = draft.memory(0, yv, "old y", is_copy=True)
        draft.pointwise(P.IDENTITY, math_of(yv.data_type), old, out=draft.memory(0, yv, "y"), alpha1=alpha)

    prepared(where, handle, (yv, alpha), draw)((y,))
