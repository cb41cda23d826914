"""What the descriptor protocol refuses: states, attributes, elements, devices, variant packs."""

from __future__ import annotations

from graphdnn.enums import Status
from graphdnn.rules import Rule

# Descriptors and handles.

DESCRIPTOR_TYPE = Rule(
    id="descriptor.type",
    expected="a descriptor type that graphdnn has",
    reason="{reason}",
    fix="{fix}",
    status=Status.NOT_SUPPORTED,
)
DESCRIPTOR_NULL = Rule(
    id="descriptor.null",
    expected="a descriptor",
    reason="a null descriptor describes nothing",
    fix="pass what cudnnBackendCreateDescriptor returned",
    status=Status.BAD_PARAM_NULL_POINTER,
)
DESCRIPTOR_KIND = Rule(
    id="descriptor.kind",
    expected="a descriptor",
    reason="only cudnnBackendCreateDescriptor makes descriptors",
    fix="pass what cudnnBackendCreateDescriptor returned; specs and plans belong to the Python API",
)
DESTROYED = Rule(
    id="descriptor.destroyed",
    expected="a descriptor that still exists",
    reason="the object was destroyed; in C this would be a dangling pointer",
    fix="destroy it after its last use; other descriptors keep what they took from it",
)
FINALIZED = Rule(
    id="descriptor.finalized",
    expected="a descriptor that is not finalized yet",
    reason="a finalized descriptor is read-only",
    fix="set everything before cudnnBackendFinalize, or create another descriptor",
    status=Status.NOT_INITIALIZED,
)
NOT_FINALIZED = Rule(
    id="descriptor.not_finalized",
    expected="a finalized descriptor",
    reason="attributes are checked, completed and readable only after finalization",
    fix="call cudnnBackendFinalize first",
    status=Status.NOT_INITIALIZED,
)
FILLED_ONLY = Rule(
    id="descriptor.filled_only",
    expected="cudnnBackendGetAttribute to fill and finalize it",
    reason="only the library fills this descriptor",
    fix="create it and pass it to cudnnBackendGetAttribute",
    status=Status.NOT_SUPPORTED,
)
HANDLE_NULL = Rule(
    id="handle.null",
    expected="a handle",
    reason="the handle says on which device and stream to work",
    fix="pass what cudnnCreate returned",
    status=Status.BAD_PARAM_NULL_POINTER,
)
HANDLE_KIND = Rule(
    id="handle.kind",
    expected="a handle",
    reason="only cudnnCreate makes handles",
    fix="pass what cudnnCreate returned",
)
HANDLE_DESTROYED = Rule(
    id="handle.destroyed",
    expected="a handle that still exists",
    reason="it was destroyed",
    fix="call cudnnDestroy after the last use",
)
HANDLE_STREAM = Rule(
    id="handle.stream",
    expected="{expected}",
    reason="{reason}",
    fix="use stream 0, or a handle for a device with streams",
    status=Status.NOT_SUPPORTED,
)

OUT_POINTER = Rule(
    id="handle.out_pointer",
    expected="nothing, or the name of a device",
    reason="results are returned in Python, not written through pointers",
    fix="write handle = cudnnCreate(); all other calls return their results in the same way",
)

# Attributes.

ATTRIBUTE_NAME = Rule(
    id="attribute.name",
    expected="a member of AttributeName, or its integer",
    reason="the header has no such attribute",
    fix="use one of the CUDNN_ATTR_ constants, without quotation marks",
)
FOREIGN = Rule(
    id="attribute.foreign",
    expected="one of {known}",
    reason="this descriptor has no such attribute",
    fix="set it on a {owners}",
)
GET_ONLY = Rule(
    id="attribute.get_only",
    expected="cudnnBackendGetAttribute",
    reason="the library computes this attribute",
    fix="read it after finalization",
)
TYPE = Rule(
    id="attribute.type",
    expected="{expected}",
    reason="attribute and element type belong together; {detail}",
    fix="pass the expected CUDNN_TYPE_ constant",
    status=Status.BAD_PARAM_ATTRIBUTE_TYPE,
)
COUNT = Rule(
    id="attribute.count",
    expected="{expected}",
    reason="{reason}",
    fix="{fix}",
)
NULL = Rule(
    id="attribute.null",
    expected="{expected}",
    reason="there is nothing to read the elements from",
    fix="pass the elements, or do not set the attribute",
    status=Status.BAD_PARAM_NULL_POINTER,
)
VALUE = Rule(
    id="attribute.value",
    expected="{expected}",
    reason="the element is not of the attribute's type: {detail}",
    fix="{fix}",
)
NESTED_TYPE = Rule(
    id="attribute.nested.type",
    expected="{expected}",
    reason="the attribute holds another kind of descriptor",
    fix="pass a descriptor of the expected type",
    status=Status.BAD_PARAM_DESCRIPTOR_TYPE,
)
NESTED_NOT_FINALIZED = Rule(
    id="attribute.nested.not_finalized",
    expected="a finalized descriptor",
    reason="a descriptor that is not finalized may still change and is not checked",
    fix="call cudnnBackendFinalize on it first",
    status=Status.BAD_PARAM_NOT_FINALIZED,
)
GET_VALUES = Rule(
    id="attribute.get.values",
    expected="no values",
    reason="elements are returned; only descriptors are filled in place",
    fix="leave values out and use the returned list",
)
GET_TARGET = Rule(
    id="attribute.get.target",
    expected="descriptors that are not finalized, each once",
    reason="the library fills and finalizes the descriptors it is given",
    fix="create a new descriptor for each element",
    status=Status.NOT_INITIALIZED,
)
CONSTANT_TYPE = Rule(
    id="tensor.constant.data_type",
    expected="CUDNN_ATTR_TENSOR_DATA_TYPE to be set before",
    reason="the constant is read when it is set, and its type says how",
    fix="set the data type first",
)

# Devices.

DEVICE_CONFLICT = Rule(
    id="device.conflict",
    expected="{expected}",
    reason="a graph, its engines and its plan are for one device, and two are named here",
    fix="give the same device everywhere, or name it only once",
)
SM_COUNT_TARGET = Rule(
    id="device.sm_count_target",
    expected="{expected}",
    reason="{reason}",
    fix="leave it at 0 for all multiprocessors",
    status=Status.NOT_SUPPORTED,
)
SHARED_MEMORY_LIMIT = Rule(
    id="device.shared_memory_limit",
    expected="{expected}",
    reason="{reason}",
    fix="leave it at 0 for the device's own limit",
    status=Status.NOT_SUPPORTED,
)
DEVICEPROP_SOURCE = Rule(
    id="deviceprop.source",
    expected="exactly one of DEVICE_ID, HANDLE and JSON_REPRESENTATION",
    reason="each of them names a whole device",
    fix="set one of them",
)
DEVICEPROP_ID = Rule(
    id="deviceprop.device_id",
    expected="0",
    reason="there is no CUDA device ({why}), so the one device is the machine that the library runs on",
    fix="use 0, or JSON_REPRESENTATION with DeviceSpec.to_json() of a device that is elsewhere",
    status=Status.NOT_SUPPORTED_ARCH_MISMATCH,
)
DEVICEPROP_JSON = Rule(
    id="deviceprop.json",
    expected="a JSON object",
    reason="a device is described by named numbers: {detail}",
    fix="use JSON of DeviceSpec.to_json()",
)

# Engines, plans, execution.

PLAN_SOURCE = Rule(
    id="plan.source",
    expected="exactly one of ENGINE_CONFIG and JSON_REPRESENTATION",
    reason="a plan is built from a configuration or read from JSON",
    fix="set one of them",
)
MEMORY_SMALL = Rule(
    id="variant_pack.memory.small",
    expected="at least {size} bytes",
    reason="the tensor's extents and strides reach that far",
    fix="pass memory of that size",
    status=Status.BAD_PARAM_SIZE_INSUFFICIENT,
)
MEMORY_UNREADABLE = Rule(
    id="variant_pack.memory.unreadable",
    expected="the address of {size} bytes of memory that the call may use",
    reason="{detail}",
    fix="pass an array, or the address of memory that is there; a number is passed as a float or a NumPy scalar",
)
EXECUTE_STREAM = Rule(
    id="execute.stream",
    expected="stream 0",
    reason="this plan runs on the host, at once and in no stream",
    fix="synchronize the stream, and execute with stream 0",
    status=Status.BAD_PARAM_STREAM_MISMATCH,
)
CUDA_GRAPH = Rule(
    id="execute.cuda_graph",
    expected="cudnnBackendExecute on a stream that is being captured",
    reason="plans write no nodes into a graph of the caller; no engine has the note SUPPORTS_CUDA_GRAPH_NATIVE_API",
    fix="begin a capture on the handle's stream and call cudnnBackendExecute, or use ExecutionPlan.capture",
    status=Status.NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API,
)
EXECUTE_FAILED = Rule(
    id="execute.failed",
    expected="kernels that run to their end",
    reason="a kernel failed: {detail}; the outputs may be half written",
    fix="report it with the plan's JSON",
    status=Status.EXECUTION_FAILED,
)
UNEXPECTED = Rule(
    id="call.unexpected",
    expected="no failure inside the library",
    reason="{detail}",
    fix="report it: unless memory ran out, it is a defect of graphdnn",
    status=Status.INTERNAL_ERROR,
)
