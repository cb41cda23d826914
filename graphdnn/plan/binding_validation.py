"""Bindings: what a caller passes for each tensor, and every way it can be wrong.

The checks that run on each call are in the plan and compare three attributes;
what is here runs when they disagree (to convert, or to say why not), and when an
array is seen for the first time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Number
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib.array_utils import byte_bounds

from graphdnn import host_memory
from graphdnn.dtypes import ELEMENTS, Array, cast
from graphdnn.engines.host.memory import binding_layout
from graphdnn.enums import Status
from graphdnn.errors import BadParam, Rejection
from graphdnn.plan.memory_overlap import overlapping
from graphdnn.plan.torch_tensors import as_numpy
from graphdnn.rules import Rule
from graphdnn.scalars import element, is_kept, kept_by, number
from graphdnn.tensors import TensorSpec, packed_strides

MAPPING = Rule(
    id="binding.mapping",
    expected="a mapping of uids to arrays",
    reason="arrays are found by the uid of their tensor",
    fix="pass a dict of arrays by uid",
)
MISSING = Rule(
    id="binding.missing",
    expected="an array",
    reason="every tensor that is not virtual needs data",
    fix="bind an array to uid {uid}",
)
EXTRA = Rule(
    id="binding.extra",
    expected="only the uids {known}",
    reason="the graph has no such bound tensor, and the library ignores no input",
    fix="remove it; virtual tensors and constants are not bound",
)
NAMES = Rule(
    id="binding.names",
    expected="uids as keys: {uids}",
    reason="a plan knows its tensors by their uids; names and tensors belong to the graph builder",
    fix="call graph.execute() or graph.run(), which take them, or pass arrays by uid",
)
KIND = Rule(
    id="binding.kind",
    expected="a NumPy array, or an object with __array_interface__ or __dlpack__ in host memory",
    reason="the plan reads its operands in place",
    fix="{fix}",
)
DEVICE = Rule(
    id="binding.device",
    expected="an array in host memory",
    reason="this plan runs on the host",
    fix="copy the array to the host, or build the plan for its device",
)
TYPE = Rule(
    id="binding.data_type",
    expected="{expected}",
    reason="the tensor was described as {data_type}; converting silently would hide a copy and a rounding",
    fix="convert the array with astype (allocate an output so), or describe the tensor with the array's type",
)
SHAPE = Rule(
    id="binding.shape",
    expected="{expected}",
    reason="an array has the extents that its tensor was described with, in their order: N, C, H, W for images",
    fix="reshape or transpose the array (a view is enough), or describe the tensor with the array's extents",
    status=Status.BAD_PARAM_SHAPE_MISMATCH,
)
STRIDES = Rule(
    id="binding.strides",
    expected="byte strides {expected}, in elements {elements}",
    reason="the plan addresses memory by the strides that the tensor was described with",
    fix="{copy}, or describe the tensor with the array's strides (tensor_like(array) in the builder)",
    status=Status.BAD_PARAM_SHAPE_MISMATCH,
)
SCALAR = Rule(
    id="binding.scalar",
    expected="one number",
    reason="a by-value tensor is one scalar",
    fix="pass a Python or NumPy number, or an array of one element",
)
SCALAR_VALUE = Rule(
    id="binding.scalar.value",
    expected="{expected}",
    reason="the tensor is {data_type}, and this type cannot hold the number",
    fix="pass a number of that type, or describe the tensor with a type that holds the number",
)
READ_ONLY = Rule(
    id="binding.read_only",
    expected="a writable array",
    reason="the graph writes this tensor",
    fix="pass a writable array: a.setflags(write=True), or a new one",
)
ALIGNMENT = Rule(
    id="binding.alignment",
    expected="a multiple of {alignment}",
    reason="the descriptor promised this byte alignment",
    fix="allocate aligned memory, or describe the tensor with a smaller byte_alignment",
    status=Status.BAD_PARAM_MISALIGNED_POINTER,
)
OVERLAP = Rule(
    id="binding.overlap",
    expected="memory of its own",
    reason="output uid {output} shares memory with uid {other}: results would depend on the order of writing",
    fix="bind separate arrays",
)
WORKSPACE_MISSING = Rule(
    id="workspace.missing",
    expected="{size} bytes",
    reason="the plan keeps intermediate values there",
    fix="pass plan.new_workspace(), or any contiguous byte array of that size",
    status=Status.BAD_PARAM_NULL_POINTER,
)
WORKSPACE_KIND = Rule(
    id="workspace.kind",
    expected="a contiguous, writable uint8 array in host memory",
    reason="the workspace is plain bytes",
    fix="pass plan.new_workspace(), or numpy.empty(size, numpy.uint8)",
)
WORKSPACE_SMALL = Rule(
    id="workspace.small",
    expected="at least {size} bytes",
    reason="the plan keeps intermediate values there",
    fix="allocate plan.workspace_size bytes",
    status=Status.BAD_PARAM_SIZE_INSUFFICIENT,
)
WORKSPACE_OVERLAP = Rule(
    id="workspace.overlap",
    expected="memory of its own",
    reason="the workspace shares memory with a bound array",
    fix="allocate it separately",
)
HOST_STREAM = Rule(
    id="execute.host_stream",
    expected="no stream",
    reason="a host plan has no streams: a call has finished when it returns",
    fix="leave the stream out, or build the plan for a CUDA device",
)
HOST_CAPTURE = Rule(
    id="capture.host",
    expected="a plan for a CUDA device",
    reason="CUDA graphs record work of a stream, and a host plan has none",
    fix="call execute, or build the plan for a CUDA device",
    status=Status.NOT_SUPPORTED,
)

WHERE = "EXECUTION_PLAN"
NO_NAME = (KeyError, IndexError, TypeError)  # what looking for a uid raises, in a mapping and in what is none
_AS_ARRAY = "pass numpy.asarray(...) of the data; raw addresses belong to the v8 variant pack"


class Expected(NamedTuple):
    """What one bound tensor's array has to look like."""

    spec: TensorSpec
    is_output: bool
    layout: tuple[Any, tuple[int, ...], tuple[int, ...]]  # dtype, shape, byte strides

    @classmethod
    def of(cls, spec: TensorSpec, *, is_output: bool) -> Expected:
        return cls(spec, is_output, binding_layout(spec))

    def accepts(self, array: Array) -> bool:
        """Like a comparison of layouts, but strides of axes with one element do not matter."""
        dtype, shape, strides = self.layout
        if array.dtype != dtype or array.shape != shape:
            return False
        return all(n == 1 or a == b for n, a, b in zip(shape, array.strides, strides, strict=True))


def refuse_names(expected: Sequence[Expected], bindings: Mapping[int, Any]) -> NoReturn:
    """Raise for missing and unknown uids, and for what is no mapping."""
    if not isinstance(bindings, Mapping):
        raise BadParam(MAPPING.reject(WHERE, "bindings", type(bindings).__name__))
    known = {e.spec.uid: e for e in expected}
    if bindings and not any(isinstance(key, (int, np.integer)) for key in bindings):
        uids = ", ".join(e.spec.label() for e in expected)
        raise BadParam(NAMES.reject(WHERE, "bindings", f"keys like {next(iter(bindings))!r}", uids=uids))
    found = [
        MISSING.reject(WHERE, e.spec.label(), "nothing", uid=uid) for uid, e in known.items() if uid not in bindings
    ]
    names = ", ".join(map(str, known))
    found += [EXTRA.reject(WHERE, f"uid {uid}", "bound", known=names) for uid in bindings if uid not in known]
    raise BadParam(found)


def coerce(expected: Sequence[Expected], arrays: Sequence[Any]) -> tuple[Array, ...]:
    """Arrays in the expected layouts, without copying data: scalars for by-value tensors, DLPack, array interfaces."""
    found: list[Rejection] = []
    result = []
    for want, given in zip(expected, arrays, strict=True):
        array, problem = _coerce_one(want, given)
        result.append(array)
        if problem is not None:
            found.append(problem)
    if found:
        raise BadParam(found)
    return tuple(result)  # type: ignore[arg-type]


def _coerce_one(want: Expected, given: Any) -> tuple[Array | None, Rejection | None]:
    label = want.spec.label()
    if want.spec.is_by_value:
        return _scalar(want, given)
    if type(given) is not np.ndarray:
        try:
            if hasattr(given, "__cuda_array_interface__"):
                return None, DEVICE.reject(WHERE, label, f"{type(given).__module__}.{type(given).__name__}")
            given = view_of(given)
        except Exception as error:  # protocols are others' code: whatever it raises is the reason
            fix = "pass tensor.detach()" if getattr(given, "requires_grad", False) else _AS_ARRAY
            return None, KIND.reject(WHERE, label, f"{type(given).__name__}: {error}", fix=fix)
    if want.accepts(given) and want.is_output and not given.flags.writeable:
        return None, READ_ONLY.reject(WHERE, label, "read-only")
    return given, layout_problem(want, given)


def layout_problem(want: Expected, array: Array) -> Rejection | None:
    """Where an array differs from what the tensor was described as, or None."""
    if want.accepts(array):
        return None
    label, (dtype, shape, strides) = want.spec.label(), want.layout
    if array.dtype != dtype:
        return TYPE.reject(WHERE, label, str(array.dtype), expected=str(dtype), data_type=want.spec.data_type.name)
    if array.shape != shape:
        return SHAPE.reject(WHERE, label, array.shape, expected=str(shape))
    elements = tuple(s // array.itemsize for s in strides)  # as descriptors count
    is_packed = elements == packed_strides(shape)
    copy = "pass a contiguous copy (ascontiguousarray)" if is_packed else "pass an array with these strides"
    if want.is_output:
        copy = f"allocate it anew{', contiguous' if is_packed else ' with these strides'}"
    return STRIDES.reject(WHERE, label, array.strides, expected=str(strides), elements=elements, copy=copy)


def check_layouts(expected: Sequence[Expected], arrays: Sequence[Array]) -> None:
    """Raise with every array that differs from its tensor's description."""
    problems = [layout_problem(want, array) for want, array in zip(expected, arrays, strict=True)]
    found = [problem for problem in problems if problem is not None]
    if found:
        raise BadParam(found)


def view_of(given: Any) -> Array:
    """Host memory as a plain NumPy array, whose arithmetic no subclass has changed; refuses to copy, and what is not
    what lies in memory. What another library says of its memory is not believed: there has to be some.
    """
    if isinstance(given, np.ma.MaskedArray) and given.mask is not np.ma.nomask:
        raise TypeError("no plan reads its mask; pass array.data, or array.filled(...)")
    if isinstance(given, np.ndarray):
        return np.asarray(given)
    library = type(given).__module__.partition(".")[0]
    if library == "torch" and hasattr(given, "is_neg"):
        return _there(as_numpy(given))
    if library == "jaxlib":  # DLPack of NumPy has no bfloat16
        return _there(np.asarray(given))
    if hasattr(given, "__dlpack__"):
        return _there(np.asarray(np.from_dlpack(given)))
    if hasattr(given, "__array_interface__"):
        return _there(np.asarray(given))
    raise TypeError("neither __dlpack__ nor __array_interface__")


def _there(array: Array) -> Array:
    """The array itself. Raises ``UnreadableError`` unless memory lies where it says."""
    first, behind = byte_bounds(array)
    host_memory.check_known(first, behind - first if array.size else 0, is_written=array.flags.writeable)
    return array


def _scalar(want: Expected, given: Any) -> tuple[Array | None, Rejection | None]:
    spec = want.spec
    try:
        value = _one(given)
    except Exception:  # as above
        return None, SCALAR.reject(WHERE, spec.label(), type(given).__name__)
    if value.dtype != want.layout[0]:
        found = given if type(given) is float else element(value)  # most are, and this is asked at each execution
        if not is_kept(found, spec.data_type):
            kept, kind = kept_by(spec.data_type), spec.data_type.name
            return None, SCALAR_VALUE.reject(WHERE, spec.label(), found, expected=kept, data_type=kind)
    return cast(value.reshape(spec.dims), spec.data_type), None


def _one(given: Any) -> Array:
    """The one element of an array, a NumPy scalar, or an object that is a number."""
    if isinstance(given, (float, np.ndarray, np.generic, bool)):
        value = np.asarray(given)
    elif isinstance(given, Number):
        value = np.asarray(number(given))
    elif hasattr(given, "__dlpack__") or hasattr(given, "__array_interface__"):
        value = view_of(given)
    else:
        value = np.asarray(given)
    if value.size != 1 or value.dtype.kind not in "biufV":
        raise ValueError(f"{value.size} elements of {value.dtype}")
    return value.reshape(())


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


def check_addresses(
    expected: Sequence[Expected], arrays: Sequence[Array], in_place: Collection[tuple[int, int]] = ()
) -> None:
    """Alignment, and outputs that share memory with anything else. Raises with every problem.

    ``in_place``: inputs and outputs, by uid, that may begin at the same address.
    """
    found = []
    spans = []
    for want, array in zip(expected, arrays, strict=True):
        start = _address(array)
        spans.append((start, start + want.spec.bytes, want.is_output))
        if not want.spec.is_by_value and start % promised_alignment(want.spec):
            value = f"address ...{start % 4096:#06x}"
            found.append(ALIGNMENT.reject(WHERE, want.spec.label(), value, alignment=promised_alignment(want.spec)))
        if want.is_output and not array.flags.writeable:
            found.append(READ_ONLY.reject(WHERE, want.spec.label(), "read-only"))
    for i, j in overlapping(spans):
        output, other = expected[i].spec, expected[j].spec
        if (other.uid, output.uid) in in_place and spans[i][:2] == spans[j][:2]:
            continue
        if _share(arrays[i], arrays[j]):
            found.append(
                OVERLAP.reject(WHERE, output.label(), "overlapping memory", output=output.uid, other=other.uid)
            )
    if found:
        raise BadParam(found)


def _share(first: Array, second: Array) -> bool:
    """Interleaved arrays (channel slices of one buffer) may touch the same span without sharing an element."""
    try:
        return np.shares_memory(first, second, max_work=10_000)  # type: ignore[arg-type]  # any bound is legal
    except np.exceptions.TooHardError:
        return True


def promised_alignment(spec: TensorSpec) -> int:
    """The alignment to hold a pointer to: what the descriptor promised."""
    return max(spec.byte_alignment, ELEMENTS[spec.data_type].bytes)


def check_workspace(workspace: Any, size: int, arrays: Sequence[Array]) -> Array:
    """The workspace as a byte array. Raises when it is missing, small, of the wrong kind or shared."""
    if workspace is None:
        raise BadParam(WORKSPACE_MISSING.reject(WHERE, "workspace", None, size=size))
    if not isinstance(workspace, np.ndarray) or not workspace.flags.c_contiguous or not workspace.flags.writeable:
        raise BadParam(WORKSPACE_KIND.reject(WHERE, "workspace", type(workspace).__name__))
    workspace = np.asarray(workspace)
    if workspace.dtype != np.uint8 or workspace.ndim != 1:
        workspace = np.asarray(workspace.reshape(-1).view(np.uint8))
    if workspace.size < size:
        raise BadParam(WORKSPACE_SMALL.reject(WHERE, "workspace", f"{workspace.size} bytes", size=size))
    if any(np.may_share_memory(workspace, array) for array in arrays):
        raise BadParam(WORKSPACE_OVERLAP.reject(WHERE, "workspace", "shared"))
    return np.asarray(workspace)
