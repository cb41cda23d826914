"""CudnnError: what a legacy call raises when its status is not CUDNN_STATUS_SUCCESS."""

from __future__ import annotations

from collections.abc import Iterable

from graphdnn.errors import GraphdnnError, Rejection
from graphdnn.v6.enums import cudnnStatus_t
from graphdnn.v6.status import legacy_status


class CudnnError(GraphdnnError):
    """``status``: the legacy code. ``rejections``: why, each with the attribute, its value and what would do."""

    @property
    def status(self) -> cudnnStatus_t:  # type: ignore[override]  # the legacy numbers are another enum
        return legacy_status(self.rejections[0].status)


def refuse_if(rejections: Iterable[Rejection | None]) -> None:
    """Raise one ``CudnnError`` with every rejection, or return when there is none."""
    found = tuple(r for r in rejections if r is not None)
    if found:
        raise CudnnError(found)
