"""CudnnError: what a legacy call raises when its status is not CUDNN_STATUS_SUCCESS."""

from __future__ import annotations

from collections.abc import Iterable

from graphdnn.enums import Status
from graphdnn.errors import GraphdnnError, Rejection
from graphdnn.v6.enums import cudnnStatus_t

_EXACT = {
    Status.SUCCESS: cudnnStatus_t.CUDNN_STATUS_SUCCESS,
    Status.LICENSE_ERROR: cudnnStatus_t.CUDNN_STATUS_LICENSE_ERROR,
    Status.RUNTIME_IN_PROGRESS: cudnnStatus_t.CUDNN_STATUS_RUNTIME_IN_PROGRESS,
    Status.RUNTIME_FP_OVERFLOW: cudnnStatus_t.CUDNN_STATUS_RUNTIME_FP_OVERFLOW,
    Status.INVALID_VALUE: cudnnStatus_t.CUDNN_STATUS_INVALID_VALUE,
    Status.ARCH_MISMATCH: cudnnStatus_t.CUDNN_STATUS_ARCH_MISMATCH,
    Status.RUNTIME_PREREQUISITE_MISSING: cudnnStatus_t.CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING,
    Status.MAPPING_ERROR: cudnnStatus_t.CUDNN_STATUS_MAPPING_ERROR,
    Status.ALLOC_FAILED: cudnnStatus_t.CUDNN_STATUS_ALLOC_FAILED,
    Status.INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED: cudnnStatus_t.CUDNN_STATUS_ALLOC_FAILED,
}
_FAMILIES = {
    1: cudnnStatus_t.CUDNN_STATUS_NOT_INITIALIZED,
    2: cudnnStatus_t.CUDNN_STATUS_BAD_PARAM,
    3: cudnnStatus_t.CUDNN_STATUS_NOT_SUPPORTED,
    4: cudnnStatus_t.CUDNN_STATUS_INTERNAL_ERROR,
    5: cudnnStatus_t.CUDNN_STATUS_EXECUTION_FAILED,
}


def legacy_status(status: Status) -> cudnnStatus_t:
    """The status with its own legacy number, or that of its family."""
    return _EXACT.get(status) or _FAMILIES.get(int(status) // 1000, cudnnStatus_t.CUDNN_STATUS_SUCCESS)


class CudnnError(GraphdnnError):
    """A legacy call had another status than ``CUDNN_STATUS_SUCCESS``. ``rejections`` lists every reason."""

    @property
    def status(self) -> cudnnStatus_t:  # type: ignore[override]  # the legacy numbers are another enum
        """The legacy status, a member of ``cudnnStatus_t``."""
        return legacy_status(self.rejections[0].status)


def refuse_if(rejections: Iterable[Rejection | None]) -> None:
    """Raise one ``CudnnError`` with every rejection, or return when there is none."""
    found = tuple(r for r in rejections if r is not None)
    if found:
        raise CudnnError(found)
