"""Where operations are fused, each result is rounded before the next one reads it: no product is a part of a multiply-add.

The compiler would take a product and the sum that reads it for one instruction, which rounds once. The emulator never
does, and whole numbers do not show it: a kernel's instructions do.
"""

from __future__ import annotations

from typing import Any

import pytest
from cuda_comparison import compiled, compiler
from disassembly import NO_DISASSEMBLER, instructions
from problems import pointwise, tensor

from graphdnn import OperationGraph, rank
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Launch
from graphdnn.enums import PointwiseMode
from graphdnn.operations import Operation
from graphdnn.operations.pointwise_modes import POINTWISE

pytestmark = [compiler, pytest.mark.skipif(bool(NO_DISASSEMBLER), reason=NO_DISASSEMBLER)]

M = PointwiseMode
_FIELDS: dict[PointwiseMode, dict[str, Any]] = {
    M.RELU_FWD: {"relu_lower_clip_slope": 0.3},
    M.RELU_BWD: {"relu_lower_clip_slope": 0.3},
    M.IDENTITY: {"alpha1": 1.3},
    M.NEG: {"alpha1": 1.3},
}
MODES = tuple(m for m, row in POINTWISE.items() if row.kind in ("arithmetic", "activation", "backward"))


def _first(mode: PointwiseMode, kind: str, *, is_virtual: bool) -> Operation:
    operands = [tensor(1 + i, (3,), kind) for i in range(len(POINTWISE[mode].operands))]
    return pointwise(mode, kind, operands, tensor(8, (3,), kind, is_virtual=is_virtual), **_FIELDS.get(mode, {}))


def _multiply_adds(*operations: Operation) -> int:
    (choice,) = rank(OperationGraph.of(operations), "h200").best.choices
    kernel = choice.engine.compile(choice.task, choice.knobs)
    assert isinstance(kernel, DeviceKernel)
    (launch,) = (step for step in kernel.steps if isinstance(step, Launch))
    found = instructions(compiled(launch.text, "sm_90a").cubin)
    return found["FFMA"] + found["DFMA"]


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_a_sum_takes_no_product(mode: PointwiseMode) -> None:
    y, b, z = tensor(8, (3,), is_virtual=True), tensor(9, (3,)), tensor(10, (3,))
    alone = _multiply_adds(_first(mode, "f32", is_virtual=False))
    assert _multiply_adds(_first(mode, "f32", is_virtual=True), pointwise(M.ADD, "f32", [y, b], z)) == alone


@pytest.mark.parametrize("mode", [M.MUL, M.RELU_BWD, M.IDENTITY], ids=str)
@pytest.mark.parametrize("last", [M.ADD, M.SUB, M.ADD_SQUARE], ids=str)
@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_sums_of_products(mode: PointwiseMode, last: PointwiseMode, kind: str) -> None:
    y, b, z = tensor(8, (3,), kind, is_virtual=True), tensor(9, (3,), kind), tensor(10, (3,), kind)
    assert _multiply_adds(_first(mode, kind, is_virtual=True), pointwise(last, kind, [y, b], z)) == 0
