"""REWRITES, in order of preference: each row becomes an engine of the table of CUDA engines.

| rewrite                 | the operation becomes                                                      |
|-------------------------|----------------------------------------------------------------------------|
| `fp8_upcast`            | the same operation on 16-bit copies of fp8 operands                        |
| `materialized_prologue` | a pointwise kernel, then a convolution without a prologue                  |
| `layout_transform`      | a 2-D convolution of NHWC tensors, on copies of tensors with other layouts |
| `group_packing`         | a convolution of fewer groups, with zeros in filters                       |
| `space_to_depth`        | a convolution of fewer taps and more channels                              |
| `stride_fold`           | a convolution of pixel pairs, with stride 1                                |

A new rewrite is a file with a row, and its name here.
"""

from __future__ import annotations

from graphdnn.engines.cuda.rewrites import (
    fp8_upcast,
    group_packing,
    layout_transform,
    materialized_prologue,
    space_to_depth,
    stride_fold,
)
from graphdnn.engines.cuda.rewrites.rewrite import Rewrite
from graphdnn.engines.cuda.rewrites.rewrite_engine import rewrite_engine
from graphdnn.engines.engine import Engine

REWRITES: tuple[Rewrite, ...] = (
    fp8_upcast.ROW,
    materialized_prologue.ROW,
    layout_transform.ROW,
    group_packing.ROW,
    space_to_depth.ROW,
    space_to_depth.ROW_TF32,
    space_to_depth.ROW_BF16X3,
    stride_fold.ROW,
)
REWRITE_ENGINES: tuple[Engine, ...] = tuple(rewrite_engine(row) for row in REWRITES)
