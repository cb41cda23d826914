"""The photograph that the demo works on: it comes inside scikit-image, nothing is downloaded."""

from __future__ import annotations

import numpy as np

from graphdnn.dtypes import Array
from graphdnn.enums import Status
from graphdnn.errors import NotInitialized
from graphdnn.rules import Rule

MISSING = Rule(
    id="demo.photograph",
    expected="scikit-image with its data files",
    reason="the demo works on a photograph that scikit-image ships: {detail}",
    fix="pip install 'graphdnn[demo]'",
    status=Status.SUBLIBRARY_LOADING_FAILED,
)


def photograph() -> Array:
    """An astronaut in front of a flag and a shuttle: 512 x 512 pixels, three colours, uint8."""
    try:
        from skimage import data

        return np.asarray(data.astronaut())  # type: ignore[no-untyped-call]
    except (ImportError, OSError) as error:
        raise NotInitialized(MISSING.reject("demo", "scikit-image", "missing", detail=str(error))) from None


def grey() -> Array:
    """The same in grey: whole numbers from 0 to 255 as int16, by the usual weights of the colours."""
    red, green, blue = np.moveaxis(photograph().astype(np.int32), -1, 0)
    return np.asarray((299 * red + 587 * green + 114 * blue) // 1000, np.int16)
