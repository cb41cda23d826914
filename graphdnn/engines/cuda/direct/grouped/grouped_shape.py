"""The shape of a grouped convolution as its tiles need it: pixels of halo tiles, for either direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import DataType
from graphdnn.operations.conv_problem import ConvProblem

CHUNK = 8  # channels of a 16-byte copy
_LONGEST = 64  # the longest side of a tile; the kernel stores coordinates in ten bits
_COPY_SHARE = 0.88  # the part of the data sheet's bandwidth that a copy reaches


class Shape(NamedTuple):
    """What the choice of a tile depends on. ``channels_in``, ``channels_out``: channels of a group that are read and
    written.
    """

    images: int
    groups: int
    channels_in: int
    channels_out: int
    output: tuple[int, int]
    filter: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    traffic: float  # bytes of memory traffic
    width: int  # columns of the image that is read

    @classmethod
    def of(cls, p: ConvProblem, is_dgrad: bool, traffic: float) -> Shape:
        into, out = (p.k, p.c) if is_dgrad else (p.c, p.k)
        image = p.input if is_dgrad else p.output
        output, taps, stride, dilation = ((v[0], v[1]) for v in (image, p.filter, p.stride, p.dilation))
        width = (p.output if is_dgrad else p.input)[1]
        return cls(p.n, p.groups, into, out, output, taps, stride, dilation, traffic, width)

    def patch(self, high: int, wide: int) -> tuple[int, int]:
        """Rows and columns of the halo tile."""
        h, w = (
            (size - 1) * s + (r - 1) * d + 1
            for size, s, r, d in zip((high, wide), self.stride, self.filter, self.dilation, strict=True)
        )
        return h, w

    def tiles(self, images: int, high: int, wide: int) -> tuple[int, int, int]:
        """The numbers of tiles along images, rows and columns."""
        return -(-self.images // images), -(-self.output[0] // high), -(-self.output[1] // wide)

    @property
    def chunks(self) -> int:
        """Chunks of 8 channels along K."""
        return self.filter[0] * self.filter[1] * self.channels_in // CHUNK

    @property
    def steps(self) -> int:
        across = self.filter[1] * self.channels_in // CHUNK
        return self.chunks // 2 if across % 2 == 0 else -(-self.chunks // 2)


@dataclass(frozen=True, slots=True)
class Pixels:
    """The images, rows and columns of a tile, and the groups of a CTA."""

    groups: int
    images: int
    high: int
    wide: int

    @property
    def pixels(self) -> int:
        return self.images * self.high * self.wide

    def tiles(self, shape: Shape) -> tuple[int, int, int]:
        """The numbers of tiles along images, rows and columns."""
        return shape.tiles(self.images, self.high, self.wide)


class Machine(NamedTuple):
    sms: int
    clock: float
    shared_memory: int
    bandwidth: float


def machine_of(device: DeviceSpec) -> Machine:
    clock = device.rate(DataType.HALF) / (device.sm_count * 4096)
    return Machine(device.sm_count, clock, device.shared_memory, device.bandwidth * _COPY_SHARE)


def parts_of_side(size: int) -> list[int]:
    """Even parts of a side that are short enough for a tile."""
    count = -(-size // _LONGEST)
    return sorted({-(-size // (count * n)) for n in (1, 2, 4, 8)}, reverse=True)
