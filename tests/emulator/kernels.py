"""Runs what a CUDA engine generates on the host: slots filled as a plan would, launches in order, by the emulator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from emulator.emulate import Emulated, compile_for_host
from emulator.tensor_maps import writer
from graphdnn.device.profiles import DeviceSpec, device_spec
from graphdnn.dtypes import ELEMENTS, Array, cast
from graphdnn.engines import Engine, Knobs, Task
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.cuda.codegen.parameters import WORD, MapSlot, scalar_bits
from graphdnn.enums import DataType, KnobType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.tensors import TensorSpec

POISON = 0xA5


@cache
def _compiled(text: str, entries: tuple[str, ...]) -> Emulated:
    return compile_for_host(text, entries)


def launch_all(kernel: DeviceKernel, arrays: Mapping[int, Array], scalars: Mapping[int, bytes]) -> None:
    """``arrays``: memory of every bound tensor; ``scalars``: the bytes of by-value ones. Scratch is poisoned."""
    scratch = np.full(kernel.workspace_bytes + 256, POISON, np.uint8)
    base = -(-scratch.ctypes.data // 256) * 256
    for step in kernel.steps:
        if not isinstance(step, Launch):
            step.prepare()({uid: array.ctypes.data for uid, array in arrays.items()}, base, 0)
            continue
        block = bytearray(step.params.data)
        for slot in step.params.slots:
            if isinstance(slot, MapSlot):
                assert slot.map is not None
                address = base if slot.uid is None else arrays[slot.uid].ctypes.data
                writer(slot.map, block, slot.word * WORD)(address + slot.offset)
                continue
            if slot.uid is None:
                word = (base + slot.offset).to_bytes(8, "little")
            elif slot.by_value:
                word = scalars[slot.uid]
            else:
                word = (arrays[slot.uid].ctypes.data + slot.offset).to_bytes(8, "little")
            block[8 * slot.word : 8 * slot.word + 8] = word
        entries = tuple(s.entry for s in kernel.steps if isinstance(s, Launch) and s.text == step.text)
        _compiled(step.text.text, tuple(dict.fromkeys(entries))).launch(
            step.entry, step.grid, step.block, step.shared, bytes(block), together=step.is_cooperative
        )


def run_fused(
    op: FusedOp,
    engine: Engine,
    bindings: Mapping[int, Array],
    knobs: Mapping[KnobType, int] | None = None,
    device: DeviceSpec | None = None,
) -> DeviceKernel:
    """One fused operation by one engine on host arrays; outputs are written in place. Returns the kernel."""
    task = Task(op, device or device_spec("h200"))
    reasons = engine.why_not(task)
    assert not reasons, "\n".join(map(str, reasons))
    chosen: Knobs = engine.settings(knobs or {})
    kernel = engine.compile(task, chosen)
    scalars = {
        t.uid: scalar_bits(cast(np.asarray(bindings[t.uid]).reshape(()), t.data_type).tobytes())
        for t in op.inputs
        if t.is_by_value and not t.is_constant
    }
    arrays = {t.uid: bindings[t.uid] for t in (*op.inputs, *op.outputs) if t.uid in bindings and not t.is_by_value}
    launch_all(kernel, arrays, scalars)
    return kernel


def tolerance(spec: TensorSpec, terms: int = 1) -> float:
    """Relative bound on a result of a type after a sum of ``terms``: its own rounding and float32's."""
    if ELEMENTS[spec.data_type].kind != "float":
        return 0.0
    digits = {DataType.DOUBLE: 52, DataType.FLOAT: 23, DataType.HALF: 10, DataType.BFLOAT16: 7,
              DataType.FP8_E4M3: 3, DataType.FP8_E5M2: 2}[spec.data_type]  # fmt: skip
    own = 2.0**-digits
    return own * 2 + (0 if spec.data_type is DataType.DOUBLE else 2.0**-23 * (terms**0.5 + 8)) + 1e-14
