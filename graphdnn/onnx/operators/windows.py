"""Windows: strides, dilations and paddings of convolutions and pooling, with ``auto_pad`` and ``ceil_mode`` solved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphdnn.checks import InRange
from graphdnn.onnx.node import Node
from graphdnn.onnx.operators.table import Need

SPATIAL = Need(
    "spatial axes",
    lambda node: node.rank(0) - 2,
    InRange(1, 3),
    "the engines have windows over 1 to 3 spatial axes",
    "reshape the input to [N, C, D, H, W] or fewer axes",
)


@dataclass(frozen=True, slots=True)
class Windows:
    """One entry for each spatial axis."""

    window: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pre: tuple[int, ...]
    post: tuple[int, ...]

    def beyond(self, extents: Sequence[int], outputs: Sequence[int]) -> tuple[int, ...]:
        """The padding behind with which the formula gives ``outputs``: more than declared where it rounds up."""
        axes = zip(extents, outputs, self.window, self.strides, self.dilations, self.pre, self.post, strict=True)
        return tuple(
            max(post, (q - 1) * stride + dilation * (r - 1) + 1 - x - pre)
            for x, q, r, stride, dilation, pre, post in axes
        )

    @property
    def reach(self) -> tuple[int, ...]:
        """Extents of the window with the gaps of its dilation."""
        return tuple(d * (r - 1) + 1 for d, r in zip(self.dilations, self.window, strict=True))


def windows_of(node: Node, window: Sequence[int]) -> Windows:
    """The attributes of a node that reads operand 0 with a window."""
    count = len(window)
    strides = tuple(node.attribute("strides", (1,) * count))
    dilations = tuple(node.attribute("dilations", (1,) * count))
    pads = tuple(node.attribute("pads", (0,) * 2 * count))
    found = Windows(tuple(window), strides, dilations, pads[:count], pads[count:])
    mode = node.attribute("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        return found
    if mode == "VALID":
        return Windows(found.window, strides, dilations, (0,) * count, (0,) * count)
    sizes = zip(node.shape(0)[2:], strides, found.reach, strict=True)
    totals = [max((-(-x // s) - 1) * s + reach - x, 0) for x, s, reach in sizes]
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    pre, post = (small, large) if mode == "SAME_UPPER" else (large, small)
    return Windows(found.window, strides, dilations, pre, post)
