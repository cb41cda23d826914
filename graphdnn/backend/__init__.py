"""The v8 API: cuDNN's backend descriptors in Python, with the C names.

``from graphdnn.backend import *`` gives every function and every enumerator.
Parameters come in C's order without the output pointers, results are returned.
What is not ``CUDNN_STATUS_SUCCESS`` raises a ``GraphdnnError`` with the status and
every reason; inside ``returning_status()`` the calls return the status instead.
"""

from graphdnn.backend import constants
from graphdnn.backend.c_api import (
    cudnnBackendCreateDescriptor,
    cudnnBackendDestroyDescriptor,
    cudnnBackendExecute,
    cudnnBackendFinalize,
    cudnnBackendGetAttribute,
    cudnnBackendInitialize,
    cudnnBackendPopulateCudaGraph,
    cudnnBackendSetAttribute,
    cudnnBackendUpdateCudaGraph,
    cudnnCreate,
    cudnnDestroy,
    cudnnGetErrorString,
    cudnnGetLastErrorString,
    cudnnGetStream,
    cudnnGetVersion,
    cudnnSetStream,
)
from graphdnn.backend.constants import *  # noqa: F403
from graphdnn.backend.status_returns import returning_status

__all__ = [
    "cudnnBackendCreateDescriptor",
    "cudnnBackendDestroyDescriptor",
    "cudnnBackendExecute",
    "cudnnBackendFinalize",
    "cudnnBackendGetAttribute",
    "cudnnBackendInitialize",
    "cudnnBackendPopulateCudaGraph",
    "cudnnBackendSetAttribute",
    "cudnnBackendUpdateCudaGraph",
    "cudnnCreate",
    "cudnnDestroy",
    "cudnnGetErrorString",
    "cudnnGetLastErrorString",
    "cudnnGetStream",
    "cudnnGetVersion",
    "cudnnSetStream",
    "returning_status",
]
__all__ += constants.__all__
