"""Arrays in device memory: where they are, without a copy, whichever library made them.

Each becomes a *shadow*, a NumPy array of its type, extents and strides at its device address. Nobody reads one
(the address means nothing to the host), but the checks of layout, alignment and overlap are the host's own.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdnn.cuda.errors import CudaError
from graphdnn.dtypes import CARRIERS, ELEMENTS, Array, data_type_of
from graphdnn.enums import Status
from graphdnn.errors import Rejection
from graphdnn.plan.binding_validation import WHERE, WORKSPACE_KIND, WORKSPACE_SMALL, Expected
from graphdnn.rules import Rule

KIND = Rule(
    id="binding.device_kind",
    expected="a CuPy array, a device address, or an object with __dlpack__ or __cuda_array_interface__ on the device",
    reason="the plan reads its operands in place, in device memory: {detail}",
    fix="pass cupy.asarray(...) of the data, or build the plan for the device cpu",
)
OTHER_DEVICE = Rule(
    id="binding.other_device",
    expected="memory of device {ordinal}",
    reason="the kernels run on the current device",
    fix="make the array's device current (with cupy.cuda.Device(n):), or copy the array",
)
NOT_ON_DEVICE = Rule(
    id="binding.address",
    expected="an address in an allocation of device {ordinal}",
    reason="the driver has no allocation at this address",
    fix="pass the address of memory that is still allocated, on this device",
    status=Status.BAD_PARAM,
)
TOO_SHORT = Rule(
    id="binding.size",
    expected="{size} bytes",
    reason="the allocation ends after {have} bytes, and the tensor reaches beyond",
    fix="allocate the tensor's bytes (TensorSpec.bytes), gaps between rows included",
    status=Status.BAD_PARAM_SIZE_INSUFFICIENT,
)

_ADDRESSES = 1 << 64  # ctypes would take a number's last 64 bits


@dataclass(frozen=True, slots=True)
class _Memory:
    """What NumPy asks of an object to make an array at an address."""

    __array_interface__: dict[str, Any]


def shadow_at(
    address: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    *,
    writable: bool = True,
) -> Array:
    """A NumPy array that says where memory is; its elements must not be looked at."""
    interface = {
        "data": (address, not writable),
        "shape": shape,
        "strides": strides,
        "typestr": f"|V{dtype.itemsize}",
        "version": 3,
    }
    return np.asarray(_Memory(interface)).view(dtype)


def is_raw(given: object) -> bool:
    """True for a bare address."""
    return isinstance(given, (int, np.integer, ctypes.c_void_p)) and not isinstance(given, bool)


def address_of(given: Any) -> int:
    """The number in a bare address; 0 for a null pointer."""
    return int((given.value or 0) if isinstance(given, ctypes.c_void_p) else given)


def shadow_of(want: Expected, given: Any, ordinal: int, stream: int) -> tuple[Array | None, Rejection | None]:
    """The shadow of one binding, or why it cannot be used. ``stream`` is made to wait for the array's producer."""
    label = want.spec.label()
    if is_raw(given):
        dtype, shape, strides = want.layout
        address = address_of(given)
        problem = allocation_problem(label, address, want.spec.bytes, ordinal)
        return (None, problem) if problem else (shadow_at(address, dtype, shape, strides), None)
    found = _described(given, stream, ordinal)
    if isinstance(found, str):
        return None, KIND.reject(WHERE, label, f"{type(given).__module__}.{type(given).__name__}", detail=found)
    shadow, device = found
    if device != ordinal:
        return None, OTHER_DEVICE.reject(WHERE, label, f"on device {device}", ordinal=ordinal)
    carrier = CARRIERS.get(want.spec.data_type)
    if carrier is not None and shadow.dtype == carrier:
        shadow = shadow.view(want.layout[0])
    return shadow, None


def _described(given: Any, stream: int, ordinal: int) -> tuple[Array, int] | str:
    """(shadow, device ordinal), or what is wrong."""
    if isinstance(given, np.ndarray):
        return "this array is in host memory"
    library = type(given).__module__.partition(".")[0]
    try:
        if library == "torch" and hasattr(given, "is_cuda"):
            return _torch(given, stream, ordinal)
        if library == "cupy" and hasattr(given, "data"):
            return _cupy(given)
        return _exchanged(given, stream)
    except CudaError:
        raise
    except Exception as error:  # arrays and protocols are others' code: whatever it raises is the reason
        return str(error).splitlines()[0] if str(error) else type(error).__name__


def _exchanged(given: Any, stream: int) -> tuple[Array, int] | str:
    """By the protocols, as CuPy takes them: ``stream`` waits for the producer's."""
    if not (hasattr(given, "__dlpack__") or hasattr(given, "__cuda_array_interface__")):
        return "it is neither an array nor an address"
    import cupy

    from graphdnn.cuda.stream_order import BareStream

    with cupy.cuda.Stream.from_external(BareStream(stream)) if stream else cupy.cuda.Stream.null:
        taken = cupy.from_dlpack(given) if hasattr(given, "__dlpack__") else cupy.asarray(given)
    return _cupy(taken, writable=not _is_read_only(given))


def _cupy(array: Any, *, writable: bool = True) -> tuple[Array, int]:
    shadow = shadow_at(array.data.ptr, array.dtype, array.shape, array.strides, writable=writable)
    return shadow, array.data.device_id


def _is_read_only(given: Any) -> bool:
    """What ``__cuda_array_interface__`` says; CuPy, which takes both protocols, lets it go."""
    interface = getattr(given, "__cuda_array_interface__", None)
    return isinstance(interface, dict) and bool(interface["data"][1])


def _torch(tensor: Any, stream: int, ordinal: int) -> tuple[Array, int] | str:
    if not tensor.is_cuda:
        return "this tensor is in host memory"
    if tensor.is_neg():
        return "this tensor is the negative of what is in memory; pass tensor.resolve_neg()"
    dtype = ELEMENTS[data_type_of(tensor.dtype)].numpy
    address, shape, steps = tensor.data_ptr(), tuple(tensor.shape), tensor.stride()  # which sparse ones lack
    if not address:
        return "this tensor has no memory"  # of its own, as one that is traced
    if tensor.device.index == ordinal:
        from graphdnn.cuda.stream_order import order, stream_of_torch

        order(stream_of_torch(ordinal), stream)
    size = dtype.itemsize
    strides = tuple(step * size for step in steps)
    return shadow_at(address, dtype, shape, strides), int(tensor.device.index)


def allocation_problem(label: str, address: int, size: int, ordinal: int) -> Rejection | None:
    """Why ``size`` bytes at an address cannot be used, as the driver knows its allocations."""
    from graphdnn.cuda.allocations import room
    from graphdnn.cuda.driver_api import pointer_device

    device = pointer_device(address) if 0 < address < _ADDRESSES else None
    if device is None:
        return NOT_ON_DEVICE.reject(WHERE, label, f"{address:#x}", ordinal=ordinal)
    if device != ordinal:
        return OTHER_DEVICE.reject(WHERE, label, f"on device {device}", ordinal=ordinal)
    have = room(address, size)
    if have is None:
        return NOT_ON_DEVICE.reject(WHERE, label, f"{address:#x}", ordinal=ordinal)
    if have < size:
        return TOO_SHORT.reject(WHERE, label, f"{have} bytes", size=size, have=have)
    return None


def workspace_address(workspace: Any, size: int, ordinal: int, stream: int) -> tuple[int, Rejection | None]:
    """The address of scratch memory: a contiguous array of bytes of any library, or a bare address.

    ``stream`` is made to wait for the array's producer, whose earlier work may still use the memory.
    """
    if is_raw(workspace):
        address = address_of(workspace)
        return address, allocation_problem("workspace", address, size, ordinal)
    found = _described(workspace, stream, ordinal)
    if isinstance(found, str):
        kind = f"{type(workspace).__module__}.{type(workspace).__name__}"
        return 0, KIND.reject(WHERE, "workspace", kind, detail=found)
    shadow, device = found
    if device != ordinal:
        return 0, OTHER_DEVICE.reject(WHERE, "workspace", f"on device {device}", ordinal=ordinal)
    if not shadow.flags.writeable:
        return 0, WORKSPACE_KIND.reject(WHERE, "workspace", "read-only")
    if not shadow.flags.c_contiguous:
        return 0, WORKSPACE_KIND.reject(WHERE, "workspace", f"strides {shadow.strides}")
    if shadow.nbytes < size:
        return 0, WORKSPACE_SMALL.reject(WHERE, "workspace", f"{shadow.nbytes} bytes", size=size)
    return int(shadow.__array_interface__["data"][0]), None
