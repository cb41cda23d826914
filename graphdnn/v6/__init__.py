"""The legacy API: the calls of cuDNN 5.1, 6.0 and 7 by their C names, as operation graphs.

``from graphdnn.v6 import *`` gives all 171 functions, every enum (with and without ``_t``) and every
enumerator. Parameters come in C's order without the output pointers; results are returned. What is
not ``CUDNN_STATUS_SUCCESS`` raises ``CudnnError`` with the status and every reason; inside
``returning_status()`` the calls return the status instead. ``coverage()`` says what each becomes.
``last_graph()`` and ``explain()`` show what this thread's last call became. ``record()`` makes graphs of several
calls, which replay fused; ``use("cuda")`` makes handles on a GPU.
"""

from __future__ import annotations

from typing import Any

import graphdnn.v6.calls  # noqa: F401  registers the implementations
from graphdnn.v6 import enums, perf_structs
from graphdnn.v6.call_wrapper import returning_status
from graphdnn.v6.calls.handle import VERSION, get_version, use
from graphdnn.v6.descriptor_values import DESCRIPTORS, Handle
from graphdnn.v6.enums import CONSTANTS, ENUMS
from graphdnn.v6.errors import CudnnError
from graphdnn.v6.name_hints import unknown_name
from graphdnn.v6.recording import record
from graphdnn.v6.registry import coverage, public_calls
from graphdnn.v6.thread_state import explain, last_graph
from graphdnn.v6.version_profiles import profile

CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL = VERSION
CUDNN_VERSION = get_version()
CUDNN_DIM_MAX = 8
CUDNN_LRN_MIN_N = 1
CUDNN_LRN_MAX_N = 16
CUDNN_LRN_MIN_K = 1e-5
CUDNN_LRN_MIN_BETA = 0.01
CUDNN_BN_MIN_EPSILON = 1e-5

_CALLS = public_calls()
_TYPES = {
    **{name: value for name, value in vars(enums).items() if value in ENUMS},
    **{name: value for name, value in vars(perf_structs).items() if name.endswith("AlgoPerf_t")},
    **{kind.c_type: kind for kind in DESCRIPTORS.values()},
    "cudnnHandle_t": Handle,
    "cudnnRuntimeTag_t": perf_structs.cudnnRuntimeTag_t,
}
globals().update(_CALLS)
globals().update(_TYPES)
globals().update(CONSTANTS)

__all__ = [
    "CUDNN_BN_MIN_EPSILON",
    "CUDNN_DIM_MAX",
    "CUDNN_LRN_MAX_N",
    "CUDNN_LRN_MIN_BETA",
    "CUDNN_LRN_MIN_K",
    "CUDNN_LRN_MIN_N",
    "CUDNN_MAJOR",
    "CUDNN_MINOR",
    "CUDNN_PATCHLEVEL",
    "CUDNN_VERSION",
    "CudnnError",
    "coverage",
    "explain",
    "last_graph",
    "profile",
    "record",
    "returning_status",
    "use",
]
__all__ += list(_CALLS) + list(_TYPES) + list(CONSTANTS)


def __getattr__(name: str) -> Any:
    """What is not there: an ``AttributeError`` with the name that was meant, where one resembles it."""
    raise AttributeError(unknown_name(__name__, name, __all__))
