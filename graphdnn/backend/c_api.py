"""The C functions by their names: parameters in C's order, output parameters as results."""
# ruff: noqa: N802  the names are NVIDIA's

from __future__ import annotations

import ctypes
from typing import Any

from graphdnn.attribute_names import AttributeName
from graphdnn.backend import handle as handles
from graphdnn.backend.descriptor import Descriptor, content_of, create, usable
from graphdnn.backend.handle import Handle
from graphdnn.backend.plan_descriptor import run
from graphdnn.backend.rules import COUNT, CUDA_GRAPH, OUT_POINTER
from graphdnn.backend.status_returns import c_call, last_error
from graphdnn.device.profiles import DeviceSpec
from graphdnn.device_selection import device_spec
from graphdnn.enums import AttributeType, DescriptorType, Status
from graphdnn.errors import BadParam, NotSupported
from graphdnn.scalars import whole

VERSION = 92800  # of the cuDNN headers whose names and numbers this face has


@c_call(results=1)
def cudnnCreate(device: DeviceSpec | str | None = None) -> Handle:
    """A handle for the default device, or for one by name or spec (not in C): "cuda", "cuda:1", "cpu", "h200"."""
    if isinstance(device, (ctypes.c_void_p, type(ctypes.byref(ctypes.c_int())))):
        raise BadParam(OUT_POINTER.reject("cudnnCreate", "handle", "a pointer"))
    return Handle(device_spec(device))


@c_call(results=0)
def cudnnDestroy(handle: Handle) -> None:
    handles.usable(handle, "cudnnDestroy").destroyed = True


@c_call(results=0)
def cudnnSetStream(handle: Handle, streamId: Any) -> None:
    """``streamId``: the address of a stream, an object with ``ptr``, or None or 0 for the default one."""
    handles.set_stream(handles.usable(handle, "cudnnSetStream"), streamId)


@c_call(results=1)
def cudnnGetStream(handle: Handle) -> int:
    return handles.usable(handle, "cudnnGetStream").stream


@c_call(results=1)
def cudnnBackendCreateDescriptor(descriptorType: DescriptorType | int) -> Descriptor:
    return create(descriptorType)


@c_call(results=0)
def cudnnBackendDestroyDescriptor(descriptor: Descriptor) -> None:
    """What other descriptors took from it stays valid."""
    usable(descriptor, "cudnnBackendDestroyDescriptor").destroy()


@c_call(results=0)
def cudnnBackendInitialize(descriptor: Descriptor) -> None:
    """As it was created, also after finalization. Deprecated by cuDNN: create another descriptor instead."""
    usable(descriptor, "cudnnBackendInitialize").reset()


@c_call(results=0)
def cudnnBackendSetAttribute(
    descriptor: Descriptor,
    attributeName: AttributeName | int,
    attributeType: AttributeType | int,
    elementCount: int,
    arrayOfElements: Any,
) -> None:
    """``arrayOfElements``: a list, tuple or array of the C type; the element itself when it is one; text for CHAR."""
    target = usable(descriptor, "cudnnBackendSetAttribute")
    target.set(attributeName, attributeType, elementCount, arrayOfElements)


@c_call(results=0)
def cudnnBackendFinalize(descriptor: Descriptor) -> None:
    """Check and freeze. A failure names everything that is wrong and leaves the descriptor editable."""
    usable(descriptor, "cudnnBackendFinalize").finalize()


@c_call(results=2)
def cudnnBackendGetAttribute(
    descriptor: Descriptor,
    attributeName: AttributeName | int,
    attributeType: AttributeType | int,
    requestedElementCount: int,
    arrayOfElements: Any = None,
) -> tuple[int, Any]:
    """(true count, up to ``requestedElementCount`` elements); a count of 0 only asks for the length.

    Text comes as ``str``, its count includes the NUL. Descriptors are filled: pass created ones
    in ``arrayOfElements``; the returned list holds those that were filled.
    """
    source = usable(descriptor, "cudnnBackendGetAttribute")
    return source.get(attributeName, attributeType, requestedElementCount, arrayOfElements)


@c_call(results=0)
def cudnnBackendExecute(handle: Handle, executionPlan: Descriptor, variantPack: Descriptor) -> None:
    """Run the plan: on a device in the handle's stream; on the host the results are there when the call returns."""
    where = "cudnnBackendExecute"
    run(
        handles.usable(handle, where),
        content_of(executionPlan, DescriptorType.EXECUTION_PLAN, where, "executionPlan"),
        content_of(variantPack, DescriptorType.VARIANT_PACK, where, "variantPack"),
    )


@c_call(results=0)
def cudnnBackendPopulateCudaGraph(
    handle: Handle, executionPlan: Descriptor, variantPack: Descriptor, graph: Any
) -> None:
    """Not offered: capture the stream around cudnnBackendExecute."""
    _refuse_native("cudnnBackendPopulateCudaGraph", handle, executionPlan, variantPack)


@c_call(results=0)
def cudnnBackendUpdateCudaGraph(handle: Handle, executionPlan: Descriptor, variantPack: Descriptor, graph: Any) -> None:
    """Not offered: capture the stream around cudnnBackendExecute again."""
    _refuse_native("cudnnBackendUpdateCudaGraph", handle, executionPlan, variantPack)


def _refuse_native(where: str, handle: Handle, plan: Descriptor, pack: Descriptor) -> None:
    handles.usable(handle, where)
    config = content_of(plan, DescriptorType.EXECUTION_PLAN, where, "executionPlan").config
    content_of(pack, DescriptorType.VARIANT_PACK, where, "variantPack")
    raise NotSupported(CUDA_GRAPH.reject(where, "executionPlan", config))


def cudnnGetErrorString(status: Status | int) -> str:
    """The name of a status."""
    try:
        return Status(whole(status)).c_name
    except ValueError:
        return "CUDNN_UNKNOWN_STATUS"


def cudnnGetLastErrorString(max_size: int | None = None) -> str:
    """Text of this thread's most recent failure, cut to ``max_size`` with the NUL; reading does not clear it."""
    text = last_error()
    if max_size is None:
        return text
    try:
        return text[: max(0, whole(max_size) - 1)]
    except ValueError:
        reason, fix = "it is the length that the text is cut to", "leave it out for the whole text"
        where = "cudnnGetLastErrorString"
        raise BadParam(COUNT.reject(where, "max_size", max_size, expected="a number", reason=reason, fix=fix)) from None


def cudnnGetVersion() -> int:
    """MAJOR * 10000 + MINOR * 100 + PATCH of the cuDNN interface; graphdnn's own is ``graphdnn.__version__``."""
    return VERSION
