"""The shape of a grouped convolution: everything that its tiles and their cost models depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from graphdnn.device.profiles import DeviceSpec
from graphdnn.enums import DataType
from graphdnn.operations.conv_problem import ConvProblem

CHUNK_CHANNELS = 8  # channels of a 16-byte copy
_MAX_SIDE = 64  # the longest side of a tile; the kernel stores coordinates in ten bits
_BANDWIDTH_EFFICIENCY = 0.88  # the fraction of the data sheet's bandwidth that a copy reaches


class Shape(NamedTuple):
    """A grouped convolution without its addresses: fprop, dgrad with unit stride, or wgrad.

    ``channels_in`` and ``channels_out`` are the channels of a group in the image that is read and in the output, or for
    wgrad in x and in dy.
    """

    images: int
    groups: int
    channels_in: int
    channels_out: int
    output: tuple[int, int]  # rows and columns
    filter: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    traffic: float  # bytes of memory traffic
    image_width: int  # columns of the image that is read

    @classmethod
    def of(cls, p: ConvProblem, is_dgrad: bool, traffic: float) -> Shape:
        """``traffic``: bytes of memory traffic."""
        channels_in, channels_out = (p.k, p.c) if is_dgrad else (p.c, p.k)
        extents = p.input if is_dgrad else p.output
        output, taps, stride, dilation = ((v[0], v[1]) for v in (extents, p.filter, p.stride, p.dilation))
        image_width = (p.output if is_dgrad else p.input)[1]
        return cls(p.n, p.groups, channels_in, channels_out, output, taps, stride, dilation, traffic, image_width)

    def halo_tile(self, height: int, width: int) -> tuple[int, int]:
        """Rows and columns of the halo tile of ``height`` by ``width`` output pixels."""
        h, w = (
            (size - 1) * s + (r - 1) * d + 1
            for size, s, r, d in zip((height, width), self.stride, self.filter, self.dilation, strict=True)
        )
        return h, w

    def tiles(self, images: int, height: int, width: int) -> tuple[int, int, int]:
        """The numbers of tiles along images, rows and columns."""
        return -(-self.images // images), -(-self.output[0] // height), -(-self.output[1] // width)

    @property
    def chunks(self) -> int:
        """Chunks of 8 channels of a filter: K of the matrix product in chunks."""
        return self.filter[0] * self.filter[1] * self.channels_in // CHUNK_CHANNELS

    @property
    def steps(self) -> int:
        """MMA steps along K, of two chunks each. A row of taps ends a step if it has an even number of chunks."""
        row_chunks = self.filter[1] * self.channels_in // CHUNK_CHANNELS
        return self.chunks // 2 if row_chunks % 2 == 0 else -(-self.chunks // 2)


@dataclass(frozen=True, slots=True)
class Pixels:
    """The groups of a CTA, and the images, rows and columns of a tile of output pixels."""

    groups: int
    images: int
    height: int
    width: int

    @property
    def pixels(self) -> int:
        """Pixels of a tile."""
        return self.images * self.height * self.width

    def tiles(self, shape: Shape) -> tuple[int, int, int]:
        """The numbers of tiles along images, rows and columns."""
        return shape.tiles(self.images, self.height, self.width)


class MachineLimits(NamedTuple):
    """The properties of a device that the cost models read."""

    sms: int
    clock: float  # hertz
    shared_memory: int  # bytes of an SM
    bandwidth: float  # bytes per second of a copy


def machine_limits(device: DeviceSpec) -> MachineLimits:
    """The properties of ``device``; the clock follows from the rate of 4096 operations of an SM per cycle."""
    clock = device.rate(DataType.HALF) / (device.sm_count * 4096)
    return MachineLimits(device.sm_count, clock, device.shared_memory, device.bandwidth * _BANDWIDTH_EFFICIENCY)


def side_candidates(size: int) -> list[int]:
    """Candidates for a side of a tile: even parts of an image side of ``size`` pixels."""
    count = -(-size // _MAX_SIDE)
    return sorted({-(-size // (count * n)) for n in (1, 2, 4, 8)}, reverse=True)
