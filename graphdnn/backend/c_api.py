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

VERSION = 92800  # of the cuDNN headers whose names and numbers this API has


@c_call(results=1)
def cudnnCreate(device: DeviceSpec | str | None = None) -> Handle:
    """Create a handle: a device and a stream.

    Args:
        device: "cuda", "cuda:1", "cpu", a profile such as "h200", or a ``DeviceSpec``. None means the default device.
            C has no such parameter.

    Returns:
        The handle, with the default stream.

    Raises:
        BadParam: The device is unknown, or an output pointer of C is given.
        NotSupported: The device is not present.
    """
    if isinstance(device, (ctypes.c_void_p, type(ctypes.byref(ctypes.c_int())))):
        raise BadParam(OUT_POINTER.reject("cudnnCreate", "handle", "a pointer"))
    return Handle(device_spec(device))


@c_call(results=0)
def cudnnDestroy(handle: Handle) -> None:
    """Destroy a handle. It cannot be used afterwards.

    Args:
        handle: The handle.

    Raises:
        BadParam: The argument is not a handle, or the handle is destroyed.
    """
    handles.usable(handle, "cudnnDestroy").destroyed = True


@c_call(results=0)
def cudnnSetStream(handle: Handle, streamId: Any) -> None:
    """Choose the stream in which executions with a handle run.

    Args:
        handle: The handle.
        streamId: The address of a stream, an object with ``ptr``, or None or 0 for the default stream.

    Raises:
        BadParam: The handle or the stream is invalid, or the device has no streams.
    """
    handles.set_stream(handles.usable(handle, "cudnnSetStream"), streamId)


@c_call(results=1)
def cudnnGetStream(handle: Handle) -> int:
    """The address of a handle's stream.

    Args:
        handle: The handle.

    Returns:
        The address, 0 for the default stream.

    Raises:
        BadParam: The argument is not a handle, or the handle is destroyed.
    """
    return handles.usable(handle, "cudnnGetStream").stream


@c_call(results=1)
def cudnnBackendCreateDescriptor(descriptorType: DescriptorType | int) -> Descriptor:
    """Create a descriptor whose attributes are not set.

    Args:
        descriptorType: A member of ``DescriptorType``, or its number.

    Returns:
        The descriptor.

    Raises:
        BadParam: There is no such type.
        NotSupported: The type exists in the header and is not implemented.
    """
    return create(descriptorType)


@c_call(results=0)
def cudnnBackendDestroyDescriptor(descriptor: Descriptor) -> None:
    """Destroy a descriptor. Other descriptors keep what they took from it.

    Args:
        descriptor: The descriptor.

    Raises:
        BadParam: The argument is not a descriptor, or it is destroyed.
    """
    usable(descriptor, "cudnnBackendDestroyDescriptor").destroy()


@c_call(results=0)
def cudnnBackendInitialize(descriptor: Descriptor) -> None:
    """Reset a descriptor to the state in which it was created. cuDNN has deprecated this call; create another
    descriptor instead.

    Args:
        descriptor: The descriptor, finalized or not.

    Raises:
        BadParam: The argument is not a descriptor, or it is destroyed.
    """
    usable(descriptor, "cudnnBackendInitialize").reset()


@c_call(results=0)
def cudnnBackendSetAttribute(
    descriptor: Descriptor,
    attributeName: AttributeName | int,
    attributeType: AttributeType | int,
    elementCount: int,
    arrayOfElements: Any,
) -> None:
    """Set an attribute of a descriptor.

    Args:
        descriptor: The descriptor, not yet finalized.
        attributeName: A member of ``AttributeName``, or its number.
        attributeType: A member of ``AttributeType``, or its number: the type of the elements in C.
        elementCount: The number of elements.
        arrayOfElements: A list, a tuple or an array of the C type; the element itself if there is one; text for CHAR.

    Raises:
        BadParam: The name, the type, the count or an element does not fit the attribute.
        NotSupported: The attribute exists in the header and is not implemented.
        NotInitialized: The descriptor is finalized.
    """
    target = usable(descriptor, "cudnnBackendSetAttribute")
    target.set(attributeName, attributeType, elementCount, arrayOfElements)


@c_call(results=0)
def cudnnBackendFinalize(descriptor: Descriptor) -> None:
    """Check a descriptor and freeze it. After a failure the descriptor can still be edited.

    Args:
        descriptor: The descriptor.

    Raises:
        BadParam: An attribute is missing, or values contradict each other. The error lists every problem.
        NotSupported: The values are valid and not served. The error lists every reason.
        NotInitialized: The descriptor is finalized already.
    """
    usable(descriptor, "cudnnBackendFinalize").finalize()


@c_call(results=2)
def cudnnBackendGetAttribute(
    descriptor: Descriptor,
    attributeName: AttributeName | int,
    attributeType: AttributeType | int,
    requestedElementCount: int,
    arrayOfElements: Any = None,
) -> tuple[int, Any]:
    """Read an attribute of a finalized descriptor.

    Text is returned as ``str``, and its count includes the NUL. A descriptor that an attribute holds is filled: pass
    created descriptors in ``arrayOfElements``.

    Args:
        descriptor: The descriptor.
        attributeName: A member of ``AttributeName``, or its number.
        attributeType: A member of ``AttributeType``, or its number.
        requestedElementCount: The most elements to return. With 0 the call only returns the count.
        arrayOfElements: Created descriptors to fill, for attributes that hold descriptors.

    Returns:
        (the number of elements that the attribute has, a list of at most ``requestedElementCount`` elements).

    Raises:
        BadParam: The name, the type or the count does not fit the attribute.
        NotInitialized: The descriptor is not finalized.
    """
    source = usable(descriptor, "cudnnBackendGetAttribute")
    return source.get(attributeName, attributeType, requestedElementCount, arrayOfElements)


@c_call(results=0)
def cudnnBackendExecute(handle: Handle, executionPlan: Descriptor, variantPack: Descriptor) -> None:
    """Execute a plan. On a device the work goes into the handle's stream. On the host the results are there when the
    call returns.

    Args:
        handle: The handle, on the device of the plan.
        executionPlan: A finalized descriptor of an execution plan.
        variantPack: A finalized descriptor of a variant pack: uids, data pointers and the workspace.

    Raises:
        BadParam: A descriptor, a pointer or the workspace does not fit the plan. Nothing is written then.
        NotSupported: The device is not present.
        ExecutionFailed: A kernel failed.
    """
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
    """Refused. Capture the stream around ``cudnnBackendExecute`` instead.

    Args:
        handle: A handle.
        executionPlan: A finalized descriptor of an execution plan.
        variantPack: A finalized descriptor of a variant pack.
        graph: A CUDA graph.

    Raises:
        NotSupported: Always, if the other arguments are valid.
        BadParam: An argument is invalid.
    """
    _refuse_native("cudnnBackendPopulateCudaGraph", handle, executionPlan, variantPack)


@c_call(results=0)
def cudnnBackendUpdateCudaGraph(handle: Handle, executionPlan: Descriptor, variantPack: Descriptor, graph: Any) -> None:
    """Refused. Capture the stream around ``cudnnBackendExecute`` again.

    Args:
        handle: A handle.
        executionPlan: A finalized descriptor of an execution plan.
        variantPack: A finalized descriptor of a variant pack.
        graph: A CUDA graph.

    Raises:
        NotSupported: Always, if the other arguments are valid.
        BadParam: An argument is invalid.
    """
    _refuse_native("cudnnBackendUpdateCudaGraph", handle, executionPlan, variantPack)


def _refuse_native(where: str, handle: Handle, plan: Descriptor, pack: Descriptor) -> None:
    handles.usable(handle, where)
    config = content_of(plan, DescriptorType.EXECUTION_PLAN, where, "executionPlan").config
    content_of(pack, DescriptorType.VARIANT_PACK, where, "variantPack")
    raise NotSupported(CUDA_GRAPH.reject(where, "executionPlan", config))


def cudnnGetErrorString(status: Status | int) -> str:
    """The C name of a status.

    Args:
        status: A member of ``Status``, or its number.

    Returns:
        The name, or ``CUDNN_UNKNOWN_STATUS``. The call never raises.
    """
    try:
        return Status(whole(status)).c_name
    except ValueError:
        return "CUDNN_UNKNOWN_STATUS"


def cudnnGetLastErrorString(max_size: int | None = None) -> str:
    """The text of this thread's most recent failure. Reading does not clear it.

    Args:
        max_size: The most bytes, the NUL included. None returns the whole text.

    Returns:
        The text, empty if nothing has failed.

    Raises:
        BadParam: ``max_size`` is not an integer.
    """
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
    """The version of the cuDNN interface: ``MAJOR * 10000 + MINOR * 100 + PATCH``. ``graphdnn.__version__`` is the
    version of the library.
    """
    return VERSION
