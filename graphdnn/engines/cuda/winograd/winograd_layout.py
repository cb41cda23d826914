"""What the Winograd kernels share: the roles of a convolution's tensors, and the layouts of transformed data.

A dgrad with stride 1 is a convolution of dy with the filter rotated by 180 degrees, input and output channels
exchanged, and padding ``2 - pad``. So one set of kernels serves fprop and dgrad.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from graphdnn.engines.cuda.conv_geometry.convolution_roles import Roles
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import ConvolutionOperation
from graphdnn.tensors import TensorSpec

TAPS = 3
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Algorithm:
    """F(m x m, 3 x 3) and the K tile of its GEMMs."""

    m: int
    step: int  # channels of a K tile; summed channels are padded to a multiple

    @property
    def variants(self) -> dict[str, int]:
        """The macro that chooses the transforms of one axis in winograd_algorithm.cuh."""
        return {"WINOGRAD_TILE": self.m}

    @property
    def alpha(self) -> int:
        return self.m + TAPS - 1

    @property
    def components(self) -> int:
        return self.alpha**2


@dataclass(frozen=True, slots=True)
class Winograd:
    """A convolution of ``image``, which has ``inner`` channels, to ``result``, which has ``outer`` channels."""

    algorithm: Algorithm
    roles: Roles
    image: TensorSpec
    result: TensorSpec
    n: int
    inner: int
    outer: int
    image_size: tuple[int, ...]
    result_size: tuple[int, ...]
    pre: tuple[int, ...]
    flip: bool
    channels_last: bool  # the result's layout

    @classmethod
    def of(cls, algorithm: Algorithm, op: FusedOp) -> Winograd:
        assert isinstance(op.anchor, ConvolutionOperation)
        roles = Roles.of(op.anchor)
        p, (x, _, y) = roles.problem, op.anchor.roles
        written = next((t for t in op.outputs if t.extents == roles.output.extents), roles.output)
        channels_last = roles.space(roles.output).strides(written)[2] == 1
        if roles.direction == "dgrad":
            pre = tuple(TAPS - 1 - pad for pad in p.pre_padding)
            sizes = (p.output, p.input)
            return cls(algorithm, roles, y, x, p.n, p.k, p.c, *sizes, pre, not p.flip, channels_last)
        sizes = (p.input, p.output)
        return cls(algorithm, roles, x, y, p.n, p.c, p.k, *sizes, p.pre_padding, p.flip, channels_last)

    @property
    def grid(self) -> tuple[int, int]:
        """Tiles of one image."""
        p, q = self.result_size
        return -(-p // self.algorithm.m), -(-q // self.algorithm.m)

    @property
    def tiles(self) -> int:
        return self.n * prod(self.grid)

    @property
    def padded_inner(self) -> int:
        return -(-self.inner // self.algorithm.step) * self.algorithm.step

    @property
    def filter_strides(self) -> tuple[int, int, int, int]:
        """Elements between outer channels, inner channels, rows and columns of the filter."""
        w = self.roles.op.roles[1]
        _, k, c, _, r, s = self.roles.space(w).strides(w)
        return (c, k, r, s) if self.roles.direction == "dgrad" else (k, c, r, s)

    @property
    def image_channels_last(self) -> bool:
        """Whether the image's channels have a smaller stride than its columns."""
        strides = self.roles.space(self.image).strides(self.image)
        return 0 < strides[2] < (strides[5] or 2**62)


@dataclass(frozen=True, slots=True)
class Panels:
    """Packed GEMM operands: panels of ``width`` image tiles, or of ``width`` channels of the result, which are
    contiguous.
    """

    count: int  # image tiles, or channels of the result
    width: int  # tiles or channels of a panel
    block: int  # elements from one panel to the next
    channel: int  # elements from one summed channel to the next
    component: int  # elements from one component to the next

    @classmethod
    def interleaved(cls, w: Winograd, count: int, width: int) -> Panels:
        """Panels as [channel][component][width], for CTAs that compute all components."""
        one = w.algorithm.components * width
        return cls(count, width, one * w.padded_inner, one, width)

    @classmethod
    def separate(cls, w: Winograd, count: int, width: int) -> Panels:
        """Panels as [component][channel][width], for CTAs that compute one component."""
        one = w.padded_inner * width
        return cls(count, width, one * w.algorithm.components, width, one)

    @property
    def blocks(self) -> int:
        return -(-self.count // self.width)

    @property
    def padded(self) -> int:
        return self.blocks * self.width

    @property
    def bytes(self) -> int:
        return self.blocks * self.block * FLOAT_BYTES
