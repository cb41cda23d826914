"""Releases: which enumerators and functions came with which, and the one whose profile this thread asks for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

RELEASES = ("5.1", "6.0", "7.0", "7.5")  # those with a profile
_LATEST_OF = {"7.x": "7.0"}  # how the table of functions names a release

# The enumerators that a release added to those of 5.1.
_ADDED = {
    "6.0": """
        MAJOR_VERSION MINOR_VERSION PATCH_LEVEL CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING CUDNN_DATA_INT8
        CUDNN_DATA_INT32 CUDNN_DATA_INT8x4 CUDNN_NON_DETERMINISTIC CUDNN_DETERMINISTIC
        CUDNN_TENSOR_NCHW_VECT_C CUDNN_OP_TENSOR_SQRT CUDNN_REDUCE_TENSOR_ADD CUDNN_REDUCE_TENSOR_MUL
        CUDNN_REDUCE_TENSOR_MIN CUDNN_REDUCE_TENSOR_MAX CUDNN_REDUCE_TENSOR_AMAX CUDNN_REDUCE_TENSOR_AVG
        CUDNN_REDUCE_TENSOR_NORM1 CUDNN_REDUCE_TENSOR_NORM2 CUDNN_REDUCE_TENSOR_NO_INDICES
        CUDNN_REDUCE_TENSOR_FLATTENED_INDICES CUDNN_32BIT_INDICES CUDNN_64BIT_INDICES CUDNN_16BIT_INDICES
        CUDNN_8BIT_INDICES CUDNN_CONVOLUTION_FWD_ALGO_COUNT CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD
        CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT
        CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT CUDNN_POOLING_MAX_DETERMINISTIC CUDNN_ACTIVATION_ELU
        CUDNN_RNN_ALGO_STANDARD CUDNN_RNN_ALGO_PERSIST_STATIC CUDNN_RNN_ALGO_PERSIST_DYNAMIC
    """,
    "7.0": """
        CUDNN_STATUS_RUNTIME_IN_PROGRESS CUDNN_STATUS_RUNTIME_FP_OVERFLOW CUDNN_OP_TENSOR_NOT
        CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS CUDNN_BATCHNORM_SPATIAL_PERSISTENT CUDNN_DEFAULT_MATH
        CUDNN_TENSOR_OP_MATH CUDNN_CTC_LOSS_ALGO_DETERMINISTIC CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC
        CUDNN_ERRQUERY_RAWCODE CUDNN_ERRQUERY_NONBLOCKING CUDNN_ERRQUERY_BLOCKING
    """,
    "7.1": """
        CUDNN_DATA_UINT8 CUDNN_DATA_UINT8x4 CUDNN_ACTIVATION_IDENTITY
    """,
    "7.2": """
        CUDNN_DATA_INT8x32 CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION
    """,
}
# Defaults that descriptors have without being asked: no caller names them.
_DEFAULTS = ("CUDNN_DEFAULT_MATH", "CUDNN_RNN_ALGO_STANDARD")

CAME_WITH: dict[str, str] = {name: release for release, names in _ADDED.items() for name in names.split()}


class _Thread(threading.local):
    release = ""


_thread = _Thread()


@contextmanager
def asking_for(release: str) -> Iterator[None]:
    """Inside, this thread asks for a release."""
    before = _thread.release
    _thread.release = release
    try:
        yield
    finally:
        _thread.release = before


def active() -> str:
    """The profile of this thread, "" for none: part of the key of a kept plan."""
    return _thread.release


def before(release: str) -> bool:
    """Whether what is asked for is older than a release. Without a profile the tables are those of 6.0."""
    return _numbers(_thread.release or "6.0") < _numbers(release)


def is_newer(since: str, release: str) -> bool:
    return _numbers(_LATEST_OF.get(since, since)) > _numbers(release)


def newer_enumerator(name: str) -> str:
    """The release that an enumerator came with, where the profile of this thread is older; else ""."""
    since = CAME_WITH.get(name, "")
    return since if since and name not in _DEFAULTS and is_newer(since, _thread.release) else ""


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
