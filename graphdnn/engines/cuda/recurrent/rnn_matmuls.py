"""Matrix products between launches of a recurrent network, each with the engine that is predicted to be the fastest.

Operands are matrices anywhere in memory: parts of the packed weights, of the reserve space, of scratch memory. Engines
accept tensors, so each product is compiled for tensors of its own, whose addresses are replaced afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd

from graphdnn.dtypes import ELEMENTS
from graphdnn.engines.cuda.codegen.launch import DeviceKernel, Function, Launch, LibraryCall
from graphdnn.engines.cuda.codegen.launch_sequence import ALIGNMENT, LaunchSequence, Step
from graphdnn.engines.cuda.codegen.parameters import Slot
from graphdnn.engines.cuda.cublas import matmul_cublas
from graphdnn.engines.cuda.cublas.gemm_launches import Place
from graphdnn.engines.cuda.simt import matmul_simt
from graphdnn.engines.cuda.sm90.gemm import hopper_matmul
from graphdnn.engines.engine import Engine, Task
from graphdnn.enums import DataType
from graphdnn.fusion.fused_graph import FusedOp
from graphdnn.operations import Matmul, MatmulSpec
from graphdnn.tensors import TensorSpec

ANY: tuple[Engine, ...] = (hopper_matmul.ENGINE, matmul_cublas.ENGINE, matmul_simt.ENGINE)
PLAIN: tuple[Engine, ...] = (matmul_simt.ENGINE,)  # without tensor cores for 16-bit types
_A, _B, _C = -(2**40), -(2**40) - 1, -(2**40) - 2  # uids outside the range of graphs


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in memory; ``row`` and ``column`` are strides in elements."""

    place: Place
    data_type: DataType
    rows: int
    columns: int
    row: int
    column: int = 1
    alignment: int = ALIGNMENT  # bytes; the alignment of the buffer

    @property
    def transposed(self) -> Matrix:
        return replace(self, rows=self.columns, columns=self.rows, row=self.column, column=self.row)

    def part(self, first_row: int, rows: int) -> Matrix:
        """A range of its rows."""
        offset = first_row * self.row * ELEMENTS[self.data_type].bytes
        return replace(self, place=replace(self.place, offset=self.place.offset + offset), rows=rows)

    def spec(self, uid: int) -> TensorSpec:
        """A tensor of the same layout."""
        return TensorSpec(
            uid=uid, data_type=self.data_type, dims=(1, self.rows, self.columns),
            strides=(self.rows * self.columns * max(self.row, self.column), self.row, self.column),
            byte_alignment=gcd(self.alignment, self.place.offset, ALIGNMENT),
        )  # fmt: skip


class Products:
    """Adds matrix products to the launches of a kernel; they share scratch memory."""

    def __init__(self, steps: LaunchSequence, arithmetic: DataType, engines: tuple[Engine, ...] = ANY) -> None:
        """``engines``: the candidates for each product."""
        self._steps, self._arithmetic, self._engines = steps, arithmetic, engines
        self._base, self._size = 0, 0

    def add(self, a: Matrix, b: Matrix, c: Matrix) -> None:
        """c = a b."""
        anchor = Matmul(a=a.spec(_A), b=b.spec(_B), c=c.spec(_C), spec=MatmulSpec(compute_type=self._arithmetic))
        alone = FusedOp(self._steps.op.index, "matmul", anchor, (), (), None, (anchor.a, anchor.b), (anchor.c,), ())
        kernel = _fastest(Task(alone, self._steps.device), self._engines)
        if kernel.workspace_bytes > self._size:
            self._base, self._size = self._steps.allocate(kernel.workspace_bytes), kernel.workspace_bytes
        places = {_A: a.place, _B: b.place, _C: c.place}
        for step in kernel.steps:
            self._steps.add(_placed(step, places, self._base, alone))


def _fastest(task: Task, engines: tuple[Engine, ...]) -> DeviceKernel:
    """The kernel that is predicted to be the fastest."""
    served = [(engine, engine.defaults()) for engine in engines if engine.serves(task)]
    engine, knobs = min(served, key=lambda choice: choice[0].cost(task, choice[1]).seconds)
    kernel = engine.compile(task, knobs)
    assert isinstance(kernel, DeviceKernel)
    return kernel


def _placed(step: Step, places: Mapping[int, Place], base: int, of: FusedOp) -> Step:
    """The launch with the addresses of its operands, and scratch memory from ``base`` on."""
    if isinstance(step, Launch):
        slots = tuple(_placed_slot(slot, places, base) for slot in step.params.slots)
        operations: Sequence[Matmul] = [op for op in of.operations if isinstance(op, Matmul)]
        return replace(step, params=replace(step.params, slots=slots), operations=tuple(operations))
    prepare = step.prepare

    def prepare_placed() -> Function:
        function = prepare()

        def call(addresses: Mapping[int, int], scratch: int, stream: int) -> None:
            here = {uid: place.address(addresses, scratch) for uid, place in places.items()}
            function(here, scratch + base, stream)

        return call

    return LibraryCall(step.name, prepare_placed)


def _placed_slot(slot: Slot, places: Mapping[int, Place], base: int) -> Slot:
    if slot.uid is None:
        return replace(slot, offset=slot.offset + base)
    place = places[slot.uid]
    return replace(slot, uid=place.uid, offset=place.offset + slot.offset)
