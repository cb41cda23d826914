"""Layout of a first layer's MMA operands in shared memory and registers, forward."""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphdnn.device.multiprocessor import RESERVED
from graphdnn.device.profiles import DeviceSpec
from graphdnn.engines.cuda.direct.direct_access import slices_of
from graphdnn.operations.conv_problem import ConvProblem

_WEIGHTS = 112  # the most registers of a thread for filters
_SHARED = 100_000  # the most bytes of a CTA, so that two CTAs fit on an SM
STAGES = 2  # stages of the kernel with mma.sync


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the kernel for one problem, in elements unless stated otherwise."""

    slices: int  # depth slices of the image that a result reads
    lead: int
    before: int  # zeros before an image row (LEFT_PAD_ELEMS)
    window: int  # offset of pixel 0's window in a row
    pitch: int
    tiles_n: int  # MMA tiles of a warp along N
    parts: int  # warps along the channels
    rows: int  # output rows of a tile

    @classmethod
    def of(cls, problem: ConvProblem, device: DeviceSpec, wanted_rows: int) -> Plan:
        """The plan of a problem. ``wanted_rows``: 0 if the shape chooses the rows; shared memory limits them."""
        p, of_result = slices_of(problem)
        stride, c = p.stride, p.c
        reach = p.pre_padding[1] * c
        before = -(-(reach + 1) // 8) * 8
        lead = (before - reach) % 2
        window = before - reach - lead
        depth = depth_of_row(p, lead)
        last = (-(-p.output[1] // pixels_together(p)) * pixels_together(p) - 1) * stride[1] * c
        # The pitch is a compile-time constant, which saves address arithmetic; it is rounded, so that images share
        # kernel texts.
        pitch = -(-max(before + p.input[1] * c, window + lead * (pixels_apart(p) - 1) + last + depth) // 64) * 64
        slices = of_result * p.filter[0] * depth // 8
        tiles_n = next((n for n in (4, 2, 1) if slices * n <= _WEIGHTS), 0)
        while tiles_n > 1 and 8 * tiles_n >= 2 * p.k:
            tiles_n //= 2
        parts = min(-(-p.k // max(1, 8 * tiles_n)), 4)
        parts = 1 if parts == 1 else 2 if parts == 2 else 4
        plan = cls(of_result, lead, before, window, pitch, tiles_n, parts, 1)
        if wanted_rows:
            room = device.shared_memory - RESERVED
            rows = max((r for r in range(1, wanted_rows + 1) if plan.shared(p, r, 2) <= room), default=1)
        else:
            rows = max(
                (r for r in range(1, 9) if plan.shared(p, r, 2) <= _SHARED),
                key=lambda r: (min(r, 4), -(-p.output[0] // r) * -r, -r),
                default=1,
            )
        return replace(plan, rows=rows)

    def weights(self, p: ConvProblem) -> int:
        """Registers of a thread for filters. ``p`` is the 2-D problem of ``slices_of``, here and below."""
        return self.slices * p.filter[0] * depth_of_row(p, self.lead) // 8 * self.tiles_n

    def shared(self, p: ConvProblem, rows: int, size: int) -> int:
        """Bytes of shared memory of the kernel with mma.sync."""
        image = STAGES * self.slices * ((rows - 1) * p.stride[0] + p.filter[0]) * self.pitch * size
        return image + self.parts * 8 * self.tiles_n * self.slices * p.taps * p.c * size


def pixels_apart(p: ConvProblem) -> int:
    """Pixels from row to row of an MMA's A operand: 2 where windows of adjacent pixels start at odd distances,
    otherwise 1.
    """
    return 2 if p.stride[1] * p.c % 2 else 1


def pixels_together(p: ConvProblem) -> int:
    """Elements of a row of A that an MMA reads."""
    return 16 * pixels_apart(p)


def depth_of_row(p: ConvProblem, lead: int) -> int:
    """K of one filter row: its window, with the element before it where the window starts at an odd element."""
    return -(-(p.filter[1] * p.c + (lead or pixels_apart(p) - 1)) // 8) * 8
