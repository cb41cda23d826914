"""Layout of the MMA operands of a stem's fprop in shared memory and registers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.direct.direct_access import slices_of
from graphdnn.operations.conv_problem import ConvProblem

_MAX_FILTER_REGISTERS = 112  # the most registers of a thread for filters
_MAX_SHARED = 100_000  # the most bytes of a CTA, so that two CTAs fit on an SM
STAGES = 2  # stages of the kernel with mma.sync


@dataclass(frozen=True, slots=True)
class Plan:
    """The layout of image rows and the extents of a warp, in elements unless stated otherwise (direct_stem.cu)."""

    slices: int  # depth slices of the image that a result reads
    leading_element: int  # 1 if the window of pixel 0 begins at an odd element (LEADING_ELEMENT)
    left_pad: int  # zeros before an image row (LEFT_PAD_ELEMS)
    window: int  # offset of pixel 0's window in a row
    pitch: int
    tiles_n: int  # MMA tiles of a warp along N
    channel_splits: int  # warps along the channels
    rows: int  # output rows of a tile

    @classmethod
    def of(cls, problem: ConvProblem, device: DeviceSpec, requested_rows: int) -> Plan:
        """The plan of a problem. ``requested_rows``: output rows of a tile; 0: chosen. Shared memory limits them."""
        p, of_result = slices_of(problem)
        stride, c = p.stride, p.c
        reach = p.pre_padding[1] * c
        left_pad = -(-(reach + 1) // 8) * 8
        leading_element = (left_pad - reach) % 2
        window = left_pad - reach - leading_element
        depth = filter_row_k(p, leading_element)
        last = (-(-p.output[1] // mma_pixels(p)) * mma_pixels(p) - 1) * stride[1] * c
        # The pitch is a compile-time constant, which saves address arithmetic. It is rounded, so that images of similar
        # widths have one kernel text.
        last_window = window + leading_element * (pixel_parities(p) - 1) + last
        pitch = -(-max(left_pad + p.input[1] * c, last_window + depth) // 64) * 64
        slices = of_result * p.filter[0] * depth // 8
        tiles_n = next((n for n in (4, 2, 1) if slices * n <= _MAX_FILTER_REGISTERS), 0)
        while tiles_n > 1 and 8 * tiles_n >= 2 * p.k:
            tiles_n //= 2
        channel_splits = min(-(-p.k // max(1, 8 * tiles_n)), 4)
        channel_splits = 1 if channel_splits == 1 else 2 if channel_splits == 2 else 4
        plan = cls(of_result, leading_element, left_pad, window, pitch, tiles_n, channel_splits, 1)
        if requested_rows:
            limit = device.shared_memory - RESERVED
            rows = max((r for r in range(1, requested_rows + 1) if plan.shared(p, r, 2) <= limit), default=1)
        else:
            rows = max(
                (r for r in range(1, 9) if plan.shared(p, r, 2) <= _MAX_SHARED),
                key=lambda r: (min(r, 4), -(-p.output[0] // r) * -r, -r),
                default=1,
            )
        return replace(plan, rows=rows)

    def filter_registers(self, p: ConvProblem) -> int:
        """Registers of a thread for filters. ``p``, here and below: the 2-D problem of ``slices_of``."""
        return self.slices * p.filter[0] * filter_row_k(p, self.leading_element) // 8 * self.tiles_n

    def shared(self, p: ConvProblem, rows: int, size: int) -> int:
        """Bytes of shared memory of direct_stem.cu. ``rows``: output rows of a tile. ``size``: bytes of an element."""
        image = STAGES * self.slices * ((rows - 1) * p.stride[0] + p.filter[0]) * self.pitch * size
        return image + self.channel_splits * 8 * self.tiles_n * self.slices * p.taps * p.c * size


def pixel_parities(p: ConvProblem) -> int:
    """Pixels from row to row of the A operand: 2 if windows of adjacent pixels begin at odd distances, otherwise 1."""
    return 2 if p.stride[1] * p.c % 2 else 1


def mma_pixels(p: ConvProblem) -> int:
    """Pixels from the first to the last row of an MMA's A operand."""
    return 16 * pixel_parities(p)


def filter_row_k(p: ConvProblem, leading_element: int) -> int:
    """K of one filter row, a multiple of 8: the window, and an element before it if it begins at an odd element."""
    return -(-(p.filter[1] * p.c + (leading_element or pixel_parities(p) - 1)) // 8) * 8
