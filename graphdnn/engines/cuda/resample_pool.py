"""Pooling with a small window as one kernel: what a thread of text/resample_pool.cu computes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod

from graphdnn.device import DeviceSpec
from graphdnn.engines.cuda.program import width_for
from graphdnn.engines.cuda.resample_axes import reads_edges, resample_space
from graphdnn.operations import ResampleForward
from graphdnn.operations.resample import POOLING
from graphdnn.tensors import TensorSpec

_LARGEST_WINDOW, _LARGEST_STRIDE, _MOST_AXES = 5, 4, 2
_MOST_COLUMNS = 8
_THREADS_PER_SM = 1024  # fewer, and rows are better spread than shared


@dataclass(frozen=True, slots=True)
class Pool:
    """``pack`` channels of ``rows`` x ``columns`` outputs; rows of x are read in accesses of ``x_pack``."""

    window: tuple[int, int]
    stride: tuple[int, int]
    pre: tuple[int, int]
    channels_last: bool
    pack: int
    rows: int
    columns: int
    x_pack: int

    @property
    def input_width(self) -> int:
        return self.pack if self.channels_last else self.x_pack

    @property
    def output_width(self) -> int:
        return self.pack if self.channels_last else self.columns

    @property
    def keeps_rows(self) -> bool:
        """Rows along memory are few registers; those of several channels come from the cache again."""
        return not self.channels_last and self.stride[0] < self.window[0]

    def steps(self, op: ResampleForward) -> tuple[int, ...]:
        """Threads along each coordinate."""
        sizes = list(resample_space(op.y, self.channels_last).sizes)
        row, column = (2, 3) if self.channels_last else (3, 4)
        sizes[row] = -(-sizes[row] // self.rows)
        sizes[column] = -(-sizes[column] // self.columns)
        if self.channels_last:
            sizes[-1] //= self.pack
        return tuple(sizes)


def pool_of(
    op: ResampleForward, channels_last: bool, read: list[TensorSpec], written: list[TensorSpec], device: DeviceSpec
) -> Pool | None:
    """None where the window is large or reads edges, or there are three spatial axes."""
    spec = op.spec
    if spec.mode not in POOLING or spec.spatial_dims > _MOST_AXES or reads_edges(spec):
        return None
    window, stride, pre = (_two(v) for v in (spec.window_dims, spec.strides, spec.pre_paddings))
    if spec.spatial_dims == 1:
        pre = (0, pre[1])
    if max(window) > _LARGEST_WINDOW or max(stride) > _LARGEST_STRIDE or pre[0] >= window[0] or pre[1] >= window[1]:
        return None
    x_space, y_space = resample_space(op.x, channels_last), resample_space(op.y, channels_last)
    if channels_last:
        pack = min(width_for(x_space, read), width_for(y_space, written), _MOST_COLUMNS)
        columns = min(4 if stride[1] == 1 else 2, y_space.sizes[3])
        pool = Pool(window, stride, pre, True, pack, 1, columns, 1)
    else:
        columns = min(width_for(y_space, written), _MOST_COLUMNS)
        x_pack = width_for(x_space, read)
        while columns * stride[1] % x_pack:
            x_pack //= 2
        pool = Pool(window, stride, pre, False, 1, 1, columns, x_pack)
    rows = 4 if stride[0] < window[0] and prod(pool.steps(op)) >= 4 * _THREADS_PER_SM * device.sm_count else 1
    return Pool(window, stride, pre, channels_last, pool.pack, rows, columns, pool.x_pack)


def _two(values: tuple[Fraction, ...]) -> tuple[int, int]:
    """Whole numbers of two axes; an axis that is missing has a window and a stride of 1."""
    *missing, last = map(int, values)
    return (missing[0] if missing else 1, last)
