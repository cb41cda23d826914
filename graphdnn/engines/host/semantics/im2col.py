"""What the positions of a convolution read."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np

from graphdnn.engines.host.kernel import Call
from graphdnn.engines.host.semantics.arithmetic import Results
from graphdnn.enums import ConvolutionMode
from graphdnn.operations import Patches
from graphdnn.operations.im2col import positions


def patches(op: Patches, call: Call) -> Results:
    """One tap after the other: a strided view of the padded image each."""
    x, conv, taps = call.operands["x"], op.conv, op.taps
    margins = zip(conv.pre_paddings, conv.post_paddings, strict=True)
    padded = np.pad(x, ((0, 0), (0, 0), *margins))
    places = positions(op.x.extents, taps, conv)
    n, c = x.shape[:2]
    y = np.empty((c, prod(taps), n, *places), x.dtype)
    for i, tap in enumerate(product(*map(range, taps))):
        axes = zip(tap, conv.dilations, conv.filter_strides, places, strict=True)
        window = tuple(slice(t * d, t * d + (p - 1) * s + 1, s) for t, d, s, p in axes)
        row = i if conv.mode is ConvolutionMode.CROSS_CORRELATION else prod(taps) - 1 - i
        y[:, row] = padded[(slice(None), slice(None), *window)].swapaxes(0, 1)
    return {"y": y.reshape(op.y.extents)}
