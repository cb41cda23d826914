"""Compile a fused operation for the host: its operations, one after another, on NumPy arrays.

Values inside the kernel live in a dictionary instead of registers, rounded to the
type of their tensor as every engine has to do it. What an operation computes is
its row in a table of semantics, so engines differ only in the table they pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdnn.dtypes import Array, cast
from graphdnn.engines.engine import Kernel
from graphdnn.engines.host.memory import is_plain, load, store
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Operation
from graphdnn.tensors import TensorSpec


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of one evaluation: operands, output views and old outputs by port, and scratch bytes."""

    operands: Mapping[str, Array]
    outputs: Mapping[str, Array]  # where results go that may be written directly
    old: Mapping[str, Array]  # what the outputs held, where beta reads them
    scratch: Array | None


# (operation, Call) -> results by port, in the operation's compute precision
Semantics = Callable[[Any, Call], Mapping[str, Array]]


def compile_on_host(op: FusedOp, semantics: Mapping[type[Operation], Semantics], name: str) -> Kernel:
    """A kernel that evaluates ``op`` with one function per operation."""
    tensors = (*op.inputs, *op.outputs)
    position = {t.uid: i for i, t in enumerate(tensors)}
    steps = [(step, semantics[type(step)], step.inputs(), step.outputs()) for step in op.operations]
    constants = {t.uid: cast(np.full(t.dims, t.constant_value), t.data_type) for t in op.inputs if t.is_constant}

    def run(arrays: Sequence[Array], scratch: Array | None) -> None:
        values: dict[int, Array] = dict(constants)
        for uid, i in position.items():
            if uid not in values:
                values[uid] = load(arrays[i], tensors[i])
        for step, function, inputs, outputs in steps:
            call = Call(
                operands={port: values[t.uid] for port, t in inputs.items()},
                outputs={port: arrays[position[t.uid]] for port, t in outputs.items() if _direct(t, position)},
                old={p: load(arrays[position[t.uid]], t) for p, t in outputs.items()} if step.reads_output else {},
                scratch=scratch,
            )
            results = function(step, call)
            for port, t in outputs.items():
                written = results[port]
                target = call.outputs.get(port)
                if written is not target:
                    written = cast(np.asarray(written).reshape(t.extents), t.data_type)
                    if t.uid in position:
                        store(written, arrays[position[t.uid]], t)
                values[t.uid] = written

    return Kernel(name=name, run=run, source=None)


def _direct(tensor: TensorSpec, position: Mapping[int, int]) -> bool:
    return tensor.uid in position and is_plain(tensor)
