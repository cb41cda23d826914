"""A fused operation on a CUDA engine in the emulator and on the general NumPy engine, from the same poisoned memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from disassembly import KEPT
from emulator import MISSING
from emulator.kernels import run_fused
from problems import GENERAL, _assert_rest_untouched, _memory, bound

from graphdnn import OperationGraph, fuse
from graphdnn.cuda.kernel_cache import Cached, KernelCache
from graphdnn.cuda.nvrtc import KernelText, arch_of, loaded_version, resources
from graphdnn.device.profiles import DeviceSpec, device_spec, this_cpu
from graphdnn.dtypes import Array, cast
from graphdnn.engines import Engine, Knobs, Task
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.engines.host.memory import load
from graphdnn.enums import DataType
from graphdnn.errors import NotSupported
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.heuristics import Ranking
from graphdnn.operations import Operation

ARCHITECTURES = ("sm_80", "sm_89", "sm_90a")


def _missing() -> str:
    try:
        loaded_version()
    except NotSupported as error:
        return str(error)
    return ""


emulated = pytest.mark.skipif(bool(MISSING), reason=MISSING)
compiler = pytest.mark.skipif(bool(_missing()), reason=f"NVRTC: {_missing()}")


@cache
def _kept() -> KernelCache:
    return KernelCache(KEPT)


def compiled(text: KernelText, arch: str) -> Cached:
    """The kernel, which the tests of all files and runs compile once: it is kept in a folder."""
    return _kept().load(text, arch)


def fused(operations: Operation | Sequence[Operation]) -> FusedOp:
    """The single fused operation that the operations become."""
    graph = OperationGraph.of([operations] if isinstance(operations, Operation) else operations)
    (op,) = fuse(graph)
    return op


def _bindings(op: FusedOp, values: Mapping[int, Any], poison: int) -> dict[int, Array]:
    arrays = {}
    for spec in (*op.inputs, *op.outputs):
        if spec.is_constant:
            continue
        if spec.is_by_value:
            scalar = cast(np.asarray(values[spec.uid]).reshape(spec.dims), spec.data_type)
            arrays[spec.uid] = scalar.astype(np.uint8).reshape(1) if spec.data_type is DataType.BOOLEAN else scalar
        else:
            arrays[spec.uid] = bound(spec, values.get(spec.uid), poison)
    return arrays


def run_both(
    operations: Operation | Sequence[Operation],
    engine: Engine,
    values: Mapping[int, Any],
    knobs: Knobs | None = None,
    poison: int = 0xFF,
    device: DeviceSpec | None = None,
) -> tuple[dict[int, Array], dict[int, Array]]:
    """Outputs by uid, of the engine and of NumPy; gaps between elements are checked. Outputs may have values: for beta."""
    op = fused(operations)
    here, there = _bindings(op, values, poison), _bindings(op, values, poison)
    memory = [spec for spec in (*op.inputs, *op.outputs) if spec.uid in here and not spec.is_by_value]
    before = {spec.uid: _memory(here[spec.uid]).copy() for spec in memory}
    run_fused(op, engine, here, knobs, device)
    outputs = {spec.uid for spec in op.outputs}
    for spec in memory:
        _assert_rest_untouched(here[spec.uid], before[spec.uid], spec, is_output=spec.uid in outputs)
    task = Task(op, this_cpu())
    kernel = GENERAL.compile(task, GENERAL.defaults())
    order = [*op.inputs, *op.outputs]
    kernel.run([there.get(spec.uid) for spec in order], None)  # type: ignore[attr-defined]
    return tuple({s.uid: load(arrays[s.uid], s) for s in op.outputs} for arrays in (here, there))  # type: ignore[return-value]


def device_kernel(
    operations: Operation | Sequence[Operation], engine: Engine, knobs: Knobs | None = None, device: str = "h200"
) -> DeviceKernel:
    kernel = engine.compile(Task(fused(operations), device_spec(device)), engine.settings(knobs or {}))
    assert isinstance(kernel, DeviceKernel)
    return kernel


def compiles_cleanly(
    operations: Operation | Sequence[Operation],
    engine: Engine,
    arch: str,
    knobs: Knobs | None = None,
    registers: int = 255,
    device: str = "h200",
) -> None:
    """Every text of the kernel does."""
    for step in device_kernel(operations, engine, knobs, device).steps:
        assert isinstance(step, Launch)
        text_compiles_cleanly(step.text, arch, registers)


def last_compiles_cleanly(operations: Operation | Sequence[Operation], engine: Engine) -> Cached:
    """The text of the last launch, for ``sm_90a``: both kernels of a split product are in it."""
    step = device_kernel(operations, engine).steps[-1]
    assert isinstance(step, Launch)
    return text_compiles_cleanly(step.text, "sm_90a")


def text_compiles_cleanly(text: KernelText, arch: str, registers: int = 255) -> Cached:
    """No spills, no stack, no warnings, within ``registers``. Returns the kernel."""
    made = compiled(text, arch)
    for entry, used in resources(made.log).items():
        assert not used.warnings, used.warnings
        assert used.stack == used.spill_stores == used.spill_loads == 0, f"{entry}: {used}"
        assert used.registers <= registers, f"{entry}: {used.registers} registers"
    return made


def first_choice(graph: OperationGraph, engine: str, device: DeviceSpec) -> DeviceKernel:
    """The kernel that is chosen for a graph, ``engine``'s; its texts compile cleanly."""
    best = Ranking(fuse(graph), device).best
    assert best.name == engine
    (choice,) = best.choices
    kernel = choice.engine.compile(choice.task, choice.knobs)
    assert isinstance(kernel, DeviceKernel)
    for text in {step.text for step in kernel.steps if isinstance(step, Launch)}:
        text_compiles_cleanly(text, arch_of(device.compute_capability))
    return kernel
