"""What the legacy calls refuse before a graph is made. Statuses are the core's; ``status`` translates them."""

from __future__ import annotations

from graphdnn.enums import Status
from graphdnn.rules import Rule

UNEXPECTED = Rule(
    id="v6.unexpected",
    expected="no failure inside the library",
    reason="{detail}",
    fix="report it: unless memory ran out, it is a defect of graphdnn",
    status=Status.INTERNAL_ERROR,
)
FAILED = Rule(
    id="v6.failed",
    expected="kernels that run to their end",
    reason="{detail}",
    fix="outputs may be written in part; report it, it is a defect of graphdnn",
    status=Status.EXECUTION_FAILED,
)

# Arguments.

NULL = Rule(
    id="v6.null",
    expected="{expected}",
    reason="this parameter may not be null",
    fix="pass {expected}",
)
KIND = Rule(
    id="v6.kind",
    expected="{expected}",
    reason="an object of another kind was passed",
    fix="pass {made}, in the place that the function's C signature has for it",
)
DESTROYED = Rule(
    id="v6.destroyed",
    expected="{expected} that still exists",
    reason="the object was destroyed; in C this would be a dangling pointer",
    fix="destroy it after its last use",
)
UNSET = Rule(
    id="v6.unset",
    expected="a descriptor that was set",
    reason="it was created, and nothing was written into it yet",
    fix="call its cudnnSet function first",
)
ENUM = Rule(
    id="v6.enum",
    expected="a member of {enum}, its integer or its name",
    reason="{reason}",
    fix="{near}use one of {members}",
)
NUMBER = Rule(
    id="v6.number",
    expected="{expected}",
    reason="this parameter is a number in C",
    fix="pass {expected}",
)
SCALAR = Rule(
    id="v6.scalar",
    expected="one number: a Python or NumPy number, an array of one element, or a pointer to a C float or double",
    reason="scaling factors are read on the host: {detail}",
    fix="pass the number itself; a bare address does not say whether a float or a double lies there",
)
MEMORY_KIND = Rule(
    id="v6.memory.kind",
    expected="an array in host memory, or its address",
    reason="the call reads and writes its operands in place",
    fix="pass a NumPy array, an object with DLPack, or the address as int or ctypes pointer",
)
MEMORY_PLACE = Rule(
    id="v6.memory.place",
    expected="memory of the handle's device, or its address",
    reason="the call's work is done there, in the handle's stream",
    fix='pass a CuPy array, a PyTorch tensor or an address; or create the handle after v6.use("cpu")',
)
MEMORY_TYPE = Rule(
    id="v6.memory.data_type",
    expected="{expected}, or raw bytes (uint8)",
    reason="the descriptor says which elements lie there",
    fix="convert the array, or set the descriptor to the array's type",
)
MEMORY_SMALL = Rule(
    id="v6.memory.small",
    expected="at least {size} bytes",
    reason="the descriptor's extents and strides reach that far; nothing was written",
    fix="allocate what cudnnGetTensorSizeInBytes says",
)
MEMORY_UNREADABLE = Rule(
    id="v6.memory.unreadable",
    expected="the address of memory that the call may use",
    reason="{detail}",
    fix="pass an array, or the address of memory that is there; its owner keeps it as long as it is used",
)
MEMORY_LAYOUT = Rule(
    id="v6.memory.layout",
    expected="contiguous memory, or the extents {dims} with byte strides {strides}",
    reason="an array stands for its memory here, and this one's memory has gaps that the descriptor does not know",
    fix="pass a contiguous array, or describe its strides with cudnnSetTensorNdDescriptor",
)
MEMORY_ORDER = Rule(
    id="v6.memory.order",
    expected="an array whose axes lie in memory as the descriptor's {dims} with byte strides {strides}",
    reason="an array stands for its memory, and the descriptor would read the elements in another order than the array",
    fix="set the format or the strides of the array's layout, copy the array into the descriptor's, or pass its ravel()"
    " where only the memory counts",
)
STREAM = Rule(
    id="v6.stream",
    expected="stream 0",
    reason="calls on the host finish before they return, in no stream",
    fix="pass 0 or None",
    status=Status.MAPPING_ERROR,
)
STREAM_KIND = Rule(
    id="v6.stream.kind",
    expected="an address, or a stream of CuPy, PyTorch or cuda.core",
    reason="calls put their work into a stream by its address",
    fix="pass the stream object, its address, or None for the default stream",
)

# Descriptors.

POSITIVE = Rule(
    id="v6.extent",
    expected="{expected}",
    reason="the entry is a number of elements or of steps",
    fix="use {expected}",
)
RANK = Rule(
    id="v6.rank",
    expected="{expected}",
    reason="the manual limits the number of axes here (CUDNN_DIM_MAX is 8)",
    fix="add axes of extent 1, or merge axes",
    status=Status.NOT_SUPPORTED,
)
COUNT = Rule(
    id="v6.count",
    expected="{expected}",
    reason="the array has to hold as many entries as the count says",
    fix="make count and array agree",
)
TENSOR_SIZE = Rule(
    id="v6.tensor.size",
    expected="at most 2**31 elements from the first to the last",
    reason="legacy descriptors hold no more, gaps included",
    fix="split the tensor, or use the v8 calls, which have no such limit",
    status=Status.NOT_SUPPORTED,
)
VECTOR = Rule(
    id="v6.tensor.vector",
    expected="{expected}",
    reason="{reason}",
    fix="use INT8x4 together with NCHW_VECT_C and channels that are a multiple of 4",
)
UPSCALE = Rule(
    id="v6.convolution.upscale",
    expected="1",
    reason="with the argument list of 5.1 these two are upscaling factors, which no release has implemented",
    fix="pass 1, or add the compute type as last argument: then they are dilations",
    status=Status.NOT_SUPPORTED,
)
RANGE = Rule(
    id="v6.range",
    expected="{expected}",
    reason="the header's limits for this parameter",
    fix="use a value within the limits",
)

# Calls.

SAME_DIMS = Rule(
    id="v6.dims",
    expected="{expected}",
    reason="{reason}",
    fix="give the descriptors matching extents",
)
SAME_TYPE = Rule(
    id="v6.data_type",
    expected="{expected}",
    reason="the call works on one element type",
    fix="convert with cudnnTransformTensor, or set the descriptors alike",
)
SAME_STRIDES = Rule(
    id="v6.strides",
    expected="{expected}",
    reason="the manual asks for equal strides here",
    fix="describe both tensors with the same strides",
)
NEGATIVE_STRIDE = Rule(
    id="v6.strides.negative",
    expected="strides of 1 and more",
    reason="descriptors of N axes hold negative strides, and no call computes with them",
    fix="point to the first element in memory and use positive strides",
    status=Status.NOT_SUPPORTED,
)
COMPUTE_TYPE = Rule(
    id="v6.compute_type",
    expected="{expected}",
    reason="the compute type follows from the data: DOUBLE for DOUBLE, FLOAT for the rest",
    fix="set the descriptor's compute type to the expected one",
    status=Status.NOT_SUPPORTED,
)
ALGORITHM = Rule(
    id="v6.algorithm",
    expected="an algorithm that was implemented in some release",
    reason="the header declares this name, no release has implemented it",
    fix="use CUDNN_CONVOLUTION_..._ALGO_IMPLICIT_GEMM, ALGO_0 or ALGO_1",
    status=Status.NOT_SUPPORTED,
)
MODE = Rule(
    id="v6.mode",
    expected="{expected}",
    reason="{reason}",
    fix="use one of the expected modes",
)
INDICES = Rule(
    id="v6.reduce.indices",
    expected="{expected}",
    reason="positions are those of a smallest or largest element, as 32-bit numbers",
    fix="ask for values only, or for positions of MIN or MAX as CUDNN_32BIT_INDICES",
)
BUFFER = Rule(
    id="v6.buffer",
    expected="at least {size} bytes",
    reason="the call writes this number of bytes; nothing was written",
    fix="allocate the size that the query call returns",
    status=Status.INVALID_VALUE,
)
FLOATING = Rule(
    id="v6.floating",
    expected="FLOAT, DOUBLE or HALF",
    reason="no release had this call for integers",
    fix="convert with cudnnTransformTensor",
    status=Status.NOT_SUPPORTED,
)
GROUPS = Rule(
    id="v6.groups",
    expected="1 group",
    reason="the matrix belongs to one group's filters",
    fix="call once for each group, with a descriptor of its channels",
    status=Status.NOT_SUPPORTED,
)
ALIAS = Rule(
    id="v6.alias",
    expected="memory of its own",
    reason="{reason}",
    fix="use another buffer",
)
PAIR = Rule(
    id="v6.pair",
    expected="both, or neither",
    reason="mean and variance belong together",
    fix="pass both arrays, or None for both",
)

# Recordings.

NO_SCRIPT = Rule(
    id="v6.migration.operation",
    expected="an operation that a script can contain",
    reason="no statement is known for this operation, and the script could not be complete",
    fix="record the calls before and behind this one apart",
    status=Status.NOT_SUPPORTED,
)
