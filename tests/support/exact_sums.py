"""An engine in the emulator beside NumPy, on small multiples of a quarter.

Every sum of their products is exact in fp32 in any order, so results are equal to the bit. Integers are any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from cuda_comparison import fused, run_both

from graphdnn.device.profiles import DeviceSpec
from graphdnn.dtypes import ELEMENTS, Array, cast
from graphdnn.engines import Engine
from graphdnn.enums import KnobType
from graphdnn.operations import Operation
from graphdnn.problem import parse
from graphdnn.tensors import TensorSpec


def operations(text: str) -> Sequence[Operation]:
    return parse(text).build_operation_graph().operations


def quarters(spec: TensorSpec, rng: np.random.Generator) -> Array:
    row = ELEMENTS[spec.data_type]
    if row.kind == "float":
        return cast(rng.integers(-8, 9, spec.extents) / 4.0, spec.data_type)
    return rng.integers(max(row.smallest, -(2**31)), min(row.largest, 2**31 - 1), spec.extents, endpoint=True).astype(
        row.numpy
    )


def check_sums(
    what: str | Sequence[Operation], engine: Engine, seed: int = 0, device: DeviceSpec | None = None, **knobs: Any
) -> None:
    """``knobs``: by their names."""
    ops, rng = operations(what) if isinstance(what, str) else what, np.random.default_rng(seed)
    op = fused(ops)
    values = {t.uid: quarters(t, rng) for t in (*op.inputs, *op.outputs) if not t.is_constant}
    check_values(ops, engine, values, device, **knobs)


def check_values(
    what: Sequence[Operation], engine: Engine, values: Mapping[int, Any], device: DeviceSpec | None = None, **knobs: Any
) -> None:
    """Results are NumPy's to the bit; ``knobs`` by their names."""
    got, expected = run_both(what, engine, values, {KnobType[k]: v for k, v in knobs.items()}, device=device)
    for uid, array in expected.items():
        np.testing.assert_array_equal(got[uid], array)
